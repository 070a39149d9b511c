//! Interruptions, crashes, concurrent writers: nothing is lost, and no file is incomplete.

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use e2e::{TestEnvironment, wait_until};

use super::{arg, bytes_moved, home, noise, on_disk, plant, server_data, staged, wait_for_staged};

const CHUNK: u64 = 4 << 20;

/// For so long a file must have been left alone before its times say all about it.
const SETTLED: Duration = Duration::from_millis(2100);

/// One chunk after the other and slowly enough to be interrupted, also by a test that a busy machine holds up.
const SLOWLY: [&str; 5] = ["cp", "--bwlimit", "2Mi", "--transfers", "1"];

#[test]
fn an_interrupted_upload_resumes_where_it_stopped() {
    let env = TestEnvironment::new();
    let file = env.folder("data").join("big");
    let bytes = noise(3, 20 << 20);
    fs::write(&file, &bytes).unwrap();
    let remote = format!("{}/big", home(&env));
    let upload = env.start(&[&SLOWLY[..], &[arg(&file), &remote]].concat());
    wait_for_staged(&env, 2 * CHUNK + 1);
    upload.interrupt();
    let (status, lines) = upload.end();
    assert_eq!(status.code(), Some(1), "{lines:?}");
    assert!(
        lines.iter().any(|line| line.contains("again to resume")),
        "{lines:?}"
    );
    env.paddlectl(&["stat", &remote]).refused(1);

    let second = env.paddlectl(&["cp", arg(&file), &remote]).ok();
    let total = bytes.len() as f64;
    assert!(bytes_moved(&second) < total - CHUNK as f64, "{second}");
    env.paddlectl(&["check", arg(&file), &remote]).ok();
    assert_eq!(staged(&server_data(&env)).len(), 0, "nothing unfinished is left");
}

#[test]
#[ignore = "needs strace"]
fn a_resumed_upload_reads_only_the_bytes_that_are_missing() {
    let env = TestEnvironment::new();
    let file = env.folder("data").join("big");
    let bytes = noise(12, 20 << 20);
    fs::write(&file, &bytes).unwrap();
    let remote = format!("{}/big", home(&env));
    wait_until("the file must have been left alone for a while", || {
        let changed = fs::metadata(&file).unwrap().modified().unwrap();
        (changed.elapsed().unwrap_or_default() > SETTLED).then_some(())
    });
    let upload = env.start(&[&SLOWLY[..], &[arg(&file), &remote]].concat());
    wait_for_staged(&env, 2 * CHUNK + 1);
    upload.interrupt();
    upload.end();

    let read = bytes_read(&env, &file, &["cp", arg(&file), &remote]);
    let most = bytes.len() as u64 - 2 * CHUNK;
    assert!(
        read > 0 && read <= most,
        "{read} bytes were read, {most} at most were missing"
    );
    env.paddlectl(&["check", arg(&file), &remote]).ok();
}

