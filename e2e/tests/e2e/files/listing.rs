//! `ls`, `stat`, `du`, `mkdir`, `rm`, `check`: what exists, and what no longer exists.

use std::fs;

use e2e::TestEnvironment;

use super::site::Site;
use super::{arg, home, on_disk, plant};

fn with_files(env: &TestEnvironment) -> String {
    let data = env.folder("data");
    plant(
        &data,
        &[("a.txt", "12345"), ("sub/b", "1234567"), (".hidden", "")],
    );
    let remote = format!("{}/data", home(env));
    env.paddlectl(&["cp", "-r", arg(&data), &remote]).ok();
    remote
}

#[test]
fn ls_prints_one_name_per_line_and_details_on_request() {
    let env = TestEnvironment::new();
    let remote = with_files(&env);
    let ls = |flags: &[&str]| {
        let line = [&["ls"], flags, &[remote.as_str()]].concat();
        env.paddlectl(&line).ok().stdout
    };
    assert_eq!(ls(&[]), "a.txt\nsub\n");
    assert_eq!(ls(&["-a"]), ".hidden\na.txt\nsub\n");
    assert_eq!(ls(&["-r"]), "a.txt\nsub\nsub/b\n");
    let long = ls(&["-l", "-h"]);
    assert!(long.starts_with("file\t5 bytes\t20"), "{long}");
    assert!(long.contains("\nfolder\t0 bytes\t"), "{long}");
    let rows: serde_json::Value = serde_json::from_str(&ls(&["-r", "-o", "json"])).unwrap();
    assert_eq!(rows[2]["path"], format!("{remote}/sub/b"));
    assert_eq!(rows[2]["size"], 7);
    assert_eq!(rows[1]["kind"], "folder");
    assert!(env.paddlectl(&["ls"]).ok().stdout.contains("data\n"), "the home");
    let file = format!("{remote}/a.txt");
    assert_eq!(env.paddlectl(&["ls", &file]).ok().stdout, format!("{file}\n"));
    env.paddlectl(&["ls", &remote, &format!("{remote}/none")])
        .says("none")
        .prints("a.txt");
}

#[test]
fn a_pattern_is_listed_like_its_matches() {
    let env = TestEnvironment::new();
    let data = env.folder("data");
    plant(
        &data,
        &[
            ("data-1/a", "1"),
            ("data-1/sub/b", "2"),
            ("data-2/c", "3"),
            ("data.txt", ""),
            ("else/d", ""),
        ],
    );
    std::os::unix::fs::symlink("else", data.join("data-link")).unwrap();
    std::os::unix::fs::symlink("nowhere", data.join("data-lost")).unwrap();
    let home = home(&env);
    env.paddlectl(&["sync", arg(&data), &home]).ok();
    let ls = |words: &[&str]| env.paddlectl(&[&["ls"], words].concat()).ok().stdout;
    let at = |name: &str| format!("{home}/{name}");
    assert_eq!(
        ls(&[&at("dat*")]),
        format!(
            "{home}/data-lost\n{home}/data.txt\n\n{home}/data-1:\na\nsub\n\n{home}/data-2:\nc\n\n{home}/data-link:\nd\n"
        )
    );
    assert_eq!(
        ls(&["-r", &at("data-[12]")]),
        format!("{home}/data-1:\na\nsub\nsub/b\n\n{home}/data-2:\nc\n")
    );
    assert_eq!(
        ls(&["-r", &at("*-1")]),
        "a\nsub\nsub/b\n",
        "a single one needs no heading"
    );
    assert_eq!(ls(&[&at("*.txt")]), format!("{home}/data.txt\n"));
    // For programs there are no headings, so every line says where it belongs.
    assert_eq!(
        ls(&["-o", "name", &at("data-[12]")]),
        format!("{home}/data-1/a\n{home}/data-1/sub\n{home}/data-2/c\n")
    );
    let wide = ls(&["-o", "wide", &at("data-[12]")]);
    assert!(wide.lines().all(|line| line.contains("\t/pfs/")), "{wide}");
    assert_eq!(ls(&["-o", "name", &at("data-2")]), "c\n");
    let rows = env
        .paddlectl(&["ls", "-r", "-o", "json", &at("data-[12]")])
        .ok()
        .json();
    let paths: Vec<&str> = rows
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|row| row["path"].as_str())
        .collect();
    assert_eq!(
        paths,
        [
            at("data-1/a"),
            at("data-1/sub"),
            at("data-1/sub/b"),
            at("data-2/c")
        ]
    );
    env.paddlectl(&["ls", &at("none*")])
        .refused(1)
        .says("nothing matches it");
}

