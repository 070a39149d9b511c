//! All contenders move the same bytes, one after the other, for several rounds; every copy is compared.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::arguments::Arguments;
use crate::contenders::{self, Contender};
use crate::cpu::Meter;
use crate::report::{Direction, Race, Report};
use crate::stage::{Load, Stage, assert_same, remove};

/// One turn: how long it took, and the cpu time of both sides.
#[derive(Debug, Clone, Copy)]
pub struct Turn {
    pub wall: Duration,
    pub cpu: Option<Duration>,
}

pub fn run(stage: &Stage, arguments: &Arguments, meter: &Meter, report: &mut Report) {
    let contenders = contenders::all(stage, arguments);
    let makers: [fn(&Stage) -> Load; 2] = [Stage::big, Stage::small];
    for make in makers {
        let load = make(stage);
        stage.sync();
        let contenders: Vec<&dyn Contender> = contenders
            .iter()
            .map(Box::as_ref)
            .filter(|contender| contender.takes(&load))
            .collect();
        let names: Vec<String> = contenders.iter().map(|contender| contender.name()).collect();
        let mut races = [Direction::Up, Direction::Down]
            .map(|direction| Race::new(stage.place, direction, &load, names.clone()));
        for round in 0..arguments.rounds {
            // The first of a round is the last of the next one.
            for turn in 0..contenders.len() {
                let index = (round + turn) % contenders.len();
                let [up, down] = one_turn(stage, contenders[index], &load, meter);
                races[0].add(index, up);
                races[1].add(index, down);
            }
        }
        remove(&load.path);
        races.into_iter().for_each(|race| report.race(race));
    }
}

fn one_turn(stage: &Stage, contender: &dyn Contender, load: &Load, meter: &Meter) -> [Turn; 2] {
    let kept = contender.kept(load);
    remove(&kept);
    stage.warm(load.bytes);
    let up = measured(&mut contender.up(load), meter, &contender.name());
    assert_same(&load.path, &kept);
    let into = stage.empty("fetched");
    stage.warm(load.bytes);
    let down = measured(&mut contender.down(load, &into), meter, &contender.name());
    contender.join(load, &into);
    assert_same(&load.path, &into.join(load.name()));
    remove(&into);
    remove(&kept);
    // What the disk still has to write of this turn is not the next one's burden.
    stage.sync();
    [up, down]
}

fn measured(command: &mut Command, meter: &Meter, name: &str) -> Turn {
    let before = meter.used();
    let started = Instant::now();
    let output = command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
    let wall = started.elapsed();
    assert!(
        output.status.success(),
        "{name} failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let cpu = meter
        .used()
        .zip(before)
        .map(|(after, before)| after.saturating_sub(before));
    Turn { wall, cpu }
}
