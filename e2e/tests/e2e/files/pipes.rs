//! `cat`, and `-` on either side: the output equals the stored bytes or the command fails, and input from a pipe leaves
//! nothing behind here.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Stdio};

use e2e::{TestEnvironment, wait_until};

use super::dice::seed;
use super::network::Way;
use super::site::Site;
use super::{arg, home, make_pipe, noise, staged};

const REMOTE: &str = "/pfs/cloud/home/ada/printed";

/// Lines of letters, as many bytes as were asked for.
fn text(seed: u64, length: usize) -> String {
    let letter = |(at, byte): (usize, u8)| match (at + 1) % 80 == 0 || at + 1 == length {
        true => '\n',
        false => char::from(b'a' + byte % 26),
    };
    noise(seed, length).into_iter().enumerate().map(letter).collect()
}

/// A server that stores a text, reached through a network.
fn with_text<'a>(env: &'a TestEnvironment, text: &str) -> Site<'a> {
    let mut site = Site::of_ada(env, "");
    let file = env.folder("data").join("printed");
    fs::write(&file, text).expect("a file can be written");
    site.run("ada", &["cp", arg(&file), REMOTE]).ok();
    site.network();
    site
}

#[test]
fn cut_connections_only_slow_cat() {
    let env = TestEnvironment::new();
    let whole = text(81, (9 << 20) + 123);
    let mut site = with_text(&env, &whole);
    let (offset, length) = (4_190_000, 5_000_000);
    let words = ["cat", "--offset", "4190000", "--length", "5000000", REMOTE];
    for (words, expected) in [
        (&["cat", REMOTE][..], whole.as_str()),
        (&["cp", REMOTE, "-"], &whole),
        (&words, &whole[offset..][..length]),
    ] {
        let cuts = site.network().cuts();
        // No connection carries the whole text.
        site.network().cut_after(seed(), 20_000..1_000_000);
        let printed = site.run("ada", words).ok().stdout;
        assert!(printed == expected, "{words:?}: another text");
        let cuts = site.network().cuts() - cuts;
        assert!(cuts > 2, "{words:?}: the network cut {cuts} connections only");
        site.network().heal();
    }
}

#[test]
fn cat_fails_on_a_flipped_bit() {
    let env = TestEnvironment::new();
    let mut site = with_text(&env, &text(82, 5 << 20));
    for words in [&["cat", REMOTE][..], &["cp", REMOTE, "-"]] {
        site.network().flip_bits(Way::Down, 1);
        let printed = site.run("ada", words);
        assert_eq!(printed.code, Some(1), "its end comes with an error");
        printed.says("arrived damaged");
        site.run("ada", words).ok();
    }
}

#[test]
fn cat_survives_a_killed_server() {
    let env = TestEnvironment::new();
    let whole = text(83, 24 << 20);
    let mut site = with_text(&env, &whole);
    let killer = site.server().killer();
    site.network().after(5 << 20, killer);
    let mut client = site.spawn("ada", &["cat", REMOTE]);
    wait_until("the server must die or the client be done", || {
        (site.has_ended() || client.has_ended()).then_some(())
    });
    assert!(site.has_ended(), "it died while the file was printed");
    site.start_again();
    let (status, lines) = client.end();
    assert!(status.success(), "{status}: {}", lines.last().unwrap());
    assert!(lines.join("\n") + "\n" == whole, "every line once");
}

/// A job's log, for instance.
#[test]
fn cat_prints_a_file_as_it_was_when_opened() {
    let env = TestEnvironment::new();
    let whole = text(84, 24 << 20);
    let mut site = with_text(&env, &whole);
    let there = site.home("ada").join("printed");
    let grown = there.clone();
    site.network().after(3 << 20, move || {
        let mut file = fs::File::options().append(true).open(grown).expect("it is there");
        file.write_all(b"one more line\n").expect("it can be written");
    });
    let printed = site.run("ada", &["cat", REMOTE]).ok().stdout;
    assert!(printed == whole, "as it was when it was opened");

    let longer = fs::read_to_string(&there).expect("it is there");
    assert!(longer.ends_with("one more line\n"), "it grew meanwhile");
    let (new, replaced) = (site.home("ada").join("new"), there);
    fs::write(&new, "something else").expect("a file can be written");
    site.network().after(3 << 20, move || {
        fs::rename(new, replaced).expect("both are there")
    });
    let printed = site.run("ada", &["cat", REMOTE]).ok().stdout;
    assert!(printed == longer, "as it was when it was opened");
    assert_eq!(site.run("ada", &["cat", REMOTE]).ok().stdout, "something else");
}

