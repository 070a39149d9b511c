//! The same server with PostgreSQL as its store: a private cluster in the test's own folder, never run as root.

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use e2e::{PASSWORD, Shared, TestEnvironment};

/// PostgreSQL refuses to run as root; this user exists on every Debian and owns nothing.
const NOBODY: u32 = 65534;

/// A running cluster; stopped when dropped.
struct Cluster {
    programs: PathBuf,
    folder: PathBuf,
}

impl Cluster {
    fn start(env: &TestEnvironment) -> Cluster {
        let programs = programs().expect("the test needs PostgreSQL");
        let folder = tempfile_of(env);
        let cluster = Cluster { programs, folder };
        let data = cluster.path("data");
        cluster.run(
            "initdb",
            &[
                "-D",
                &data,
                "-A",
                "trust",
                "-U",
                "test",
                "--no-sync",
                "-E",
                "UTF8",
            ],
        );
        cluster.control("start");
        cluster.run("createdb", &["-h", &cluster.path(""), "-U", "test", "jobs"]);
        cluster
    }

    fn control(&self, how: &str) {
        let options = format!(
            "-c listen_addresses= -c unix_socket_directories={} -c fsync=off",
            self.path("")
        );
        let (data, log) = (self.path("data"), self.path("log"));
        self.run(
            "pg_ctl",
            &[
                how,
                "-w",
                "-m",
                "immediate",
                "-D",
                &data,
                "-l",
                &log,
                "-o",
                &options,
            ],
        );
    }

    fn url(&self) -> String {
        format!("postgres://test@localhost/jobs?host={}", self.path(""))
    }

    fn path(&self, name: &str) -> String {
        self.folder
            .join(name)
            .display()
            .to_string()
            .trim_end_matches('/')
            .to_owned()
    }

    fn run(&self, program: &str, args: &[&str]) {
        let mut command = Command::new(self.programs.join(program));
        command
            .args(args)
            .current_dir(&self.folder)
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        let status = command.status().expect("a program of PostgreSQL can be started");
        assert!(status.success(), "{program} {args:?}: {status}");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let data = self.path("data");
        let mut stop = Command::new(self.programs.join("pg_ctl"));
        stop.args(["stop", "-m", "immediate", "-D", &data])
            .stdout(Stdio::null());
        if is_root() {
            stop.uid(NOBODY).gid(NOBODY);
        }
        // Where it cannot be stopped it has not started, and the test has failed already.
        let _ = stop.status();
    }
}

/// Where Debian and others keep the programs, newest first.
fn programs() -> Option<PathBuf> {
    let mut versions: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|version| version.path().join("bin"))
        .collect();
    versions.sort();
    let on_path = env::var_os("PATH").unwrap_or_default();
    let mut all = versions.into_iter().rev().chain(env::split_paths(&on_path));
    all.find(|place| place.join("initdb").exists())
}

fn is_root() -> bool {
    Path::new("/proc/self")
        .metadata()
        .is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0)
}

/// A folder whose path is short enough for a socket and that the cluster's user may enter.
fn tempfile_of(env: &TestEnvironment) -> PathBuf {
    let folder = env.folder("pg");
    for above in folder.ancestors().take(2) {
        fs::set_permissions(above, fs::Permissions::from_mode(0o711)).expect("it is ours");
    }
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).expect("it is ours");
    if is_root() {
        chown(&folder, Some(NOBODY), Some(NOBODY)).expect("root gives away what is its own");
    }
    folder
}

#[test]
#[ignore = "needs PostgreSQL"]
fn jobs_run_and_are_stored_in_postgresql() {
    let env = TestEnvironment::new();
    let cluster = Cluster::start(&env);
    let settings = format!("database: \"{}\"\n", cluster.url());
    let shared = Shared::start(&env, &settings, "");
    shared.configure(&env, PASSWORD);
    let package = env.package("job").file("train.sh", "echo stored elsewhere\n");
    env.submit("first", &package, &["-entry", "sh train.sh", "-f"]);
    let gate = env.gate("go");
    let waits = env.package("waits").file("train.sh", "echo up\ncat $GATE\n");
    env.submit(
        "second",
        &waits,
        &["-env", &gate.variable("GATE"), "-entry", "sh train.sh"],
    );
    env.start(&["logs", "-f", "second"]).wait_for_line("up");

    // Another server on the same database: the history is there, the worker is adopted.
    drop(shared);
    let shared = Shared::start(&env, &settings, "");
    shared.configure(&env, PASSWORD);
    assert_eq!(env.status("first"), "Succeeded");
    assert_eq!(env.status("second"), "Running");

    // The database restarts under the server, which reconnects.
    cluster.control("restart");
    gate.open();
    env.paddlectl(&["wait", "second"]).ok();
    env.paddlectl(&["logs", "--raw", "first"])
        .ok()
        .prints("stored elsewhere\n");
    assert!(
        !env.folder("server").join("data/server.db").exists(),
        "nothing went to a file beside it"
    );
}

#[test]
fn a_database_that_does_not_answer_is_named_without_its_password() {
    let env = TestEnvironment::new();
    let config = env.folder("server").join("config.yaml");
    let data = env.folder("server").join("data");
    let text = format!(
        "data: {}\ndatacenter: cloud\ndatabase: \"postgres://ada:hush@127.0.0.1:1/jobs\"\nusers: []\n",
        data.display()
    );
    fs::write(&config, text).expect("a file in the test's own folder");
    let ran = env
        .run(
            "paddlecloud-server",
            &["--config", config.to_str().expect("a plain name")],
        )
        .refused(1)
        .says("127.0.0.1:1")
        .says("that PostgreSQL runs there");
    assert!(!ran.stderr.contains("hush"), "{ran}");
}
