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

/// What a terminal acts on, except the end of a line and a tab: C0, DEL, C1, and what changes the direction of text.
fn controls() -> Vec<char> {
    let bidirectional = ['\u{61c}', '\u{200e}', '\u{200f}'];
    let marks = bidirectional
        .into_iter()
        .chain('\u{202a}'..='\u{202e}')
        .chain('\u{2066}'..='\u{2069}');
    ('\u{1}'..='\u{1f}')
        .chain('\u{7f}'..='\u{9f}')
        .chain(marks)
        .filter(|c| !matches!(c, '\n' | '\t'))
        .collect()
}

/// What was drawn, without what our own tables and progress bars write: colours, erased lines, `\r`.
fn foreign(drawn: &str) -> String {
    let mut left = String::new();
    let mut parts = drawn.split("\x1b[");
    left.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';' || c == '?');
        match rest.chars().next() {
            Some('m' | 'K' | 'A' | 'J') => left.push_str(&rest[1..]),
            _ => left.push_str(&format!("\x1b[{part}")),
        }
    }
    left.replace('\r', "")
}

#[test]
fn names_of_files_control_no_terminal() {
    let env = TestEnvironment::new();
    let controls = controls();
    let data = env.folder("data");
    for control in &controls {
        fs::write(data.join(format!("a{control}b")), "x").unwrap();
    }
    let all: String = controls.iter().collect();
    fs::create_dir(data.join(format!("d{all}"))).unwrap();
    fs::write(data.join(format!("d{all}/f")), "x").unwrap();
    let (data, remote) = (arg(&data), format!("{}/data", home(&env)));
    let back = env.home().join("back");
    let back = arg(&back);
    // `printf` writes the name of one file, because a line of `script` has no control characters itself.
    let file = format!("\"$(printf '{remote}/a\\033b')\"");
    let other = format!("\"$(printf '{remote}/c\\033d')\"");
    for line in [
        format!("paddlectl cp -r {data} {remote}"),
        format!("paddlectl sync {data} {remote}"),
        format!("paddlectl check {data} {remote}"),
        format!("paddlectl ls {remote}"),
        format!("paddlectl ls -l {remote}"),
        format!("paddlectl ls -r {remote}"),
        format!("paddlectl ls -o json {remote}"),
        format!("paddlectl ls -o name {remote}"),
        format!("paddlectl du {remote}"),
        format!("paddlectl du {remote}/*"),
        format!("paddlectl stat {remote}/*"),
        format!("paddlectl cp {remote} {back}"),
        format!("paddlectl mv {file} {other}"),
        // An embedded server publishes nothing, but names the file.
        format!("! paddlectl publish {other}"),
        format!("! paddlectl mkdir {other}"),
        format!("! paddlectl rm {remote}/none {file}"),
        format!("paddlectl rm -r {remote}"),
    ] {
        let text = foreign(&drawn(&env, &line));
        let raw: Vec<char> = controls.iter().copied().filter(|c| text.contains(*c)).collect();
        assert!(raw.is_empty(), "{line} writes {raw:?}: {text:?}");
    }
}