#[test]
fn a_killed_upload_from_a_pipe_leaves_nothing_here() {
    let env = TestEnvironment::new();
    let remote = format!("{}/piped", home(&env));
    let temporary = env.folder("temporary");
    let left = || fs::read_dir(&temporary).expect("it was made").count();
    let mut command = env.command("paddlectl", &["cp", "-", &remote]);
    command
        .env("TMPDIR", &temporary)
        .stdin(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().expect("it can be started");
    let mut stdin = child.stdin.take().expect("it is a pipe");
    // More than a pipe holds: what is written was read by then.
    stdin.write_all(&noise(85, 1 << 20)).expect("somebody reads");
    assert_eq!(left(), 0, "what is kept has no name");
    child.kill().expect("it waits for more");
    child.wait().expect("it was killed");
    assert_eq!(left(), 0);
    env.paddlectl(&["stat", &remote]).refused(1);
}

/// Sends a file as a pipe would.
fn piped(site: &Site<'_>, env: &TestEnvironment, flags: &[&str], file: &Path, remote: &str) -> Child {
    let config = site.config("ada");
    let words = [&["--config", arg(&config), "cp"], flags, &["-", remote]].concat();
    let mut command = env.command("paddlectl", &words);
    command.stdin(fs::File::open(file).expect("it is there"));
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().expect("it can be started")
}

#[test]
fn a_complete_upload_from_a_pipe_removes_unfinished_ones() {
    let env = TestEnvironment::new();
    let site = Site::of_ada(&env, "");
    let file = env.folder("data").join("content");
    fs::write(&file, noise(86, 12 << 20)).expect("a file can be written");
    let known = || site.run("ada", &["pfs", "uploads", "-o", "json"]).ok().json();
    let slowly = ["--bwlimit", "2Mi", "--transfers", "1"];
    let mut seen = Vec::new();
    for _ in 0..3 {
        let mut client = piped(&site, &env, &slowly, &file, REMOTE);
        seen.push(site.wait_for_part("ada", &seen));
        client.kill().expect("it is still sending");
        client.wait().expect("it was killed");
    }
    let last = piped(&site, &env, &[], &file, REMOTE);
    let last = last.wait_with_output().expect("it ends");
    assert!(last.status.success(), "{last:?}");
    wait_until("nothing of the others may stay", || {
        known().as_array()?.is_empty().then_some(())
    });
    let stored = fs::read(site.home("ada").join("printed")).expect("it is there");
    assert!(stored == noise(86, 12 << 20), "another content");
}

#[test]
fn a_refused_upload_from_a_pipe_leaves_nothing_on_the_server() {
    let env = TestEnvironment::new();
    let site = Site::of_ada(&env, "");
    let file = env.folder("data").join("content");
    fs::write(&file, noise(87, 5 << 20)).expect("a file can be written");
    let home = site.home("ada");
    fs::create_dir_all(&home).expect("a home can be made");
    fs::write(home.join("file"), "").expect("a file can be written");
    make_pipe(&home.join("pipe"));
    for (name, reason) in [
        ("pipe", "is not a regular file"),
        ("file/below", "is not a folder"),
    ] {
        let remote = format!("/pfs/cloud/home/ada/{name}");
        let sent = piped(&site, &env, &[], &file, &remote);
        let sent = sent.wait_with_output().expect("it ends");
        let stderr = String::from_utf8_lossy(&sent.stderr);
        assert!(
            sent.status.code() == Some(1) && stderr.contains(reason),
            "{name}: {stderr}"
        );
        assert_eq!(site.run("ada", &["pfs", "uploads"]).ok().stdout, "", "{name}");
        assert!(staged(site.storage()).is_empty(), "{name}");
    }
}

#[test]
fn cp_n_from_a_pipe_overwrites_nothing() {
    let env = TestEnvironment::new();
    let remote = format!("{}/piped", home(&env));
    let send = |flags: &[&str], content: &str| {
        let words = [&["cp"], flags, &["-", &remote]].concat();
        let mut command = env.command("paddlectl", &words);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("it can be started");
        let _ = child
            .stdin
            .take()
            .expect("it is a pipe")
            .write_all(content.as_bytes());
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{output:?}");
        let text = |bytes| String::from_utf8(bytes).expect("words");
        text(output.stdout) + &text(output.stderr)
    };
    send(&["-n"], "first");
    let kept = send(&["-n"], "second");
    assert!(kept.contains("0 files copied, 1 kept"), "{kept}");
    assert_eq!(env.paddlectl(&["cat", &remote]).ok().stdout, "first");
}

#[test]
fn an_empty_pipe_becomes_an_empty_file() {
    let env = TestEnvironment::new();
    let remote = format!("{}/piped", home(&env));
    for content in ["", "a little\n"] {
        let mut command = env.command("paddlectl", &["cp", "-", &remote]);
        command.stdin(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("it can be started");
        let mut stdin = child.stdin.take().expect("it is a pipe");
        stdin.write_all(content.as_bytes()).expect("somebody reads");
        drop(stdin);
        assert!(child.wait().expect("it ends").success());
        assert_eq!(env.paddlectl(&["cat", &remote]).ok().stdout, content);
    }
}
