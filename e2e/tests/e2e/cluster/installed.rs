//! The server as a pod of the cluster, installed from the committed manifests or with Helm, and with no other rights than theirs.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::process::Command;

use e2e::cluster::Cluster;
use e2e::{TestEnvironment, wait_until};

/// Who the manifests' server runs as.
const UID: u32 = 1000;
const PASSWORD: &str = "correct horse battery staple";
const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/helm/paddlecloud");
/// The administrator that the chart makes.
const ADMIN: &str = "root@example.org";

/// An installed server; uninstalled when dropped.
struct Installed {
    cluster: Cluster,
    folder: tempfile::TempDir,
    /// Of the server.
    namespace: String,
    /// Names of users are those of their namespaces.
    users: [String; 2],
    /// Whether clients use TLS and trust the server's own authority.
    tls: bool,
}

impl Installed {
    /// Installs a server from this image, whose jobs run in the other one, as the committed manifests say.
    fn new(cluster: &Cluster, image: &str, jobs: &str) -> Installed {
        let installed = Installed::prepare(cluster);
        installed.apply(image, jobs);
        installed.wait_until_ready();
        installed
    }

    /// Installs it with `helm template … | kubectl apply`, with TLS and an administrator and without other users.
    fn with_helm(cluster: &Cluster, helm: &str, image: &str, jobs: &str) -> Installed {
        let mut installed = Installed::prepare(cluster);
        installed.tls = true;
        // The certificate must name the address that clients use, which the cluster chooses.
        installed.render(helm, image, jobs, &["--show-only", "templates/service.yaml"]);
        let names = format!("settings.tls.names={{{}}}", installed.address());
        installed.render(helm, image, jobs, &["--set", &names]);
        installed.wait_until_ready();
        installed
    }

    fn prepare(cluster: &Cluster) -> Installed {
        let folder = tempfile::Builder::new()
            .prefix("paddlecloud-installed-")
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir()
            .expect("a temporary folder");
        let name = folder.path().file_name().and_then(|name| name.to_str());
        let mark = name
            .and_then(|name| name.rsplit('-').next())
            .expect("a plain name");
        let mark = mark.to_ascii_lowercase();
        let installed = Installed {
            cluster: cluster.clone(),
            namespace: format!("pc-{mark}"),
            users: [format!("eve{mark}"), format!("flo{mark}")],
            tls: false,
            folder,
        };
        for name in ["data", "storage"] {
            fs::create_dir(installed.path(name)).expect("a folder in a fresh one");
            chown(installed.path(name), Some(UID), Some(UID)).expect("cluster tests run as root");
        }
        cluster.kubectl(&["create", "namespace", &installed.namespace]);
        installed
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// The committed manifests, with the names and folders of this test and its users.
    fn apply(&self, image: &str, jobs: &str) {
        let password = self.path("data/password");
        fs::write(&password, PASSWORD).expect("a file in the test's own folder");
        chown(&password, Some(UID), Some(UID)).expect("cluster tests run as root");
        fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).expect("it is ours");
        let entry = |user: &String| format!("{{name: {user}, password_file: /var/lib/paddlecloud/password}}");
        let entries: Vec<String> = self.users.iter().map(entry).collect();
        let users = format!("users: [{}]\n    engine:", entries.join(", "));
        let (storage, data) = (self.path("storage"), self.path("data"));
        let role = format!("{}-paddlecloud", self.namespace);
        let mut text = include_str!("../../../../deploy/kubernetes/paddlecloud.yaml").to_owned();
        for (from, to) in [
            ("paddlecloud-paddlecloud", role.as_str()),
            (
                "namespace: paddlecloud",
                &format!("namespace: {}", self.namespace),
            ),
            (
                "serviceaccount:paddlecloud:",
                &format!("serviceaccount:{}:", self.namespace),
            ),
            (
                "s.?namespace.orValue(\"\") == \"paddlecloud\"",
                &format!("s.?namespace.orValue(\"\") == \"{}\"", self.namespace),
            ),
            (
                "paddlecloud.paddlecloud.svc",
                &format!("paddlecloud.{}.svc", self.namespace),
            ),
            ("paddlecloud/server:0.1.0", image),
            ("paddlecloud/launcher:0.1.0", self.cluster.launcher_image()),
            ("python:3.12-slim", jobs),
            ("/srv/paddlecloud", &storage),
            ("path: /var/lib/paddlecloud,", &format!("path: {data},")),
            ("engine:", &users),
            ("kubernetes.io/hostname: NODE", "kubernetes.io/os: linux"),
        ] {
            assert!(text.contains(from), "no {from:?} in the manifests");
            text = text.replace(from, to);
        }
        self.apply_text(text);
    }

