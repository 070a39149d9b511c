//! A package is submitted again: if nothing changed, no file is sent; if one line changed, one file is sent.

use std::time::Instant;

use serde_json::json;

use crate::contenders::Ours;
use crate::relay::Relay;
use crate::report::{Report, middle};
use crate::stage::{Sizes, Stage, remove};

pub fn run(stage: &Stage, rounds: usize, report: &mut Report) {
    let ours = Ours::start(stage);
    let relay = Relay::to(ours.port());
    ours.reach_through(relay.port);
    let load = stage.tree("package", stage.sizes.package_files, Sizes::PACKAGE);
    stage.settle();
    report.heading(&format!(
        "submit of a package of {} files, {} MB",
        load.files,
        load.bytes / 1_000_000
    ));
    let folder = load
        .path
        .to_str()
        .expect("our folders have plain names")
        .to_owned();
    let submit = |name: &str| {
        relay.take();
        let started = Instant::now();
        let usual = [
            "-cpu",
            "20m",
            "-memory",
            "32Mi",
            "-pservers",
            "0",
            "-entry",
            "true",
        ];
        let args = [&["submit", "-jobname", name][..], &usual, &[&folder]].concat();
        ours.env.paddlectl(&args).ok();
        let milliseconds = started.elapsed().as_secs_f64() * 1000.0;
        let (up, down) = relay.take();
        ours.env.paddlectl(&["wait", name]).ok();
        (milliseconds, up, down)
    };
    let (first, up, _) = submit("first");
    report.figure(
        "the first time",
        &format!("{first:.0} ms, {:.1} MB sent", up as f64 / 1e6),
        "",
        json!({"ms": first, "up": up}),
    );
    let again: Vec<_> = (0..rounds.max(5))
        .map(|round| submit(&format!("again-{round}")))
        .collect();
    let times = middle(again.iter().map(|(time, ..)| *time).collect()).expect("some rounds");
    let most = again
        .iter()
        .map(|(_, up, down)| up + down)
        .max()
        .expect("some rounds");
    report.figure(
        "unchanged, warm server (middle time, most bytes either way)",
        &format!("{times:.0} ms, {:.1} KB", most as f64 / 1e3),
        "< 100 ms, < 200 KB",
        json!(again),
    );
    let changed: Vec<_> = (0..rounds.max(5))
        .map(|round| {
            let line = format!("print({round})\n");
            std::fs::write(load.path.join("train.py"), line).expect("a file in our own folder");
            submit(&format!("changed-{round}"))
        })
        .collect();
    let times = middle(changed.iter().map(|(time, ..)| *time).collect()).expect("some rounds");
    report.figure(
        "one line changed (middle time)",
        &format!("{times:.0} ms"),
        "",
        json!(changed),
    );
    remove(&load.path);
}
