//! What becomes part of a package, and what is asked before it is sent.

use std::fs::File;

use e2e::{Package, TestEnvironment};

/// Lists the files that a worker has.
const LIST: &str = "find . -path ./output -prune -o -type f -print | sort\n";

const KEY: &str = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\n";

#[test]
fn a_home_is_not_a_package() {
    let env = TestEnvironment::new();
    std::fs::write(env.home().join("list.sh"), LIST).unwrap();
    let home = env.home().to_str().unwrap();
    let above = env.home().parent().unwrap().to_str().unwrap();
    for (folder, says) in [
        (home, "it is your home folder"),
        (above, "your home folder is in it"),
        ("/", "it is the root of the file system"),
    ] {
        env.paddlectl(&["submit", "-entry", "sh list.sh", folder])
            .refused(1)
            .says(says);
    }
    assert!(env.processes().is_empty(), "not even a server is started");
}

#[test]
fn workers_see_no_credentials_that_the_package_does_not_name() {
    let env = TestEnvironment::new();
    let package = env
        .package("keys")
        .file("list.sh", LIST)
        .file(".env", "PASSWORD=1")
        .file(".aws/credentials", "")
        .file("deploy", KEY)
        .file("test/key", KEY)
        .file(".paddleignore", "!/test/key\n");
    let flags = ["-cpu", "20m", "-memory", "32Mi", "-pservers", "0", "-f"];
    let command = [
        "submit",
        "-jobname",
        "keys",
        "-entry",
        "sh list.sh",
        package.arg(),
    ];
    let submitted = env.paddlectl(&[&command[..], &flags].concat()).ok();
    submitted.says("may be inside: `.aws`, `.env`, the private key `deploy`; `!FILE` in `.paddleignore`");
    let log = env.logs("keys");
    let seen: Vec<&String> = log.iter().filter(|line| line.starts_with("./")).collect();
    assert_eq!(seen, ["./.paddleignore", "./list.sh", "./test/key"]);
}

/// Submits at a terminal, where this answer is typed.
fn submitted_at_a_terminal(env: &TestEnvironment, package: &Package, answer: &str) -> (bool, String) {
    let submit = format!(
        "paddlectl submit -jobname big -cpu 20m -memory 32Mi -pservers 0 -entry true {}",
        package.arg()
    );
    let line = format!("printf '{answer}\\n' | script -qec '{submit}' /dev/null");
    let (status, lines) = env.start_program("sh", &["-c", &line]).end();
    (status.success(), lines.join("\n"))
}

#[test]
fn a_terminal_asks_before_much_is_uploaded_and_a_script_is_told() {
    let env = TestEnvironment::new();
    let package = env.package("big");
    let data = File::create(package.path().join("data")).unwrap();
    data.set_len(200_000_001).unwrap();

    let (is_submitted, shown) = submitted_at_a_terminal(&env, &package, "n");
    assert!(!is_submitted, "{shown}");
    assert!(shown.contains("upload 200.0 MB in 1 file? [y/N]"), "{shown}");
    assert!(
        shown.contains("nothing was uploaded, and no job was created"),
        "{shown}"
    );
    assert!(env.jobs().is_empty());

    let (is_submitted, shown) = submitted_at_a_terminal(&env, &package, "y");
    assert!(is_submitted, "{shown}");
    env.wait_for_status("big", "Succeeded");

    std::fs::write(package.path().join("data2"), "another").unwrap();
    let (is_submitted, shown) = submitted_at_a_terminal(&env, &package, "n");
    assert!(is_submitted, "nearly everything was sent before: {shown}");
    assert!(!shown.contains("[y/N]"), "{shown}");
    env.wait_for_status("big", "Succeeded");

    data.set_len(300_000_000).unwrap();
    let told = env
        .paddlectl(&[
            "submit",
            "-jobname",
            "told",
            "-cpu",
            "20m",
            "-memory",
            "32Mi",
            "-pservers",
            "0",
            "-entry",
            "true",
            package.arg(),
        ])
        .ok();
    told.says("note: the package has 300.0 MB in 2 files");
    env.wait_for_status("told", "Succeeded");
}