    fn apply_text(&self, text: impl AsRef<[u8]>) {
        let file = self.path("install.yaml");
        fs::write(&file, text).expect("a file in the test's own folder");
        self.cluster.kubectl(&["apply", "-f", &file]);
    }

    /// Applies what the chart renders with the images and folders of this test.
    fn render(&self, helm: &str, image: &str, jobs: &str, more: &[&str]) {
        let values = [
            format!("image={image}"),
            format!("launcherImage={}", self.cluster.launcher_image()),
            format!("defaultImage={jobs}"),
            format!("storage.hostPath={}", self.path("storage")),
            format!("data.hostPath={}", self.path("data")),
            r"nodeSelector.kubernetes\.io/os=linux".to_owned(),
            format!("admin={ADMIN}"),
        ];
        let values = values.iter().flat_map(|value| ["--set", value.as_str()]);
        let rendered = Command::new(helm)
            .args(["template", "paddlecloud", CHART, "-n", &self.namespace])
            .args(values)
            .args(more)
            .output()
            .expect("helm can be run");
        let problem = String::from_utf8_lossy(&rendered.stderr);
        assert!(rendered.status.success(), "{problem}");
        self.apply_text(rendered.stdout);
    }

    fn wait_until_ready(&self) {
        wait_until("the server must be ready", || {
            let deployments = self.cluster.objects("deployments", &self.namespace);
            (deployments.first()?["status"]["readyReplicas"] == 1).then_some(())
        });
    }

    /// The address of the server's Service.
    fn address(&self) -> String {
        let services = self.cluster.objects("services", &self.namespace);
        let address = services[0]["spec"]["clusterIP"].as_str();
        address.expect("it has one").to_owned()
    }

    /// Makes the environment that of one of the users.
    fn configure(&self, env: &TestEnvironment, user: usize) {
        self.configure_as(env, &self.users[user], PASSWORD);
    }

    fn configure_as(&self, env: &TestEnvironment, user: &str, password: &str) {
        let address = self.address();
        // A Service leads to a pod a moment after the pod is ready.
        wait_until("the Service must lead to the server", || {
            std::net::TcpStream::connect((address.as_str(), 8443))
                .is_ok()
                .then_some(())
        });
        let (scheme, trusts) = match self.tls {
            true => ("https", format!(", cacert: {}", self.path("data/data/ca.crt"))),
            false => ("http", String::new()),
        };
        env.configure(&format!(
            "datacenters:\n- {{name: dc1, username: {user}, password: {password}, \
             endpoint: \"{scheme}://{address}:8443\"{trusts}}}\ncurrent-datacenter: dc1\n"
        ));
    }