/// Runs a command and counts what it reads of one file.
fn bytes_read(env: &TestEnvironment, file: &Path, args: &[&str]) -> u64 {
    let traces = env.folder("traces");
    let command = env.command("paddlectl", args);
    let mut traced = Command::new("strace");
    traced
        .args(["-ff", "-y", "-e", "trace=read,readv,pread64,preadv,preadv2", "-o"])
        .arg(traces.join("of"))
        .arg(command.get_program())
        .args(command.get_args())
        .env_clear();
    traced.envs(
        command
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let output = traced.output().expect("the test needs strace");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let of_the_file = format!("<{}>", arg(file));
    let traces = fs::read_dir(traces).expect("strace wrote its traces").flatten();
    let text: String = traces
        .map(|trace| fs::read_to_string(trace.path()).expect("a trace can be read"))
        .collect();
    let reads = text.lines().filter(|line| line.contains(&of_the_file));
    reads
        .filter_map(|line| line.rsplit_once("= ")?.1.trim().parse::<u64>().ok())
        .sum()
}

#[test]
fn an_upload_resumes_after_all_processes_were_killed() {
    let env = TestEnvironment::new();
    let file = env.folder("data").join("big");
    let bytes = noise(4, 20 << 20);
    fs::write(&file, &bytes).unwrap();
    let remote = format!("{}/big", home(&env));
    let upload = env.start(&[&SLOWLY[..], &[arg(&file), &remote]].concat());
    wait_for_staged(&env, 2 * CHUNK + 1);
    env.end_all_processes();
    drop(upload);
    wait_until("everything must be gone", || {
        env.processes().is_empty().then_some(())
    });

    let second = env.paddlectl(&["cp", arg(&file), &remote]).ok();
    assert!(
        bytes_moved(&second) < (bytes.len() as u64 - CHUNK) as f64,
        "{second}"
    );
    env.paddlectl(&["check", arg(&file), &remote]).ok();
}

#[test]
fn an_interrupted_download_resumes_and_shows_no_partial_file() {
    let env = TestEnvironment::new();
    let (data, back) = (env.folder("data"), env.folder("back"));
    let file = data.join("big");
    fs::write(&file, noise(5, 20 << 20)).unwrap();
    let remote = format!("{}/big", home(&env));
    env.paddlectl(&["cp", arg(&file), &remote]).ok();
    let local = back.join("big");
    let download = env.start(&[&SLOWLY[..], &[&remote, arg(&local)]].concat());
    wait_until("part of the download must arrive", || {
        use std::os::unix::fs::MetadataExt;
        let sizes = staged(&back)
            .into_iter()
            .filter_map(|path| fs::metadata(path).ok());
        (sizes.map(|meta| meta.blocks() * 512).sum::<u64>() > 2 * CHUNK).then_some(())
    });
    download.interrupt();
    let (status, lines) = download.end();
    assert_eq!(status.code(), Some(1), "{lines:?}");
    assert!(!local.exists(), "half a file is no file");
    let second = env.paddlectl(&["cp", &remote, arg(&local)]).ok();
    assert!(bytes_moved(&second) < 17e6, "{second}");
    assert!(fs::read(&local).unwrap() == fs::read(&file).unwrap());
    assert_eq!(fs::read_dir(&back).unwrap().count(), 1, "nothing else is left");
}

#[test]
fn a_file_that_changes_while_it_is_sent_arrives_in_its_last_state() {
    let env = TestEnvironment::new();
    let file = env.folder("data").join("growing");
    fs::write(&file, noise(6, 12 << 20)).unwrap();
    let remote = format!("{}/growing", home(&env));
    let upload = env.start(&[&SLOWLY[..], &[arg(&file), &remote]].concat());
    wait_for_staged(&env, CHUNK);
    let mut open = fs::File::options().append(true).open(&file).unwrap();
    open.write_all(b"one more line\n").unwrap();
    let (status, lines) = upload.end();
    assert!(status.success(), "{lines:?}");
    env.paddlectl(&["check", arg(&file), &remote]).ok();
}

/// Lets a restless writer end, however the test does.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_file_that_keeps_changing_is_reported_and_not_published() {
    let env = TestEnvironment::new();
    let file = env.folder("data").join("restless");
    fs::write(&file, noise(11, 2 << 20)).unwrap();
    let remote = format!("{}/restless", home(&env));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut open = fs::File::options().append(true).open(&file).unwrap();
            while !is_over.load(Ordering::Relaxed) {
                open.write_all(b".").unwrap();
                std::thread::yield_now();
            }
        });
        let _stop = StopOnDrop(&is_over);
        env.paddlectl(&["cp", "--bwlimit", "1Mi", arg(&file), &remote])
            .refused(1)
            .says("changed while it was being sent");
    });
    env.paddlectl(&["stat", &remote]).refused(1);
}

