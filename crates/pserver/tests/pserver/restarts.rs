//! Servers that are replaced while a job trains: checkpoints, rollbacks, and the same model at the end.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use paddlecloud_pserver::client::{Client, Config, Gradients};
use paddlecloud_pserver::message::Session;
use paddlecloud_pserver::optimizer::{Pace, Rule};
use paddlecloud_pserver::server::{self, Admission, Listening, Server, listen};
use paddlecloud_pserver::steps::Mode;

use crate::training::{ADAM, Quiet, dense, gradient, rate, table};

/// A job whose servers can be replaced as a crash would: the next attempt has the same address and no parameters.
struct Fragile {
    folder: tempfile::TempDir,
    addresses: Vec<SocketAddr>,
    running: Mutex<Vec<(Listening, u32)>>,
    trainers: u32,
    mode: Mode,
}

impl Fragile {
    fn new(servers: u32, trainers: u32, mode: Mode) -> Fragile {
        let mut job = Fragile {
            folder: tempfile::tempdir().unwrap(),
            addresses: vec!["127.0.0.1:0".parse().unwrap(); servers as usize],
            running: Mutex::default(),
            trainers,
            mode,
        };
        for index in 0..servers {
            let listening = job.start(index, 1);
            job.addresses[index as usize] = listening.addresses[0];
            job.running.lock().unwrap().push((listening, 1));
        }
        job
    }

    fn start(&self, index: u32, attempt: u32) -> Listening {
        let server = Server::new(server::Config {
            index,
            servers: self.addresses.len() as u32,
            trainers: self.trainers,
            attempt,
            ..server::Config::default()
        });
        let admission = Admission::ByAddress(Default::default());
        let address = self.addresses[index as usize];
        loop {
            match listen(&server, &[address], &admission) {
                Ok(listening) => return listening,
                // The port is free as soon as the stopped server's thread has ended.
                Err(_) => thread::yield_now(),
            }
        }
    }

    fn crash(&self, index: u32) {
        let mut running = self.running.lock().unwrap();
        let (listening, attempt) = &mut running[index as usize];
        listening.stop();
        *attempt += 1;
        *listening = self.start(index, *attempt);
    }

    fn connect(&self, trainer: u32) -> Client {
        Client::connect(Config {
            addresses: self.addresses.iter().map(SocketAddr::to_string).collect(),
            trainer,
            trainers: self.trainers,
            attempt: 1,
            secret: None,
            session: Session {
                mode: self.mode,
                mean: false,
                checkpoints: self.folder.path().to_str().unwrap().to_owned(),
                checkpoint_every: 5,
            },
            gradients: Gradients::F32,
            patience: Duration::from_secs(20),
            listener: Arc::new(Quiet(Mutex::default())),
        })
        .unwrap()
    }

    /// Trains `steps` steps; `at` is called before each by trainer 0. Returns the model.
    fn train(&self, steps: u64, at: impl Fn(u64) + Sync) -> Vec<f32> {
        let elements = 2 * 65_536 + 5;
        let ids: Vec<u64> = (0..40).collect();
        let run = |trainer: u32| {
            let mut client = self.connect(trainer);
            client
                .create_dense(dense("w", elements, ADAM), &vec![0.5; elements as usize])
                .unwrap();
            client.create_table(table("emb")).unwrap();
            let (mut values, mut rows) = (vec![0.0; elements as usize], vec![0.0; ids.len() * 3]);
            loop {
                let step = client.step();
                if step < steps && trainer == 0 {
                    at(step);
                }
                let mut turn = || {
                    if step >= steps {
                        client.leave()?;
                        return client.wait_for_end();
                    }
                    client.pull(&mut [("w", &mut values)], false)?;
                    client.lookup("emb", &ids, true, &mut rows)?;
                    client.push(&[("w", &gradient(&values, trainer, step))], Pace::default())?;
                    client.push_rows("emb", &ids, &gradient(&rows, trainer, step), Pace::default())?;
                    client.finish_step(&mut [])
                };
                match turn() {
                    Ok(()) if step >= steps => break,
                    Ok(()) => {}
                    Err(error) => assert!(error.rolled_back_to().is_some(), "trainer {trainer}: {error}"),
                }
            }
            client.pull(&mut [("w", &mut values)], false).unwrap();
            client.lookup("emb", &ids, false, &mut rows).unwrap();
            [values, rows].concat()
        };
        thread::scope(|scope| {
            let run = &run;
            let threads: Vec<_> = (0..self.trainers)
                .map(|trainer| scope.spawn(move || run(trainer)))
                .collect();
            let models: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            models.into_iter().next().unwrap()
        })
    }
}

#[test]
fn a_synchronous_job_ends_with_the_same_bits_after_crashes_of_its_servers() {
    let undisturbed = Fragile::new(2, 2, Mode::Sync).train(18, |_| {});
    let job = Fragile::new(2, 2, Mode::Sync);
    let crashes = Mutex::new(vec![(16, 0), (12, 1), (7, 1), (3, 0)]);
    let disturbed = job.train(18, |step| {
        let mut crashes = crashes.lock().unwrap();
        if crashes.last().is_some_and(|(at, _)| *at == step) {
            job.crash(crashes.pop().unwrap().1);
        }
    });
    assert!(crashes.lock().unwrap().is_empty());
    assert!(undisturbed == disturbed, "the model is another");
}

#[test]
fn an_asynchronous_server_goes_on_from_its_checkpoint() {
    let job = Fragile::new(2, 1, Mode::Async);
    let mut client = job.connect(0);
    client
        .create_dense(dense("w", 200_000, Rule::Sgd), &vec![0.0; 200_000])
        .unwrap();
    let mut values = vec![0.0; 200_000];
    for step in 0..12 {
        if step == 7 {
            let written = job.folder.path().join("step-000000000005/server-1-of-2");
            while !written.exists() {
                thread::yield_now();
            }
            job.crash(1);
        }
        client.push(&[("w", &vec![1.0; 200_000])], rate(1.0)).unwrap();
        client.finish_step(&mut []).unwrap();
    }
    client.pull(&mut [("w", &mut values)], false).unwrap();
    // Blocks 0 and 2 are on server 0, 1 and 3 on server 1, which lost steps 5 and 6.
    assert_eq!(
        (values[0], values[65_536], values[131_072]),
        (-12.0, -10.0, -12.0)
    );
}

#[test]
fn a_checkpoint_loads_on_another_number_of_servers_and_damaged_ones_are_skipped() {
    let job = Fragile::new(3, 1, Mode::Sync);
    let model = job.train(15, |_| {});
    let newest = job.folder.path().join("step-000000000015");
    let is_written = |server| newest.join(format!("server-{server}-of-3")).exists();
    while !(0..3).all(is_written) {
        thread::yield_now();
    }
    std::fs::write(newest.join("server-1-of-3"), b"damaged").unwrap();
    let other = Fragile {
        folder: job.folder,
        ..Fragile::new(2, 1, Mode::Sync)
    };
    // A restarted server has the others go back to what is there.
    other.crash(1);
    let mut steps = Vec::new();
    let seen = Mutex::new(&mut steps);
    let again = other.train(15, |step| seen.lock().unwrap().push(step));
    assert_eq!(steps.first(), Some(&10));
    assert!(model == again, "the model is another");
}