    /// The chart's administrator logs in with the password of the chart's Secret, and adds the users.
    fn add_users(&self, env: &mut TestEnvironment) {
        let password = "go-template={{.data.password | base64decode}}";
        let secret = ["get", "secret", "-n", &self.namespace, "paddlecloud-admin", "-o"];
        let password = self.cluster.kubectl(&[&secret[..], &[password]].concat());
        self.configure_as(env, ADMIN, &password);
        env.set("PADDLECLOUD_PASSWORD", PASSWORD);
        for user in &self.users {
            env.paddlectl(&["admin", "user", "add", user]).ok();
        }
        let listed = env.paddlectl(&["admin", "user", "list"]).ok().stdout;
        assert!(
            listed.contains(&format!("{ADMIN}\tadmin\tenabled\tconfiguration\t")),
            "{listed}"
        );
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        let namespace = self.namespace.as_str();
        let [first, second] = self.users.each_ref().map(String::as_str);
        let gone = ["--ignore-not-found", "--wait=false"];
        self.cluster.delete_rights(&format!("{namespace}-paddlecloud"));
        for words in [
            ["delete", "namespace", namespace],
            ["delete", "namespace", first],
            ["delete", "namespace", second],
        ] {
            self.cluster.kubectl(&[&words[..], &gone].concat());
        }
    }
}

