//! A large file that changed a little: how much of it is sent again.

use std::fs::{self, File};
use std::io::{BufReader, Read, Seek, SeekFrom, Write, copy};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use serde_json::json;

use crate::arguments::Arguments;
use crate::contenders::{Contender, Ours, Rsync};
use crate::relay::Relay;
use crate::report::Report;
use crate::stage::{Load, Stage, assert_same, remove};

const CHANGE: usize = 1_000_000;

pub fn run(stage: &Stage, arguments: &Arguments, report: &mut Report) {
    report.heading("what is sent of a file of which a little changed (both directions on the wire)");
    for ours in Ours::builds(stage, arguments) {
        let relay = Relay::to(ours.port());
        ours.reach_through(relay.port);
        let send = |load: &Load| ours.up(load);
        changes(stage, &ours, &relay, &send, "≤ 1 % of the bytes", report);
    }
    let Some(rsync) = Rsync::alone(stage) else { return };
    let relay = Relay::to(rsync.port());
    let send = |load: &Load| rsync.send_through(relay.port, load);
    changes(stage, &rsync, &relay, &send, "", report);
}

fn changes(
    stage: &Stage,
    contender: &dyn Contender,
    relay: &Relay,
    send: &dyn Fn(&Load) -> Command,
    to_reach: &str,
    report: &mut Report,
) {
    let load = stage.big();
    sent(send(&load), relay);
    for what in ["changed", "inserted"] {
        match what {
            "changed" => change(&load.path),
            _ => insert(&load.path),
        }
        let (up, down, seconds) = sent(send(&load), relay);
        assert_same(&load.path, &contender.kept(&load));
        let share = (up + down) as f64 / load.bytes as f64 * 100.0;
        let name = contender.name();
        report.figure(
            &format!("{name}: {} MB, 1 MB {what} in the middle", load.bytes / 1_000_000),
            &format!("{share:.3} %, {seconds:.1} s"),
            to_reach,
            json!({"up": up, "down": down, "seconds": seconds, "bytes": load.bytes}),
        );
    }
    remove(&load.path);
    remove(&contender.kept(&load));
}

fn sent(mut command: Command, relay: &Relay) -> (u64, u64, f64) {
    relay.take();
    let started = Instant::now();
    let output = command.output().expect("the client was found");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let seconds = started.elapsed().as_secs_f64();
    let (up, down) = relay.take();
    (up, down, seconds)
}

fn change(path: &Path) {
    let file = File::options().write(true).open(path).expect("the load is ours");
    let middle = file.metadata().expect("it is open").len() / 2;
    file.write_all_at(&vec![0x5a; CHANGE], middle)
        .expect("room on the disk");
}

fn insert(path: &Path) {
    let mut old = BufReader::new(File::open(path).expect("the load is ours"));
    let middle = old.get_ref().metadata().expect("it is open").len() / 2 + 12_345;
    let draft = path.with_extension("new");
    let mut new = File::create(&draft).expect("a file in our own folder");
    let copied = copy(&mut old.by_ref().take(middle), &mut new).expect("room on the disk");
    new.write_all(&vec![0xa5; CHANGE]).expect("room on the disk");
    old.seek(SeekFrom::Start(copied)).expect("it is a file");
    copy(&mut old, &mut new).expect("room on the disk");
    fs::rename(draft, path).expect("both are ours");
}
