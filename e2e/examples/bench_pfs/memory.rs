//! How much memory the server needs for many concurrent transfers.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::arguments::Arguments;
use crate::contenders::{Contender, Ours};
use crate::report::Report;
use crate::stage::{Load, Stage, assert_same, remove};

const TRANSFERS: u64 = 64;

pub fn run(stage: &Stage, arguments: &Arguments, report: &mut Report) {
    for build in Ours::builds(stage, arguments) {
        report.heading(&format!(
            "{}: the server's most memory, 64 transfers at once",
            build.name()
        ));
        measure(stage, &build, report);
    }
}

fn measure(stage: &Stage, ours: &Ours, report: &mut Report) {
    let pid = ours.server_pid();
    let idle = peak_kib(pid);
    let size = usize::try_from(stage.sizes.big / TRANSFERS).expect("it fits");
    let load = stage.tree("many", TRANSFERS as usize, size);
    let files: Vec<Load> = fs::read_dir(load.path.join("d000"))
        .expect("the load is ours")
        .flatten()
        .map(|file| Load {
            path: file.path(),
            files: 1,
            bytes: size as u64,
        })
        .collect();
    record(report, "before anything", idle);
    all_at_once(&files, |file| ours.up(file));
    record(report, "64 clients send a file each", peak_kib(pid));
    let into = stage.empty("fetched");
    all_at_once(&files, |file| ours.down(file, &into));
    record(report, "64 clients fetch a file each", peak_kib(pid));
    for file in &files {
        assert_same(&file.path, &into.join(file.name()));
    }
    remove(&into);
    remove(&load.path);
}

fn record(report: &mut Report, what: &str, kib: u64) {
    let goal = if what.starts_with("64") { "< 100 MB" } else { "" };
    report.figure(
        what,
        &format!("{:.1} MB", kib as f64 * 1024.0 / 1e6),
        goal,
        json!({"kib": kib}),
    );
}

fn all_at_once(files: &[Load], command: impl Fn(&Load) -> Command) {
    let clients: Vec<_> = files
        .iter()
        .map(|file| {
            let mut client = command(file);
            client.stdout(Stdio::null()).stderr(Stdio::null());
            client.spawn().expect("the client was built")
        })
        .collect();
    for mut client in clients {
        let status = client.wait().expect("a child can be waited for");
        assert!(status.success(), "a client failed: {status}");
    }
}

/// The most memory a process ever had.
fn peak_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the server runs");
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    number.expect("the kernel tells the most")
}
