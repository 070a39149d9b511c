//! A server whose workers are pods of a real cluster.

use std::env;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::background::Background;
use crate::environment::TestEnvironment;
use crate::program;
use crate::wait::wait_until;

/// The user of the server and its pods: not root, which pods must not be.
const UID: u32 = 1000;

/// The password of every user.
const PASSWORD: &str = "correct horse battery staple";

/// A cluster that tests may use, as `cargo xtask test --with cluster` describes it.
#[derive(Debug, Clone)]
pub struct Cluster {
    kubeconfig: PathBuf,
    /// An address of this machine that pods reach.
    address: String,
    launcher_image: String,
    /// An image with a shell.
    shell_image: String,
}

impl Cluster {
    /// The cluster that `cargo xtask test --with cluster` names.
    pub fn here() -> Cluster {
        Cluster {
            kubeconfig: named("KUBECONFIG").into(),
            address: named("PADDLECLOUD_TEST_CLUSTER"),
            launcher_image: named("PADDLECLOUD_TEST_LAUNCHER_IMAGE"),
            shell_image: named("PADDLECLOUD_TEST_SHELL_IMAGE"),
        }
    }

    /// An image with bash, our programs and a stand-in for the trainer.
    pub fn runtime_image(&self) -> String {
        named("PADDLECLOUD_TEST_RUNTIME_IMAGE")
    }

    /// An image of the server.
    pub fn server_image(&self) -> String {
        named("PADDLECLOUD_TEST_SERVER_IMAGE")
    }

    /// An image of the server with another version.
    pub fn next_server_image(&self) -> String {
        named("PADDLECLOUD_TEST_NEXT_SERVER_IMAGE")
    }

    /// An image with Python, numpy and our wheel.
    pub fn training_image(&self) -> String {
        named("PADDLECLOUD_TEST_TRAINING_IMAGE")
    }

    /// An image with PyTorch.
    pub fn torch_image(&self) -> String {
        named("PADDLECLOUD_TEST_TORCH_IMAGE")
    }

    /// Helm; without it, the committed manifests are installed.
    pub fn helm(&self) -> Option<String> {
        env::var("PADDLECLOUD_TEST_HELM").ok()
    }

    /// The image that delivers the launcher.
    pub fn launcher_image(&self) -> &str {
        &self.launcher_image
    }

