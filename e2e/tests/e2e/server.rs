//! The embedded server: starts by itself, once, stays private, and leaves jobs running when it stops.

use std::os::unix::fs::PermissionsExt;

use e2e::TestEnvironment;

#[test]
fn commands_that_race_start_one_server() {
    let env = TestEnvironment::new();
    let racing: Vec<_> = (0..6).map(|_| env.start(&["get", "jobs"])).collect();
    for command in racing {
        let (status, lines) = command.end();
        assert_eq!(status.code(), Some(0), "{lines:?}");
    }
    let servers = env
        .processes()
        .iter()
        .filter(|process| process.arguments.contains("--embedded"))
        .count();
    assert_eq!(servers, 1, "{:#?}", env.processes());
}

#[test]
fn the_server_is_private_to_its_user() {
    let env = TestEnvironment::new();
    env.paddlectl(&["server", "start"]).ok();
    let data = env.home().join(".paddle/local");
    let mode = std::fs::metadata(&data).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o700, "the folder of the server is nobody else's");
}

#[test]
fn stopping_the_server_leaves_jobs_running_and_the_next_one_adopts_them() {
    let env = TestEnvironment::new();
    let package = env
        .package("job")
        .file("train.sh", "echo up\nexec tail -f /dev/null\n");
    env.submit("stays", &package, &["-entry", "sh train.sh"]);
    env.start(&["logs", "-f", "stays"]).wait_for_line("up");
    let before = env.server_pid();
    env.paddlectl(&["server", "stop"]).ok();
    assert!(!env.workers().is_empty(), "the worker still runs");
    assert_eq!(env.status("stays"), "Running");
    assert_ne!(env.server_pid(), before);
    env.paddlectl(&["kill", "stays"]).ok();
    env.wait_for_status("stays", "Killed");
}

#[test]
fn an_unavailable_command_says_so() {
    let env = TestEnvironment::new();
    env.paddlectl(&["top"]).refused(1).says("is not available yet");
}

#[test]
fn version_and_help_need_no_server() {
    let env = TestEnvironment::new();
    env.paddlectl(&["version"]).ok().prints("0.1.0");
    env.paddlectl(&[]).ok().prints("Subcommands for PFS:");
    env.run("paddlecloud", &["version"]).ok().prints("0.1.0");
    assert!(env.processes().is_empty());
    assert!(!env.home().join(".paddle").exists(), "nothing was written");
}

#[test]
fn the_server_has_no_terminal_and_its_status_shows_its_paths() {
    let env = TestEnvironment::new();
    env.paddlectl(&["get", "jobs"]).ok();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", env.server_pid())).expect("it runs");
    // After the name in brackets: state, parent, group, session, terminal.
    let (_, fields) = stat.rsplit_once(") ").expect("a name in brackets");
    let fields: Vec<&str> = fields.split(' ').collect();
    assert_eq!(fields[4], "0", "it has no terminal: {stat}");
    let ours = std::fs::read_to_string("/proc/self/stat").expect("we run");
    let (_, ours) = ours.rsplit_once(") ").expect("a name in brackets");
    assert_ne!(Some(fields[3]), ours.split(' ').nth(3), "it left the session");

    let status = env.paddlectl(&["server", "status"]).ok().stdout;
    let memory = status.lines().find(|line| line.starts_with("memory "));
    assert!(memory.is_some_and(|line| line.ends_with("iB")), "{status}");
    for name in ["storage", "log", "database"] {
        let line = status
            .lines()
            .find(|line| line.starts_with(name))
            .expect("a line for it");
        let path = line
            .split_whitespace()
            .nth(1)
            .expect("a path")
            .trim_start_matches("sqlite:");
        assert!(std::path::Path::new(path).exists(), "{line}");
    }
}
