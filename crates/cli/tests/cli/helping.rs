//! The texts that explain the program.

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

#[test]
fn every_command_has_its_help_by_three_spellings() {
    let shell = Shell::new();
    let names = shell.line("commands").out;
    let mut all = String::new();
    for name in names.lines() {
        let help = shell.line(&format!("help {name}"));
        assert_eq!(help.code, 0, "{name}");
        assert_eq!(shell.line(&format!("{name} --help")).out, help.out, "{name}");
        assert_eq!(shell.line(&format!("{name} -help")).out, help.out, "{name}");
        assert!(
            help.out.starts_with(|c: char| c.is_uppercase()),
            "{name} says what it does first"
        );
        all.push_str(&format!("===== {name}\n{}\n", help.out));
    }
    insta::assert_snapshot!("help_of_all_commands", all);
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
fn completions_name_every_command() {
    let shell = Shell::new();
    for name in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = shell.line(&format!("completion {name}"));
        assert_eq!(script.code, 0);
        assert!(
            script.out.contains("submit") && script.out.contains("describe"),
            "{name}"
        );
    }
}

#[cfg(unix)]
#[test]
fn bash_completes_long_flags_after_one_dash_and_after_two() {
    let shell = Shell::new();
    let script = shell.write("completion.bash", &shell.line("completion bash").out);
    let completed = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [.., before, last] = words[..] else {
            panic!("two words at least: {line}")
        };
        let asked = format!(
            "source {}; COMP_WORDS=({line}); COMP_CWORD={}; _paddlectl paddlectl '{last}' '{before}'; echo ${{COMPREPLY[*]}}",
            script.display(),
            words.len() - 1
        );
        let ran = std::process::Command::new("bash")
            .args(["--norc", "-c", &asked])
            .output()
            .unwrap();
        String::from_utf8(ran.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(completed("paddlectl submit -job"), "-jobname");
    assert_eq!(completed("paddlectl submit --job"), "--jobname");
    assert_eq!(completed("paddlectl submit -output js"), "json");
    assert_eq!(completed("paddlectl kill -r"), "-rm");
    assert!(!completed("paddlectl kill -").contains(" -rm"), "each flag once");
}
