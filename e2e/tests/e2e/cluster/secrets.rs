//! Secrets and private images reach the pods of their owner, and nothing else.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use e2e::cluster::{Cluster, ClusterServer};
use e2e::{TestEnvironment, wait_until};
use serde_json::Value;

const CANARY: &str = "canary-in-a-cluster";
/// The same as a Secret has it.
const ENCODED: &str = "Y2FuYXJ5LWluLWEtY2x1c3Rlcg==";

fn start() -> (TestEnvironment, Cluster, ClusterServer) {
    let cluster = Cluster::here();
    let mut env = TestEnvironment::new();
    let server = ClusterServer::start(&mut env, &cluster, "");
    server.configure(&env, 0);
    (env, cluster, server)
}

/// The names of objects of these kinds, of any namespace, that hold the canary.
fn holders(cluster: &Cluster, kinds: &str) -> Vec<String> {
    let listed = cluster.kubectl(&["get", kinds, "-A", "-o", "json"]);
    let listed: Value = serde_json::from_str(&listed).expect("JSON was asked for");
    let items = listed["items"].as_array().cloned().unwrap_or_default();
    let holds = |object: &&Value| {
        let text = object.to_string();
        text.contains(CANARY) || text.contains(ENCODED)
    };
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    items.iter().filter(holds).map(name).collect()
}

/// The files below a folder that hold the canary.
fn files_with_canary(folder: &Path) -> Vec<String> {
    let grep = Command::new("grep")
        .args(["-rla", CANARY])
        .arg(folder)
        .output()
        .expect("`grep` is everywhere");
    let found = String::from_utf8_lossy(&grep.stdout).into_owned();
    found.lines().map(str::to_owned).collect()
}

/// Shows by a digest that it has the secret, looks for it in the files of its pod, and ends when the test writes
/// `output/gate`.
const HAS_IT: &str = "mkdir -p output\n\
    echo digest $(printf %s \"$TOKEN\" | sha256sum)\n\
    find /paddlecloud -type f ! -path '*/bin/*' -exec grep -l \"$TOKEN\" {} + && echo leaked\n\
    echo attempt >> output/attempts\n\
    test $(wc -l < output/attempts) -gt 1 || exit 3\n\
    echo begun again\n\
    until [ -e output/gate ]; do sleep 0.1; done\n";

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn a_secret_is_in_its_workers_and_in_the_secret_of_their_run() {
    let (mut env, cluster, server) = start();
    env.set("PADDLECLOUD_SECRET", CANARY);
    env.paddlectl(&["secret", "set", "api-key"]).ok();
    let package = env.package("keeper").file("train.sh", HAS_IT);
    let flags = [
        "-entry",
        "sh train.sh",
        "-cpu",
        "100m",
        "-secret",
        "api-key=TOKEN",
    ];
    env.submit("keeper", &package, &[&flags[..], &["-retries", "1"]].concat());
    let logs = wait_until("the second attempt must begin", || {
        let logs = env.logs("keeper").join("\n");
        logs.contains("begun again").then_some(logs)
    });
    assert!(!logs.contains("leaked"), "{logs}");
    let digest = format!("digest {}", sha256(CANARY));
    assert_eq!(logs.matches(&digest).count(), 2, "{logs}");

    let id = env.describe("keeper")["job"]["id"].as_str().unwrap().to_owned();
    let owner = format!("keeper-{}", id.trim_start_matches("j_"));
    assert_eq!(holders(&cluster, "secrets"), [owner]);
    assert_eq!(holders(&cluster, "pods,configmaps,events"), Vec::<String>::new());
    assert_eq!(files_with_canary(&server.data()), Vec::<String>::new());
    assert_eq!(files_with_canary(&server.home(0)), Vec::<String>::new());
    for words in [
        &["describe", "keeper", "-o", "json"][..],
        &["describe", "--objects", "keeper"],
    ] {
        let shown = env.paddlectl(words).ok().stdout;
        assert!(!shown.contains(CANARY), "{shown}");
    }
    fs::write(server.output(&env, 0, "keeper").join("gate"), "").unwrap();
    env.wait_for_status("keeper", "Succeeded");
    server.wait_until_empty(0);
    assert_eq!(holders(&cluster, "secrets"), Vec::<String>::new());
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn an_unknown_secret_or_registry_is_refused() {
    let (env, _cluster, _server) = start();
    let package = env.package("bare").file("train.sh", "true\n");
    let submit = [
        "submit",
        "-entry",
        "sh train.sh",
        "-secret",
        "nowhere",
        package.arg(),
    ];
    env.paddlectl(&submit)
        .refused(1)
        .says("there is no secret `nowhere`");
    let submit = [
        "submit",
        "-entry",
        "sh train.sh",
        "-registry",
        "nowhere",
        package.arg(),
    ];
    env.paddlectl(&submit)
        .refused(1)
        .says("there is no registry `nowhere`");
}

fn sha256(text: &str) -> String {
    let script = format!("printf %s '{text}' | sha256sum");
    let output = Command::new("sh")
        .args(["-c", &script])
        .output()
        .expect("a shell");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace().next().expect("a digest").to_owned()
}

/// The password of the registry below, and the same hashed with bcrypt.
const PASSWORD: &str = "canary-of-a-registry";
const HTPASSWD: &str = "ada:$2y$05$abcdefghijklmnopqrstuuAZ4x/ucq4jjBHUYFiH/Ft0sRnGRCJwq\n";

/// A registry with one private image; ended when dropped.
struct Registry {
    child: Child,
    _folder: tempfile::TempDir,
    host: String,
}

impl Registry {
    fn start(cluster: &Cluster) -> Registry {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let host = format!("127.0.0.1:{}", port.local_addr().expect("it is bound").port());
        drop(port);
        let path = |name: &str| folder.path().join(name);
        fs::write(path("htpasswd"), HTPASSWD).expect("a file in a fresh folder");
        let config = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: \"{host}\"}}\n\
             auth: {{htpasswd: {{realm: test, path: {}}}}}\n",
            path("images").display(),
            path("htpasswd").display(),
        );
        fs::write(path("config.yml"), config).expect("a file in a fresh folder");
        let child = Command::new("docker-registry")
            .arg("serve")
            .arg(path("config.yml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the test needs `docker-registry`");
        let registry = Registry {
            child,
            _folder: folder,
            host,
        };
        wait_until("the registry must listen", || {
            std::net::TcpStream::connect(&registry.host).is_ok().then_some(())
        });
        registry.fill(cluster);
        registry
    }

    fn image(&self) -> String {
        format!("{}/private/shell:1", self.host)
    }

    /// Puts the image with a shell into it. Nodes do not keep it under this name.
    fn fill(&self, cluster: &Cluster) {
        let image = self.image();
        ctr(&["images", "tag", cluster.shell_image(), &image]);
        ctr(&[
            "images",
            "push",
            "--plain-http",
            "--user",
            &format!("ada:{PASSWORD}"),
            &image,
        ]);
        ctr(&["images", "rm", "--sync", &image]);
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = Command::new("ctr").args(["images", "rm", &self.image()]).output();
    }
}

#[track_caller]
fn ctr(args: &[&str]) {
    let output = Command::new("ctr").args(args).output().expect("it was found");
    let problem = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "ctr {args:?}: {problem}");
}

