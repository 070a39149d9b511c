//! What a rollback must bring back apart from values: counters, and which tensors there are.

use paddlecloud_pserver::client::{Client, ClientError};
use paddlecloud_pserver::message::DenseSpec;
use paddlecloud_pserver::optimizer::{Optimizer, Pace, Rule};
use paddlecloud_pserver::schedule::{Counts, Schedule, Shape};
use paddlecloud_pserver::steps::Mode;

use crate::restarts::Fragile;
use crate::training::{ADAM, dense, gradient};

const STEPS: u64 = 13;
/// After the checkpoint of step 5.
const CREATED_LATE: u64 = 7;
const NAMES: [(&str, u64); 4] = [("w", 3), ("by samples", 65_537), ("averaged", 5), ("late", 4)];

/// On two servers, no tensor but one has a block on the last server.
fn specs() -> [DenseSpec; 4] {
    let mut schedule = Schedule::constant(0.1);
    (schedule.counts, schedule.shape) = (
        Counts::Samples,
        Shape::InverseTime {
            decay: 0.5,
            every: 10,
        },
    );
    let by_samples = Optimizer {
        schedule,
        ..Optimizer::new(Rule::Sgd, 0.1)
    };
    let averaged = Optimizer {
        average: 4,
        ..Optimizer::new(Rule::Sgd, 0.1)
    };
    let of = |at: usize, optimizer| DenseSpec {
        optimizer,
        ..dense(NAMES[at].0, NAMES[at].1, Rule::Sgd)
    };
    [
        of(0, Optimizer::new(ADAM, 0.1)),
        of(1, by_samples),
        of(2, averaged),
        of(3, Optimizer::new(ADAM, 0.1)),
    ]
}

fn turn(client: &mut Client) -> Result<(), ClientError> {
    let step = client.step();
    if step == CREATED_LATE {
        client.create_dense(specs()[3].clone(), &[1.0; 4])?;
    }
    for (name, elements) in &NAMES[..if step < CREATED_LATE { 3 } else { 4 }] {
        let mut values = vec![0.0; *elements as usize];
        client.pull(&mut [(name, &mut values)], false)?;
        let pace = Pace {
            rate: None,
            samples: 3,
        };
        client.push(&[(name, &gradient(&values, 0, step))], pace)?;
    }
    client.finish_step(&mut [], None)
}

/// Trains; server `crash` is lost at step 9. Returns values, averages and statistics.
fn train(crash: Option<u32>) -> (Vec<f32>, Vec<f32>) {
    let job = Fragile::new(2, 1, Mode::Sync);
    let mut client = job.connect(0);
    for spec in &specs()[..3] {
        let values = vec![0.5; spec.elements() as usize];
        client.create_dense(spec.clone(), &values).unwrap();
    }
    let mut crash = crash;
    while client.step() < STEPS {
        if client.step() == 9
            && let Some(index) = crash.take()
        {
            job.wait_for_checkpoint(5);
            job.crash(index);
        }
        if let Err(error) = turn(&mut client) {
            assert_eq!(error.rolled_back_to(), Some(5), "{error}");
        }
    }
    let mut read = |averaged| {
        let mut all = Vec::new();
        for (name, elements) in NAMES {
            let mut values = vec![0.0; elements as usize];
            client.pull(&mut [(name, &mut values)], averaged).unwrap();
            all.extend(values);
        }
        all
    };
    (read(false), read(true))
}

#[test]
fn counters_of_tensors_and_later_tensors_survive_the_loss_of_any_server() {
    let undisturbed = train(None);
    for server in [0, 1] {
        assert!(train(Some(server)) == undisturbed, "server {server}");
    }
}
