//! Data sets on the cluster are read in place: `paddlectl data` fetches what it shows, and little more.

use std::fs;

use e2e::TestEnvironment;

use super::arg;
use super::network::Way;
use super::site::Site;

const SET: &str = "/pfs/cloud/home/ada/set";
const RECORDS: usize = 100_000;

fn line(number: usize) -> String {
    format!("sample {number:06} ").repeat(12)
}

/// A RecordIO file of 17 MB in chunks of 64 KiB, and its path on the cluster.
fn large_file(env: &TestEnvironment, site: &Site<'_>) -> String {
    let folder = env.folder("here");
    let (text, file) = (folder.join("a.txt"), folder.join("a.rio"));
    let lines: String = (0..RECORDS).map(|number| line(number) + "\n").collect();
    fs::write(&text, lines).expect("a file can be written");
    let words = ["data", "convert", "--compressor", "none", "--chunk-size", "64Ki"];
    site.run("ada", &[&words[..], &[arg(&text), arg(&file)]].concat())
        .ok();
    site.run("ada", &["mkdir", SET]).ok();
    let there = format!("{SET}/a.rio");
    site.run("ada", &["cp", arg(&file), &there]).ok();
    there
}

#[test]
fn data_commands_fetch_only_the_needed_part_of_a_large_file() {
    let env = TestEnvironment::new();
    let mut site = Site::of_ada(&env, "");
    site.network();
    let file = large_file(&env, &site);
    let mut fetched = |words: &[&str]| {
        let before = site.network().passed(Way::Down);
        let ran = site.run("ada", &[&["data"], words, &[&file]].concat()).ok();
        (ran.stdout, site.network().passed(Way::Down) - before)
    };
    let (printed, bytes) = fetched(&["head", "-n", "2"]);
    assert_eq!(printed, format!("{}\n{}\n", line(0), line(1)));
    assert!(bytes < 1 << 20, "`head` fetched {bytes} bytes");

    let (printed, bytes) = fetched(&["cat", "--records", "90000"]);
    assert_eq!(printed, line(90_000) + "\n");
    assert!(bytes < 3 << 20, "`cat --records` fetched {bytes} bytes");

    let (printed, bytes) = fetched(&["inspect", "-o", "json"]);
    assert!(printed.contains(&format!("\"records\": {RECORDS}")), "{printed}");
    assert!(bytes < 3 << 20, "`inspect` fetched {bytes} bytes");

    let (printed, bytes) = fetched(&["cat"]);
    assert_eq!(printed.lines().count(), RECORDS);
    let size = 16 << 20;
    assert!(
        bytes > size && bytes < size + (4 << 20),
        "`cat` fetched {bytes} bytes"
    );
}

#[test]
fn a_pattern_and_a_folder_stand_for_their_files() {
    let env = TestEnvironment::new();
    let site = Site::of_ada(&env, "");
    let folder = env.folder("set");
    for name in ["b.txt", "a.txt", ".hidden.txt", "c.csv"] {
        let text = format!("x\n{name}\n");
        fs::write(folder.join(name), text).expect("a file can be written");
    }
    site.run("ada", &["cp", "-r", arg(&folder), SET]).ok();
    let printed = |words: &[&str]| site.run("ada", &[&["data"], words].concat()).ok().stdout;
    let pattern = format!("{SET}/*.txt");
    assert_eq!(printed(&["cat", &pattern]), "x\na.txt\nx\nb.txt\n");
    let table = printed(&["verify", SET]);
    for name in ["a.txt", "b.txt", "c.csv"] {
        assert!(table.contains(&format!("{SET}/{name}")), "{table}");
    }
    assert!(!table.contains("hidden"), "{table}");
    site.run("ada", &["data", "cat", &format!("{SET}/*.none")])
        .refused(1)
        .says("*.none");
    let out = env.folder("job");
    let split = ["data", "split", "-n", "2", "--out", arg(&out), SET];
    site.run("ada", &split).ok();
    let half =
        |node: usize| fs::read_to_string(out.join(format!("{node}/data/a.txt"))).expect("it was divided");
    assert_eq!(half(0).len() + half(1).len(), "x\na.txt\n".len());
}

