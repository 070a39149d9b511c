//! What a scan includes, leaves out and refuses.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use super::*;
use crate::content::StatCache;
use crate::testing::{make_executable, plant, rel};
use crate::{Digest, Node};

fn paths(scan: &Scan) -> Vec<String> {
    scan.entries.iter().map(|entry| entry.path.to_string()).collect()
}

fn scanned(nodes: &[(&str, &str)]) -> Result<Scan, ScanError> {
    let folder = tempfile::tempdir().unwrap();
    plant(folder.path(), nodes);
    scan(folder.path(), &ScanOptions::default())
}

#[test]
fn a_folder_is_listed_in_order_with_digests_sizes_and_bits() {
    let folder = tempfile::tempdir().unwrap();
    plant(
        folder.path(),
        &[
            ("train.py", "print()"),
            ("data/a.txt", "aaa"),
            ("data.txt", "x"),
            ("empty/", ""),
        ],
    );
    make_executable(&folder.path().join("train.py"));
    let scan = scan(folder.path(), &ScanOptions::default()).unwrap();
    assert_eq!(
        paths(&scan),
        ["data", "data/a.txt", "data.txt", "empty", "train.py"]
    );
    assert_eq!(scan.total_bytes, 11);
    assert_eq!(scan.file_count(), 3);
    assert_eq!(
        scan.biggest(2)
            .iter()
            .map(|e| e.path.to_string())
            .collect::<Vec<_>>(),
        ["train.py", "data/a.txt"]
    );
    let program = Node::File {
        size: 7,
        executable: true,
        digest: Some(Digest::of(b"print()")),
    };
    assert_eq!(scan.entries[4].node, program);
}

#[test]
fn leftovers_of_an_interrupted_download_are_not_packaged() {
    let scan = scanned(&[
        ("data/.pfs-staging/0123/data", "half of it"),
        ("data/a", "1"),
        (".pfs-staging/4567", "the start"),
    ])
    .unwrap();
    assert_eq!(paths(&scan), ["data", "data/a"]);
}

#[test]
fn ignore_files_work_as_git_says() {
    let scan = scanned(&[
        (".gitignore", "*.log\n/build\n!keep.log\nout/\n# a comment\n"),
        ("a.log", ""),
        ("keep.log", ""),
        ("build/x", ""),
        ("sub/build/x", ""),
        ("sub/b.log", ""),
        ("sub/.gitignore", "!b.log\nsecret\n"),
        ("sub/secret", ""),
        ("out/deep/file", ""),
        (".git/config", ""),
        ("sub/.git/config", ""),
    ])
    .unwrap();
    let expected = [
        ".gitignore",
        "keep.log",
        "sub",
        "sub/.gitignore",
        "sub/b.log",
        "sub/build",
        "sub/build/x",
    ];
    assert_eq!(paths(&scan), expected);
    assert_eq!(scan.ignored, 6, "a.log, build, out, .git, sub/.git, sub/secret");
}

#[test]
fn paddleignore_overrules_gitignore() {
    let scan = scanned(&[
        (".gitignore", "*.bin\n"),
        (".paddleignore", "!model.bin\nnotes\n"),
        ("model.bin", ""),
        ("other.bin", ""),
        ("notes", ""),
        ("deep/.gitignore", "model.bin\n"),
        ("deep/model.bin", ""),
    ])
    .unwrap();
    assert_eq!(
        paths(&scan),
        [
            ".gitignore",
            ".paddleignore",
            "deep",
            "deep/.gitignore",
            "deep/model.bin",
            "model.bin"
        ]
    );
}

