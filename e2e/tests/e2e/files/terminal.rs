//! What a user sees at a terminal while files are transferred.

use std::fs;

use e2e::TestEnvironment;

use super::{arg, home, noise};

/// Runs a line of a shell on a terminal of 120 columns; returns all that it drew.
#[track_caller]
fn drawn(env: &TestEnvironment, line: &str) -> String {
    let line = format!("stty cols 120 rows 40; {line}");
    let output = env
        .command("/usr/bin/script", &["-qec", &line, "/dev/null"])
        .env("TERM", "xterm")
        .stdin(std::process::Stdio::null())
        .output()
        .expect("every Debian has script(1)");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}: {text}", output.status);
    text
}

#[test]
fn the_progress_bar_shows_bytes_files_rate_and_time_left() {
    let env = TestEnvironment::new();
    let data = env.folder("data");
    for number in 0..3 {
        fs::write(data.join(format!("f{number}")), noise(number, 1_000_000)).unwrap();
    }
    let (data, remote) = (arg(&data), format!("{}/data", home(&env)));
    let back = env.home().join("back");
    let back = arg(&back);
    for (line, doing, ends) in [
        (
            format!("paddlectl cp -r --bwlimit 1M {data} {remote}"),
            "Uploading",
            "sent",
        ),
        (
            format!("paddlectl cp --bwlimit 1M {remote} {back}"),
            "Downloading",
            "received",
        ),
    ] {
        let text = drawn(&env, &line);
        // Every refresh begins at the line's start.
        let frames: Vec<&str> = text
            .split(['\r', '\n'])
            .filter(|frame| frame.contains('%'))
            .collect();
        let shows = |word: &str| frames.iter().any(|frame| frame.contains(word));
        for word in [
            doing,
            " MB of 3.0 MB",
            " of 3 files",
            "B/s",
            " left",
            "###",
            "---",
        ] {
            assert!(shows(word), "no frame has {word:?}: {frames:#?}");
        }
        for end in [" ... Done", &format!("3 files copied; 3.0 MB {ends}")] {
            assert!(text.contains(end), "it does not end with {end:?}: {text}");
        }
    }
}
