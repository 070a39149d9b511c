//! Every line about files in the documents, typed as printed there; and the rule of the slash.

use std::fs;
use std::path::Path;

use e2e::{Ran, TestEnvironment};

use super::{home, plant};

/// Runs a command in a folder, as a person there would.
#[track_caller]
fn run_in(env: &TestEnvironment, folder: &Path, program: &str, words: &[&str]) -> Ran {
    let output = env
        .command(program, words)
        .current_dir(folder)
        .output()
        .expect("a program of ours starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ran {
        line: format!("{program} {}", words.join(" ")),
        code: output.status.code(),
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
    }
}

#[test]
fn the_lines_of_the_documents_work() {
    let env = TestEnvironment::new();
    let work = env.folder("work");
    plant(
        &work,
        &[
            ("job_word_emb/data/train/train.txt-00000", "words\n"),
            ("job_word_emb/data/test/test.txt-00000", "words\n"),
            ("src/a", "1"),
        ],
    );
    let home = home(&env);
    let at = |name: &str| format!("{home}/{name}");
    let line = |program: &str, words: &[&str]| run_in(&env, &work, program, words).ok();

    // S4
    let job = at("job_word_emb");
    line("paddlecloud", &["pfs", "cp", "-r", "./job_word_emb/data", &job])
        .says("Uploading ./job_word_emb/data ... Done");
    line("paddlecloud", &["pfs", "ls", &job]).prints("test\ntrain\n");
    line(
        "paddlecloud",
        &[
            "pfs",
            "cp",
            "src/a",
            "job_word_emb/data/train/train.txt-00000",
            &job,
        ],
    );
    line("paddlecloud", &["pfs", "cp", &format!("{job}/train"), "./output"])
        .says(&format!("Downloading {job}/train ... Done"));
    assert!(work.join("output/train.txt-00000").is_file());
    line(
        "paddlecloud",
        &["pfs", "cp", &format!("{job}/a"), &format!("{job}/test"), "."],
    );
    assert!(work.join("a").is_file() && work.join("test/test.txt-00000").is_file());
    line("paddlecloud", &["pfs", "rm", &format!("{job}/a")]);

    // S0, where the home is called `user`
    let user = home.replace("/home/", "/user/");
    line("paddlectl", &["file", "src", &user]).says("Uploading src ... Done");
    line("paddlectl", &["ls", &at("src")]).prints("a\n");
    line("paddlectl", &["mkdir", &at("d")]);
    line("paddlectl", &["cp", "src/a", &at("d/a")]);
    line("paddlectl", &["ls", "-r", &at("d")]).prints("a\n");
    line("paddlectl", &["rm", "-r", &at("d")]);
    line("paddlectl", &["file", "ls", &at("src")]).prints("a\n");
}

#[test]
fn the_slash_after_the_source_decides_whether_its_folder_comes_along() {
    let env = TestEnvironment::new();
    let work = env.folder("work");
    plant(&work, &[("src/a", "1"), ("src/sub/b", "2")]);
    let home = home(&env);
    let listed = |path: &str| env.paddlectl(&["ls", "-r", path]).ok().stdout;
    let file = |words: &[&str]| run_in(&env, &work, "paddlectl", &[&["file"], words].concat());

    let (with, without) = (format!("{home}/with"), format!("{home}/without"));
    file(&["src", &with]).ok();
    assert_eq!(listed(&with), "src\nsrc/a\nsrc/sub\nsrc/sub/b\n");
    file(&["put", "src/", &without]).ok();
    assert_eq!(listed(&without), "a\nsub\nsub/b\n");

    file(&["get", &without, "down"]).ok();
    assert!(work.join("down/without/a").is_file());
    file(&["get", &format!("{without}/"), "flat"]).ok();
    assert!(work.join("flat/a").is_file());
    file(&["get", &without])
        .refused(2)
        .says("`file get` takes a path `/pfs/…` and a path here");
}

#[test]
fn a_source_outside_the_current_folder_is_refused() {
    let env = TestEnvironment::new();
    let work = env.folder("work/inner");
    plant(&work, &[("a", "1")]);
    fs::write(work.join("../secret"), "").unwrap();
    let home = home(&env);
    std::os::unix::fs::symlink("..", work.join("link")).unwrap();
    for source in [
        "../secret",
        "..",
        "./../secret",
        "/etc/hostname",
        "/etc/host*",
        "../secr*",
        "link",
        "lin*",
        "link/*",
        "link/secr*",
        "*",
    ] {
        for words in [&["file"][..], &["file", "put"]] {
            run_in(&env, &work, "paddlectl", &[words, &[source, &home]].concat())
                .refused(1)
                .says("below the current folder");
        }
    }
    assert_eq!(env.paddlectl(&["ls", &home]).ok().stdout, "");
    run_in(&env, &work, "paddlectl", &["file", "[a-k]*", &home])
        .ok()
        .says("Uploading a ... Done");
    assert_eq!(env.paddlectl(&["ls", &home]).ok().stdout, "a\n");
}

#[test]
fn file_works_in_the_home_only() {
    let env = TestEnvironment::new();
    let work = env.folder("work");
    plant(&work, &[("src/a", "1")]);
    let public = home(&env).replace("/home/", "/public/");
    for remote in ["/pfs/public/x", &public] {
        for words in [
            &["file", "src", remote][..],
            &["file", "put", "src", remote],
            &["file", "get", remote, "."],
        ] {
            run_in(&env, &work, "paddlectl", words)
                .refused(1)
                .says("`file` works in your home only")
                .says("hint: `cp`");
        }
    }
}
