//! Extremes: empty files and folders, five gigabytes, paths at and beyond the depth limit, files written while they are read.

use std::ffi::OsStr;
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use e2e::TestEnvironment;

use super::{arg, assert_same, home, noise, plant, staged};

#[test]
fn empty_files_and_folders_are_copied() {
    let env = TestEnvironment::new();
    let (data, back) = (env.folder("data"), env.folder("back"));
    plant(&data, &[("empty", "")]);
    fs::create_dir(data.join("folder")).unwrap();
    let remote = format!("{}/data", home(&env));
    env.paddlectl(&["cp", arg(&data.join("empty")), &format!("{remote}/alone")])
        .ok();
    env.paddlectl(&["cp", "-r", &format!("{}/.", arg(&data)), &remote])
        .ok();
    assert_eq!(
        env.paddlectl(&["ls", "-r", &remote]).ok().stdout,
        "alone\nempty\nfolder\n"
    );
    assert_eq!(
        env.paddlectl(&["cat", &format!("{remote}/empty")]).ok().stdout,
        ""
    );
    env.paddlectl(&["rm", &format!("{remote}/alone")]).ok();
    env.paddlectl(&["cp", &remote, arg(&back)]).ok();
    assert_same(&data, &back.join("data"));
    env.paddlectl(&["check", arg(&data), &remote]).ok();
}

/// Creates a folder this many levels down, longer than any path that could be named at once.
fn dig(top: &Path, levels: usize, name: &str) {
    let mut here = rustix::fs::open(top, rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty())
        .expect("the top is there");
    for _ in 0..levels {
        rustix::fs::mkdirat(&here, name, rustix::fs::Mode::RWXU).expect("a folder can be made");
        let flags = rustix::fs::OFlags::DIRECTORY;
        here = rustix::fs::openat(&here, name, flags, rustix::fs::Mode::empty()).expect("it was made");
    }
    let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let leaf = rustix::fs::openat(&here, "leaf", flags, mode).expect("a file can be made");
    fs::File::from(leaf)
        .write_all(b"leaf")
        .expect("it can be written");
}

#[test]
fn the_deepest_possible_tree_is_copied_and_a_deeper_one_is_reported() {
    let env = TestEnvironment::new();
    let (deep, deeper, back) = (env.folder("deep"), env.folder("deeper"), env.folder("back"));
    // 4095 bytes are the longest path inside a home: this one has `deep/`, 2000 times `d/`, and `leaf`.
    dig(&deep, 2000, "d");
    let remote = home(&env);
    env.paddlectl(&["cp", "-r", arg(&deep), &format!("{remote}/")])
        .ok();
    env.paddlectl(&["cp", &format!("{remote}/deep"), arg(&back)]).ok();
    assert_same(&deep, &back.join("deep"));

    dig(&deeper, 2100, "d");
    plant(&deeper, &[("shallow", "is sent all the same")]);
    let ran = env.paddlectl(&["cp", "-r", arg(&deeper), &format!("{remote}/")]);
    assert_eq!(ran.code, Some(1), "{ran}");
    let ran = ran.says("4095");
    assert!(
        ran.stderr.len() < 20_000,
        "one line says it, not 2100: {}",
        ran.stderr.len()
    );
    env.paddlectl(&["rm", "-r", &format!("{remote}/deep")]).ok();
    // rm(1) has no limit on depth; the test's own folder must go too.
    for folder in [&deep, &deeper, &back] {
        let removed = std::process::Command::new("rm").arg("-rf").arg(folder).status();
        assert!(removed.expect("there is an rm").success());
    }
}

#[test]
fn a_name_that_is_not_utf8_is_kept_byte_by_byte() {
    let env = TestEnvironment::new();
    let data = env.folder("data");
    let name = OsStr::from_bytes(b"caf\xe9");
    fs::write(data.join(name), "coffee").unwrap();
    let remote = home(&env);
    let line = |words: &[&OsStr]| {
        let mut command = env.command("paddlectl", &[]);
        let output = command.args(words).stdin(Stdio::null()).output().unwrap();
        (output.status.code(), output.stdout)
    };
    let at = [remote.as_bytes(), b"/caf\xe9"].concat();
    let at = OsStr::from_bytes(&at);
    let local = data.join(name);
    assert_eq!(line(&["cp".as_ref(), local.as_os_str(), at]).0, Some(0));
    assert_eq!(line(&["cat".as_ref(), at]).1, b"coffee");
    assert_eq!(
        line(&["ls".as_ref(), remote.as_ref()]).1,
        b"caf\xe9\n",
        "byte by byte"
    );
    assert_eq!(line(&["rm".as_ref(), at]).0, Some(0));
    assert_eq!(line(&["ls".as_ref(), remote.as_ref()]).1, b"");
}

