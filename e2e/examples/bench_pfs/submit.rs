//! A package is submitted again: if nothing changed, no file is sent; if one line changed, one file is sent.

use std::fs;
use std::path::Path;
use std::time::Instant;

use serde_json::json;

use crate::arguments::Arguments;
use crate::contenders::{Contender, Ours};
use crate::relay::Relay;
use crate::report::{Report, middle};
use crate::stage::{Sizes, Stage, remove};

/// How long a submit took, and the bytes in each direction.
#[derive(Debug, Clone, Copy)]
struct Submit {
    milliseconds: f64,
    up: u64,
    down: u64,
}

/// What is measured of one build.
#[derive(Debug, Default)]
struct Measured {
    first: Vec<Submit>,
    unchanged: Vec<Submit>,
    changed: Vec<Submit>,
}

pub fn run(stage: &Stage, arguments: &Arguments, report: &mut Report) {
    let rounds = arguments.rounds.max(5);
    let load = stage.tree("package", stage.sizes.package_files, Sizes::PACKAGE);
    stage.sync();
    let mut builds: Vec<(Ours, Relay, Measured)> = Ours::builds(stage, arguments)
        .into_iter()
        .map(|ours| {
            let relay = Relay::to(ours.port());
            ours.reach_through(relay.port);
            (ours, relay, Measured::default())
        })
        .collect();
    for (ours, relay, measured) in &mut builds {
        measured.first.push(submit(ours, relay, "first", &load.path));
    }
    // The builds take turns.
    for round in 0..rounds {
        for (ours, relay, measured) in &mut builds {
            let name = format!("again-{round}");
            measured.unchanged.push(submit(ours, relay, &name, &load.path));
        }
    }
    for round in 0..rounds {
        fs::write(load.path.join("train.py"), format!("print({round})\n")).expect("a file in our own folder");
        for (ours, relay, measured) in &mut builds {
            let name = format!("changed-{round}");
            measured.changed.push(submit(ours, relay, &name, &load.path));
        }
    }
    for (ours, _, measured) in &builds {
        report.heading(&format!(
            "{}: submit of a package of {} files, {} MB",
            ours.name(),
            load.files,
            load.bytes / 1_000_000
        ));
        measured.print(report);
    }
    remove(&load.path);
}

fn submit(ours: &Ours, relay: &Relay, name: &str, package: &Path) -> Submit {
    let package = package.to_str().expect("our folders have plain names");
    let flags = "-cpu 20m -memory 32Mi -pservers 0 -entry true";
    let mut args = vec!["submit", "-jobname", name];
    args.extend(flags.split(' '));
    args.push(package);
    relay.take();
    let started = Instant::now();
    ours.env.paddlectl(&args).ok();
    let milliseconds = started.elapsed().as_secs_f64() * 1000.0;
    let (up, down) = relay.take();
    ours.env.paddlectl(&["wait", name]).ok();
    Submit {
        milliseconds,
        up,
        down,
    }
}

impl Measured {
    fn print(&self, report: &mut Report) {
        let sent = self.first[0].up as f64 / 1e6;
        report.figure(
            "the first time",
            &format!("{:.0} ms, {sent:.1} MB sent", middle_time(&self.first)),
            "",
            raw(&self.first),
        );
        let bytes = self.unchanged.iter().map(|submit| submit.up + submit.down);
        let most = bytes.max().expect("some rounds") as f64 / 1e3;
        report.figure(
            "unchanged, warm server (middle time, most bytes either way)",
            &format!("{:.0} ms, {most:.1} KB", middle_time(&self.unchanged)),
            "< 100 ms, < 200 KB",
            raw(&self.unchanged),
        );
        report.figure(
            "one line changed (middle time)",
            &format!("{:.0} ms", middle_time(&self.changed)),
            "",
            raw(&self.changed),
        );
    }
}

fn middle_time(submits: &[Submit]) -> f64 {
    middle(submits.iter().map(|submit| submit.milliseconds).collect()).expect("some rounds")
}

fn raw(submits: &[Submit]) -> serde_json::Value {
    submits
        .iter()
        .map(|submit| json!([submit.milliseconds, submit.up, submit.down]))
        .collect()
}
