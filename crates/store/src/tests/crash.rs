//! Acknowledged writes survive `kill -9` and are synced before the acknowledgement.
//!
//! The writer is another process of this test program: it opens the given database, saves jobs one after the other, and prints
//! each id once the store reports it as durable.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use paddlecloud_core::names::JobId;
use paddlecloud_core::ports::JobStore;

use super::{job, open, save};

const FOLDER: &str = "PADDLECLOUD_TEST_WRITER_FOLDER";
const FIRST: &str = "PADDLECLOUD_TEST_WRITER_FIRST";
const COUNT: &str = "PADDLECLOUD_TEST_WRITER_COUNT";
const ACK: &str = "acknowledged ";

/// The writer's process; does nothing unless the tests below start it.
#[tokio::test]
async fn writer_process() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let number = |name: &str| -> u32 { std::env::var(name).unwrap().parse().unwrap() };
    let store = open(Path::new(&folder)).await;
    for number in number(FIRST)..number(FIRST) + number(COUNT) {
        let job = job(number, "me", "crash");
        store.save(&[save(&job)]).await.unwrap();
        let mut out = std::io::stdout().lock();
        out.write_all(format!("{ACK}{}\n", job.id).as_bytes()).unwrap();
        out.flush().unwrap();
    }
}

fn writer(program: &mut Command, folder: &Path, first: u32, count: u32) -> Child {
    program
        .args([
            "tests::crash::writer_process",
            "--exact",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(FOLDER, folder)
        .env(FIRST, first.to_string())
        .env(COUNT, count.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The id in an acknowledging line; the test harness prints other lines before and between.
fn acknowledged(line: &str) -> Option<JobId> {
    line.split_once(ACK)?.1.trim().parse().ok()
}

#[tokio::test]
async fn every_acknowledged_job_survives_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let mut promised: Vec<JobId> = Vec::new();
    for round in 0..12u32 {
        let mut program = Command::new(std::env::current_exe().unwrap());
        let mut child = writer(&mut program, folder.path(), round * 100_000, 100_000);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let some = 1 + (round as usize * 37) % 60;
        promised.extend(
            lines
                .map_while(Result::ok)
                .filter_map(|line| acknowledged(&line))
                .take(some),
        );
        child.kill().unwrap();
        child.wait().unwrap();
        let store = open(folder.path()).await;
        for id in &promised {
            assert!(
                store.get(id).await.unwrap().is_some(),
                "round {round}: {id} was acknowledged and is gone"
            );
        }
        store.close().await;
    }
    assert!(promised.len() > 200, "only {} were acknowledged", promised.len());
}

#[tokio::test]
#[ignore = "needs strace"]
async fn the_disk_is_synced_before_a_job_is_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let mut program = Command::new("strace");
    program.args([
        "-f",
        "-y",
        "-s",
        "64",
        "-e",
        "trace=write,pwrite64,fsync,fdatasync",
        "-o",
    ]);
    program.arg(&trace).arg(std::env::current_exe().unwrap());
    let output = writer(&mut program, folder.path(), 0, 20)
        .wait_with_output()
        .unwrap();
    let acknowledgements = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(acknowledged)
        .count();
    assert_eq!(acknowledgements, 20);
    let calls = std::fs::read_to_string(&trace).unwrap();
    assert_eq!(check_order(&calls), Ok(20), "{calls}");
}

/// Checks that a sync follows each write and precedes its acknowledgement. Returns the number of acknowledgements.
///
/// strace splits a call into two lines if another thread makes a call meanwhile. A sync counts when it has returned successfully;
/// an acknowledgement counts when it begins.
fn check_order(calls: &str) -> Result<usize, String> {
    let (mut written, mut synced, mut acknowledged) = (false, false, 0);
    let mut syncing = HashSet::new();
    for call in calls.lines() {
        let thread = call.split_whitespace().next().unwrap_or_default();
        let on_log = call.contains("-wal");
        let begins_sync = on_log && (call.contains("fsync(") || call.contains("fdatasync("));
        let resumes_sync = call.contains("sync resumed>") && syncing.remove(thread);
        if call.contains("pwrite64(") && on_log {
            (written, synced) = (true, false);
        } else if begins_sync && call.ends_with("<unfinished ...>") {
            syncing.insert(thread);
        } else if begins_sync || resumes_sync {
            synced |= call.ends_with("= 0");
        } else if call.contains(ACK) {
            if !(written && synced) {
                return Err(format!("written: {written}, synced: {synced}, then {call}"));
            }
            (written, synced) = (false, false);
            acknowledged += 1;
        }
    }
    Ok(acknowledged)
}

#[test]
fn the_check_of_the_order_notices_a_missing_sync() {
    let write = "1 pwrite64(9</x/a.db-wal>, \"\", 24, 0) = 24";
    let sync = "1 fdatasync(9</x/a.db-wal>) = 0";
    let failed = "1 fdatasync(9</x/a.db-wal>) = -1 ENOSPC (No space left on device)";
    let begin = "1 fdatasync(9</x/a.db-wal> <unfinished ...>";
    let end = "1 <... fdatasync resumed>)          = 0";
    let ack = "2 write(1</p>, \"acknowledged j_1\", 20) = 20";
    let check = |calls: &[&str]| check_order(&calls.join("\n"));
    assert_eq!(check(&[write, sync, ack]), Ok(1));
    assert_eq!(check(&[write, begin, end, ack]), Ok(1));
    assert!(check(&[write, ack]).is_err());
    assert!(check(&[sync, ack]).is_err());
    assert!(check(&[write, sync, write, ack]).is_err());
    assert!(check(&[write, begin, ack, end]).is_err());
    assert!(check(&[write, failed, ack]).is_err());
}
