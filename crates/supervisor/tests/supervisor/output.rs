//! The output of workers, from their pipes to the reader.

use std::fs;
use std::io::Write as _;
use std::time::Duration;

use paddlecloud_worker::log::{Chunk, Gap, Piece, Stream};
use paddlecloud_worker::protocol::{Command, Ending, LogLimits, Report};

use crate::harness::{Attempt, handles, modes, wait_gone};

fn chunks(attempt: &Attempt) -> Vec<Chunk> {
    let pieces = attempt.log().read_at(0, usize::MAX).unwrap();
    let chunk = |piece| {
        if let Piece::Chunk(chunk) = piece {
            chunk
        } else {
            panic!("{piece:?}")
        }
    };
    pieces.into_iter().map(chunk).collect()
}

#[test]
fn standard_output_and_error_come_in_the_order_written() {
    // A progress bar on standard error between lines on standard output, faster than anything reads.
    let program = r"i=0; while [ $i -lt 2000 ]; do
        printf 'out %d\n' $i; printf '\r%d of 2000' $i >&2; i=$((i + 1)); done";
    let expected: String = (0..2000).map(|i| format!("out {i}\n\r{i} of 2000")).collect();
    for mode in modes() {
        let attempt = Attempt::new(&mode, program);
        let exit = attempt.run();
        let chunks = chunks(&attempt);
        assert!(chunks.iter().all(|chunk| chunk.stream == Stream::Output));
        let bytes: Vec<u8> = chunks.iter().flat_map(|chunk| chunk.bytes.clone()).collect();
        assert!(
            bytes == expected.as_bytes(),
            "{}",
            String::from_utf8_lossy(&bytes)
        );
        assert!(chunks.is_sorted_by_key(|chunk| chunk.stamp));
        assert!(chunks.iter().all(|chunk| chunk.stamp <= exit.finished_at.0));
    }
}

#[test]
fn any_bytes_come_through_unchanged() {
    for mode in modes() {
        let attempt = Attempt::new(&mode, r"printf 'a\0\377\r50%%\r100%%'");
        attempt.run();
        let bytes: Vec<_> = chunks(&attempt)
            .into_iter()
            .flat_map(|chunk| chunk.bytes)
            .collect();
        assert_eq!(bytes, b"a\0\xff\r50%\r100%");
    }
}

#[test]
fn nothing_of_a_flood_is_lost_and_its_end_is_in_order() {
    for mode in modes() {
        let attempt = Attempt::new(&mode, "seq 1 3000000; echo the end");
        let exit = attempt.run();
        let text = attempt.text();
        assert!(
            text.lines()
                .zip(1..=3_000_000)
                .all(|(line, number)| line == number.to_string())
        );
        assert!(text.ends_with("\n3000000\nthe end\n"));
        assert_eq!(exit.final_log_offset, text.len() as u64);
    }
}

#[test]
fn rotation_keeps_the_bound_and_reports_dropped_bytes() {
    for mode in modes() {
        let limits = LogLimits {
            segment_bytes: 64 << 10,
            keep_bytes: 1 << 20,
        };
        let attempt = Attempt::new(&mode, "seq 1 1000000").with(|plan| plan.log = limits);
        let exit = attempt.run();
        let size: u64 = fs::read_dir(attempt.dir().join("log"))
            .unwrap()
            .map(|entry| entry.unwrap())
            .filter(|entry| entry.path().extension().is_some_and(|end| end == "log"))
            .map(|entry| entry.metadata().unwrap().len())
            .sum();
        // A segment may overshoot by one read from the pipe.
        assert!(
            size > 512 << 10 && size <= limits.keep_bytes + (256 << 10),
            "{size}"
        );
        let pieces = attempt.log().read_at(0, usize::MAX).unwrap();
        assert_eq!(
            pieces[0],
            Piece::Gap(Gap {
                from: 0,
                to: exit.final_log_offset - size
            })
        );
        assert_eq!(pieces.last().unwrap().end(), exit.final_log_offset);
        assert!(pieces.is_sorted_by_key(Piece::end));
    }
}

#[test]
fn a_watch_is_answered_when_the_worker_prints_and_when_it_ends() {
    for mode in modes() {
        let attempt = Attempt::new(&mode, "echo one").with(|plan| plan.wait_for_go = true);
        attempt.start();
        let (mut client, _) = attempt.connect();
        client.send(&Command::Watch { offset: 0 });
        client.send(&Command::Go { lines: Vec::new() });
        let grown = |report| {
            if let Report::Grown { offset } = report {
                Some(offset)
            } else {
                None
            }
        };
        assert_eq!(client.until(grown), 4);
        assert_eq!(attempt.exit().final_log_offset, 4);
        let late = Attempt::new(&mode, "exec sleep 1000");
        late.start();
        let (mut client, _) = late.connect();
        client.send(&Command::Watch { offset: 99 });
        client.send(&Command::Stop { grace_ms: None });
        assert_eq!(client.until(grown), 0, "nothing more will come");
    }
}

#[test]
fn a_plain_copy_is_written_and_turned_over() {
    for mode in modes() {
        let folder = tempfile::tempdir().unwrap();
        mode.give(folder.path());
        let path = folder.path().join("train.log");
        let attempt = Attempt::new(&mode, "seq 1 300000").with(|plan| {
            plan.plain_log = Some(path.clone());
            plan.log = LogLimits {
                segment_bytes: 64 << 10,
                keep_bytes: 1 << 20,
            };
        });
        attempt.run();
        let old = fs::read_to_string(folder.path().join("train.log.1")).unwrap();
        let new = fs::read_to_string(&path).unwrap();
        assert!(old.len() >= 1 << 20 && !new.is_empty());
        let all: String = (1..=300_000).map(|number| format!("{number}\n")).collect();
        assert!(old + &new == all, "together they are the whole output");
    }
}

