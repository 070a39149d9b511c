//! Data sets on the cluster are read where they lie: `paddlectl data` fetches what it shows, and little more.

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

/// A RecordIO file of 17 MB in chunks of 64 KiB, and where it lies on the cluster.
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
fn a_look_at_a_large_file_moves_a_small_part_of_it() {
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