#[test]
#[ignore = "needs a Kubernetes cluster, docker-registry and ctr"]
fn a_private_image_runs_with_credentials_only_also_where_a_node_has_it() {
    let (mut env, cluster, server) = start();
    let registry = Registry::start(&cluster);
    let image = registry.image();
    env.set("PADDLECLOUD_REGISTRY_PASSWORD", PASSWORD);
    let store = [
        "registry",
        "-name",
        "hub",
        "-username",
        "ada",
        "-server",
        &registry.host,
    ];
    env.paddlectl(&store).ok();
    let package = env.package("private").file(
        "train.sh",
        "mkdir -p output\necho begun\nuntil [ -e output/gate ]; do sleep 0.1; done\n",
    );
    let flags = ["-entry", "sh train.sh", "-cpu", "100m", "-image", &image];
    env.submit("private", &package, &[&flags[..], &["-registry", "hub"]].concat());
    wait_until("the trainer must begin", || {
        let logs = env.logs("private");
        logs.iter().any(|line| line.ends_with("begun")).then_some(())
    });
    let pods = cluster.kubectl(&[
        "get",
        "pods,configmaps,events",
        "-n",
        server.namespace(0),
        "-o",
        "json",
    ]);
    assert!(!pods.contains(PASSWORD), "{pods}");
    let objects = env.paddlectl(&["describe", "--objects", "private"]).ok().stdout;
    assert!(objects.contains("-pull\n"), "{objects}");
    fs::write(server.output(&env, 0, "private").join("gate"), "").unwrap();
    env.wait_for_status("private", "Succeeded");
    server.wait_until_empty(0);

    // The node has the image now. Neither the same user without the registry nor another user gets it.
    env.submit("forgetful", &package, &flags);
    env.wait_for_status("forgetful", "Failed");
    server.configure(&env, 1);
    env.submit("stranger", &package, &flags);
    env.wait_for_status("stranger", "Failed");
    let described = env.paddlectl(&["describe", "stranger"]).ok().stdout;
    assert!(described.contains(&image), "{described}");
    assert!(described.contains("401 Unauthorized"), "{described}");
    server.wait_until_empty(1);
}
