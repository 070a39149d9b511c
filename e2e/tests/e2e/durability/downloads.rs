//! A downloaded file is on the disk before it has its name: after a power cut no name leads to missing bytes, which the
//! next download would treat as unchanged.

use std::fs;

use e2e::TestEnvironment;

use super::trace::{Call, Trace};
use super::{RequiredSync, check, tool};

/// Fetches a folder of the cluster under `strace`; returns the calls and the path of the folder.
fn fetched(env: &TestEnvironment, files: &[(String, Vec<u8>)]) -> (Trace, String) {
    let source = env.folder("source");
    for (name, content) in files {
        fs::write(source.join(name), content).expect("a file in a fresh folder");
    }
    let home = env.paddlectl(&["whoami", "-o", "json"]).ok().json();
    let there = format!("{}/tree", home["home"].as_str().expect("whoami names the home"));
    let source = source.to_str().expect("a plain name");
    env.paddlectl(&["cp", "-r", source, &there]).ok();
    let here = env.folder("here").join("tree");
    let here = here.to_str().expect("a plain name").to_owned();
    let file = env.folder("trace").join("calls");
    let copy = env.start_under(&tool(&file), "paddlectl", &["cp", "-r", &there, &here]);
    let (status, lines) = copy.end();
    assert!(status.success(), "{lines:?}");
    (Trace::read(&file), here)
}

#[test]
#[ignore = "needs strace"]
fn a_large_file_is_synced_before_it_has_its_name() {
    let env = TestEnvironment::new();
    let content: Vec<u8> = (0..6_u32 << 20).map(|at| (at % 251) as u8).collect();
    let (trace, here) = fetched(&env, &[("large".to_owned(), content)]);
    let named = trace
        .calls
        .iter()
        .find(|call| call.is_rename() && call.target() == Some((here.clone(), "large".to_owned())));
    let named = named.unwrap_or_else(|| panic!("it got its name\n{}", trace.text()));
    let (folder, name) = named.source().expect("a rename has a source");
    let draft = format!("{folder}/{name}");
    let written = trace.last_write(&draft).expect("its bytes were written");
    let required_sync = RequiredSync::sync(&draft, (written.ends, named.begins));
    check(&[required_sync], trace);
}

#[test]
#[ignore = "needs strace"]
fn many_small_files_are_synced_at_once_before_they_have_their_names() {
    let env = TestEnvironment::new();
    let files: Vec<_> = (0..100)
        .map(|number| (format!("f{number}"), format!("{number}\n").into_bytes()))
        .collect();
    let (trace, here) = fetched(&env, &files);
    let is_small = |call: &&Call| {
        let target = call.is_rename().then(|| call.target()).flatten();
        target.is_some_and(|(folder, name)| folder == here && name.starts_with('f'))
    };
    let first = trace.calls.iter().filter(is_small).map(|call| call.begins).min();
    let first = first.unwrap_or_else(|| panic!("they got their names\n{}", trace.text()));
    let staging = format!("<{here}/.pfs-staging/");
    let written = trace
        .calls
        .iter()
        .filter(|call| call.name == "write" && call.text.contains(&staging));
    let last = written.map(|call| call.ends).filter(|ends| *ends < first).max();
    let syncs = trace.calls.iter().filter(|call| call.is_sync()).count();
    assert_eq!(syncs, 1, "one for all\n{}", trace.text());
    let required_sync = RequiredSync {
        what: "sync the whole file system".to_owned(),
        between: (last.expect("bytes were written"), first),
        matches_call: Box::new(|call| call.name == "syncfs"),
    };
    check(&[required_sync], trace);
}
