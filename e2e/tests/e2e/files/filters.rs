//! `--exclude`, `--include`, `--files-from`, in every direction of a transfer.

use std::fs;
use std::path::{Path, PathBuf};

use e2e::TestEnvironment;

use super::{arg, home, plant, with_stdin};

const FILES: [(&str, &str); 4] = [
    ("a.txt", "1"),
    ("a.log", "2"),
    ("tmp/x", "3"),
    ("sub/keep.log", "4"),
];

/// What each of these lets through of them.
fn choices(list: &Path) -> Vec<(Vec<&str>, &'static str)> {
    vec![
        (
            vec!["--include", "keep.log", "--exclude", "*.log", "--exclude", "/tmp"],
            "a.txt\nsub\nsub/keep.log\n",
        ),
        (vec!["--include", "*.txt"], "a.txt\n"),
        (vec!["--files-from", arg(list)], "a.txt\ntmp\ntmp/x\n"),
    ]
}

fn write_list(env: &TestEnvironment) -> PathBuf {
    let list = env.folder("lists").join("list");
    fs::write(&list, "tmp\na.txt\n").expect("a file in the test's own folder");
    list
}

/// A folder with the files above, on the cluster.
fn with_files(env: &TestEnvironment) -> String {
    let data = env.folder("data");
    plant(&data, &FILES);
    let remote = format!("{}/data", home(env));
    env.paddlectl(&["cp", "-r", arg(&data), &remote]).ok();
    remote
}

fn listed(folder: &Path) -> String {
    let mut paths = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(here) = folders.pop() {
        for entry in fs::read_dir(here).expect("it is there").map(Result::unwrap) {
            let path = entry.path();
            let below = path.strip_prefix(folder).expect("it lies there");
            paths.push(format!("{}\n", arg(below)));
            if path.is_dir() {
                folders.push(path);
            }
        }
    }
    paths.sort();
    paths.concat()
}

#[test]
fn filters_apply_to_downloads() {
    let env = TestEnvironment::new();
    let (remote, list) = (with_files(&env), write_list(&env));
    for (at, (flags, expected)) in choices(&list).into_iter().enumerate() {
        for verb in ["cp", "sync"] {
            let back = env.home().join(format!("{verb}{at}"));
            let line = [&[verb], &flags[..], &[&remote, arg(&back)]].concat();
            env.paddlectl(&line).ok();
            assert_eq!(listed(&back), expected, "{line:?}");
        }
    }
    let back = env.folder("single");
    let (log, text) = (format!("{remote}/a.log"), format!("{remote}/a.txt"));
    env.paddlectl(&["cp", "--exclude", "*.log", &log, &text, arg(&back)])
        .ok();
    assert_eq!(listed(&back), "a.txt\n");
}

#[test]
fn filters_apply_to_copies_on_the_cluster() {
    let env = TestEnvironment::new();
    let (remote, list) = (with_files(&env), write_list(&env));
    let home = home(&env);
    for (at, (flags, expected)) in choices(&list).into_iter().enumerate() {
        for verb in [&["cp", "-r"][..], &["sync"]] {
            let copy = format!("{home}/{}{at}", verb[0]);
            let line = [verb, &flags[..], &[&remote, &copy]].concat();
            env.paddlectl(&line).ok();
            let copied = env.paddlectl(&["ls", "-r", &copy]).ok().stdout;
            assert_eq!(copied, expected, "{line:?}");
        }
    }
    let single = format!("{home}/single/");
    let (log, text) = (format!("{remote}/a.log"), format!("{remote}/a.txt"));
    env.paddlectl(&["cp", "--exclude", "*.log", &log, &text, &single])
        .ok();
    assert_eq!(env.paddlectl(&["ls", &single]).ok().stdout, "a.txt\n");
}

#[test]
fn excluded_files_are_not_deleted_here_or_on_the_cluster() {
    let env = TestEnvironment::new();
    let remote = with_files(&env);
    let back = env.folder("back");
    plant(&back, &[("mine.log", ""), ("gone/z", ""), ("gone/z.log", "")]);
    let other = format!("{}/other", home(&env));
    env.paddlectl(&["cp", "-r", arg(&back), &other]).ok();
    let flags = ["sync", "--delete", "--exclude", "*.log", &remote];
    env.paddlectl(&[&flags[..], &[arg(&back)]].concat()).ok();
    let expected = "a.txt\ngone\ngone/z.log\nmine.log\nsub\ntmp\ntmp/x\n";
    assert_eq!(listed(&back), expected);
    env.paddlectl(&[&flags[..], &[&other]].concat()).ok();
    assert_eq!(env.paddlectl(&["ls", "-r", &other]).ok().stdout, expected);
}

#[test]
fn a_listed_name_that_does_not_exist_is_reported() {
    let env = TestEnvironment::new();
    let remote = with_files(&env);
    let list = env.folder("lists").join("list");
    fs::write(&list, "a.txt\nnone\n").unwrap();
    let (back, copy) = (env.home().join("back"), format!("{}/copy", home(&env)));
    for dest in [arg(&back), &copy] {
        for verb in [&["cp", "-r"][..], &["sync"]] {
            let line = [verb, &["--files-from", arg(&list), &remote, dest]].concat();
            env.paddlectl(&line)
                .refused(1)
                .says("none")
                .says("it is in the list, but does not exist");
            fs::remove_dir_all(&back).ok();
            env.paddlectl(&["rm", "-r", "-f", &copy]).ok();
        }
    }
}

#[test]
fn files_from_can_read_the_list_from_a_pipe() {
    let env = TestEnvironment::new();
    let remote = with_files(&env);
    let (data, copy) = (env.folder("data"), format!("{}/copy", home(&env)));
    for (from, list) in [(arg(&data), "tmp\na.txt\n"), (&remote, "./tmp/x\0a.txt\0")] {
        let words = ["sync", "--delete", "--files-from", "-", from, &copy];
        with_stdin(&env, &words, list).ok();
        let copied = env.paddlectl(&["ls", "-r", &copy]).ok().stdout;
        assert_eq!(copied, "a.txt\ntmp\ntmp/x\n", "{words:?}");
        env.paddlectl(&["rm", "-r", &copy]).ok();
    }
    let back = env.home().join("back");
    with_stdin(&env, &["cp", "--files-from", "-", &remote, arg(&back)], "sub\n").ok();
    assert_eq!(listed(&back), "sub\nsub/keep.log\n");
    with_stdin(&env, &["cp", "--files-from", "-", &remote, arg(&back)], "none\n")
        .refused(1)
        .says("it is in the list, but does not exist");
}
