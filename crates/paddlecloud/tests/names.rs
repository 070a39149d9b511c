//! The one program under each of its names. Building this test also builds the program that all other tests drive.

#![cfg(target_os = "linux")]

use std::process::Command;

/// What the program prints to stdout when it is started under `name`.
fn printed(name: &str, args: &[&str]) -> String {
    let folder = tempfile::tempdir().expect("a folder for the link");
    let link = folder.path().join(name);
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_paddlecloud"), &link).expect("a link to the program");
    let output = Command::new(&link)
        .args(args)
        .env("HOME", folder.path())
        .output()
        .expect("the program starts");
    String::from_utf8(output.stdout).expect("help is text")
}

#[test]
fn each_name_selects_its_program() {
    for name in ["paddlectl", "paddlecloud"] {
        let help = printed(name, &["--help"]);
        assert!(help.contains("Subcommands for PFS"), "{name}: {help}");
    }
    for (name, word) in [
        ("paddlecloud-server", "hash-password"),
        ("paddle", "pserver"),
        ("paddle-data", "paddle-data"),
        ("start_paddle", "CONF_PADDLE_GRADIENT_NUM"),
        ("start_paddle.py", "CONF_PADDLE_GRADIENT_NUM"),
        ("paddle_k8s", "start_trainer v1|v2"),
    ] {
        let help = printed(name, &["--help"]);
        assert!(help.contains(word), "{name}: {help}");
    }
}
