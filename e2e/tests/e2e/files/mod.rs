//! Files are uploaded, downloaded, and the same afterwards: the file commands on a real server.

mod backends;
mod bad_network;
mod broken_submits;
mod cluster_copies;
mod confinement;
mod copying;
mod damage;
mod datasets;
mod dice;
mod exchanges;
mod extremes;
mod faults;
mod filters;
mod flipping_links;
mod full_disk;
mod killed;
mod listing;
mod managed_folders;
mod many_names;
mod named_links;
mod network;
mod old_client;
mod ordinary_user;
mod ownership;
mod partial_failures;
mod pipes;
mod quota;
mod revoked_links;
mod shares;
pub(super) mod site;
mod spellings;
mod sync_delete;
mod syncing;
mod terminal;
mod traffic;
mod trees;

use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use e2e::{Ran, TestEnvironment, wait_until};

/// The caller's folder on the cluster.
#[track_caller]
fn home(env: &TestEnvironment) -> String {
    let who = env.paddlectl(&["whoami", "-o", "json"]).ok().json();
    who["home"].as_str().expect("whoami names the home").to_owned()
}

/// Writes files, each with the folders above it.
fn plant(folder: &Path, files: &[(&str, &str)]) {
    for (name, contents) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().expect("it lies in a folder")).expect("folders can be made");
        fs::write(path, contents).expect("a file can be written");
    }
}

/// Makes a named pipe.
#[track_caller]
fn make_pipe(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status();
    assert!(made.expect("there is a mkfifo").success());
}

/// Runs `paddlectl` with something in the pipe that is its stdin.
#[track_caller]
fn with_stdin(env: &TestEnvironment, words: &[&str], content: &str) -> Ran {
    let mut command = env.command("paddlectl", words);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("it can be started");
    let mut stdin = child.stdin.take().expect("it is a pipe");
    // A command that refuses does not read it.
    let _ = stdin.write_all(content.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ran {
        line: format!("paddlectl {}", words.join(" ")),
        code: output.status.code(),
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
    }
}

/// As an argument; folders of tests have plain names.
fn arg(path: &Path) -> &str {
    path.to_str().expect("temporary folders have plain names")
}

/// `diff -r` finds nothing, not even between links.
#[track_caller]
fn assert_same(left: &Path, right: &Path) {
    let diff = Command::new("diff")
        .args(["-r", "--no-dereference"])
        .args([left, right])
        .output()
        .expect("there is a diff");
    assert!(
        diff.status.success(),
        "{}{}",
        String::from_utf8_lossy(&diff.stdout),
        String::from_utf8_lossy(&diff.stderr)
    );
}

/// Incompressible bytes that differ from seed to seed.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// The number of bytes that the last line of a copy names: `…; 12.3 kB sent`.
#[track_caller]
fn bytes_moved(ran: &Ran) -> f64 {
    let said = ran
        .stderr
        .lines()
        .rev()
        .find_map(|line| line.split("; ").nth(1))
        .unwrap_or_else(|| panic!("no line says how much went\n{ran}"));
    let mut words = said.split(' ');
    let number: f64 = words.next().and_then(|word| word.parse().ok()).expect("a number");
    let unit = match words.next() {
        Some("byte" | "bytes") => 1.0,
        Some("kB") => 1e3,
        Some("MB") => 1e6,
        Some("GB") => 1e9,
        other => panic!("unknown unit {other:?}"),
    };
    number * unit
}

/// Files below a folder of the server's disk that hold what is not finished yet.
fn staged(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![(folder.to_owned(), false)];
    while let Some((folder, inside)) = folders.pop() {
        // Folders come and go during an upload.
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let is_staging = inside || entry.file_name().as_bytes() == b".pfs-staging";
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push((entry.path(), is_staging)),
                Ok(_) if is_staging => found.push(entry.path()),
                _ => {}
            }
        }
    }
    found
}

/// Where the embedded server keeps everything.
fn server_data(env: &TestEnvironment) -> PathBuf {
    env.home().join(".paddle")
}

/// Where a path of the cluster is on the embedded server's disk.
fn on_disk(env: &TestEnvironment, path: &str) -> PathBuf {
    let inside = path.rsplit_once("/home/").expect("it lies in a home").1;
    server_data(env).join("local/storage/home").join(inside)
}

/// Waits until this many bytes of an unfinished upload are on the server's disk.
fn wait_for_staged(env: &TestEnvironment, bytes: u64) {
    use std::os::unix::fs::MetadataExt;
    let on_disk = || -> u64 {
        let sizes = staged(&server_data(env))
            .into_iter()
            .filter_map(|path| Some(fs::metadata(path).ok()?.blocks() * 512));
        sizes.sum()
    };
    wait_until("part of the upload must arrive", || {
        (on_disk() >= bytes).then_some(())
    });
}
