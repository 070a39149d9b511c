//! Servers that are replaced while a job trains: checkpoints, rollbacks, and the same model at the end.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use paddlecloud_pserver::client::{Client, ClientError, Config, Gradients, Listener};
use paddlecloud_pserver::hello::RunSecret;
use paddlecloud_pserver::message::{Limits, Session, TableSpec};
use paddlecloud_pserver::optimizer::{Pace, Rule};
use paddlecloud_pserver::server::{self, Admission, Listening, Server, listen};
use paddlecloud_pserver::steps::Mode;

use crate::training::{ADAM, Quiet, dense, gradient, rate, table};

/// A job whose servers can be replaced as a crash would: the next attempt has the same address and no parameters.
pub struct Fragile {
    pub folder: tempfile::TempDir,
    addresses: Vec<SocketAddr>,
    running: Mutex<Vec<(Listening, u32)>>,
    trainers: u32,
    pub mode: Mode,
    pub limits: Limits,
    /// 0: none.
    pub checkpoint_every: u64,
    /// Where checkpoints are, if not in `folder`.
    checkpoints: Option<PathBuf>,
    /// The checkpoints of another run that this one continues.
    pub resume: String,
    /// Trainers that have finished when a server is started again.
    finished: Vec<u32>,
    pub gradients: Gradients,
    pub heard: Arc<Quiet>,
}

