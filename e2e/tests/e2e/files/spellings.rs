//! Every line about files in the documents, typed as printed there; and the rule of the slash.

use std::fs;
use std::path::Path;

use e2e::{Ran, TestEnvironment};

use super::{arg, home, on_disk, plant};

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
fn the_commands_in_the_documents_work() {
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

    // the client design
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

    // the submit guide, where the home is called `user`
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
fn a_slash_after_the_source_transfers_only_its_contents() {
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
        .says("`file get` takes a `/pfs/…` path and a local path");
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

/// Two files, two folders, and links to each and to nothing, on the cluster.
fn with_files_and_folders(env: &TestEnvironment) -> String {
    let data = env.folder("data");
    plant(&data, &[("a", "1"), ("b", "2"), ("d1/x", "3"), ("d2/y", "4")]);
    for (name, target) in [("to-file", "a"), ("to-folder", "d1"), ("to-nothing", "nowhere")] {
        std::os::unix::fs::symlink(target, data.join(name)).expect("ours");
    }
    let remote = format!("{}/data", home(env));
    env.paddlectl(&["cp", "-r", arg(&data), &remote]).ok();
    remote
}

#[test]
fn a_pattern_that_ends_with_a_slash_matches_only_folders() {
    let env = TestEnvironment::new();
    let work = env.folder("work");
    let remote = with_files_and_folders(&env);
    let (folders, files) = (format!("{remote}/*/"), format!("{remote}/[ab]/"));
    let named: String = ["d1", "d2", "to-folder"]
        .map(|name| format!("{remote}/{name}\n"))
        .concat();
    for verb in ["stat", "du"] {
        let ran = env.paddlectl(&[verb, "-o", "name", &folders]).ok();
        assert_eq!(ran.stdout, named, "{verb}");
    }
    let listed = env.paddlectl(&["ls", "-o", "name", &folders]).ok().stdout;
    let held: String = ["d1/x", "d2/y", "to-folder/x"]
        .map(|name| format!("{remote}/{name}\n"))
        .concat();
    assert_eq!(listed, held);

    run_in(&env, &work, "paddlectl", &["file", "get", &folders, "new"]).ok();
    let mut names: Vec<_> = fs::read_dir(work.join("new")).unwrap().flatten().collect();
    names.sort_by_key(fs::DirEntry::file_name);
    assert_eq!(
        names.iter().map(fs::DirEntry::file_name).collect::<Vec<_>>(),
        ["x", "y"]
    );

    let copy = format!("{}/copy", home(&env));
    env.paddlectl(&["cp", "-r", &remote, &copy]).ok();
    env.paddlectl(&["rm", "-r", &format!("{copy}/*/")]).ok();
    let left = env.paddlectl(&["ls", &copy]).ok().stdout;
    assert_eq!(left, "a\nb\nto-file\nto-nothing\n");

    let moved = format!("{}/moved/", home(&env));
    env.paddlectl(&["mv", &folders, &moved]).ok();
    let left = env.paddlectl(&["ls", &remote]).ok().stdout;
    assert_eq!(left, "a\nb\nto-file\nto-nothing\n");
    let listed = env.paddlectl(&["ls", &moved]).ok().stdout;
    assert_eq!(listed, "d1\nd2\nto-folder\n");

    for words in [
        &["rm", "-r", &folders][..],
        &["mv", &files, &moved],
        &["cp", &files, arg(&work)],
        &["file", "get", &files, "none"],
        &["ls", &files],
        &["cat", &files],
    ] {
        run_in(&env, &work, "paddlectl", words)
            .refused(1)
            .says("nothing matches it");
    }
}

#[test]
fn every_command_refuses_a_file_with_a_slash_at_its_end() {
    let env = TestEnvironment::new();
    let work = env.folder("work");
    let remote = with_files_and_folders(&env);
    let before = env.paddlectl(&["ls", "-r", "-l", &remote]).ok().stdout;
    let (whole, new) = (format!("{remote}/a"), format!("{remote}/new"));
    for name in ["a/", "a/.", "to-file/"] {
        let file = format!("{remote}/{name}");
        for words in [
            &["rm", &file][..],
            &["rm", "-r", "-f", &file],
            &["mv", &file, &new],
            &["cp", &file, "here"],
            &["cp", "-r", &file, &new],
            &["cp", &file, "-"],
            &["file", "get", &file, "here"],
            &["sync", &file, "here"],
            &["check", &file, &whole],
            &["check", &whole, &file],
            &["cat", &file],
            &["du", &file],
            &["ls", &file],
            &["publish", &file],
            &["stat", &file],
        ] {
            run_in(&env, &work, "paddlectl", words)
                .refused(1)
                .says("is not a folder");
        }
    }
    assert_eq!(env.paddlectl(&["ls", "-r", "-l", &remote]).ok().stdout, before);
    assert_eq!(fs::read_dir(&work).unwrap().count(), 0);
    // A folder is one with and without.
    env.paddlectl(&["rm", "-r", &format!("{remote}/d1/")]).ok();
    assert!(!on_disk(&env, &remote).join("d1").exists());
}