#[test]
fn a_reader_sees_the_old_file_or_the_new_one() {
    let env = TestEnvironment::new();
    let data = env.folder("data");
    let remote = format!("{}/model", home(&env));
    let versions: Vec<Vec<u8>> = (0..2).map(|seed| vec![b'0' + seed; 6 << 20]).collect();
    for (number, bytes) in versions.iter().enumerate() {
        // Of the same size: only the time tells them apart, and two writes may fall into one tick of the clock.
        let mut file = fs::File::create(data.join(number.to_string())).unwrap();
        file.write_all(bytes).unwrap();
        let seconds = 1_500_000_000 + number as u64;
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
            .unwrap();
    }
    let put = |number: usize| env.start(&["cp", arg(&data.join(number.to_string())), &remote]);
    assert!(put(0).end().0.success());
    let mut seen = [false; 2];
    for round in 1..=6 {
        let mut writer = put(round % 2);
        while !writer.has_ended() {
            let back = env.folder("back").join("model");
            env.paddlectl(&["cp", &remote, arg(&back)]).ok();
            let got = fs::read(&back).unwrap();
            let which = versions.iter().position(|version| *version == got);
            seen[which.expect("no mixture of both")] = true;
        }
        assert!(writer.end().0.success());
        let back = env.folder("back").join("model");
        env.paddlectl(&["cp", &remote, arg(&back)]).ok();
        assert!(
            fs::read(back).unwrap() == versions[round % 2],
            "what was written last"
        );
    }
    assert_eq!(seen, [true; 2]);
}

#[test]
fn writes_of_a_job_and_an_upload_do_not_mix_in_one_file() {
    let env = TestEnvironment::new();
    let gate = env.gate("go");
    let remote = home(&env);
    // The job holds the file open across the upload and keeps writing to what it opened.
    let script = format!(
        "exec 3>{remote}/log\necho from the job >&3\necho opened\ncat $GATE\necho more from the job >&3\n"
    );
    let package = env.package("job").file("train.sh", script);
    env.submit(
        "writer",
        &package,
        &["-env", &gate.variable("GATE"), "-entry", "sh train.sh"],
    );
    let mut logs = env.start(&["logs", "-f", "--raw", "writer"]);
    logs.wait_for_line("opened");
    let at = format!("{remote}/log");
    assert_eq!(env.paddlectl(&["cat", &at]).ok().stdout, "from the job\n");
    let data = env.folder("data");
    plant(&data, &[("log", "from outside\n")]);
    env.paddlectl(&["cp", arg(&data.join("log")), &at]).ok();
    gate.open();
    env.paddlectl(&["wait", "writer"]).ok();
    assert_eq!(
        env.paddlectl(&["cat", &at]).ok().stdout,
        "from outside\n",
        "no mixture"
    );
}

/// Sparse, so that it costs little here; with content at both ends and in the middle.
fn plant_five_gigabytes(path: &Path) {
    let mut file = fs::File::create(path).expect("a sparse file can be written");
    let size: u64 = 5 << 30;
    file.set_len(size).expect("a sparse file can be written");
    for (seed, offset) in [(90, 0), (91, (4 << 30) - 1000), (92, size - 3_000_000)] {
        file.seek(SeekFrom::Start(offset))
            .expect("a sparse file can be written");
        file.write_all(&noise(seed, 3_000_000))
            .expect("a sparse file can be written");
    }
}

fn free_bytes(folder: &Path) -> u64 {
    let disk = rustix::fs::statvfs(folder).expect("the disk can be looked at");
    disk.f_bavail * disk.f_frsize
}

#[test]
#[ignore = "needs 12 GiB of disk"]
fn five_gigabytes_are_uploaded_and_downloaded() {
    let env = TestEnvironment::new();
    // It lies on the cluster and comes back, and neither copy is sparse.
    let (needed, free) = (12_u64 << 30, free_bytes(env.home()));
    assert!(
        free >= needed,
        "{needed} bytes of disk are needed, and {free} are free"
    );
    let (file, back) = (env.folder("data").join("huge"), env.folder("back").join("huge"));
    plant_five_gigabytes(&file);
    let remote = format!("{}/huge", home(&env));
    for words in [["cp", arg(&file), &remote], ["cp", &remote, arg(&back)]] {
        let (status, lines) = env.start(&words).end_within(Duration::from_secs(600));
        assert!(status.success(), "{}", lines.join("\n"));
    }
    let (left, right) = (fs::File::open(&file).unwrap(), fs::File::open(&back).unwrap());
    assert_eq!(right.metadata().unwrap().len(), 5 << 30);
    let (mut one, mut two) = (vec![0; 8 << 20], vec![0; 8 << 20]);
    for offset in (0..5_u64 << 30).step_by(8 << 20) {
        left.read_exact_at(&mut one, offset).unwrap();
        right.read_exact_at(&mut two, offset).unwrap();
        assert!(one == two, "the bytes from {offset} on differ");
    }
    assert!(staged(env.home()).is_empty());
}