/// Prints numbered lines, and ends when the test writes `output/gate`.
const COUNTS: &str = "mkdir -p output\ni=0\nuntil [ -e output/gate ]; do i=$((i + 1)); echo line $i; sleep 0.1; done\n\
                      echo ended after $i\n";

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn an_installed_server_is_upgraded_under_a_running_job() {
    let cluster = Cluster::here();
    let (image, next) = (cluster.server_image(), cluster.next_server_image());
    let installed = Installed::new(&cluster, &image, cluster.shell_image());
    let env = TestEnvironment::new();
    installed.configure(&env, 0);
    let package = env.package("steady").file("train.sh", COUNTS);
    let small = ["-cpu", "100m", "-memory", "64Mi", "-pservers", "0"];
    env.submit(
        "steady",
        &package,
        &[&["-entry", "sh train.sh"], &small[..]].concat(),
    );
    let printed = || -> usize {
        let logs = env.logs("steady");
        logs.iter().filter(|line| line.contains("line ")).count()
    };
    wait_until("the trainer must begin", || (printed() > 0).then_some(()));
    let objects = env.paddlectl(&["describe", "--objects", "steady"]).ok().stdout;
    assert!(
        objects.contains(&format!("Pod\t{}\tsteady-trainer-", installed.users[0])),
        "{objects}"
    );
    let mut waiting = env.start(&["wait", "steady"]);
    waiting.wait_for_line("waiting for steady");

    let server = ["-n", &installed.namespace, "deployment/paddlecloud"];
    let upgrade = format!("server={next}");
    cluster.kubectl(&[&["set", "image"], &server[..], &[&upgrade]].concat());
    cluster.kubectl(&[&["rollout", "status", "--timeout=120s"], &server[..]].concat());
    let pods = cluster.objects("pods", &installed.namespace);
    assert!(
        pods.iter()
            .any(|pod| pod["spec"]["containers"][0]["image"] == next.as_str())
    );
    let before = printed();
    wait_until("the new server must get the output", || {
        (printed() > before).then_some(())
    });
    let described = env.describe("steady");
    assert_eq!(described["workers"][0]["attempt"], 1, "the worker continued");
    let id = described["job"]["id"].as_str().expect("a job has an id");
    let home = format!("storage/home/{}", installed.users[0]);
    let gate = format!("{home}/.paddlecloud/runs/{id}/steady/output/gate");
    fs::write(installed.path(&gate), "").expect("the run has a folder for its output");
    env.wait_for_status("steady", "Succeeded");
    let (status, said) = waiting.end();
    assert!(status.success(), "`wait` outlasts the old server: {said:?}");
    let logs = env.logs("steady");
    let numbers: Vec<usize> = logs
        .iter()
        .filter_map(|line| line.rsplit_once("line ")?.1.parse().ok())
        .collect();
    assert_eq!(numbers, (1..=numbers.len()).collect::<Vec<_>>());
    let ended = format!("ended after {}", numbers.len());
    assert!(
        logs.iter().any(|line| line.ends_with(&ended)),
        "{:?}",
        logs.last()
    );
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn a_job_outlives_the_uninstalled_server_until_its_owner_is_deleted() {
    let cluster = Cluster::here();
    let image = cluster.server_image();
    let installed = Installed::new(&cluster, &image, cluster.shell_image());
    let env = TestEnvironment::new();
    installed.configure(&env, 0);
    let package = env.package("orphan").file(
        "train.sh",
        "mkdir -p output\necho begun\nuntil [ -e output/gate ]; do sleep 0.1; done\necho > output/seen\nsleep 1000\n",
    );
    let small = ["-cpu", "100m", "-memory", "64Mi", "-pservers", "0"];
    env.submit(
        "orphan",
        &package,
        &[&["-entry", "sh train.sh"], &small[..]].concat(),
    );
    wait_until("the trainer must begin", || {
        let logs = env.logs("orphan");
        logs.iter().any(|line| line.ends_with("begun")).then_some(())
    });
    let id = env.describe("orphan")["job"]["id"]
        .as_str()
        .expect("a job has an id")
        .to_owned();

    cluster.kubectl(&["delete", "-f", &installed.path("install.yaml"), "--timeout=120s"]);
    let output = installed.path(&format!(
        "storage/home/{}/.paddlecloud/runs/{id}/orphan/output",
        installed.users[0]
    ));
    fs::write(format!("{output}/gate"), "").unwrap();
    wait_until("the trainer must continue without a server", || {
        fs::exists(format!("{output}/seen")).unwrap().then_some(())
    });
    let managed = "app.kubernetes.io/managed-by=paddlecloud";
    cluster.kubectl(&["delete", "secret", "-n", &installed.users[0], "-l", managed]);
    wait_until("nothing of the run may be left", || {
        cluster
            .objects("pods", &installed.users[0])
            .is_empty()
            .then_some(())
    });
}

/// Small enough for two jobs at once on a small machine.
const SIZES: [&str; 8] = [
    "-cpu",
    "200m",
    "-memory",
    "256Mi",
    "-pscpu",
    "200m",
    "-psmemory",
    "128Mi",
];

/// What is typed on the laptop, beside the sizes.
fn submit_fit_a_line(env: &TestEnvironment) {
    let package = env
        .package("fit_a_line")
        .file(
            "model.py",
            include_str!("../../../../examples/fit_a_line/model.py"),
        )
        .file(
            "train.py",
            include_str!("../../../../examples/fit_a_line/train.py"),
        );
    let command = ["-parallelism", "2", "-pservers", "2", "-entry", "python train.py"];
    env.submit("fit-a-line", &package, &[&command[..], &SIZES].concat());
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn two_users_train_as_on_the_laptop() {
    let cluster = Cluster::here();
    let (server, training) = (cluster.server_image(), cluster.training_image());
    let mut env = TestEnvironment::new();
    let installed = match cluster.helm() {
        Some(helm) => {
            let installed = Installed::with_helm(&cluster, &helm, &server, &training);
            installed.add_users(&mut env);
            installed
        }
        // Without helm, the committed manifests, which contain the users.
        None => Installed::new(&cluster, &server, &training),
    };
    for user in [0, 1] {
        installed.configure(&env, user);
        submit_fit_a_line(&env);
    }
    for user in [0, 1] {
        installed.configure(&env, user);
        env.wait_for_status("fit-a-line", "Succeeded");
        let name = &installed.users[user];
        let logs = env.logs("fit-a-line").join("\n");
        assert!(logs.contains("saved output/pass-00000"), "{logs}");
        let model = env.folder(&format!("model-{user}"));
        let remote = format!("/pfs/dc1/home/{name}/fit_a_line/output/pass-00000");
        env.paddlectl(&["cp", "-r", &remote, model.to_str().unwrap()])
            .ok();
        for parameter in ["w", "b"] {
            let file = model.join("pass-00000").join(parameter);
            assert!(
                fs::metadata(&file).is_ok_and(|file| file.len() > 0),
                "{}",
                file.display()
            );
        }
        env.paddlectl(&["kill", "-rm", "fit-a-line"]).ok();
        cluster.wait_until_empty(name);
        assert!(env.jobs().is_empty());
    }
}