#[test]
fn convert_writes_to_the_cluster_completely_or_not_at_all() {
    let env = TestEnvironment::new();
    let site = Site::of_ada(&env, "");
    let here = env.folder("here");
    let table = here.join("a.csv");
    fs::write(&table, "id,note\n1,\"two\nlines\"\n2,x\n").expect("a file can be written");
    let there = format!("{SET}/deep/a.rio");
    let convert = ["data", "convert", "--index", arg(&table), &there];
    site.run("ada", &convert).ok().says("has 2 records");
    let rows = "{\"id\":\"1\",\"note\":\"two\\nlines\"}\n{\"id\":\"2\",\"note\":\"x\"}\n";
    assert_eq!(site.run("ada", &["data", "cat", &there]).ok().stdout, rows);
    let names = site.run("ada", &["ls", &format!("{SET}/deep")]).ok().stdout;
    assert!(names.contains("a.rio.idx"), "{names}");

    site.run("ada", &convert)
        .refused(1)
        .says("already exists")
        .says("--force");
    fs::write(&table, "id,note\n3,y\n").expect("a file can be written");
    site.run("ada", &["data", "convert", "--force", arg(&table), &there])
        .ok();
    let printed = site.run("ada", &["data", "cat", &there]).ok().stdout;
    assert_eq!(printed, "{\"id\":\"3\",\"note\":\"y\"}\n");
    let names = site.run("ada", &["ls", &format!("{SET}/deep")]).ok().stdout;
    assert!(
        !names.contains("idx"),
        "the index of another file is gone: {names}"
    );

    // A failed conversion leaves the old file, and the error uses the user's names.
    fs::write(&table, "id,note\n3,\"y\n").expect("a file can be written");
    site.run("ada", &["data", "convert", "--force", arg(&table), &there])
        .refused(1)
        .says("a.csv` has a quote in column 2 that is never closed");
    assert_eq!(site.run("ada", &["data", "cat", &there]).ok().stdout, printed);
    let lines = format!("{SET}/a.jsonl");
    site.run("ada", &["data", "convert", &there, &lines]).ok();
    assert_eq!(site.run("ada", &["data", "cat", &lines]).ok().stdout, printed);
}

#[test]
fn split_writes_to_the_cluster_and_can_be_repeated() {
    let env = TestEnvironment::new();
    let site = Site::of_ada(&env, "");
    let set = env.folder("set");
    fs::create_dir(set.join("deep")).expect("a folder can be made");
    fs::write(set.join("a.csv"), "id,note\n1,\"two\nlines\"\n2,x\n3,y\n").expect("a file can be written");
    fs::write(set.join("deep/b.txt"), "0\n1\n").expect("a file can be written");
    let out = "/pfs/cloud/home/ada/job";
    site.run("ada", &["mkdir", out]).ok();
    site.run("ada", &["cp", "-r", arg(&set), &format!("{out}/quick_start")])
        .ok();
    let split = |count: &str| site.run("ada", &["data", "split", "-n", count, "--out", out]);
    let cat = |path: &str| site.run("ada", &["cat", &format!("{out}/{path}")]);
    split("3").ok().says("has the data of 3 nodes");
    assert_eq!(cat("0/data/a.csv").ok().stdout, "id,note\n1,\"two\nlines\"\n");
    assert_eq!(cat("2/data/a.csv").ok().stdout, "id,note\n3,y\n");
    assert_eq!(cat("1/data/deep/b.txt").ok().stdout, "1\n");

    split("2").ok();
    assert_eq!(
        cat("0/data/a.csv").ok().stdout,
        "id,note\n1,\"two\nlines\"\n3,y\n"
    );
    let names = site.run("ada", &["ls", "-a", out]).ok().stdout;
    for name in ["0", "1", "output", "quick_start", ".paddle-data.json"] {
        assert!(names.contains(name), "{names}");
    }
    for gone in [".tmp", ".lock", " 2\n", "/2\n"] {
        assert!(!names.contains(gone), "{gone:?} in {names}");
    }

    let mine = format!("{out}/1/data/deep/mine");
    site.run("ada", &["cp", arg(&set.join("a.csv")), &mine]).ok();
    split("1")
        .refused(1)
        .says("1/data/deep/mine` was not created by the previous split");
    site.run("ada", &["rm", &mine]).ok();

    site.run("ada", &["mkdir", "-p", &format!("{out}/5/data")]).ok();
    split("6")
        .refused(1)
        .says("5/data` already exists and was not created by a split");
    let own = format!("{out}/0/data");
    site.run("ada", &["data", "split", "-n", "2", "--out", out, &own])
        .refused(1)
        .says("name the data set itself");
    assert_eq!(cat("1/data/a.csv").ok().stdout, "id,note\n2,x\n");
}