    /// An image with only a shell.
    pub fn shell_image(&self) -> &str {
        &self.shell_image
    }

    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// What `kubectl` prints.
    #[track_caller]
    pub fn kubectl(&self, args: &[&str]) -> String {
        let output = Command::new("kubectl")
            .args(args)
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::null())
            .output()
            .expect("`kubectl` is in PATH where there is a cluster");
        assert!(
            output.status.success(),
            "kubectl {args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Creates the objects of a manifest.
    #[track_caller]
    pub fn apply(&self, manifest: &Value) {
        self.send(&["create", "-f", "-"], manifest);
    }

    /// What `kubectl` prints for a given object.
    #[track_caller]
    pub fn send(&self, args: &[&str], object: &Value) -> String {
        let mut kubectl = Command::new("kubectl")
            .args(args)
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("`kubectl` is in PATH where there is a cluster");
        let mut stdin = kubectl.stdin.take().expect("it is piped");
        stdin
            .write_all(object.to_string().as_bytes())
            .expect("kubectl reads");
        drop(stdin);
        let output = kubectl.wait_with_output().expect("kubectl ends");
        let problem = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {args:?}: {problem}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// What `kubectl` says when the API server refuses a given object, or nothing if it accepts it. Nothing is created.
    #[track_caller]
    pub fn refusal(kubeconfig: &Path, object: &Value) -> Option<String> {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        fs::write(file.path(), object.to_string()).expect("a file of our own");
        let file = file.path().to_str().expect("a plain name");
        Cluster::refused_words(kubeconfig, &["create", "--dry-run=server", "-f", file])
    }

    /// What `kubectl` says when the API server refuses a request, or nothing if it answers it.
    #[track_caller]
    pub fn refused_words(kubeconfig: &Path, words: &[&str]) -> Option<String> {
        let output = Command::new("kubectl")
            .args(words)
            .env("KUBECONFIG", kubeconfig)
            .stdin(Stdio::null())
            .output()
            .expect("`kubectl` is in PATH where there is a cluster");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (!output.status.success()).then_some(said)
    }

    /// Deletes the roles and policies that an installation of the manifests made for its account.
    pub fn delete_rights(&self, role: &str) {
        let kinds =
            "clusterrole,clusterrolebinding,validatingadmissionpolicy,validatingadmissionpolicybinding";
        let names = ["", "-users", "-namespaces", "-bindings", "-secrets", "-pods"];
        let names = names.map(|end| format!("{role}{end}"));
        let words = ["delete", kinds, "--ignore-not-found", "--wait=false"].into_iter();
        let words: Vec<&str> = words.chain(names.iter().map(String::as_str)).collect();
        self.kubectl(&words);
    }

    /// Writes a kubeconfig for the same cluster that has this token and nothing else.
    #[track_caller]
    pub fn kubeconfig_with_token(&self, file: &Path, token: &str) -> PathBuf {
        let view = self.kubectl(&["config", "view", "--raw", "--minify", "-o", "json"]);
        let mut config: Value = serde_json::from_str(&view).expect("JSON was asked for");
        config["users"][0]["user"] = json!({ "token": token });
        fs::write(file, config.to_string()).expect("a file in the server's folder");
        file.to_owned()
    }

    /// An image without one.
    pub fn image_without_shell(&self) -> &str {
        &self.launcher_image
    }

    /// Waits until no object of any run is left in a namespace.
    #[track_caller]
    pub fn wait_until_empty(&self, namespace: &str) {
        self.kubectl(&["get", "namespace", namespace]);
        let mut before = Vec::new();
        wait_until("no object of a run may be left", || {
            let kinds = "pods,secrets,configmaps,services,networkpolicies.networking.k8s.io";
            let mut left = self.objects(kinds, namespace);
            left.retain(|object| object["metadata"]["labels"]["cloud.paddlepaddle.org/run"].is_string());
            let names = left.iter().map(|object| object["metadata"]["name"].to_string());
            let names: Vec<String> = names.collect();
            // Objects whose owner is missing here wait for the cluster's garbage collector.
            if names != before {
                eprintln!("left in {namespace}: {}", names.join(" "));
            }
            before = names;
            before.is_empty().then_some(())
        });
    }

    /// Every object of these kinds in a user's namespace.
    #[track_caller]
    pub fn objects(&self, kinds: &str, namespace: &str) -> Vec<Value> {
        let listed = self.kubectl(&["get", kinds, "-n", namespace, "-o", "json"]);
        let listed: Value = serde_json::from_str(&listed).expect("JSON was asked for");
        listed["items"].as_array().cloned().unwrap_or_default()
    }
}

/// How a server differs from the default.
#[derive(Debug, Clone, Default)]
pub struct Difference {
    /// Instead of the folder of its storage.
    pub volume: Option<String>,
    /// Where pods look for the server, instead of where it listens.
    pub link_address: Option<String>,
    /// Further lines of the section `kubernetes`, each indented by two spaces.
    pub kubernetes: String,
    /// Further lines of the configuration.
    pub settings: String,
    /// Instead of the cluster's kubeconfig.
    pub kubeconfig: Option<PathBuf>,
    /// The first user is an administrator.
    pub administrator: bool,
}

/// How many lines of the server's log a failed test shows.
const LINES_SHOWN: usize = 100;

/// So that no test waits for long, and a cluster on a busy machine is not taken for a broken one.
const SHORT_LIMITS: &str = "  seat_limit: 15s\n  lost_limit: 15s\n  trouble_limit: 20s\n";

/// A server on that cluster, with the users `ada` and `bob`; ended when dropped.
#[derive(Debug)]
pub struct ClusterServer {
    cluster: Cluster,
    /// Readable by the server's user, unlike the test's own folder.
    folder: tempfile::TempDir,
    port: u16,
    endpoint: String,
    server: Option<Background>,
    namespaces: Vec<String>,
}

impl ClusterServer {
    /// Starts a server; `settings` are further lines of its configuration.
    pub fn start(env: &mut TestEnvironment, cluster: &Cluster, settings: &str) -> ClusterServer {
        let difference = Difference {
            settings: settings.to_owned(),
            ..Difference::default()
        };
        let mut server = ClusterServer::prepare(cluster);
        server.write_files(&difference);
        env.use_programs_of(server.path("bin"));
        server.revive(env);
        server
    }

    /// Starts a server with these differences, folder and users.
    pub fn start_with(
        env: &mut TestEnvironment,
        cluster: &Cluster,
        difference: impl FnOnce(&ClusterServer) -> Difference,
    ) -> ClusterServer {
        let mut server = ClusterServer::prepare(cluster);
        let difference = difference(&server);
        server.write_files(&difference);
        env.use_programs_of(server.path("bin"));
        server.revive(env);
        server
    }

    /// The error of a server that does not start.
    #[track_caller]
    pub fn refusal(cluster: &Cluster, difference: impl FnOnce(&ClusterServer) -> Difference) -> String {
        let server = ClusterServer::prepare(cluster);
        let difference = difference(&server);
        server.write_files(&difference);
        let output = Command::new("setpriv")
            .args([
                &format!("--reuid={UID}"),
                &format!("--regid={UID}"),
                "--clear-groups",
            ])
            .arg(server.path("bin").join("paddlecloud-server"))
            .arg("--config")
            .arg(server.path("config.yaml"))
            .env_clear()
            .stdin(Stdio::null())
            .output()
            .expect("`setpriv` can be run");
        assert!(!output.status.success(), "the server started");
        let lines = String::from_utf8_lossy(&output.stderr).into_owned();
        let messages = lines
            .lines()
            .filter(|line| line.starts_with("error:") || line.starts_with("hint:"));
        messages.collect::<Vec<_>>().join("\n")
    }

    fn prepare(cluster: &Cluster) -> ClusterServer {
        let folder = tempfile::Builder::new()
            .prefix("paddlecloud-cluster-")
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir()
            .expect("a temporary folder");
        // Namespaces outlive a test by seconds, so every test has its own users. A user's name is also that of the
        // namespace.
        let mark = folder
            .path()
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(|name| name.rsplit('-').next())
            .expect("a plain name")
            .to_ascii_lowercase();
        let users = [format!("ada{mark}"), format!("bob{mark}")];
        ClusterServer {
            cluster: cluster.clone(),
            port: free_port(&cluster.address),
            folder,
            endpoint: String::new(),
            server: None,
            namespaces: users.to_vec(),
        }
    }

    /// A file or folder of this server, which its user may read.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write_files(&self, difference: &Difference) {
        let users = &self.namespaces;
        for name in ["bin", "data", "storage"] {
            fs::create_dir(self.path(name)).expect("a folder in a fresh one");
        }
        let program = self.path("program");
        // Written by another process: a child that a test beside this one forks meanwhile would keep the file open for
        // writing, and no program can be started from it then.
        let copied = Command::new("cp").arg(program::built()).arg(&program).status();
        assert!(
            copied.is_ok_and(|status| status.success()),
            "the program can be copied"
        );
        program::link_names_to(&program, &self.path("bin"));
        let kubeconfig = difference.kubeconfig.as_ref().unwrap_or(&self.cluster.kubeconfig);
        fs::copy(kubeconfig, self.path("kubeconfig")).expect("a kubeconfig can be copied");
        fs::write(self.path("password"), PASSWORD).expect("a file in the test's own folder");
        let mut entries: String = users
            .iter()
            .map(|user| format!("- name: {user}\n  password_file: password\n"))
            .collect();
        if difference.administrator {
            entries.insert_str(1, " admin: true\n ");
        }
        let Cluster {
            address,
            launcher_image,
            shell_image,
            ..
        } = &self.cluster;
        let own = format!("{{host_path: {}}}", self.path("storage").display());
        let volume = difference.volume.as_ref().unwrap_or(&own);
        let text = format!(
            "listen: 127.0.0.1:0\ndata: data\nstorage: storage\ndatacenter: cloud\nengine: kubernetes\n\
             default_image: {shell_image}\n\
             kubernetes:\n  kubeconfig: kubeconfig\n  link: {{listen: \"{address}:{port}\", address: \"{link}\"}}\n  \
             launcher_image: {launcher_image}\n  volume: {volume}\n{limits}{kubernetes}\
             users:\n{entries}{settings}",
            port = self.port,
            link = difference.link_address.clone().unwrap_or_else(|| self.link()),
            limits = match difference.kubernetes.contains("_limit:") {
                true => "",
                false => SHORT_LIMITS,
            },
            kubernetes = difference.kubernetes,
            settings = difference.settings,
        );
        fs::write(self.path("config.yaml"), text).expect("a file in the test's own folder");
        for name in ["data", "storage", "kubeconfig", "password"] {
            chown(self.path(name), Some(UID), Some(UID)).expect("cluster tests run as root");
        }
        for name in ["kubeconfig", "password"] {
            let mode = fs::Permissions::from_mode(0o600);
            fs::set_permissions(self.path(name), mode).expect("it is ours");
        }
    }

    /// Starts the server, again after a crash.
    pub fn revive(&mut self, env: &TestEnvironment) {
        let config = self.path("config.yaml");
        let (uid, gid) = (format!("--reuid={UID}"), format!("--regid={UID}"));
        let mut server = env.start_under(
            &["setpriv", &uid, &gid, "--clear-groups"],
            "paddlecloud-server",
            &["--config", config.to_str().expect("a plain name")],
        );
        let ready = server.wait_for_line("ready version=");
        let (_, endpoint) = ready.split_once("127.0.0.1:").expect("it says where it listens");
        let port: String = endpoint.chars().take_while(char::is_ascii_digit).collect();
        self.endpoint = format!("127.0.0.1:{port}");
        self.server = Some(server);
    }

    /// Runs `paddlecloud-server WHAT FILE` as the server's user: a backup, or a restore while the server is stopped.
    #[track_caller]
    pub fn maintain(&self, what: &str, file: &Path) {
        let (uid, gid) = (format!("--reuid={UID}"), format!("--regid={UID}"));
        let output = Command::new("setpriv")
            .args([&uid, &gid, "--clear-groups"])
            .arg(self.path("bin").join("paddlecloud-server"))
            .args([what, "--config"])
            .arg(self.path("config.yaml"))
            .arg(file)
            .env_clear()
            .output()
            .expect("`setpriv` can be run");
        let problem = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{what}: {problem}");
    }

    /// Every line of the server's log so far.
    pub fn log(&mut self) -> &[String] {
        self.server.as_mut().expect("it runs").lines_so_far()
    }

    /// The folder that a run's trainers write to.
    #[track_caller]
    pub fn output(&self, env: &TestEnvironment, user: usize, job: &str) -> PathBuf {
        let described = env.describe(job);
        let id = described["job"]["id"].as_str().expect("a job has an id");
        let run = self.home(user).join(".paddlecloud/runs").join(id);
        run.join(job).join("output")
    }

    /// Kills the server.
    pub fn crash(&mut self) {
        if let Some(server) = self.server.take() {
            server.killer()();
            let _ = server.end();
        }
    }

    /// Returns a function that kills the server, from any thread.
    pub fn killer(&self) -> impl FnOnce() + Send + use<> {
        self.server.as_ref().expect("it runs").killer()
    }

    /// Makes the environment that of one of the two users.
    pub fn configure(&self, env: &TestEnvironment, user: usize) {
        self.configure_as(env, &self.namespaces[user], PASSWORD);
    }

    /// Makes the environment that of a user of this name.
    pub fn configure_as(&self, env: &TestEnvironment, name: &str, password: &str) {
        let entry = format!(
            "name: cloud\n  username: {name}\n  password: {password}\n  endpoint: {}",
            self.endpoint
        );
        env.configure(&format!("datacenters:\n- {entry}\ncurrent-datacenter: cloud\n"));
    }

    /// Host and port for clients.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Host and port for launchers.
    pub fn link(&self) -> String {
        format!("{}:{}", self.cluster.address, self.port)
    }

    /// The process id of the server.
    pub fn pid(&self) -> u32 {
        self.server.as_ref().expect("it runs").id()
    }

    /// The namespace of one of the two users.
    pub fn namespace(&self, user: usize) -> &str {
        &self.namespaces[user]
    }

    /// A user's home as the server sees it.
    pub fn home(&self, user: usize) -> PathBuf {
        self.path("storage").join("home").join(&self.namespaces[user])
    }

    /// Deletes a namespace with the server, like those of the two users.
    pub fn delete_at_end(&mut self, namespace: &str) {
        self.namespaces.push(namespace.to_owned());
    }

    pub fn data(&self) -> PathBuf {
        self.path("data")
    }

    /// Creates the configured user's namespace before the server does, and labels it as the message of a failed job says.
    #[track_caller]
    pub fn create_namespace(&self, env: &TestEnvironment, user: usize) {
        let namespace = self.namespace(user);
        self.cluster.kubectl(&["create", "namespace", namespace]);
        let package = env.package("intruder").file("train.sh", "true\n");
        let small = [
            "-entry",
            "sh train.sh",
            "-cpu",
            "100m",
            "-memory",
            "64Mi",
            "-pservers",
            "0",
        ];
        env.submit("intruder", &package, &small);
        env.wait_for_status("intruder", "Failed");
        let described = env.paddlectl(&["describe", "intruder"]).ok().stdout;
        let sentence = format!("namespace `{namespace}` exists and does not belong to this server");
        assert!(described.contains(&sentence), "{described}");
        let kinds = "secrets,resourcequotas,limitranges";
        assert!(
            self.cluster.objects(kinds, namespace).is_empty(),
            "nothing is made there"
        );
        let (_, command) = described.split_once("`kubectl label").expect("a hint");
        let words = command.split('`').next().unwrap_or_default().split_whitespace();
        let words: Vec<&str> = std::iter::once("label").chain(words).collect();
        self.cluster.kubectl(&words);
    }

    /// Waits until no object of any run is left in a user's namespace.
    #[track_caller]
    pub fn wait_until_empty(&self, user: usize) {
        self.cluster.wait_until_empty(self.namespace(user));
    }
}

impl Drop for ClusterServer {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(server) = &mut self.server
        {
            let lines = server.lines_so_far();
            let last = lines.len().saturating_sub(LINES_SHOWN);
            eprintln!("--- the server's last lines\n{}", lines[last..].join("\n"));
        }
        self.crash();
        for namespace in &self.namespaces {
            let gone = [
                "delete",
                "namespace",
                namespace,
                "--ignore-not-found",
                "--wait=false",
            ];
            let _ = Command::new("kubectl")
                .args(gone)
                .env("KUBECONFIG", &self.cluster.kubeconfig)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
        }
    }
}

/// The value of a variable of the cluster tests.
fn named(variable: &str) -> String {
    let value = env::var(variable).unwrap_or_default();
    assert!(
        !value.is_empty(),
        "`{variable}` is not set; run `cargo xtask test --with cluster`"
    );
    value
}

/// A free port at this address.
fn free_port(address: &str) -> u16 {
    let listener = std::net::TcpListener::bind((address, 0)).expect("the address is this machine's");
    listener.local_addr().expect("it is bound").port()
}
