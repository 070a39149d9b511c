//! `cargo xtask bench pfs`: the released programs move files over loopback, compared with other tools.
//!
//! Contenders take turns, so that a busy minute affects all of them; bytes are compared after every turn. It asserts
//! nothing about speed: figures belong to a machine.
#![cfg(target_os = "linux")]

mod arguments;
mod contenders;
mod cpu;
mod delta;
mod memory;
mod race;
mod relay;
mod report;
mod stage;
mod submit;

use arguments::Arguments;
use report::Report;
use stage::Stage;

fn main() {
    if contenders::played_a_part() {
        return;
    }
    let Some(arguments) = Arguments::read() else {
        print!("{}", arguments::HELP);
        return;
    };
    let mut report = Report::default();
    let meter = cpu::Meter::enter();
    for place in &arguments.places {
        let stage = Stage::set(place, arguments.sizes);
        if arguments.wants("race") {
            race::run(&stage, &arguments, &meter, &mut report);
        }
        // What follows does not depend on the disk; once is enough.
        if place == &arguments.places[0] {
            other_rows(&stage, &arguments, &mut report);
        }
    }
    drop(meter);
    if let Some(file) = &arguments.json {
        report.save(file);
    }
}

fn other_rows(stage: &Stage, arguments: &Arguments, report: &mut Report) {
    if arguments.wants("delta") {
        delta::run(stage, arguments, report);
    }
    if arguments.wants("submit") {
        submit::run(stage, arguments, report);
    }
    if arguments.wants("memory") {
        memory::run(stage, arguments, report);
    }
}
