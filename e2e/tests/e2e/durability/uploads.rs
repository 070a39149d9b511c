//! An acknowledged upload survives a power cut: its bytes and its name are on the disk before the reply.

use std::fs;

use e2e::TestEnvironment;

use super::trace::{Call, Trace};
use super::{RequiredSync, Traced, check};

/// Sends a folder to a server under `strace`; returns the calls and the folder it became on the server's disk.
fn sent(env: &TestEnvironment, files: &[(String, Vec<u8>)]) -> (Trace, String) {
    let traced = Traced::start(env);
    let source = env.folder("source");
    for (name, content) in files {
        fs::write(source.join(name), content).expect("a file in a fresh folder");
    }
    let home = env.paddlectl(&["whoami", "-o", "json"]).ok().json();
    let home = home["home"].as_str().expect("whoami names the home").to_owned();
    let source = source.to_str().expect("a plain name");
    // The folder is there: what is sent comes into it name by name.
    env.paddlectl(&["mkdir", &format!("{home}/tree")]).ok();
    env.paddlectl(&["sync", source, &format!("{home}/tree")]).ok();
    let user = home.rsplit('/').next().expect("a home is named after its user");
    let there = env.home().join(format!(".paddle/local/storage/home/{user}/tree"));
    assert!(there.is_dir(), "{}", there.display());
    (traced.end(env), there.to_str().expect("a plain name").to_owned())
}

/// The renames that gave files of the folder their names.
fn named<'a>(trace: &'a Trace, there: &str, starts: &str) -> Vec<&'a Call> {
    let matches_call = |call: &&Call| {
        let target = call.is_rename().then(|| call.target()).flatten();
        target.is_some_and(|(folder, name)| folder == there && name.starts_with(starts))
    };
    trace.calls.iter().filter(matches_call).collect()
}

#[test]
#[ignore = "needs strace"]
fn a_large_file_and_its_name_are_synced_before_its_upload_is_acknowledged() {
    let env = TestEnvironment::new();
    let content: Vec<u8> = (0..6_u32 << 20).map(|at| (at % 251) as u8).collect();
    let (trace, there) = sent(&env, &[("large".to_owned(), content)]);
    let commit = trace.exchange("POST /api/v1/pfs/uploads/", "200");
    assert!(
        commit.request.text.contains("/commit "),
        "{}",
        commit.request.text
    );
    let named = named(&trace, &there, "large");
    let [named] = named[..] else {
        panic!("it got its name once\n{}", trace.text());
    };
    let (folder, name) = named.source().expect("a rename has a source");
    let draft = format!("{folder}/{name}");
    let written = trace.last_write(&draft).expect("its bytes were written");
    let required = [
        RequiredSync::sync(&draft, (written.ends, named.begins)),
        RequiredSync::sync(&there, (named.ends, commit.reply.begins)),
    ];
    check(&required, trace);
}

#[test]
#[ignore = "needs strace"]
fn small_files_and_their_names_are_synced_before_their_pack_is_acknowledged() {
    // A few are synced one by one, many all at once.
    for (count, is_at_once) in [(3, false), (100, true)] {
        let env = TestEnvironment::new();
        let files: Vec<_> = (0..count)
            .map(|number| (format!("f{number}"), format!("{number}\n").into_bytes()))
            .collect();
        let (trace, there) = sent(&env, &files);
        let pack = trace.exchange("PUT /api/v1/pfs/pack", "200");
        let named = named(&trace, &there, "f");
        assert_eq!(named.len(), count, "{}", trace.text());
        let first = named
            .iter()
            .map(|call| call.begins)
            .min()
            .expect("there are some");
        let last = named.iter().map(|call| call.ends).max().expect("there are some");
        let mut required = vec![RequiredSync::sync(&there, (last, pack.reply.begins))];
        let drafts = named.iter().map(|call| {
            let (folder, name) = call.source().expect("a rename has a source");
            format!("{folder}/{name}")
        });
        let writes = drafts.map(|draft| {
            let written = trace.last_write(&draft).expect("its bytes were written").ends;
            (draft, written)
        });
        let writes: Vec<(String, usize)> = writes.collect();
        match is_at_once {
            false => required.extend(
                writes
                    .iter()
                    .map(|(draft, written)| RequiredSync::sync(draft, (*written, first))),
            ),
            true => required.push(RequiredSync {
                what: "sync the whole file system".to_owned(),
                between: (
                    writes.iter().map(|(_, written)| *written).max().expect("some"),
                    first,
                ),
                matches_call: Box::new(|call| call.name == "syncfs"),
            }),
        }
        check(&required, trace);
    }
}
