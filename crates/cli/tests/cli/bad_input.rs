//! Invalid input gets one clear sentence and the right exit code, and nothing is lost.

use crate::scripted::{server, server_with};
use crate::shell::Shell;

/// Lines that cannot be understood.
const NONSENSE: &[&str] = &[
    "submt",
    "submit -jobnam x",
    "submit --parallelsim 3",
    "get",
    "get jbos",
    "get jobs extra",
    "get jobs -a --limit 0",
    "submit -foo PKG",
    "config use dc9",
    "data cat --records 5..2 PKG/train.py",
    "data inspect -o wide PKG/train.py",
    "rerun -jobname a_b last",
    "get quota extra",
    "nope",
    "help nope",
    "kill -o json job",
    "kill -f job",
    "kill",
    "kil job",
    "logs -n ten",
    "logs -since yesterday",
    "logs my_job",
    "wait -timeout soon job",
    "help submi",
    "config",
    "server",
    "submit -jobname my_job PKG",
    "submit -jobname last PKG",
    "submit -parallelism 0 PKG",
    "submit -parallelism -1 PKG",
    "submit -parallelism 1000000 PKG",
    "submit -parallelism many PKG",
    "submit -parallelism 99999999999999999999 PKG",
    "submit -memory 1X PKG",
    "submit -memory 0 PKG",
    "submit -memory 1 PKG",
    "submit -cpu 0 PKG",
    "submit -cpu -2 PKG",
    "submit -gpu -1 PKG",
    "submit -passes 0 PKG",
    "submit -retries -1 PKG",
    "submit -priority 5000 PKG",
    "submit -priority 99999999999 PKG",
    "submit -retries 9999999999 PKG",
    "submit -psports 99999 PKG",
    "submit -psports 65 PKG",
    "submit -max-runtime 99999999999999d PKG",
    "submit -env LR PKG",
    "submit -env 1A=x PKG",
    "submit -grace soon PKG",
    "submit -max-runtime 0 PKG",
    "submit",
    "submit -jobname",
    "submit -entry x PKG -- y",
    "submit -entry sh'x PKG",
    "cp PKG",
    "cp PKG PKG",
    "cp PKG -",
    "cp - - /pfs/dc1/home/me/x",
    "cp PKG /pfs/dc1/home/me/x /pfs/dc1/home/me/y",
    "cp PKG /pfs/dc1/home/me/../you/x",
    "cp PKG /pfs/dc1/etc/passwd",
    "cp -bwlimit fast PKG /pfs/dc1/home/me/x",
    "cp -transfers 0 PKG /pfs/dc1/home/me/x",
    "cp -exclude [ PKG /pfs/dc1/home/me/x",
    "cp -files-from /no/such/list PKG /pfs/dc1/home/me/x",
    "file /pfs/dc1/home/me/x",
    "file ../pkg /pfs/dc1/home/me/x",
    "file /etc /pfs/dc1/home/me/x",
    "file put Cargo.toml /pfs/public/x",
    "file get PKG /pfs/dc1/home/me/x",
    "sync PKG PKG",
    "sync - /pfs/dc1/home/me/x",
    "check PKG PKG",
    "mv PKG /pfs/dc1/home/me/x",
    "ls data",
    "rm",
    "publish -expires soon /pfs/dc1/home/me/x",
];

#[test]
fn every_invalid_flag_value_gets_a_message() {
    let server = server();
    let mut shell = Shell::at(&server.endpoint);
    shell.write("pkg/train.py", "print()");
    let package = shell.home().join("pkg");
    shell.set("COLUMNS", "120");
    let mut stories = String::new();
    for line in NONSENSE {
        let typed = line.replace("PKG", package.to_str().unwrap());
        let outcome = shell.line(&typed);
        assert!(
            outcome.err.starts_with("error: ") || outcome.code == 0,
            "{line}: {}",
            outcome.err
        );
        stories.push_str(&format!("$ {line}\n{}\n", outcome.story(&shell)));
    }
    insta::assert_snapshot!("nonsense", stories);
    assert_eq!(server.lines(), Vec::<String>::new(), "nothing was sent");
}

#[test]
fn a_name_of_300_characters_is_refused_shortly() {
    let shell = Shell::new();
    let name = "x".repeat(300);
    let outcome = shell.run(&["submit", "-jobname", &name, "."]);
    assert_eq!(outcome.code, 2);
    assert!(
        outcome.err.contains("at most 63 characters, this one has 300"),
        "{}",
        outcome.err
    );
    assert!(outcome.err.lines().next().unwrap().len() < 200, "{}", outcome.err);
}

#[test]
fn packages_that_cannot_run_are_refused_before_anything_is_sent() {
    let server = server();
    let shell = Shell::at(&server.endpoint);
    shell.write("full/src/train.py", "print()");
    shell.write("hidden/train.py", "print()");
    shell.write("hidden/.paddleignore", "train.py\n");
    shell.write("ignored/.paddleignore", "*\n");
    std::fs::create_dir(shell.home().join("empty")).unwrap();
    let submit = |folder: &str| {
        let folder = shell.home().join(folder);
        shell.run(&["submit", "-entry", "python train.py", folder.to_str().unwrap()])
    };
    let mut stories = String::new();
    for folder in [
        "full",
        "hidden",
        "ignored",
        "empty",
        "missing",
        "full/src/train.py",
    ] {
        let outcome = submit(folder);
        assert_eq!(outcome.code, 1, "{folder}");
        stories.push_str(&format!("$ {folder}\n{}\n", outcome.story(&shell)));
    }
    insta::assert_snapshot!("packages", stories);
    assert_eq!(server.lines(), Vec::<String>::new(), "nothing was sent");
}

#[test]
fn an_unreachable_server_is_exit_code_3() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let shell = Shell::at(&endpoint);
    let outcome = shell.line("get jobs");
    assert_eq!(outcome.code, 3);
    assert!(
        shell
            .tidy(&outcome.err)
            .starts_with("error: cannot reach the server at ENDPOINT: "),
        "{}",
        outcome.err
    );
}

#[test]
fn a_refusal_is_exit_code_1_with_the_servers_hints() {
    let server = server_with(|line| {
        let body = r#"{"code":409,"msg":"the name `x` is taken","error":"name-taken","hints":["try `x-2`"]}"#;
        line.starts_with("POST /api/v1/jobs")
            .then(|| (409, body.to_owned()))
    });
    let shell = Shell::at(&server.endpoint);
    let outcome = shell.line("submit -jobname x -entry ./train /pfs/dc1/home/me/pkg");
    assert_eq!(outcome.code, 1);
    assert!(
        outcome
            .err
            .ends_with("error: the name `x` is taken\nhint: try `x-2`\n"),
        "{}",
        outcome.err
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_home_that_cannot_be_used_says_how_to_move() {
    let mut shell = Shell::new();
    let file = shell.write("occupied", "");
    shell.set("PADDLECLOUD_HOME", file.to_str().unwrap());
    let outcome = shell.line("get jobs");
    assert_eq!(outcome.code, 3, "{}", outcome.err);
    assert!(
        outcome.err.contains("hint: set `PADDLECLOUD_HOME` to a folder"),
        "{}",
        outcome.err
    );
}
