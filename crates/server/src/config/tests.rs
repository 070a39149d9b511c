//! What configuration files mean, and their errors.

use std::path::Path;

use paddlecloud_k8s::settings::{Limits, Namespaces, Placement};

use super::*;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, Path::new("/etc/paddlecloud/server.yaml"))
}

const LEAST: &str = "data: /var/lib/paddlecloud\ndatacenter: dc1\n";

/// The error and hint for a file with these lines after the minimum.
fn refused(lines: &str) -> String {
    let error = parse(&format!("{LEAST}{lines}")).expect_err(lines);
    match error.hint() {
        Some(hint) => format!("{error}\n  hint: {hint}"),
        None => error.to_string(),
    }
}

#[test]
fn two_lines_are_a_complete_configuration() {
    let config = parse(LEAST).unwrap();
    assert_eq!(config.listen, [Listen::default()]);
    assert_eq!(config.storage, Path::new("/var/lib/paddlecloud/storage"));
    assert_eq!(
        config.database.to_string(),
        "sqlite:/var/lib/paddlecloud/server.db"
    );
    assert_eq!(config.logs, LogConfig::default());
    assert!(!config.policy.oversubscribe_alone && !config.embedded && config.socket_user.is_none());
}

#[test]
fn a_detailed_configuration_is_parsed() {
    let config = parse(
        "listen: [127.0.0.1:0, 'unix:/run/p.sock', '[::1]:80']\n\
         tls: {cert: c.pem, key: k.pem, client_ca: ca.pem}\n\
         data: data\nstorage: /mnt/pfs\ndatacenter: dc1\n\
         database: postgres://paddle:geheim@db/paddle?sslmode=disable\n\
         users:\n- {name: me@x.org, admin: true, quota: {cpu: 2.5, memory: 10Gi, gpu: 1, parallelism: 4, storage: 1T}}\n\
         inventory: {cores: 8, memory: 32Gi, gpus: 2}\n\
         default_image: paddle:latest\nlogs: {segment: 1Mi, keep: 10Mi, copy: false}\nengine: local\n",
    )
    .unwrap();
    let listen: Vec<String> = config.listen.iter().map(ToString::to_string).collect();
    assert_eq!(listen, ["127.0.0.1:0", "unix:/run/p.sock", "[::1]:80"]);
    assert_eq!(
        config.tls.as_ref().unwrap().cert,
        Path::new("/etc/paddlecloud/c.pem")
    );
    assert_eq!(config.data, Path::new("/etc/paddlecloud/data"));
    assert!(!config.logs.copy && LogConfig::default().copy);
    let node = &config.inventory.nodes[0];
    assert_eq!(
        (node.cpu.to_string(), node.memory.to_string(), node.gpus),
        ("8".into(), "32Gi".into(), 2)
    );
    let user = config.user(&"me@x.org".parse().unwrap()).unwrap();
    assert_eq!(user.limits.cpu.unwrap().to_string(), "2500m");
    assert_eq!(user.limits.storage.unwrap().to_string(), "1T");
}

#[test]
fn the_database_is_shown_without_its_password() {
    let config = parse(&format!(
        "{LEAST}database: postgres://paddle:geheim@db/paddle?password=x"
    ))
    .unwrap();
    assert_eq!(config.database.to_string(), "postgres://paddle@db/paddle");
    assert!(!format!("{config:?}").contains("geheim"));
}

#[test]
fn users_can_live_in_a_file_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("users.yaml"),
        "- name: a\n- {name: b, system_user: b}\n",
    )
    .unwrap();
    let path = folder.path().join("server.yaml");
    let config = Config::parse(&format!("{LEAST}users_file: users.yaml"), &path).unwrap();
    assert_eq!(config.users.len(), 2);
}

#[test]
fn a_credential_is_never_printed() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("word"), "geheim\n").unwrap();
    let path = folder.path().join("server.yaml");
    let text = format!("{LEAST}users: [{{name: a, password_file: word}}]");
    assert!(!format!("{:?}", Config::parse(&text, &path).unwrap()).contains("geheim"));
}

