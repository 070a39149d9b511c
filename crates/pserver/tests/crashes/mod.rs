//! Whole jobs with real servers and clients in one process, whose servers and trainers are killed: each must end with the
//! bits of the undisturbed job. The seed of a job decides everything: its model uses all that the server offers.
//!
//! Compiled as a part of the crate, so that it can plant bugs (`crate::planted`) and see where a server is.

mod cluster;
mod disturbance;
mod plan;
mod trainer;

use std::env::var;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::planted::Planted;
use cluster::{Cluster, Folders};
use disturbance::{Event, Events};
use plan::Plan;
use trainer::Model;

/// The seeds of the jobs; `cargo xtask test --with crash` asks for 1,000. `PADDLECLOUD_CRASH_SEED` is the first one.
fn seeds() -> std::ops::Range<u64> {
    let number = |name| var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let jobs = number("PADDLECLOUD_CRASH_ROUNDS").map_or(50, |rounds| (rounds * 5).max(50));
    let first = number("PADDLECLOUD_CRASH_SEED").unwrap_or(1);
    first..first + jobs
}

/// Trains the job of a plan; `None` if it was stopped before its end.
fn train(plan: &Plan, cluster: &Cluster, events: Vec<Event>, stop_at: Option<u64>) -> Option<Model> {
    let events = Events::new(events);
    let (cluster, events) = (&cluster, &events);
    std::thread::scope(|scope| {
        let run = |number| scope.spawn(move || trainer::run(plan, cluster, events, number, stop_at));
        let threads: Vec<_> = (0..plan.trainers).map(run).collect();
        let models: Vec<Option<Model>> = threads
            .into_iter()
            .map(|thread| thread.join().expect("a trainer failed"))
            .collect();
        models.into_iter().next().expect("there is a trainer")
    })
}

fn undisturbed(plan: &Plan) -> Model {
    let folders = Folders::new();
    let cluster = Cluster::start(plan, plan.servers, &folders, "undisturbed", None);
    train(plan, &cluster, Vec::new(), None).expect("it was not stopped")
}

/// The same job with its kills, in a folder that another run has used, and continued by another run if it is stopped.
fn disturbed(plan: &Plan, bug: Option<Planted>) -> Model {
    let folders = Folders::new();
    if let Some(other) = plan.earlier() {
        let cluster = Cluster::start(&other, other.servers, &folders, "earlier", bug);
        train(&other, &cluster, Vec::new(), Some(other.steps / 2 + 1));
        cluster.stop();
    }
    let cluster = Cluster::start(plan, plan.servers, &folders, "first", bug);
    let events = plan.events(plan.servers, 0);
    let Some((stop_at, servers)) = plan.resume else {
        return train(plan, &cluster, events, None).expect("it was not stopped");
    };
    let ended = train(plan, &cluster, events, Some(stop_at));
    assert!(ended.is_none(), "it was stopped");
    cluster.stop();
    let cluster = Cluster::start(plan, servers, &folders, "second", bug);
    train(plan, &cluster, plan.events(servers, 1), None).expect("it was not stopped")
}

/// Whether the job is refused, to all of its trainers, if one pushes with another rate than the others.
fn refuses_contradictions(plan: &Plan, bug: Option<Planted>) -> bool {
    let Some(plan) = plan.contradicting() else {
        return true;
    };
    let folders = Folders::new();
    let cluster = Cluster::start(&plan, plan.servers, &folders, "contradicting", bug);
    train(&plan, &cluster, plan.events(plan.servers, 2), None).is_none()
}

/// What is wrong with the disturbed job, if anything.
fn compare(plan: &Plan, bug: Option<Planted>) -> Result<(), String> {
    let expected = undisturbed(plan);
    let found = catch_unwind(AssertUnwindSafe(|| {
        (disturbed(plan, bug), refuses_contradictions(plan, bug))
    }));
    match found {
        Ok((found, true)) => expected.compare(&found),
        Ok((_, false)) => Err("trainers with different rates were not refused".to_owned()),
        Err(_) => Err("it failed".to_owned()),
    }
}

#[test]
fn every_disturbed_job_ends_with_the_bits_of_the_undisturbed_one() {
    for seed in seeds() {
        let plan = Plan::new(seed);
        if let Err(difference) = compare(&plan, None) {
            panic!("seed {seed}: {difference}\n{plan:#?}");
        }
    }
}

#[test]
fn every_planted_bug_is_noticed_within_50_jobs() {
    for bug in Planted::ALL {
        let noticed = (1..51).find(|seed| {
            let plan = Plan::new(*seed);
            plan.can_show(bug) && compare(&plan, Some(bug)).is_err()
        });
        println!("{bug:?}: seed {noticed:?}");
        assert!(noticed.is_some(), "{bug:?}");
    }
}