#[test]
fn links_that_match_a_pattern_are_followed_concurrently_and_listed_in_order() {
    const LINKS: usize = 100;
    let env = TestEnvironment::new();
    let mut site = Site::of_ada(&env, "");
    let data = env.folder("data");
    plant(&data, &[("file", ""), ("folder/in", "")]);
    let mut listed = String::new();
    for number in 0..LINKS {
        let name = format!("link-{number:03}");
        std::os::unix::fs::symlink("file", data.join(&name)).unwrap();
        listed += &format!("/pfs/cloud/home/ada/{name}\n");
    }
    std::os::unix::fs::symlink("folder", data.join("link-to-folder")).unwrap();
    listed += "\n/pfs/cloud/home/ada/link-to-folder:\nin\n";
    site.run("ada", &["sync", arg(&data), "/pfs/cloud/home/ada"]).ok();
    site.network().exchanges().take_most();
    let ls = site.run("ada", &["ls", "/pfs/cloud/home/ada/link-*"]).ok();
    assert_eq!(ls.stdout, listed);
    let most = site.network().exchanges().take_most();
    assert!(most > 1, "{most} at a time");
}

/// The path of a package is such a link.
#[test]
fn commands_on_a_named_link_act_on_its_folder() {
    let env = TestEnvironment::new();
    let data = env.folder("data");
    plant(&data, &[("real/top", "1"), ("real/a/b/f", "23")]);
    std::os::unix::fs::symlink("real", data.join("link")).unwrap();
    let remote = format!("{}/data", home(&env));
    env.paddlectl(&["cp", "-r", arg(&data), &remote]).ok();
    let link = format!("{remote}/link");
    env.paddlectl(&["ls", "-r", &link])
        .ok()
        .prints("a\na/b\na/b/f\ntop\n");
    env.paddlectl(&["du", &link]).ok().prints("\n3\t2\t");
    let down = env.folder("elsewhere").join("down");
    env.paddlectl(&["cp", "-r", &link, arg(&down)]).ok();
    assert_eq!(fs::read_to_string(down.join("a/b/f")).unwrap(), "23");
    env.paddlectl(&["check", arg(&down), &link]).ok();
    plant(&down, &[("a/b/g", "more")]);
    env.paddlectl(&["check", arg(&down), &link]).prints("a/b/g");
    env.paddlectl(&["sync", "--delete", &link, arg(&down)]).ok();
    assert!(down.join("a/b/f").exists() && !down.join("a/b/g").exists());
    let copy = format!("{remote}/copy");
    env.paddlectl(&["cp", "-r", &format!("{link}/a"), &copy]).ok();
    env.paddlectl(&["ls", "-r", &copy]).ok().prints("b\nb/f\n");
    env.paddlectl(&["pfs", "fsck"]).ok();
}

#[test]
fn stat_and_du_report_sizes_and_counts() {
    let env = TestEnvironment::new();
    let remote = with_files(&env);
    let stat = env
        .paddlectl(&["stat", "--digest", "-o", "json", &format!("{remote}/a.txt")])
        .ok()
        .json();
    assert_eq!(stat[0]["size"], 5);
    let digest = stat[0]["digest"].as_str().expect("it was asked for");
    let same = env.folder("other");
    plant(&same, &[("a.txt", "12345"), ("b.txt", "54321")]);
    let other = format!("{}/other", home(&env));
    env.paddlectl(&["cp", "-r", arg(&same), &other]).ok();
    let line = ["stat", "--digest", "-o", "json", &format!("{other}/*")];
    let others = env.paddlectl(&line).ok().json();
    assert_eq!(others[0]["digest"], digest, "the same content");
    assert_ne!(others[1]["digest"], digest, "another content");
    let usage = env.paddlectl(&["du", "-o", "json", &remote]).ok().json();
    assert_eq!(usage[0]["bytes"], 12);
    assert_eq!(usage[0]["files"], 3);
    env.paddlectl(&["du"]).ok().prints("SIZE\tFILES");
    let largest = |words: &[&str]| -> Vec<String> {
        let shown = env.paddlectl(words).ok().stdout;
        let paths = shown.lines().skip(1).filter_map(|line| line.rsplit('\t').next());
        paths.map(|path| path.replace(&remote, "")).collect()
    };
    assert_eq!(largest(&["du", "-s", &remote]), [""]);
    assert_eq!(largest(&["du", &remote]), ["", "/sub", "/a.txt", "/.hidden"]);
}

#[test]
fn cat_prints_nothing_for_an_empty_range_and_refuses_a_folder() {
    let env = TestEnvironment::new();
    let remote = with_files(&env);
    let file = format!("{remote}/a.txt");
    let cat = |flags: &[&str]| {
        let line = [&["cat"], flags, &[file.as_str()]].concat();
        env.paddlectl(&line).ok().stdout
    };
    assert_eq!(cat(&["--length", "0"]), "");
    assert_eq!(cat(&["--offset", "2", "--length", "0"]), "");
    assert_eq!(cat(&["--offset", "5"]), "");
    assert_eq!(cat(&["--offset", "500", "--length", "3"]), "");
    assert_eq!(cat(&["--offset", "4", "--length", "9"]), "5");
    for flags in [&[][..], &["--length", "0"], &["--offset", "7"]] {
        let line = [&["cat"], flags, &[remote.as_str()]].concat();
        let refused = env.paddlectl(&line).refused(1).says("is a folder");
        assert!(
            refused.stderr.contains("hint: `ls`") && !refused.stderr.contains("cat -r"),
            "{refused}"
        );
        let line = [&["cat"], flags, &["/pfs/local/home/nobody/a"]].concat();
        env.paddlectl(&line).refused(1).says("is not in your home");
    }
}

