//! Commands that move files: what they refuse before anything is moved.

use crate::scripted::{self, Server};
use crate::shell::Shell;

const HOME: &str = "/pfs/dc1/home/me";

#[track_caller]
fn assert_nothing_moved(server: &Server) {
    let lines = server.lines();
    assert!(lines.iter().all(|line| line.starts_with("GET ")), "{lines:?}");
}

#[test]
fn file_works_in_the_home_only() {
    let server = scripted::server();
    let shell = Shell::at(&server.endpoint);
    for remote in ["/pfs/public/x", "/pfs/dc1/public/me"] {
        for words in [
            &["file", "src", remote][..],
            &["file", "put", "src", remote],
            &["file", "get", remote, "."],
        ] {
            let refused = shell.run(words);
            assert_eq!(refused.code, 1, "{words:?}: {refused:?}");
            assert!(
                refused.err.contains("`file` works in your home only"),
                "{refused:?}"
            );
            assert!(refused.err.contains("hint: `cp`"), "{refused:?}");
        }
    }
    assert_nothing_moved(&server);
}

#[test]
fn flags_that_mean_nothing_for_a_pipe_are_refused() {
    let server = scripted::server();
    let shell = Shell::at(&server.endpoint);
    let file = format!("{HOME}/file");
    let refusal = |words: &[&str]| {
        let refused = shell.run(words);
        assert_eq!(refused.code, 2, "{words:?}: {refused:?}");
        refused.err
    };
    let flags = [
        &["--dry-run"][..],
        &["-n"],
        &["--checksum"],
        &["--transfers", "2"],
        &["--bwlimit", "1M"],
    ];
    for flag in flags {
        let message = refusal(&[&["cp", &file, "-"], flag].concat());
        let expected = format!("`{}` cannot be used if the destination is `-`", flag[0]);
        assert!(message.contains(&expected), "{message}");
    }
    for flag in [&["--exclude", "*.log"][..], &["--dry-run"]] {
        let message = refusal(&[&["cp", "-", &file], flag].concat());
        assert!(
            message.contains("cannot be used if the source is `-`"),
            "{message}"
        );
    }
    assert_nothing_moved(&server);
}

#[test]
fn a_missing_source_is_reported_even_if_the_destination_is_refused() {
    let server = scripted::server();
    let shell = Shell::at(&server.endpoint);
    let [a, b] = ["a", "b"].map(|name| shell.write(&format!("data/{name}"), ""));
    let lost = a.with_file_name("lost");
    let nowhere = format!("{HOME}/nowhere");
    let [a, b, lost] = [&a, &b, &lost].map(|path| path.to_str().unwrap());
    let refused = shell.run(&["cp", lost, a, b, &nowhere]);
    assert_eq!(refused.code, 1, "{refused:?}");
    let missing = format!("  {lost}: there is no such file or folder\n");
    assert!(refused.err.contains(&missing), "{refused:?}");
    let destination = format!("cannot copy to `{nowhere}`: ");
    assert!(refused.err.contains(&destination), "{refused:?}");
    assert_nothing_moved(&server);
}
