//! `paddle-data`: data preparation as in the Kubernetes page, by hand and as a job.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use e2e::TestEnvironment;

/// The program under the name that the document's image runs.
fn name_it(env: &mut TestEnvironment) -> PathBuf {
    let program = fs::canonicalize(env.command("paddle", &[]).get_program()).unwrap();
    let folder = env.folder("image-bin");
    symlink(program, folder.join("paddle-data")).unwrap();
    env.search_first(folder.clone());
    folder.join("paddle-data")
}

/// The folders below, as `tree -d` would list them.
fn folders(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            if path.is_dir() && !name.starts_with('.') {
                found.push(name);
                waiting.push(path);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn preparation_creates_the_documented_tree_and_keeps_the_data_set() {
    let mut env = TestEnvironment::new();
    let program = name_it(&mut env);
    let job = env.folder("mfs/paddle-cluster-job");
    let set = job.join("quick_start");
    fs::create_dir(&set).unwrap();
    let lines: String = (0..100).map(|n| format!("{n}\n")).collect();
    fs::write(set.join("train.txt"), &lines).unwrap();
    env.set("OUT_DIR", job.to_str().unwrap());
    env.set("SPLIT_COUNT", "3");
    let run = || {
        let mut command = env.command("paddle", &[]);
        let environment: Vec<_> = command
            .get_envs()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
            .collect();
        command = std::process::Command::new(&program);
        command.env_clear().envs(environment).output().unwrap()
    };
    for _ in 0..2 {
        let output = run();
        let words = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{output:?}");
        assert!(words.starts_with("train.txt: 100 lines\n"), "{words}");
    }
    let tree = [
        "0",
        "0/data",
        "1",
        "1/data",
        "2",
        "2/data",
        "output",
        "quick_start",
    ];
    assert_eq!(folders(&job), tree);
    assert_eq!(fs::read_to_string(set.join("train.txt")).unwrap(), lines);
    let mut all: Vec<u32> = (0..3)
        .flat_map(|node| {
            let text = fs::read_to_string(job.join(format!("{node}/data/train.txt"))).unwrap();
            text.lines()
                .map(|line| line.parse().unwrap())
                .collect::<Vec<u32>>()
        })
        .collect();
    all.sort_unstable();
    assert_eq!(all, (0..100).collect::<Vec<u32>>());
}

#[test]
fn missing_settings_are_reported_before_anything_is_written() {
    let mut env = TestEnvironment::new();
    env.run("paddle", &["data", "x"])
        .refused(2)
        .says("error: `OUT_DIR` is not set");
    let job = env.folder("jobs").join("never");
    env.set("OUT_DIR", job.to_str().unwrap());
    env.run("paddle", &["data", "x"])
        .refused(2)
        .says("error: `SPLIT_COUNT` is not set");
    env.set("SPLIT_COUNT", "many");
    env.run("paddle", &["data", "x"])
        .refused(2)
        .says("`many` is not a number of nodes");
    env.set("SPLIT_COUNT", "2");
    env.run("paddle", &["data", "/no/such/file"])
        .refused(1)
        .says("cannot read `/no/such/file`");
    env.run("paddle", &["data"])
        .refused(1)
        .says("no files to split were named");
    env.run("paddle", &["data", "--help"])
        .ok()
        .prints("Usage: OUT_DIR=");
    assert!(!job.exists());
}

#[test]
fn data_is_prepared_by_one_job_and_read_by_the_next() {
    let env = TestEnvironment::new();
    let out = env.folder("mfs/paddle-cluster-job");
    let lines: String = (0..30).map(|n| format!("line {n}\n")).collect();
    let package = env.package("prepare").file("train.txt", &lines);
    let out_dir = format!("OUT_DIR={}", out.display());
    env.submit(
        "paddle-data",
        &package,
        &[
            "-entry",
            "paddle data train.txt",
            "-env",
            &out_dir,
            "-env",
            "SPLIT_COUNT=3",
        ],
    );
    env.paddlectl(&["wait", "paddle-data"]).ok();
    assert!(
        env.logs("paddle-data")
            .iter()
            .any(|line| line.contains("train.txt: 30 lines")),
        "{:?}",
        env.logs("paddle-data")
    );
    assert_eq!(
        folders(&out),
        ["0", "0/data", "1", "1/data", "2", "2/data", "output"]
    );

    let reader = env
        .package("read")
        .file("train.sh", "cat \"$OUT_DIR/$PADDLE_TRAINER_ID/data/train.txt\"\n");
    env.submit(
        "reader",
        &reader,
        &["-entry", "sh train.sh", "-parallelism", "3", "-env", &out_dir],
    );
    env.paddlectl(&["wait", "reader"]).ok();
    let printed = env.paddlectl(&["logs", "--raw", "reader"]).ok().stdout;
    let mut read: Vec<&str> = printed.lines().filter(|line| line.starts_with("line ")).collect();
    let mut written: Vec<&str> = lines.lines().collect();
    read.sort_unstable();
    written.sort_unstable();
    assert_eq!(read, written, "every line reached exactly one trainer");
}

/// What all nodes have of a file, in order.
fn gathered(env: &TestEnvironment, out: &Path, name: &str) -> Vec<String> {
    let mut all = Vec::new();
    for node in 0..3 {
        let part = out.join(format!("{node}/data/{name}"));
        if part.exists() {
            let printed = env.paddlectl(&["data", "cat", part.to_str().unwrap()]).ok();
            all.extend(printed.stdout.lines().map(str::to_owned));
        }
    }
    all.sort();
    all
}

#[test]
fn preparation_neither_loses_nor_duplicates_samples_of_any_format() {
    let env = TestEnvironment::new();
    let set = env.folder("set");
    let lines: Vec<String> = (0..1000).map(|n| format!("sample {n:04}")).collect();
    let plain = set.join("a.txt");
    fs::write(&plain, lines.join("\n") + "\n").unwrap();
    for packed in ["b.txt.gz", "c.rio"] {
        let to = set.join(packed);
        let words = ["data", "convert", plain.to_str().unwrap(), to.to_str().unwrap()];
        env.paddlectl(&words).ok();
    }
    let package = env.package("prepare").file("readme", "nothing here\n");
    let entry = format!("paddle data {}", set.display());
    for by in ["auto", "file"] {
        let out = env.folder(&format!("out-{by}"));
        let variables = [
            format!("OUT_DIR={}", out.display()),
            format!("SPLIT_BY={by}"),
            "SPLIT_COUNT=3".to_owned(),
        ];
        let mut words = vec!["-entry", entry.as_str()];
        for variable in &variables {
            words.extend(["-env", variable.as_str()]);
        }
        let job = format!("prepare-{by}");
        env.submit(&job, &package, &words);
        env.paddlectl(&["wait", &job]).ok();
        for name in ["a.txt", "b.txt.gz", "c.rio"] {
            assert_eq!(gathered(&env, &out, name), lines, "{name} divided by {by}");
        }
    }
}
