//! A shared server: configured, with passwords, quotas and its own capacity.

use std::io::{Read, Write};
use std::net::TcpStream;

use e2e::{PASSWORD, Package, Shared, TestEnvironment};

use crate::files::site::Site;

fn package(env: &TestEnvironment) -> Package {
    env.package("job").file(
        "train.sh",
        "echo on $PADDLE_CLOUD_CURRENT_DATACENTER as $PADDLE_CLOUD_USERNAME\n",
    )
}

#[test]
fn the_same_commands_work_against_a_shared_server() {
    let env = TestEnvironment::new();
    let shared = Shared::start(&env, "", "");
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
    let shared = Shared::start(&env, "", "");
    let login = format!(
        "username: ada\n  password: {PASSWORD}\n  endpoint: {}/",
        shared.endpoint
    );
    env.configure(&format!(
        "datacenters:\n- active: true\n  name: cloud\n  {login}\n"
    ));
    env.paddlectl(&["whoami"]).ok().prints("ada");
    env.configure(&format!("cloud:\n  {login}\n"));
    env.paddlectl(&["whoami"]).ok().prints("ada");
}

#[test]
fn a_wrong_password_is_refused_and_never_shown() {
    let env = TestEnvironment::new();
    let shared = Shared::start(&env, "", "");
    shared.configure(&env, "wrong-secret");
    let ran = env.paddlectl(&["get", "jobs"]).refused(1);
    assert!(!ran.stderr.contains("wrong-secret"), "{ran}");
}

#[test]
fn a_job_that_can_never_fit_is_refused_with_a_size_that_fits() {
    let env = TestEnvironment::new();
    let shared = Shared::start(&env, "", "");
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
    let shared = Shared::start(&env, "", "  quota: {cpu: 1}\n");
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

/// A request whose body never comes to its end, and which the server is waiting for.
fn unfinished_request(endpoint: &str) -> TcpStream {
    let mut stream = TcpStream::connect(endpoint).expect("the server listens");
    let head = format!(
        "POST /api/v1/packages HTTP/1.1\r\nhost: x\r\nauthorization: Basic {LOGIN}\r\n\
         content-length: 1000\r\nexpect: 100-continue\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("it listens still");
    let mut word = [0; 12];
    stream.read_exact(&mut word).expect("it wants the body");
    assert_eq!(&word, b"HTTP/1.1 100");
    stream
}

/// The user and the password, as HTTP spells them.
const LOGIN: &str = "YWRhOmNvcnJlY3QgaG9yc2UgYmF0dGVyeSBzdGFwbGU=";

#[test]
fn a_second_signal_ends_a_server_with_an_unfinished_request() {
    let env = TestEnvironment::new();
    let shared = Shared::start(&env, "", "");
    let stalled = unfinished_request(&shared.endpoint);
    let mut server = shared.into_server();
    server.interrupt();
    server.wait_for_line("stopping on a signal");
    server.interrupt();
    let (status, lines) = server.end();
    assert_eq!(status.code(), Some(1), "{lines:#?}");
    assert!(
        lines
            .iter()
            .any(|line| line.contains("second signal: stopping immediately"))
    );
    drop(stalled);
}

#[test]
fn a_server_whose_log_is_no_longer_read_works_and_stops() {
    let env = TestEnvironment::new();
    // `grep` reads the log until the server is ready, then it exits.
    let reader = r#"exec "$0" "$@" 2> >(grep -m1 ready >&2)"#;
    let shared = Shared::start_under(&env, &["bash", "-c", reader], "", "");
    shared.configure(&env, PASSWORD);
    env.submit("unread", &package(&env), &["-entry", "sh train.sh"]);
    env.wait_for_status("unread", "Succeeded");
    let server = shared.into_server();
    server.interrupt();
    let (status, lines) = server.end();
    assert_eq!(status.code(), Some(0), "{lines:#?}");
}

#[test]
#[ignore = "needs root"]
fn server_status_describes_the_configured_shared_server() {
    let env = TestEnvironment::new();
    let users = [
        ("ada", "  admin: true\n  system_user: daemon\n"),
        ("bob", "  system_user: nobody\n"),
    ];
    let mut site = Site::with(&env, &users, "", &[]);
    let storage = site.storage().to_owned();
    let storage = storage.to_str().expect("a plain name");
    let status = ["server", "status"];
    let shown = site.run("ada", &status).ok();
    let server = format!("the shared server of `cloud` at http://{}", site.endpoint());
    let shown = shown.prints(&server).prints("limits      names of 255 bytes");
    drop(shown.prints(storage));
    let json = site.run("ada", &["server", "status", "-o", "json"]).ok().json();
    assert_eq!(json["embedded"], false, "{json}");
    let shown = site.run("bob", &status).ok().prints(&server);
    assert!(!shown.stdout.contains(storage), "{shown}");
    assert!(
        !shown.stdout.contains("storage"),
        "what is not told has no line\n{shown}"
    );
    // This machine's own is another matter.
    let own = site.run("ada", &["--datacenter", "local", "server", "status"]);
    assert_eq!(own.code, Some(1), "{own}");
    drop(own.says("the embedded server is not running"));
    site.stop();
    let gone = site.run("ada", &status);
    assert_eq!(gone.code, Some(3), "{gone}");
    drop(gone.says(site.endpoint()));
    assert!(!env.home().join(".paddle/local").exists(), "nothing was started");
}