/// Prints more than the disk holds, waits until all of it was read, then takes turns with the test.
const FLOODER: &str = r#"exec /usr/bin/python3 -uc '
import array, fcntl, termios, time
print("x" * (16 << 20))
left = array.array("i", [1])
while left[0]:
    time.sleep(0.001)
    fcntl.ioctl(1, termios.FIONREAD, left)
open("go", "w").write("more")
open("room").read()
print("after")
open("go", "w").write("more")
open("room").read()
'"#;

#[test]
#[ignore = "needs root"]
fn a_full_disk_loses_output_but_never_the_worker() {
    let mode = &modes()[0];
    let disk = SmallDisk::mount();
    let limits = LogLimits {
        segment_bytes: 1 << 20,
        keep_bytes: 1 << 30,
    };
    let attempt = Attempt::new(mode, FLOODER).with(|plan| {
        plan.log = limits;
        plan.workdir = disk.pipes.path().to_owned();
    });
    attempt.plan.store(disk.dir()).unwrap();
    fs::write(disk.dir().join("ballast"), vec![0; 1 << 20]).unwrap();
    let program = env!("CARGO_BIN_EXE_paddlecloud-supervise");
    assert!(
        std::process::Command::new(program)
            .arg(disk.dir())
            .status()
            .unwrap()
            .success()
    );
    fs::read(disk.pipes.path().join("go")).unwrap();
    fs::remove_file(disk.dir().join("ballast")).unwrap();
    fs::write(disk.pipes.path().join("room"), "\n").unwrap();
    fs::read(disk.pipes.path().join("go")).unwrap();
    let mut stream = paddlecloud_supervisor::connect(disk.dir()).unwrap();
    fs::write(disk.pipes.path().join("room"), "\n").unwrap();
    // A connection that is not accepted yet when the supervisor exits sees a reset instead of an end.
    let _ = std::io::copy(&mut stream, &mut std::io::sink());

    let exit = paddlecloud_worker::protocol::Exit::load(disk.dir())
        .unwrap()
        .unwrap();
    assert_eq!(exit.ending, Ending::Code(0));
    let mut log = paddlecloud_worker::log::LogReader::open(&disk.dir().join("log"));
    let pieces = log.read_at(0, usize::MAX).unwrap();
    let gaps: u64 = pieces
        .iter()
        .map(|piece| {
            if let Piece::Gap(gap) = piece {
                gap.to - gap.from
            } else {
                0
            }
        })
        .sum();
    assert!(gaps > 0);
    assert_eq!(gaps, exit.dropped_bytes);
    assert_eq!(log.len().unwrap(), exit.final_log_offset);
    assert!(matches!(pieces.last(), Some(Piece::Chunk(chunk)) if chunk.bytes.ends_with(b"after\n")));
}

#[test]
#[ignore = "needs root"]
fn an_exit_is_recorded_on_a_full_disk() {
    let disk = SmallDisk::mount();
    let attempt = Attempt::new(
        &modes()[0],
        "head -c 16000000 /dev/zero; echo > room; read x < go",
    )
    .with(|plan| plan.workdir = disk.pipes.path().to_owned());
    attempt.plan.store(disk.dir()).unwrap();
    let program = env!("CARGO_BIN_EXE_paddlecloud-supervise");
    assert!(
        std::process::Command::new(program)
            .arg(disk.dir())
            .status()
            .unwrap()
            .success()
    );
    let mut stream = paddlecloud_supervisor::connect(disk.dir()).unwrap();
    fs::read(disk.pipes.path().join("room")).unwrap();
    let worker = handles(&attempt.processes());
    let mut ballast = fs::File::create(disk.dir().join("ballast")).unwrap();
    while ballast.write_all(&[0; 4096]).is_ok() {}
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    fs::write(disk.pipes.path().join("go"), "\n").unwrap();
    worker.iter().for_each(wait_gone);
    // A connection that is not accepted yet when the supervisor exits sees a reset instead of an end.
    let _ = std::io::copy(&mut stream, &mut std::io::sink());
    let exit = paddlecloud_worker::protocol::Exit::load(disk.dir())
        .unwrap()
        .unwrap();
    assert_eq!(exit.ending, Ending::Code(0));
    assert!(exit.dropped_bytes > 0);
}

/// A tmpfs of a few megabytes, and two fifos with which test and worker take turns.
struct SmallDisk {
    mount: tempfile::TempDir,
    pipes: tempfile::TempDir,
}

impl SmallDisk {
    fn mount() -> Self {
        let (mount, pipes) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let run = |program: &str, arguments: &[&std::ffi::OsStr]| {
            assert!(
                std::process::Command::new(program)
                    .args(arguments)
                    .status()
                    .unwrap()
                    .success()
            );
        };
        let flags = ["-t", "tmpfs", "-o", "size=4m", "small"].map(AsRef::as_ref);
        run("mount", &[flags.as_slice(), &[mount.path().as_os_str()]].concat());
        run(
            "mkfifo",
            &[
                pipes.path().join("go").as_os_str(),
                pipes.path().join("room").as_os_str(),
            ],
        );
        Self { mount, pipes }
    }

    fn dir(&self) -> &std::path::Path {
        self.mount.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount")
            .arg("-l")
            .arg(self.mount.path())
            .status();
    }
}
