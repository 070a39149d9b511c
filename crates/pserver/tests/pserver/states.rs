//! The bytes of trainers' states: a restarted trainer gets those of its step, a rollback those of the checkpoint's step.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use paddlecloud_pserver::client::{Client, Link, LinkConfig, Sink};
use paddlecloud_pserver::hello::{Identity, RunSecret};
use paddlecloud_pserver::message::Request;
use paddlecloud_pserver::steps::Mode;

use crate::restarts::Fragile;
use crate::training::Quiet;

fn state(trainer: u32, step: u64) -> Vec<u8> {
    format!("trainer {trainer} at the start of step {step}").into_bytes()
}

fn end_step(client: &mut Client) {
    let bytes = state(client.trainer(), client.step() + 1);
    client.finish_step(&mut [], Some(&bytes)).unwrap();
}

/// Sends the end of a step to one server only, as a trainer does that is killed then.
fn end_step_on(job: &Fragile, client: &mut Client, server: u32) {
    let mut link = Link::new(LinkConfig {
        address: job.address(server),
        identity: Identity {
            trainer: client.trainer(),
            trainers: client.trainers(),
            attempt: 1,
            server,
            servers: client.servers(),
            lane: 0,
        },
        secret: Some(RunSecret::new("test")),
        patience: Duration::from_secs(60),
        follows_restarts: false,
        shares_memory: false,
        listener: Arc::new(Quiet(Mutex::default())),
    });
    let session = client.session().clone();
    link.ask(&Request::Join { session }, &[], Sink::Nothing).unwrap();
    let ready = Request::Ready {
        epoch: client.epoch(),
        step: client.step(),
        pull: Vec::new(),
    };
    let bytes = state(client.trainer(), client.step() + 1);
    link.ask(&ready, &[&bytes], Sink::Nothing).unwrap();
}

#[test]
fn a_restarted_trainer_gets_the_bytes_of_its_step() {
    for mode in [Mode::Sync, Mode::Async, Mode::Bounded(2)] {
        let job = Fragile::new(2, 2, mode);
        let mut clients = [job.connect(0), job.connect(1)];
        for step in 1..=7 {
            std::thread::scope(|scope| {
                for client in &mut clients {
                    scope.spawn(|| end_step(client));
                }
            });
            // The step is no checkpoint's, and the other trainer continues.
            let mut again = job.connect_as(1, step as u32 + 1);
            assert_eq!((again.step(), again.kept().unwrap()), (step, state(1, step)));
            clients[1] = again;
        }
        assert_eq!(clients[0].kept().unwrap(), state(0, 7));
        clients[0].finish_step(&mut [], None).unwrap();
        assert_eq!(clients[0].kept().unwrap(), b"", "this step has none");
    }
}

#[test]
fn a_trainer_that_was_killed_between_two_servers_takes_its_bytes_to_the_other() {
    for reached in [0, 1] {
        let job = Fragile::new(2, 1, Mode::Sync);
        let mut client = job.connect(0);
        client.create_table(job.table()).unwrap();
        end_step(&mut client);
        end_step_on(&job, &mut client, reached);
        for attempt in 2..4 {
            let mut again = job.connect_as(0, attempt);
            assert_eq!((again.step(), again.kept().unwrap()), (2, state(0, 2)));
        }
        // So both servers' files of the next checkpoint have them.
        let mut again = job.connect_as(0, 4);
        while again.step() < 5 {
            end_step(&mut again);
        }
        end_step(&mut again);
        job.wait_for_checkpoint(5);
        job.crash(1);
        let mut again = job.connect_as(0, 5);
        assert_eq!((again.step(), again.kept().unwrap()), (5, state(0, 5)));
    }
}

#[test]
fn a_rollback_brings_back_the_bytes_of_the_checkpoints_step() {
    let job = Fragile::new(2, 1, Mode::Sync);
    let mut client = job.connect(0);
    while client.step() < 4 {
        end_step(&mut client);
    }
    job.wait_for_checkpoint(0);
    job.crash(1);
    let mut again = job.connect_as(0, 2);
    assert_eq!((again.step(), again.kept().unwrap()), (0, Vec::new()));
    while again.step() < 8 {
        end_step(&mut again);
    }
    job.wait_for_checkpoint(5);
    job.crash(0);
    assert_eq!(again.barrier().unwrap_err().rolled_back_to(), Some(5));
    assert_eq!(again.kept().unwrap(), state(0, 5));
}

#[test]
fn a_state_beyond_the_limit_is_refused() {
    let job = Fragile::new(1, 1, Mode::Sync);
    let mut client = job.connect(0);
    let bytes = vec![1; (64 << 20) + 1];
    let error = client.finish_step(&mut [], Some(&bytes)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the state of trainer 0 has 67108865 bytes; the limit is 67108864"
    );
    end_step(&mut client);
}

#[test]
fn a_trainer_that_has_left_gets_its_last_bytes_after_a_rollback() {
    let job = Fragile::new(2, 2, Mode::Sync);
    let (mut first, mut second) = (job.connect(0), job.connect(1));
    std::thread::scope(|scope| {
        scope.spawn(|| (0..3).for_each(|_| end_step(&mut second)));
        (0..3).for_each(|_| end_step(&mut first));
    });
    second.leave().unwrap();
    (0..3).for_each(|_| end_step(&mut first));
    job.wait_for_checkpoint(5);
    job.crash(1);
    let rolled_back = [first.finish_step(&mut [], None), second.wait_for_end()];
    for result in rolled_back {
        assert_eq!(result.unwrap_err().rolled_back_to(), Some(5));
    }
    assert_eq!(second.kept().unwrap(), state(1, 3));
    assert_eq!(first.kept().unwrap(), state(0, 5));
}
