//! A server that people share: configured, with passwords, quotas and a capacity of its own.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use e2e::{Background, Package, TestEnvironment};

const PASSWORD: &str = "correct horse battery staple";

/// A server on a port of its own with one user, `ada`; ended when dropped.
struct Shared {
    endpoint: String,
    _server: Background,
}

impl Shared {
    fn start(env: &TestEnvironment, of_the_user: &str) -> Self {
        let folder = env.folder("server");
        let password = folder.join("password");
        fs::write(&password, PASSWORD).expect("a file in the test's own folder");
        fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).expect("it is ours");
        let config = folder.join("config.yaml");
        let text = format!(
            "listen: 127.0.0.1:0\ndata: {data}\ndatacenter: cloud\ninventory: {{cpu: 2, memory: 1Gi}}\n\
             users:\n- name: ada\n  password_file: {password}\n{of_the_user}",
            data = folder.join("data").display(),
            password = password.display(),
        );
        fs::write(&config, text).expect("a file in the test's own folder");
        let mut server = env.start_as(
            "paddlecloud-server",
            &["--config", config.to_str().expect("a plain name")],
        );
        let ready = server.wait_for_line("ready");
        let (_, endpoint) = ready.split_once("127.0.0.1:").expect("it says where it listens");
        let port: String = endpoint.chars().take_while(char::is_ascii_digit).collect();
        Self {
            endpoint: format!("127.0.0.1:{port}"),
            _server: server,
        }
    }

    /// Writes the user's configuration in the shape of the documents' first.
    fn configure(&self, env: &TestEnvironment, password: &str) {
        let entry = format!(
            "name: cloud\n  username: ada\n  password: {password}\n  endpoint: {}",
            self.endpoint
        );
        write_config(
            env,
            &format!("datacenters:\n- {entry}\ncurrent-datacenter: cloud\n"),
        );
    }
}

fn write_config(env: &TestEnvironment, text: &str) {
    let config = env.home().join(".paddle/config");
    fs::create_dir_all(config.parent().expect("it lies in a folder")).expect("a home can be written");
    fs::write(config, text).expect("a home can be written");
}

fn package(env: &TestEnvironment) -> Package {
    env.package("job").file(
        "train.sh",
        "echo on $PADDLE_CLOUD_CURRENT_DATACENTER as $PADDLE_CLOUD_USERNAME\n",
    )
}

#[test]
fn the_same_commands_work_against_a_shared_server() {
    let env = TestEnvironment::new();
    let shared = Shared::start(&env, "");
    shared.configure(&env, PASSWORD);
    env.submit("far", &package(&env), &["-entry", "sh train.sh", "-f"]);
    env.paddlectl(&["logs", "--raw", "far"])
        .ok()
        .prints("on cloud as ada\n");
    env.paddlectl(&["whoami"]).ok().prints("/pfs/cloud/home/ada");
    assert_eq!(env.status("far"), "Succeeded");
}

#[test]
fn every_shape_of_the_configuration_is_read() {
    let env = TestEnvironment::new();
    let shared = Shared::start(&env, "");
    let login = format!(
        "username: ada\n  password: {PASSWORD}\n  endpoint: {}/",
        shared.endpoint
    );
    write_config(
        &env,
        &format!("datacenters:\n- active: true\n  name: cloud\n  {login}\n"),
    );
    env.paddlectl(&["whoami"]).ok().prints("ada");
    write_config(&env, &format!("cloud:\n  {login}\n"));
    env.paddlectl(&["whoami"]).ok().prints("ada");
}

#[test]
fn a_wrong_password_is_refused_and_never_shown() {
    let env = TestEnvironment::new();
    let shared = Shared::start(&env, "");
    shared.configure(&env, "wrong-secret");
    let ran = env.paddlectl(&["get", "jobs"]).refused(1);
    assert!(!ran.stderr.contains("wrong-secret"), "{ran}");
}

#[test]
fn what_can_never_fit_is_refused_with_what_would() {
    let env = TestEnvironment::new();
    let shared = Shared::start(&env, "");
    shared.configure(&env, PASSWORD);
    let package = package(&env);
    let submit = [
        "submit",
        "-cpu",
        "1",
        "-memory",
        "64Mi",
        "-parallelism",
        "5",
        "-pservers",
        "0",
        "-entry",
        "sh train.sh",
    ];
    let ran = env
        .paddlectl(&[&submit[..], &[package.arg()]].concat())
        .refused(1);
    assert!(ran.stderr.contains('2'), "says how many would fit: {ran}");
    assert!(env.jobs().is_empty());
}

#[test]
fn a_job_beyond_the_users_quota_waits_and_says_why() {
    let env = TestEnvironment::new();
    let shared = Shared::start(&env, "  quota: {cpu: 1}\n");
    shared.configure(&env, PASSWORD);
    let gate = env.gate("go");
    let package = env
        .package("job")
        .file("train.sh", "cat $GATE\n")
        .file("quick.sh", "echo quick\n");
    let whole = [
        "-cpu",
        "1",
        "-env",
        &gate.variable("GATE"),
        "-entry",
        "sh train.sh",
    ];
    env.submit("first", &package, &whole);
    env.wait_for_status("first", "Running");
    env.submit("second", &package, &["-cpu", "1", "-entry", "sh quick.sh"]);
    assert_eq!(env.status("second"), "Pending");
    let why = env.paddlectl(&["why", "second"]).ok().stdout;
    assert!(why.contains("quota"), "{why}");
    let quota = env.paddlectl(&["get", "quota"]).ok().stdout;
    assert!(
        quota.lines().any(|line| line.starts_with("cpu\t1\t1")),
        "limit and use: {quota}"
    );

    gate.open();
    env.paddlectl(&["wait", "first"]).ok();
    env.paddlectl(&["wait", "second"]).ok();
}