#[test]
fn a_file_that_a_job_keeps_rewriting_is_reported_and_not_fetched() {
    let env = TestEnvironment::new();
    let output = format!("{}/output", home(&env));
    env.paddlectl(&["mkdir", &output]).ok();
    let remote = format!("{output}/restless");
    let there = on_disk(&env, &remote);
    fs::write(&there, noise(12, 2 << 20)).unwrap();
    let local = env.folder("back").join("restless");
    fs::write(&local, "an earlier one").unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let open = fs::File::options().write(true).open(&there).unwrap();
            let mut number = 0_u8;
            while !is_over.load(Ordering::Relaxed) {
                number = number.wrapping_add(1);
                for offset in [0, 1 << 20] {
                    open.write_all_at(&[number], offset).unwrap();
                }
                std::thread::yield_now();
            }
        });
        let _stop = StopOnDrop(&is_over);
        env.paddlectl(&["cp", "--bwlimit", "1Mi", &remote, arg(&local)])
            .refused(1)
            .says("changed on the server while it was being fetched");
    });
    assert_eq!(fs::read_to_string(&local).unwrap(), "an earlier one");
    env.paddlectl(&["cp", &remote, arg(&local)]).ok();
    assert!(fs::read(&local).unwrap() == fs::read(&there).unwrap(), "it rests");
}

#[test]
fn concurrent_uploads_to_one_path_leave_one_whole_file() {
    let env = TestEnvironment::new();
    let data = env.folder("data");
    let home = home(&env);
    let remote = format!("{home}/both");
    for (name, seed) in [("one", 8), ("two", 9)] {
        fs::write(data.join(name), noise(seed, 6 << 20)).unwrap();
    }
    let writers: Vec<_> = ["one", "two"]
        .iter()
        .map(|name| env.start(&["cp", arg(&data.join(name)), &remote]))
        .collect();
    for writer in writers {
        let (status, lines) = writer.end();
        assert!(status.success(), "{lines:?}");
    }
    let back = env.folder("back").join("both");
    env.paddlectl(&["cp", &remote, arg(&back)]).ok();
    let got = fs::read(back).unwrap();
    let is = |name: &str| got == fs::read(data.join(name)).unwrap();
    assert!(is("one") || is("two"), "a mixture of both");
}

#[test]
fn cat_succeeds_if_its_reader_closes_the_pipe() {
    let env = TestEnvironment::new();
    let file = env.folder("data").join("big");
    fs::write(&file, noise(10, 4 << 20)).unwrap();
    let remote = format!("{}/big", home(&env));
    env.paddlectl(&["cp", arg(&file), &remote]).ok();
    let mut command = env.command("paddlectl", &["cat", &remote]);
    command.stdout(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    assert!(
        child.wait().unwrap().success(),
        "a reader that went away is nobody's error"
    );
}

#[test]
fn thousands_of_small_files_survive_a_round_trip() {
    let env = TestEnvironment::new();
    let data = env.folder("data");
    for number in 0..2000 {
        plant(&data, &[(&format!("d{}/f{number}", number % 20), "x")]);
    }
    let remote = format!("{}/many", home(&env));
    env.paddlectl(&["cp", "-r", arg(&data), &remote])
        .ok()
        .says("2000 files copied");
    let back = env.folder("back");
    env.paddlectl(&["cp", &remote, arg(&back)])
        .ok()
        .says("2000 files copied");
    super::assert_same(&data, &back.join("many"));
}

#[test]
fn a_listed_file_that_does_not_exist_counts_as_failed() {
    let env = TestEnvironment::new();
    let data = env.folder("data");
    plant(&data, &[("a.txt", "1")]);
    let list = env.folder("lists").join("list");
    fs::write(&list, "a.txt\nno-such\n").unwrap();
    let remote = format!("{}/data", home(&env));
    env.paddlectl(&["cp", "-r", "--files-from", arg(&list), arg(&data), &remote])
        .refused(1)
        .says(" ... Done, 1 failed")
        .says("it is in the list, but does not exist");
}