#[test]
fn every_mistake_gets_one_sentence_with_its_line() {
    let texts = [
        refused("listn: x"),
        refused("wombat: x"),
        refused("listen: 8080x"),
        refused("listen: unix:relative"),
        refused("data: again"),
        refused("logs: {segment: 1X}"),
        refused("logs: {segment: 2Gi, keep: 1Gi}"),
        refused("logs: {segment: 0}"),
        refused("logs: {segment: 1Ki}"),
        refused("logs: {keep: 100}"),
        refused("engine: warp"),
        refused("database: mysql://x"),
        refused("inventory:\n  memry: 1Gi"),
        refused("users:\n- name: a/b"),
        refused("users:\n- {name: a, password_hash: secret}"),
        refused("users:\n- {name: a, password_file: /nowhere/at/all}"),
        refused("users: [{name: a, system_user: x}, {name: a, system_user: y}]"),
        refused("users: [{name: a}, {name: b}]"),
        refused("users: []\nusers_file: x"),
        refused("users: 7"),
        refused("tls: {cert: x}"),
        refused("logs: {keep: 1Gi"),
    ];
    insta::assert_snapshot!(texts.join("\n"), @r"
    /etc/paddlecloud/server.yaml:3: there is no setting `listn`
      hint: did you mean `listen`?
    /etc/paddlecloud/server.yaml:3: there is no setting `wombat`
      hint: the settings here are listen, tls, plain_http, trusted_proxies, proxy_header, data, storage, datacenter, database, users, users_file, default_quota, reclaim, secrets, tokens, limits, oidc, system_uids, inventory, gpu_types, default_image, allowed_images, metrics_login, python, logs, engine, kubernetes
    /etc/paddlecloud/server.yaml:3: `8080x` is not an address to listen on: write `127.0.0.1:8080` or `unix:/path`
    /etc/paddlecloud/server.yaml:3: `unix:relative` must be an absolute path, for example `unix:/run/paddlecloud.sock`
    /etc/paddlecloud/server.yaml:3: `data` is given twice
    /etc/paddlecloud/server.yaml:3: `logs`: `1X` is not a log size: write a whole number and one of Ki Mi Gi Ti, for example `16Mi`
    /etc/paddlecloud/server.yaml: `logs.segment` (2Gi) must not be larger than `logs.keep` (1Gi)
    /etc/paddlecloud/server.yaml:3: `logs`: `0` is not a log size: write a whole number and one of Ki Mi Gi Ti, for example `16Mi`
    /etc/paddlecloud/server.yaml: `logs.segment` (1Ki) is too small: the minimum is 4Ki
    /etc/paddlecloud/server.yaml: `logs.keep` (100) is too small: the minimum is 4Ki
    /etc/paddlecloud/server.yaml:3: `warp` is not one of local, kubernetes
    /etc/paddlecloud/server.yaml:3: `database` must be `sqlite:/path/to/file` or `postgres://user@host/name`
    /etc/paddlecloud/server.yaml:4: there is no setting `memry`
      hint: did you mean `memory`?
    /etc/paddlecloud/server.yaml:4: `/` is not allowed in a user name
    /etc/paddlecloud/server.yaml: user `a`: `password_hash` is not an argon2id hash
      hint: make one with `paddlecloud-server hash-password`
    cannot read `/nowhere/at/all`: there is no such file
    /etc/paddlecloud/server.yaml: user `a` is listed twice
    /etc/paddlecloud/server.yaml: the workers of user `b` would run as the server's own system user, like another user's
      hint: give every user their own `system_user`
    /etc/paddlecloud/server.yaml: `users` and `users_file` cannot be combined
      hint: remove one of them
    /etc/paddlecloud/server.yaml:3: a list is expected here
    /etc/paddlecloud/server.yaml: `tls` needs `cert` and `key`, or `names` of the server
    /etc/paddlecloud/server.yaml:3: unclosed bracket '{'
    ");
}

#[test]
fn missing_files_and_folders_are_distinguished() {
    let folder = tempfile::tempdir().unwrap();
    let read = |name: &str| {
        let text = Config::read(&folder.path().join(name)).unwrap_err().to_string();
        text.replace(&folder.path().display().to_string(), "<folder>")
    };
    std::fs::write(folder.path().join("bytes"), b"\xff\xfe").unwrap();
    std::fs::write(folder.path().join("empty"), b"").unwrap();
    let texts = [read("nowhere"), read("."), read("bytes"), read("empty")];
    insta::assert_snapshot!(texts.join("\n"), @r"
    cannot read `<folder>/nowhere`: there is no such file
    cannot read `<folder>/.`: it is a folder, not a file
    cannot read `<folder>/bytes`: it is not UTF-8 text
    <folder>/empty: the file is empty
    ");
}

#[test]
fn other_kinds_of_storage_can_be_configured() {
    let said = |lines: &str| parse(&format!("{LEAST}{lines}")).unwrap();
    let ceph = said("storage: {kind: cephfs, path: /mnt/ceph}\n");
    assert_eq!(
        (ceph.backend, ceph.storage.as_path()),
        (Backend::CephFs, Path::new("/mnt/ceph"))
    );
    let hdfs =
        said("storage: {kind: hdfs, url: 'hdfs://nn:8020/p', user: paddle, config: conf, replication: 2}\n");
    assert!(hdfs.backend.is_remote());
    assert_eq!(hdfs.backend.to_string(), "HDFS (hdfs://nn:8020/p)");
    assert_eq!(hdfs.storage, Path::new("/var/lib/paddlecloud/spool"));
    let s3 = said("storage: {kind: s3, url: 's3://b/p', endpoint: 'http://h:1', longest_key: 500}\n");
    assert_eq!(s3.backend.to_string(), "S3 (s3://b/p at http://h:1)");
    assert_eq!(said("storage: {path: files}\n").backend, Backend::Folder);
}

#[test]
fn an_invalid_storage_is_refused_with_a_reason() {
    insta::assert_snapshot!(refused("storage: {kind: hfds, url: 'hdfs://nn/p'}\n"), @r"
    /etc/paddlecloud/server.yaml: there is no `storage` of kind `hfds`
      hint: did you mean `hdfs`?
    ");
    insta::assert_snapshot!(refused("storage: {kind: hdfs}\n"), @"/etc/paddlecloud/server.yaml: `storage` of kind `hdfs` needs `url`");
    insta::assert_snapshot!(refused("storage: {kind: hdfs, url: 'http://nn/p'}\n"), @"/etc/paddlecloud/server.yaml: `storage.url`: `http://nn/p` is not an HDFS address: it must begin with `hdfs://`");
    insta::assert_snapshot!(refused("storage: {kind: cephfs, path: /m, replication: 3}\n"), @r"
    /etc/paddlecloud/server.yaml: `storage` of kind `cephfs` has no setting `replication`
      hint: it has path
    ");
    insta::assert_snapshot!(refused("storage: {kind: s3, url: 's3://b', access_key: x}\n"), @r"
    /etc/paddlecloud/server.yaml: `access_key` and `secret_key_file` belong together
      hint: leave both out to take `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY` from the environment
    ");
}

#[test]
fn the_workers_python_is_an_environment_of_this_machine() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("server.yaml");
    let parse = |lines: &str| Config::parse(&format!("{LEAST}{lines}"), &path);
    std::fs::create_dir_all(folder.path().join("venv/bin")).unwrap();
    std::fs::write(folder.path().join("venv/bin/python"), "").unwrap();
    let config = parse("python: venv\n").unwrap();
    assert_eq!(config.python, Some(folder.path().join("venv")));

    let pods = format!("{CLUSTER}  link: {{listen: 10.0.0.1:7171}}\n  volume: {{claim: pfs}}\n");
    let refused = |lines: &str| {
        let error = parse(lines).unwrap_err();
        let text = format!("{error}; hint: {}", error.hint().unwrap_or("none"));
        text.replace(&folder.path().display().to_string(), "<folder>")
    };
    let texts = [
        refused("python: nowhere\n"),
        refused("python: a:b\n"),
        refused(&format!("python: venv\n{pods}")),
    ];
    insta::assert_snapshot!(texts.join("\n"), @r"
    <folder>/server.yaml: `python`: there is no `<folder>/nowhere/bin/python`; hint: name the folder of a virtual environment: `python3 -m venv FOLDER` makes one
    <folder>/server.yaml: `python`: `<folder>/a:b` contains a colon, which separates the folders of PATH; hint: none
    <folder>/server.yaml: `python` has no meaning on Kubernetes; hint: pods use the Python of their image: set `default_image`
    ");
}

const CLUSTER: &str = "engine: kubernetes\nkubernetes:\n  launcher_image: launcher:1\n";

#[test]
fn a_cluster_is_described_by_link_launcher_and_volume() {
    let text = format!(
        "{LEAST}{CLUSTER}  link: {{listen: 10.0.0.1:7171}}\n  volume: {{host_path: /srv/pfs}}\n  \
         kubeconfig: admin.conf\n  tolerations: [{{key: gpu}}]\n"
    );
    let EngineKind::Kubernetes(cluster) = parse(&text).unwrap().engine else {
        panic!("the engine is Kubernetes")
    };
    assert_eq!(cluster.link_address, "10.0.0.1:7171");
    assert_eq!(
        cluster.kubeconfig.as_deref(),
        Some(Path::new("/etc/paddlecloud/admin.conf"))
    );
    assert_eq!(cluster.volume.security_level(), "privileged");
    assert_eq!(cluster.pods.tolerations.len(), 1);
    assert_eq!(cluster.placement, Placement::Pinned);
    assert_eq!(cluster.namespaces, Namespaces::PerUser);
    assert_eq!(cluster.limits, Limits::usual(&Placement::Pinned));
    assert_eq!(cluster.recovery, Some(jiff::SignedDuration::from_mins(5)));
}

#[test]
fn running_jobs_that_lack_a_worker_may_keep_their_room_for_ever() {
    let text = format!(
        "{LEAST}{CLUSTER}  link: {{listen: 10.0.0.1:7171}}\n  volume: {{claim: pfs}}\n  recovery_limit: off\n"
    );
    assert_eq!(parse(&text).unwrap().policy.recovery, None);
    assert_eq!(
        parse(LEAST).unwrap().policy.recovery,
        None,
        "processes need no nodes"
    );
}

#[test]
fn reclaim_can_be_off() {
    let off = format!("{LEAST}reclaim: off\n");
    assert_eq!(parse(&off).unwrap().policy.reclaim, None);
}

#[test]
fn gangs_namespaces_and_limits_of_a_cluster_can_be_chosen() {
    let text = format!(
        "{LEAST}{CLUSTER}  link: {{listen: 10.0.0.1:7171}}\n  \
         volume: {{csi: {{driver: cephfs.csi.ceph.com, attributes: {{fsName: a}}}}, sub_path: /tree}}\n  \
         namespaces: {{a: team-a, \"*\": others}}\n  placement: kueue\n  queue: training\n  \
         seat_limit: 5m\n  recovery_limit: 1h\n  lost_limit: 90\n  trouble_limit: 10s\n  api_limit: 1m\n  disruption_limit: 3\n"
    );
    let config = parse(&text).unwrap();
    assert_eq!(config.policy.recovery, Some(jiff::SignedDuration::from_hours(1)));
    let EngineKind::Kubernetes(cluster) = config.engine else {
        panic!("the engine is Kubernetes")
    };
    let seconds = std::time::Duration::from_secs;
    let limits = Limits {
        seat: seconds(300),
        lost: seconds(90),
        trouble: seconds(10),
        api_server: seconds(60),
        disruptions: 3,
    };
    assert_eq!(cluster.limits, limits);
    let kueue = Placement::Kueue {
        queue: "training".into(),
    };
    assert_eq!(cluster.placement, kueue);
    assert!(matches!(&cluster.namespaces, Namespaces::Given(given) if given["a"] == "team-a"));
    assert_eq!(cluster.sub_path, "tree");
}

#[test]
fn images_are_allowed_by_one_pattern_or_a_list() {
    let cluster = format!("{LEAST}{CLUSTER}  link: {{listen: 10.0.0.1:7171}}\n  volume: {{claim: pfs}}\n");
    let allowed = |value: &str| {
        let config = parse(&format!("{cluster}allowed_images: {value}\n")).unwrap();
        config.allowed_images.unwrap().to_string()
    };
    assert_eq!(allowed("r.example.org/**"), "`r.example.org/**`");
    assert_eq!(
        allowed("[r.example.org/**, 'python:3*']"),
        "`r.example.org/**`, `python:3*`"
    );
    assert_eq!(parse(&cluster).unwrap().allowed_images, None);
    insta::assert_snapshot!(refused("allowed_images: [python]\n"), @r"
    /etc/paddlecloud/server.yaml: `allowed_images` has no effect: workers run the programs of this machine
      hint: remove it, or set `engine: kubernetes`
    ");
}

#[test]
fn mistakes_about_a_cluster_are_explained() {
    let link = "  link: {listen: 10.0.0.1:7171}\n";
    let volume = "  volume: {claim: pfs}\n";
    let texts = [
        refused("engine: kubernetes"),
        refused(&format!(
            "{}{link}{volume}",
            CLUSTER.replace("engine: kubernetes\n", "")
        )),
        refused(&format!("{CLUSTER}{volume}  link: {{listen: 0.0.0.0:7171}}\n")),
        refused(&format!("{CLUSTER}{volume}  link: {{listen: nowhere}}\n")),
        refused(&format!("{CLUSTER}{link}  volume: {{}}\n")),
        refused(&format!("{CLUSTER}{link}  volume: {{host_path: here}}\n")),
        refused(&format!(
            "{CLUSTER}{link}{volume}users: [{{name: a, system_user: a}}]\n"
        )),
        refused(&format!("{CLUSTER}{link}{volume}  placement: kueue\n")),
        refused(&format!("{CLUSTER}{link}{volume}  queue: a\n")),
        refused(&format!("{CLUSTER}{link}{volume}  seat_limit: soon\n")),
        refused(&format!("{CLUSTER}{link}{volume}  lost_limit: 0\n")),
        refused(&format!(
            "{CLUSTER}{link}{volume}  namespaces: {{b: team}}\nusers: [{{name: a}}]\n"
        )),
        refused(&format!(
            "{CLUSTER}{link}  volume: {{claim: pfs, sub_path: a/../..}}\n"
        )),
        refused(&format!(
            "{CLUSTER}{link}{volume}  namespaces: {{\"*\": team}}\n  namespace_role: users\n"
        )),
        refused(&format!(
            "{CLUSTER}{link}{volume}  namespace_role: system:admin\n"
        )),
        refused(&format!("{CLUSTER}{link}{volume}  disk: 10M\n")),
    ];
    insta::assert_snapshot!(texts.join("\n"), @r#"
    /etc/paddlecloud/server.yaml: `engine: kubernetes` needs the section `kubernetes`
      hint: it needs at least `link`, `launcher_image` and `volume`
    /etc/paddlecloud/server.yaml: `kubernetes` is set, but the engine is `local`
      hint: add `engine: kubernetes`
    /etc/paddlecloud/server.yaml: pods cannot connect to `0.0.0.0:7171`, which stands for every address of this machine
      hint: set `kubernetes.link.address` to an address that pods can reach
    /etc/paddlecloud/server.yaml: `kubernetes.link.listen` must be `host:port`, not `nowhere`
    /etc/paddlecloud/server.yaml: `kubernetes.volume` must have one of `host_path`, `claim`, `nfs` and `csi`
    /etc/paddlecloud/server.yaml: `kubernetes.volume.host_path` must be absolute, not `here`
    /etc/paddlecloud/server.yaml: user `a`: `system_user` has no meaning on Kubernetes
      hint: leave it out: pods run as the server's own user and see their user's home only
    /etc/paddlecloud/server.yaml: `kubernetes.placement: kueue` needs `kubernetes.queue`, the name of a LocalQueue
    /etc/paddlecloud/server.yaml: `kubernetes.queue` is for `placement: kueue` and `placement: volcano`
    /etc/paddlecloud/server.yaml:8: `soon` is not a time span: write `90s`, `10m`, `1h30m`, `7d` or a number of seconds
    /etc/paddlecloud/server.yaml:8: a limit of zero would end every job
    /etc/paddlecloud/server.yaml: user `a` has no namespace in `kubernetes.namespaces`
      hint: add the user, or `"*"` for everybody else
    /etc/paddlecloud/server.yaml: `kubernetes.volume.sub_path` must stay in the volume, not `a/../..`
    /etc/paddlecloud/server.yaml: `kubernetes.namespace_role` is for servers that create namespaces, not for `kubernetes.namespaces`
      hint: leave it out, and bind the role in the given namespaces yourself
    /etc/paddlecloud/server.yaml: `kubernetes.namespace_role` must be the name of a ClusterRole with at most 63 letters, digits, `-`, `.` and `_`, not `system:admin`
    /etc/paddlecloud/server.yaml:8: a pod needs at least 256 MiB for its launcher, not 9.5 MiB
    "#);
}

#[test]
fn types_of_gpus_are_labels_tolerations_and_a_resource() {
    let types = "gpu_types:\n  A100:\n    labels: {pool: train}\n";
    let config = parse(&format!(
        "{LEAST}{types}inventory: {{gpus: 1, gpu_model: Tesla T4}}\n"
    ))
    .unwrap();
    let traits = &config.inventory.nodes[0].traits;
    assert!(traits.gpu_types.is_empty(), "this machine is not in that pool");
    assert_eq!(traits.gpu_models.first().unwrap().as_str(), "t4");
    let own = "    tolerations: [{key: gpu}]\n    resource: amd.com/gpu\n";
    let pods =
        format!("{CLUSTER}  link: {{listen: '10.0.0.1:7'}}\n  volume: {{host_path: /srv}}\n{types}{own}");
    let EngineKind::Kubernetes(cluster) = parse(&format!("{LEAST}{pods}")).unwrap().engine else {
        panic!("the engine is Kubernetes")
    };
    let a100 = &cluster.pods.gpu_types[&"a100".parse().unwrap()];
    assert_eq!(a100.resource.as_deref(), Some("amd.com/gpu"));
    assert_eq!(a100.labels["pool"], "train");
    let other_pool = pods.replace("kubernetes:\n", "kubernetes:\n  node_selector: {pool: other}\n");
    let texts = [
        refused(&format!("{types}{own}")),
        refused("gpu_types: {a100: {labels: {'pool ': x}}}"),
        refused("gpu_types: {a100: {resource: 'a b'}}"),
        refused("gpu_types: {nvidia: {}}"),
        refused("inventory: {gpu_model: '-'}"),
        refused(&other_pool),
    ];
    insta::assert_snapshot!(texts.join("\n"), @r"
    /etc/paddlecloud/server.yaml: `gpu_types.a100`: `tolerations` and `resource` have no effect on one machine
      hint: remove them, or set `engine: kubernetes`
    /etc/paddlecloud/server.yaml: `gpu_types.a100`: `pool ` cannot be the name of a node's label
    /etc/paddlecloud/server.yaml: `gpu_types.a100`: `a b` is not the name of a resource
      hint: for example `amd.com/gpu`
    /etc/paddlecloud/server.yaml:3: `nvidia` is not the name of a GPU type: at most 63 characters, with a letter or digit
    /etc/paddlecloud/server.yaml: `inventory.gpu_model` is not the name of a model: `-`
      hint: for example `NVIDIA A100-SXM4-80GB`
    /etc/paddlecloud/server.yaml: no pod can have GPUs of `gpu_types.a100`: `kubernetes.node_selector` requires `pool=other`
    ");
}