#[test]
fn mkdir_and_rm_follow_their_flags() {
    let env = TestEnvironment::new();
    let home = home(&env);
    let at = |name: &str| format!("{home}/{name}");
    env.paddlectl(&["mkdir", &at("x/y")])
        .refused(1)
        .says(&format!("`{}` does not exist", at("x")))
        .says("hint: `-p` also creates missing parent folders");
    let elsewhere = env.paddlectl(&["mkdir", "/pfs/local/home/nobody"]).refused(1);
    assert!(!elsewhere.stderr.contains("hint: `-p`"), "{elsewhere}");
    env.paddlectl(&["mkdir", "-p", &at("x/y"), &at("z")]).ok();
    env.paddlectl(&["mkdir", &at("z")]).refused(1);
    env.paddlectl(&["rm", &at("x")])
        .refused(1)
        .says("hint: `-r` removes folders");
    env.paddlectl(&["rm", "-r", &at("x"), &at("z")]).ok();
    env.paddlectl(&["rm", &at("x")]).refused(1);
    env.paddlectl(&["rm", "-f", &at("x")]).ok();
    assert_eq!(env.paddlectl(&["ls", &home]).ok().stdout, "");
}

#[test]
fn a_dry_run_is_accurate_and_changes_nothing() {
    let env = TestEnvironment::new();
    let remote = with_files(&env);
    let planned = env.paddlectl(&["rm", "-r", "--dry-run", &remote]).ok();
    assert_eq!(planned.stdout, format!("remove {remote}\n"));
    assert!(
        planned
            .stderr
            .contains("3 files and 1 folder, 12 bytes would be removed"),
        "{planned}"
    );
    assert_eq!(env.paddlectl(&["ls", &remote]).ok().stdout, "a.txt\nsub\n");

    let data = env.folder("data");
    plant(&data, &[("a.txt", "changed"), ("new", "")]);
    let line = ["cp", "-r", arg(&data), &format!("{}/", home(&env))];
    let dry = [&line[..], &["--dry-run"]].concat();
    let planned = env.paddlectl(&dry).ok();
    let data = arg(&data);
    assert_eq!(planned.stdout, format!("copy {data}/a.txt\ncopy {data}/new\n"));
    assert_eq!(
        planned.stderr,
        "Dry run, nothing was changed: 2 files would be copied, 2 unchanged\n"
    );
    assert_eq!(
        env.paddlectl(&["cat", &format!("{remote}/a.txt")]).ok().stdout,
        "12345"
    );
    env.paddlectl(&line).ok().says("2 files copied, 2 unchanged");

    let absent = env.folder("absent").join("below");
    let (from, to) = (format!("{remote}/a.txt"), absent.join("a.txt"));
    let planned = env.paddlectl(&["cp", "--dry-run", &from, arg(&to)]).ok();
    planned.says("1 file would be copied");
    assert!(!absent.exists());
}

#[test]
fn mv_n_does_not_replace_a_broken_link() {
    let env = TestEnvironment::new();
    let remote = with_files(&env);
    let link = on_disk(&env, &remote).join("broken");
    std::os::unix::fs::symlink("nowhere", &link).unwrap();
    let (file, broken) = (format!("{remote}/a.txt"), format!("{remote}/broken"));
    let line = ["mv", "-n", &file, &broken];
    env.paddlectl(&line)
        .ok()
        .says(&format!("note: `{broken}` is left unchanged"));
    assert_eq!(fs::read_link(&link).unwrap().to_str(), Some("nowhere"));
    env.paddlectl(&["stat", &file]).ok();
}

#[test]
fn check_compares_contents_and_names_every_difference() {
    let env = TestEnvironment::new();
    let remote = with_files(&env);
    let data = env.folder("data");
    env.paddlectl(&["check", arg(&data), &remote])
        .ok()
        .says("no difference");
    plant(&data, &[("a.txt", "54321"), ("new", "")]);
    fs::remove_file(data.join(".hidden")).unwrap();
    let found = env.paddlectl(&["check", arg(&data), &remote]);
    assert_eq!(found.code, Some(1), "{found}");
    assert_eq!(
        found.stdout,
        "DIFFERENCE\tPATH\nonly right\t.hidden\ndifferent\ta.txt\nonly left\tnew\n"
    );
}