impl Fragile {
    pub fn new(servers: u32, trainers: u32, mode: Mode) -> Fragile {
        let mut job = Fragile {
            folder: tempfile::tempdir().unwrap(),
            addresses: vec!["127.0.0.1:0".parse().unwrap(); servers as usize],
            running: Mutex::default(),
            trainers,
            mode,
            limits: Limits::default(),
            checkpoint_every: 5,
            checkpoints: None,
            resume: String::new(),
            finished: Vec::new(),
            gradients: Gradients::F32,
            heard: Arc::new(Quiet(Mutex::default())),
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
            finished: self.finished.clone(),
            secret: Some(RunSecret::new("test")),
            ..server::Config::default()
        });
        let admission = Admission::BySecret;
        let address = self.addresses[index as usize];
        loop {
            match listen(&server, &[address], &admission, |_| None) {
                Ok(listening) => return listening,
                // The port is free as soon as the stopped server's thread has ended.
                Err(_) => thread::yield_now(),
            }
        }
    }

    pub fn table(&self) -> TableSpec {
        TableSpec {
            limits: self.limits,
            ..table("emb")
        }
    }

    pub fn crash(&self, index: u32) {
        let mut running = self.running.lock().unwrap();
        let (listening, attempt) = &mut running[index as usize];
        listening.stop();
        *attempt += 1;
        *listening = self.start(index, *attempt);
    }

    /// Waits until all servers have written their checkpoint of this step.
    pub fn wait_for_checkpoint(&self, step: u64) {
        let servers = self.addresses.len();
        let folder = self.folder.path().join(format!("step-{step:012}"));
        let is_written = |server| folder.join(format!("server-{server}-of-{servers}")).exists();
        while !(0..servers).all(is_written) {
            thread::yield_now();
        }
    }

    pub fn address(&self, server: u32) -> String {
        self.addresses[server as usize].to_string()
    }

    pub fn connect(&self, trainer: u32) -> Client {
        self.connect_as(trainer, 1)
    }

    pub fn connect_as(&self, trainer: u32, attempt: u32) -> Client {
        self.try_connect(trainer, attempt).unwrap()
    }

    pub fn try_connect(&self, trainer: u32, attempt: u32) -> Result<Client, ClientError> {
        let folder = self.checkpoints.as_deref().unwrap_or(self.folder.path());
        let folder = folder.to_str().unwrap();
        Client::connect(Config {
            addresses: self.addresses.iter().map(SocketAddr::to_string).collect(),
            trainer,
            trainers: self.trainers,
            attempt,
            secret: Some(RunSecret::new("test")),
            shares_memory: trainer % 2 == 1,
            session: Session {
                mode: self.mode,
                mean: false,
                checkpoints: if self.checkpoint_every == 0 { "" } else { folder }.to_owned(),
                checkpoint_every: self.checkpoint_every,
                resume: self.resume.clone(),
            },
            gradients: self.gradients,
            patience: Duration::from_secs(60),
            listener: Arc::clone(&self.heard) as Arc<dyn Listener>,
        })
    }

    /// Trains `steps` steps; `at` is called before each by trainer 0. Returns the model.
    pub fn train(&self, steps: u64, at: impl Fn(u64) + Sync) -> Vec<f32> {
        let elements = 2 * 65_536 + 5;
        let all: Vec<u64> = (0..40).collect();
        let run = |trainer: u32| {
            let mut client = self.connect(trainer);
            client
                .create_dense(dense("w", elements, ADAM), &vec![0.5; elements as usize])
                .unwrap();
            client.create_table(self.table()).unwrap();
            let (mut values, mut rows) = (vec![0.0; elements as usize], vec![0.0; all.len() * 3]);
            loop {
                let step = client.step();
                // Some ids at every step, others now and then.
                let ids: Vec<u64> = all
                    .iter()
                    .copied()
                    .filter(|id| *id < 10 || step % 9 == id % 9)
                    .collect();
                let mut rows = vec![0.0; ids.len() * 3];
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
                    client.finish_step(&mut [], None)
                };
                match turn() {
                    Ok(()) if step >= steps => break,
                    Ok(()) => {}
                    Err(error) => assert!(error.rolled_back_to().is_some(), "trainer {trainer}: {error}"),
                }
            }
            client.pull(&mut [("w", &mut values)], false).unwrap();
            client.lookup("emb", &all, false, &mut rows).unwrap();
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

/// Trains undisturbed, and with crashes of the servers; both must end with the same bits.
fn compare_with_crashes(limits: Limits) {
    let job = || Fragile {
        limits,
        ..Fragile::new(2, 2, Mode::Sync)
    };
    let undisturbed = job().train(18, |_| {});
    let job = job();
    let crashes = Mutex::new(vec![(16, 0), (12, 1), (7, 1), (3, 0)]);
    let disturbed = job.train(18, |step| {
        let mut crashes = crashes.lock().unwrap();
        if crashes.last().is_some_and(|(at, _)| *at == step) {
            // The checkpoint of step 0 may still be on its way to the disk.
            if step < 5 {
                job.wait_for_checkpoint(0);
            }
            job.crash(crashes.pop().unwrap().1);
        }
    });
    assert!(crashes.lock().unwrap().is_empty());
    assert!(undisturbed == disturbed, "the model is another");
}

#[test]
fn a_synchronous_job_ends_with_the_same_bits_after_crashes_of_its_servers() {
    compare_with_crashes(Limits::default());
}

#[test]
fn sightings_and_ages_of_rows_survive_crashes_too() {
    compare_with_crashes(Limits {
        admit_after: 3,
        idle_steps: 5,
        ..Limits::default()
    });
}

/// Trainer 1 pushes rows after trainer 0's step ended with a base: the checkpoint of changes must have them.
#[test]
fn an_asynchronous_push_after_a_base_is_in_the_next_checkpoint() {
    let job = Fragile::new(1, 2, Mode::Async);
    let (mut first, mut second) = (job.connect(0), job.connect(1));
    for client in [&mut first, &mut second] {
        client.create_table(table("emb")).unwrap();
    }
    let mut start = [0.0; 3];
    for step in 0..5 {
        first.lookup("emb", &[1], true, &mut [0.0; 3]).unwrap();
        if step == 4 {
            second.lookup("emb", &[7], true, &mut start).unwrap();
        }
        first.finish_step(&mut [], None).unwrap();
    }
    job.wait_for_checkpoint(5);
    second.push_rows("emb", &[7], &[1.0; 3], rate(1.0)).unwrap();
    for _ in 5..10 {
        first.finish_step(&mut [], None).unwrap();
    }
    job.wait_for_checkpoint(10);
    job.crash(0);
    let mut row = [0.0; 3];
    first.lookup("emb", &[7], false, &mut row).unwrap();
    assert_ne!(row, start);
    let mut again = [0.0; 3];
    second.lookup("emb", &[7], false, &mut again).unwrap();
    assert_eq!(row, again);
}

/// A trainer that waits for initial values must not keep trainer 0 from taking the checkpoint that comes before them.
#[test]
fn a_push_waiting_for_initial_values_does_not_block_others() {
    let job = Fragile::new(1, 2, Mode::Async);
    let (mut first, mut second) = (job.connect(0), job.connect(1));
    let spec = || dense("late", 3, Rule::Sgd);
    second.create_dense(spec(), &[0.0; 3]).unwrap();
    thread::scope(|scope| {
        let push = scope.spawn(|| second.push(&[("late", &[1.0; 3])], rate(1.0)));
        // Whether the push is there already or not: trainer 0 gets past its checkpoints.
        for _ in 0..12 {
            first.finish_step(&mut [], None).unwrap();
        }
        first.create_dense(spec(), &[0.0; 3]).unwrap();
        push.join().unwrap().unwrap();
    });
    let mut values = [0.0; 3];
    first.pull(&mut [("late", &mut values)], false).unwrap();
    assert_eq!(values, [-1.0; 3]);
}

/// `began_again`: once before, a server was lost when there was no checkpoint.
fn resumes_from_its_checkpoint(began_again: bool) {
    let job = Fragile::new(2, 1, Mode::Async);
    let mut client = job.connect(0);
    if began_again {
        begin(&mut client, 1.0);
        job.crash(1);
        client = job.connect_as(0, 2);
    }
    client
        .create_dense(dense("w", 200_000, Rule::Sgd), &vec![0.0; 200_000])
        .unwrap();
    let mut values = vec![0.0; 200_000];
    for step in 0..12 {
        if step == 7 {
            job.wait_for_checkpoint(5);
            job.crash(1);
        }
        client.push(&[("w", &vec![1.0; 200_000])], rate(1.0)).unwrap();
        client.finish_step(&mut [], None).unwrap();
    }
    client.pull(&mut [("w", &mut values)], false).unwrap();
    // Blocks 0 and 2 are on server 0, 1 and 3 on server 1, which lost steps 5 and 6.
    assert_eq!(
        (values[0], values[65_536], values[131_072]),
        (-12.0, -10.0, -12.0)
    );
}

#[test]
fn an_asynchronous_server_resumes_from_its_checkpoint() {
    resumes_from_its_checkpoint(false);
    resumes_from_its_checkpoint(true);
}

/// Trains up to a step, with gradients of 1.
fn train_to(client: &mut Client, step: u64) -> Result<(), ClientError> {
    while client.step() < step {
        read(client)?;
        client.push(&[("w", &vec![1.0; 65_537])], rate(1.0))?;
        client.finish_step(&mut [], None)?;
    }
    Ok(())
}

#[test]
fn without_a_checkpoint_training_does_not_wait_for_a_trainer_that_has_finished() {
    for mode in [Mode::Sync, Mode::Async] {
        let mut job = Fragile::new(2, 2, mode);
        job.checkpoint_every = 0;
        job.finished = vec![0];
        let (mut first, mut second) = (job.connect(0), job.connect(1));
        begin(&mut first, 1.0);
        begin(&mut second, 1.0);
        first.leave().unwrap();
        drop(first);
        job.crash(1);
        train_to(&mut second, 5).unwrap_err();
        for attempt in 2..4 {
            let error = job.try_connect(1, attempt).err().unwrap().to_string();
            assert_eq!(
                error,
                "parameter server 1 was lost and there is no checkpoint; training cannot restart, because trainer 0 has \
                 finished. Submit the job again; `ps.connect(checkpoint_every=...)` would have saved it"
            );
        }
    }
}

/// Trainer 0 finishes after step 7; a server is lost once a checkpoint of step `at` is there.
fn loses_a_server_after_a_trainer_finished(mode: Mode, at: u64) -> Result<(), ClientError> {
    let mut job = Fragile::new(2, 2, mode);
    job.finished = vec![0];
    let (mut first, mut second) = (job.connect(0), job.connect(1));
    begin(&mut first, 1.0);
    begin(&mut second, 1.0);
    thread::scope(|scope| {
        let train = scope.spawn(|| train_to(&mut second, 7));
        train_to(&mut first, 7).unwrap();
        train.join().unwrap().unwrap();
    });
    first.leave().unwrap();
    drop(first);
    train_to(&mut second, at + 1).unwrap();
    job.wait_for_checkpoint(at);
    job.crash(1);
    loop {
        match train_to(&mut second, 20).and_then(|()| second.leave()) {
            Ok(()) => return second.wait_for_end(),
            Err(error) if error.rolled_back_to().is_some() => {}
            Err(error) => return Err(error),
        }
    }
}

#[test]
fn training_rolls_back_only_if_no_finished_trainer_is_needed() {
    let error = loses_a_server_after_a_trainer_finished(Mode::Sync, 5).unwrap_err();
    assert_eq!(
        error.to_string(),
        "parameter server 1 was lost; training cannot go back to the checkpoint of step 5, because trainer 0, which took part \
         in the steps after it, has finished. Submit the job again"
    );
    loses_a_server_after_a_trainer_finished(Mode::Sync, 10).unwrap();
}

/// Its checkpoint is from before the trainer left.
#[test]
fn an_asynchronous_server_that_was_lost_does_not_wait_for_a_trainer_that_has_finished() {
    loses_a_server_after_a_trainer_finished(Mode::Async, 5).unwrap();
    loses_a_server_after_a_trainer_finished(Mode::Bounded(3), 5).unwrap();
}

/// The server that is lost forgets that the trainer has left.
#[test]
fn an_asynchronous_trainer_does_not_wait_for_itself_at_the_end() {
    let job = Fragile::new(2, 1, Mode::Async);
    let mut client = job.connect(0);
    begin(&mut client, 1.0);
    train_to(&mut client, 6).unwrap();
    client.leave().unwrap();
    job.wait_for_checkpoint(5);
    job.crash(1);
    client.wait_for_end().unwrap();
}

#[test]
fn a_checkpoint_loads_on_another_number_of_servers_and_damaged_ones_are_skipped() {
    let job = Fragile::new(3, 1, Mode::Sync);
    let model = job.train(15, |_| {});
    job.wait_for_checkpoint(15);
    let newest = job.folder.path().join("step-000000000015");
    std::fs::write(newest.join("server-1-of-3"), b"damaged").unwrap();
    let other = Fragile {
        folder: job.folder,
        ..Fragile::new(2, 1, Mode::Sync)
    };
    // Restarted servers go back to what is there.
    (0..2).for_each(|server| other.crash(server));
    let mut steps = Vec::new();
    let seen = Mutex::new(&mut steps);
    let again = other.train(15, |step| seen.lock().unwrap().push(step));
    assert_eq!(steps.first(), Some(&10));
    assert!(model == again, "the model is another");
}

/// Reads the tensor that `begin` creates.
fn read(client: &mut Client) -> Result<f32, ClientError> {
    let mut values = vec![0.0; 65_537];
    client.pull(&mut [("w", &mut values)], false)?;
    Ok(values[65_536])
}

/// Creates a tensor that has a block on each of two servers.
fn begin(client: &mut Client, value: f32) {
    client
        .create_dense(dense("w", 65_537, Rule::Sgd), &vec![value; 65_537])
        .unwrap();
}

fn begins_again(mode: Mode) {
    let mut job = Fragile::new(2, 2, mode);
    job.checkpoint_every = 0;
    let mut old = [job.connect(0), job.connect(1)];
    for client in &mut old {
        begin(client, 1.0);
        assert_eq!(read(client).unwrap(), 1.0);
    }
    job.crash(1);
    // Through shared memory, the stopped server may answer once more.
    let refused = loop {
        if let Err(error) = read(&mut old[1]) {
            break error.to_string();
        }
    };
    assert!(refused.contains("writes no checkpoints"), "{refused}");

    let mut first = job.connect_as(0, 2);
    assert_eq!(first.step(), 0);
    begin(&mut first, 2.0);
    // However often it tries.
    for _ in 0..3 {
        let error = read(&mut old[1]).unwrap_err();
        assert!(matches!(error, ClientError::Lost), "{error}");
    }
    let mut second = job.connect_as(1, 2);
    begin(&mut second, 3.0);
    for client in [&mut first, &mut second] {
        assert_eq!(read(client).unwrap(), 2.0);
    }
}

#[test]
fn without_a_checkpoint_new_trainers_start_again_and_old_ones_fail() {
    begins_again(Mode::Sync);
    begins_again(Mode::Async);
}

/// A trainer waits for initial values when training begins again: it must learn of it, for its tensor is gone.
#[test]
fn a_wait_for_initial_values_ends_when_training_restarts() {
    type Call = fn(&mut Client) -> Result<(), ClientError>;
    let pull: Call = |client| client.pull(&mut [("w", &mut [0.0; 3])], false);
    let push: Call = |client| client.push(&[("w", &[1.0; 3])], rate(1.0));
    for (mode, call) in [
        (Mode::Sync, pull),
        (Mode::Sync, push),
        (Mode::Async, pull),
        (Mode::Async, push),
    ] {
        let mut job = Fragile::new(2, 2, mode);
        job.checkpoint_every = 0;
        let _first = job.connect(0);
        let mut second = job.connect(1);
        // On server 0 only, which is not restarted. Trainer 0 would set its values.
        second.create_dense(dense("w", 3, Rule::Sgd), &[0.0; 3]).unwrap();
        let waiting = thread::spawn(move || call(&mut second));
        // It waits before the server is back; the answer would be the same if it came later.
        job.crash(1);
        job.connect_as(0, 2);
        let error = waiting.join().unwrap().unwrap_err();
        assert!(matches!(error, ClientError::Lost), "{error}");
    }
}

#[test]
fn a_checkpoint_folder_that_cannot_be_read_is_not_taken_for_an_empty_one() {
    let mut job = Fragile::new(1, 1, Mode::Sync);
    let mut client = job.connect(0);
    begin(&mut client, 1.0);
    client.finish_step(&mut [], None).unwrap();
    drop(client);
    job.crash(0);
    // A file in place of the folder.
    let file = job.folder.path().join("file");
    std::fs::write(&file, b"").unwrap();
    job.checkpoints = Some(file);
    let error = job.try_connect(0, 2).err().unwrap().to_string();
    assert!(error.contains("cannot read the checkpoint"), "{error}");
}
