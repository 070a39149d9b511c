//! The help texts of the program.

use crate::shell::Shell;

#[test]
fn the_program_alone_prints_the_groups_of_the_documents() {
    let shell = Shell::new();
    let alone = shell.run(&[]);
    assert_eq!(alone.code, 0);
    insta::assert_snapshot!("overview", alone.out);
    assert_eq!(shell.line("help").out, alone.out);
    assert_eq!(shell.line("--help").out, alone.out);
}

#[test]
fn flags_and_commands_are_lists() {
    let shell = Shell::new();
    insta::assert_snapshot!("flags", shell.line("flags").out);
    insta::assert_snapshot!("commands", shell.line("commands").out);
    assert!(shell.line("flags submit").out.contains("-jobname"));
}

/// `cargo xtask spec --check` compares the text with `docs/reference/commands.md`.
#[test]
fn every_command_has_its_help_by_three_spellings() {
    let shell = Shell::new();
    let names = shell.line("commands").out;
    for name in names.lines() {
        let help = shell.line(&format!("help {name}"));
        assert_eq!(help.code, 0, "{name}");
        assert_eq!(shell.line(&format!("{name} --help")).out, help.out, "{name}");
        assert_eq!(shell.line(&format!("{name} -help")).out, help.out, "{name}");
        assert!(
            help.out.starts_with(|c: char| c.is_uppercase()),
            "{name} says what it does first"
        );
    }
}

#[test]
fn the_version_needs_no_server() {
    let shell = Shell::new();
    let version = shell.line("version");
    assert!(
        version
            .out
            .starts_with(concat!("paddlecloud ", env!("CARGO_PKG_VERSION")))
    );
    assert_eq!(shell.line("--version").out, version.out);
    let json: serde_json::Value = serde_json::from_str(&shell.line("version -o json").out).unwrap();
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn commands_of_other_programs_suggest_ours() {
    let shell = Shell::new();
    let hints = |line: &str| {
        let outcome = shell.line(line);
        assert_eq!(outcome.code, 2);
        outcome.err.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        hints("stop j"),
        [
            "hint: `paddlectl kill` does that",
            "hint: `paddlectl help` lists all commands"
        ]
    );
    assert_eq!(hints("ps")[0], "hint: `paddlectl get jobs` does that");
}

#[test]
fn completions_of_every_shell_name_the_program() {
    let shell = Shell::new();
    for name in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = shell.line(&format!("completion {name}"));
        assert_eq!(script.code, 0);
        assert!(script.out.contains("paddlectl"), "{name}");
    }
}

#[test]
fn a_shell_is_offered_commands_flags_jobs_workers_and_paths() {
    let server = crate::scripted::server();
    let shell = Shell::at(&server.endpoint);
    let offered = |words: &[&str]| {
        let line = [&["completion", "bash", "--"], words].concat();
        let outcome = shell.run(&line);
        assert_eq!((outcome.code, outcome.err.as_str()), (0, ""), "{words:?}");
        outcome
            .out
            .lines()
            .map(str::to_owned)
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(offered(&["desc"]), "describe");
    assert_eq!(offered(&["submit", "-job"]), "-jobname");
    assert_eq!(offered(&["kill", "pad"]), "paddle-cluster-job");
    assert_eq!(offered(&["kill", "x"]), "");
    assert_eq!(offered(&["logs", "-w", "tr"]), "trainer-0");
    assert_eq!(offered(&["ls", "/pfs"]), "/pfs/");
    assert_eq!(offered(&["ls", "/pfs/"]), "/pfs/dc1/ /pfs/public/");
    assert_eq!(offered(&["ls", "/pfs/dc1/h"]), "/pfs/dc1/home/");
    assert_eq!(offered(&["ls", "/pfs/dc1/home/"]), "/pfs/dc1/home/me/");
    assert_eq!(offered(&["config", "use", "d"]), "dc1");
    assert_eq!(offered(&["--datacenter", ""]), "dc1");
    assert_eq!(offered(&["cp", "./da"]), "", "files are the shell's business");
}

#[test]
fn a_server_that_cannot_be_asked_leaves_the_line_alone() {
    let shell = Shell::new();
    let outcome = shell.run(&["completion", "bash", "--", "kill", ""]);
    assert_eq!(
        (outcome.code, outcome.out.as_str(), outcome.err.as_str()),
        (0, "", "")
    );
    assert!(
        !shell.home().join(".paddle/local").exists(),
        "no server was started"
    );
}