#[test]
fn virtual_environments_and_caches_stay_out() {
    let scan = scanned(&[
        ("train.py", ""),
        (".venv/pyvenv.cfg", ""),
        (".venv/bin/python -> /usr/bin/python3", ""),
        ("tools/env/conda-meta/history", ""),
        ("tools/env/bin/python", ""),
        ("tools/__pycache__/a.pyc", ""),
        ("tools/a.py", ""),
        (".pytest_cache/v", ""),
        ("cfg/pyvenv.cfg/not-a-file", ""),
    ])
    .unwrap();
    assert_eq!(
        paths(&scan),
        [
            "cfg",
            "cfg/pyvenv.cfg",
            "cfg/pyvenv.cfg/not-a-file",
            "tools",
            "tools/a.py",
            "train.py"
        ]
    );
    let kept: Vec<(String, BuiltIn)> = scan
        .built_in
        .iter()
        .map(|(path, kind)| (path.to_string(), *kind))
        .collect();
    let expected = [
        (".pytest_cache", BuiltIn::Cache),
        (".venv", BuiltIn::VirtualEnvironment),
        ("tools/__pycache__", BuiltIn::Cache),
        ("tools/env", BuiltIn::VirtualEnvironment),
    ];
    assert_eq!(kept, expected.map(|(path, kind)| (path.to_owned(), kind)));
}

#[test]
fn paddleignore_includes_an_environment_and_gitignore_does_not() {
    let nodes = |file| {
        scanned(&[
            (file, "!env\n!__pycache__\n"),
            ("env/pyvenv.cfg", ""),
            ("env/lib/__pycache__/a.pyc", ""),
        ])
        .unwrap()
    };
    assert_eq!(
        paths(&nodes(".paddleignore")),
        [
            ".paddleignore",
            "env",
            "env/lib",
            "env/lib/__pycache__",
            "env/lib/__pycache__/a.pyc",
            "env/pyvenv.cfg"
        ]
    );
    assert_eq!(paths(&nodes(".gitignore")), [".gitignore"]);
}

const KEY: &str = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\n";

fn credentials(ignore_file: (&str, &str)) -> Scan {
    scanned(&[
        ignore_file,
        ("train.py", ""),
        (".ssh/known_hosts", ""),
        (".aws/credentials", ""),
        (".netrc", ""),
        ("conf/.env", ""),
        ("conf/.kube -> ../.ssh", ""),
        ("deploy/key", KEY),
        ("deploy/key.pub", "ssh-ed25519 AAAA"),
        ("folders/.env/variables", ""),
    ])
    .unwrap()
}

#[test]
fn credentials_stay_out() {
    let scan = credentials((".gitignore", "!.netrc\n!key\n"));
    let expected = [
        ".gitignore",
        "conf",
        "deploy",
        "deploy/key.pub",
        "folders",
        "folders/.env",
        "folders/.env/variables",
        "train.py",
    ];
    assert_eq!(paths(&scan), expected);
    let left_out: Vec<(String, BuiltIn)> = scan
        .built_in
        .iter()
        .map(|(path, kind)| (path.to_string(), *kind))
        .collect();
    let named = [".aws", ".netrc", ".ssh", "conf/.env", "conf/.kube"];
    let named = named.map(|path| (path.to_owned(), BuiltIn::Credentials));
    assert_eq!(left_out[..5], named);
    assert_eq!(left_out[5..], [("deploy/key".to_owned(), BuiltIn::PrivateKey)]);
    assert_eq!(scan.ignored, 6);
}

#[test]
fn paddleignore_includes_credentials_by_name() {
    let scan = credentials((".paddleignore", "!.env\n!/deploy/key\n"));
    let paths = paths(&scan);
    for path in ["conf/.env", "deploy/key"] {
        assert!(paths.iter().any(|found| found == path), "{path}: {paths:?}");
    }
    let digest = scan.entries.iter().find(|entry| entry.path == rel("deploy/key"));
    assert_eq!(digest.unwrap().digest(), Some(Digest::of(KEY.as_bytes())));
    assert!(!paths.iter().any(|found| found.starts_with(".ssh")), "{paths:?}");
}

/// A key that was included once is not in the cache, where nobody would look at its first line.
#[test]
fn a_key_that_is_no_longer_included_stays_out() {
    let folder = tempfile::tempdir().unwrap();
    plant(
        folder.path(),
        &[("key", KEY), ("train.py", ""), (".paddleignore", "!key\n")],
    );
    let cache = StatCache::new();
    let look = || {
        let options = ScanOptions {
            known: Some(&cache),
            ..ScanOptions::default()
        };
        scan(folder.path(), &options).unwrap()
    };
    wait_until_others_are_remembered(|| {
        assert_eq!(paths(&look()), [".paddleignore", "key", "train.py"]);
        cache.len()
    });
    fs::write(folder.path().join(".paddleignore"), "").unwrap();
    assert_eq!(paths(&look()), [".paddleignore", "train.py"]);
}

/// Files that changed in the last seconds are not remembered.
fn wait_until_others_are_remembered(remembered: impl Fn() -> usize) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while remembered() < 2 {
        assert!(std::time::Instant::now() < deadline, "nothing is remembered");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn a_broken_pattern_is_named_with_its_line() {
    let error = scanned(&[(".paddleignore", "ok\n[z-a]\n")]).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("line 2 of `.paddleignore` is not a valid pattern"),
        "{error}"
    );
}

#[test]
fn links_inside_are_kept_and_links_outside_refused() {
    let kept = scanned(&[
        ("a/b", "x"),
        ("c -> a/b", ""),
        ("a/up -> ../c", ""),
        ("nowhere -> gone", ""),
    ])
    .unwrap();
    assert_eq!(paths(&kept), ["a", "a/b", "a/up", "c", "nowhere"]);
    assert_eq!(
        kept.entries[3].node,
        Node::Symlink {
            target: "a/b".parse().unwrap()
        }
    );

    for target in ["../x", "/etc/passwd", "a/../../x"] {
        let error = scanned(&[("a/", ""), (&format!("bad -> {target}"), "")]).unwrap_err();
        assert!(
            matches!(&error, ScanError::LinkOutside(link) if link.path == rel("bad")),
            "{target}: {error}"
        );
    }
}

#[test]
fn an_ignored_link_to_the_outside_is_accepted() {
    let scan = scanned(&[(".gitignore", "venv\n"), ("venv -> /usr", "")]).unwrap();
    assert_eq!(paths(&scan), [".gitignore"]);
}

#[test]
fn names_that_are_not_utf8_are_spelled_out() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(OsStr::from_bytes(b"caf\xe9")), "x").unwrap();
    let error = scan(folder.path(), &ScanOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), r"a file name is not UTF-8: `caf\xe9`");
}

#[test]
fn sockets_and_pipes_are_reported_and_do_not_block() {
    let folder = tempfile::tempdir().unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(folder.path().join("socket")).unwrap();
    let pipe = rustix::fs::FileType::Fifo;
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, folder.path().join("pipe"), pipe, mode, 0).unwrap();
    let scan = scan(folder.path(), &ScanOptions::default()).unwrap();
    assert!(scan.entries.is_empty());
    assert_eq!(scan.special, [rel("pipe"), rel("socket")]);
}

#[test]
fn a_missing_folder_or_a_file_is_a_clear_error() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let error = scan(&missing, &ScanOptions::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("the folder `{}` cannot be read", missing.display())
    );
    fs::write(folder.path().join("file"), "").unwrap();
    let error = scan(folder.path().join("file"), &ScanOptions::default()).unwrap_err();
    assert!(matches!(
        error,
        ScanError::Folder {
            source: crate::RootError::NotAFolder(_),
            ..
        }
    ));
}

/// A wrong digest in the cache is returned only if the file was not read.
#[test]
fn an_unchanged_file_is_not_read_again() {
    let folder = tempfile::tempdir().unwrap();
    plant(folder.path(), &[("old", "content"), ("changed", "content")]);
    let root = crate::Root::open(folder.path()).unwrap();
    let cache = StatCache::new();
    let planted = Digest::of(b"planted");
    for name in ["old", "changed"] {
        let stamp = root.stat(&rel(name)).unwrap().stamp;
        let later = crate::Mtime::from_nanos(stamp.ctime.as_nanos() + 3_000_000_000);
        cache.insert(stamp, planted, later);
    }
    fs::write(folder.path().join("changed"), "another").unwrap();
    let options = ScanOptions {
        known: Some(&cache),
        ..ScanOptions::default()
    };
    let digests: Vec<_> = scan(folder.path(), &options)
        .unwrap()
        .entries
        .iter()
        .map(|e| e.digest())
        .collect();
    assert_eq!(digests, [Some(Digest::of(b"another")), Some(planted)]);
}
