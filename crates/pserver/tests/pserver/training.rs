//! Real servers and clients on loopback: what several trainers learn together.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use paddlecloud_pserver::client::{Client, ClientError, Config, Gradients, Listener};
use paddlecloud_pserver::hello::RunSecret;
use paddlecloud_pserver::message::{Code, DenseSpec, Init, Limits, Session, TableSpec};
use paddlecloud_pserver::optimizer::{Optimizer, Pace, Rule};
use paddlecloud_pserver::schedule::{Counts, Schedule, Shape};
use paddlecloud_pserver::server::{self, Admission, Server, listen};
use paddlecloud_pserver::steps::Mode;

pub(crate) struct Quiet(pub(crate) Mutex<Vec<String>>);

impl Listener for Quiet {
    fn waiting(&self, _server: u32, message: &str) {
        self.0.lock().unwrap().push(message.to_owned());
    }

    fn notice(&self, message: &str) {
        self.0.lock().unwrap().push(message.to_owned());
    }
}

/// Servers for a job, and what their clients need.
pub(crate) struct Job {
    addresses: Vec<String>,
    trainers: u32,
    mode: Mode,
    mean: bool,
    heard: Arc<Quiet>,
}

impl Job {
    pub(crate) fn new(servers: u32, trainers: u32, mode: Mode) -> Job {
        Job::with(servers, trainers, mode, server::Config::default())
    }

    fn with(servers: u32, trainers: u32, mode: Mode, config: server::Config) -> Job {
        let start = |index| {
            let server = Server::new(server::Config {
                index,
                servers,
                trainers,
                secret: Some(RunSecret::new("test")),
                ..config.clone()
            });
            let address: SocketAddr = "127.0.0.1:0".parse().unwrap();
            let listening = listen(&server, &[address], &Admission::BySecret, |_| None).unwrap();
            listening.addresses[0].to_string()
        };
        Job {
            addresses: (0..servers).map(start).collect(),
            trainers,
            mode,
            mean: false,
            heard: Arc::new(Quiet(Mutex::default())),
        }
    }

    pub(crate) fn config(&self, trainer: u32, attempt: u32) -> Config {
        Config {
            addresses: self.addresses.clone(),
            trainer,
            trainers: self.trainers,
            attempt,
            secret: Some(RunSecret::new("test")),
            // Both ways to a server, side by side.
            shares_memory: trainer % 2 == 1,
            session: Session {
                mode: self.mode,
                mean: self.mean,
                checkpoints: String::new(),
                checkpoint_every: 0,
                resume: String::new(),
            },
            gradients: Gradients::F32,
            patience: Duration::from_secs(60),
            listener: self.heard.clone(),
        }
    }

    pub(crate) fn connect(&self, trainer: u32, attempt: u32) -> Client {
        Client::connect(self.config(trainer, attempt)).unwrap()
    }
}

pub(crate) fn dense(name: &str, elements: u64, rule: Rule) -> DenseSpec {
    DenseSpec {
        name: name.into(),
        shape: vec![elements],
        optimizer: Optimizer::new(rule, 0.1),
    }
}

/// A push with a rate of its own.
pub(crate) fn rate(rate: f32) -> Pace {
    Pace {
        rate: Some(rate),
        samples: 0,
    }
}

pub(crate) const ADAM: Rule = Rule::Adam {
    beta1: 0.9,
    beta2: 0.999,
    epsilon: 1e-8,
    of_sparse: false,
};

pub(crate) fn table(name: &str) -> TableSpec {
    TableSpec {
        name: name.into(),
        row: 3,
        optimizer: Optimizer::new(
            Rule::Adagrad {
                epsilon: 1e-6,
                lr_decay: 0.0,
                initial: 0.0,
            },
            0.1,
        ),
        init: Init::Uniform { low: -1.0, high: 1.0 },
        seed: 1,
        limits: Limits::default(),
    }
}

/// A gradient that depends on everything a trainer's batch would.
pub(crate) fn gradient(values: &[f32], trainer: u32, step: u64) -> Vec<f32> {
    let target = |i: usize| ((i as f32) * 0.37 + trainer as f32).sin();
    let noise = |i: usize| ((i as u64 * 31 + step * 7 + u64::from(trainer) * 13) % 97) as f32 * 1e-3;
    let pairs = values.iter().enumerate();
    pairs.map(|(i, w)| w - target(i) + noise(i)).collect()
}

/// Trains a large and a small tensor and a table; returns what trainer 0 sees in the end.
fn train(servers: u32, trainers: u32, steps: u64) -> Vec<f32> {
    let job = Job::new(servers, trainers, Mode::Sync);
    let elements = 3 * 65_536 + 17;
    let ids: Vec<u64> = (0..50).map(|i| i * 1_000_003).collect();
    let run = |trainer: u32| {
        let mut client = job.connect(trainer, 1);
        client
            .create_dense(dense("big", elements, ADAM), &vec![0.5; elements as usize])
            .unwrap();
        client
            .create_dense(dense("small", 3, Rule::Sgd), &[0.0; 3])
            .unwrap();
        client.create_table(table("emb")).unwrap();
        let (mut big, mut small) = (vec![0.0; elements as usize], vec![0.0; 3]);
        let mut rows = vec![0.0; ids.len() * 3];
        client
            .pull(&mut [("big", &mut big), ("small", &mut small)], false)
            .unwrap();
        for step in 0..steps {
            client.lookup("emb", &ids, true, &mut rows).unwrap();
            let gradients = [gradient(&big, trainer, step), gradient(&small, trainer, step)];
            client
                .push_rows(
                    "emb",
                    &ids[trainer as usize..],
                    &gradient(&rows, trainer, step)[trainer as usize * 3..],
                    Pace::default(),
                )
                .unwrap();
            client
                .push(
                    &[("big", &gradients[0]), ("small", &gradients[1])],
                    Pace::default(),
                )
                .unwrap();
            client
                .finish_step(&mut [("big", &mut big), ("small", &mut small)], None)
                .unwrap();
        }
        client.lookup("emb", &ids, true, &mut rows).unwrap();
        client.leave().unwrap();
        client.wait_for_end().unwrap();
        [big, small, rows].concat()
    };
    thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..trainers)
            .map(|trainer| scope.spawn(move || run(trainer)))
            .collect();
        let all: Vec<Vec<f32>> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(
            all.iter().all(|seen| *seen == all[0]),
            "all trainers see the same model"
        );
        all[0].clone()
    })
}

#[test]
fn a_synchronous_result_does_not_depend_on_the_number_of_servers() {
    let one = train(1, 2, 12);
    assert!(one.iter().all(|value| value.is_finite()));
    for servers in [2, 3] {
        let other = train(servers, 2, 12);
        assert!(
            one.iter().zip(&other).all(|(a, b)| a.to_bits() == b.to_bits()),
            "{servers} servers"
        );
    }
}

/// Adam counts the updates of a table, also on servers that hold none of a step's rows.
#[test]
fn rows_that_are_on_few_servers_do_not_depend_on_the_number_of_servers() {
    let train = |servers| {
        let job = Job::new(servers, 1, Mode::Sync);
        let mut client = job.connect(0, 1);
        let mut spec = table("emb");
        spec.optimizer.rule = ADAM;
        client.create_table(spec).unwrap();
        let mut rows = vec![0.0; 3];
        for step in 0..20 {
            let id = [step % 4];
            client.lookup("emb", &id, true, &mut rows).unwrap();
            let gradient = gradient(&rows, 0, step);
            client.push_rows("emb", &id, &gradient, Pace::default()).unwrap();
            client.finish_step(&mut [], None).unwrap();
        }
        let mut all = vec![0.0; 12];
        client.lookup("emb", &[0, 1, 2, 3], false, &mut all).unwrap();
        all
    };
    let one = train(1);
    assert!([2, 3].into_iter().all(|servers| train(servers) == one));
}

#[test]
fn a_schedule_counts_the_samples_of_all_trainers() {
    let job = Job::new(2, 2, Mode::Sync);
    let run = |trainer: u32| {
        let mut client = job.connect(trainer, 1);
        let mut spec = dense("w", 1, Rule::Sgd);
        spec.optimizer.schedule = Schedule {
            base: 1.0,
            shape: Shape::Piecewise(vec![(31, 10.0), (61, 100.0)]),
            counts: Counts::Samples,
            warmup: 0,
        };
        client.create_dense(spec, &[0.0]).unwrap();
        let error = client.push(&[("w", &[1.0])], Pace::default()).unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("counts samples; push with `samples=`"),
            "{error}"
        );
        let mut value = [0.0];
        let mut seen = Vec::new();
        for _ in 0..3 {
            let samples = Pace {
                rate: None,
                samples: 10 + 10 * u64::from(trainer),
            };
            client.push(&[("w", &[1.0])], samples).unwrap();
            client.finish_step(&mut [("w", &mut value)], None).unwrap();
            seen.push(value[0]);
        }
        seen
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| run(1));
        // After 30, 60 and 90 samples; the gradients of both trainers are added.
        assert_eq!(run(0), [-2.0, -22.0, -222.0]);
        other.join().unwrap();
    });
}

#[test]
fn a_mean_is_over_the_trainers_that_have_not_left() {
    let mut job = Job::new(2, 2, Mode::Sync);
    job.mean = true;
    thread::scope(|scope| {
        let job = &job;
        scope.spawn(move || {
            let mut client = job.connect(1, 1);
            client.create_dense(dense("w", 2, Rule::Sgd), &[0.0; 2]).unwrap();
            client.push(&[("w", &[30.0, 30.0])], Pace::default()).unwrap();
            client.finish_step(&mut [], None).unwrap();
            client.leave().unwrap();
        });
        let mut client = job.connect(0, 1);
        client.create_dense(dense("w", 2, Rule::Sgd), &[0.0; 2]).unwrap();
        let mut values = [0.0; 2];
        for expected in [-2.0, -3.0] {
            client.push(&[("w", &[10.0, 10.0])], Pace::default()).unwrap();
            client.finish_step(&mut [("w", &mut values)], None).unwrap();
            assert_eq!(values, [expected; 2]);
        }
    });
}

#[test]
fn a_restarted_trainer_repeats_its_step_and_it_counts_once() {
    let job = Job::new(2, 1, Mode::Sync);
    let mut first = job.connect(0, 1);
    let spec = || dense("w", 200_000, Rule::Sgd);
    let ones = vec![1.0; 200_000];
    first.create_dense(spec(), &vec![0.0; 200_000]).unwrap();
    first.push(&[("w", &ones)], Pace::default()).unwrap();
    let mut second = job.connect(0, 2);
    assert_eq!(second.step(), 0);
    second.create_dense(spec(), &ones).unwrap();
    let error = first.push(&[("w", &ones)], Pace::default()).unwrap_err();
    assert!(
        matches!(&error, ClientError::Refused(refused) if refused.code == Code::Fenced),
        "{error}"
    );
    second.push(&[("w", &ones)], Pace::default()).unwrap();
    let mut values = vec![0.0; 200_000];
    second.finish_step(&mut [("w", &mut values)], None).unwrap();
    assert!(values.iter().all(|value| *value == -0.1));
    assert_eq!(job.connect(0, 3).step(), 1);
}

#[test]
fn an_asynchronous_push_counts_once_if_a_restarted_trainer_repeats_it() {
    let job = Job::new(2, 1, Mode::Async);
    let (mut values, ones) = (vec![0.0; 200_000], vec![1.0; 200_000]);
    let begin = |attempt| {
        let mut client = job.connect(0, attempt);
        client
            .create_dense(dense("w", 200_000, Rule::Sgd), &vec![0.0; 200_000])
            .unwrap();
        client
    };
    begin(1).push(&[("w", &ones)], rate(1.0)).unwrap();
    let mut second = begin(2);
    for _ in 0..2 {
        second.push(&[("w", &ones)], rate(1.0)).unwrap();
    }
    second.finish_step(&mut [("w", &mut values)], None).unwrap();
    assert!(values.iter().all(|value| *value == -2.0));
}

#[test]
fn asynchronous_pushes_of_two_trainers_all_count() {
    let job = Job::new(2, 2, Mode::Async);
    let run = |trainer: u32| {
        let mut client = job.connect(trainer, 1);
        client
            .create_dense(dense("w", 100, Rule::Sgd), &[0.0; 100])
            .unwrap();
        client.create_table(table("emb")).unwrap();
        for _ in 0..50 {
            client.push(&[("w", &[1.0; 100])], rate(1.0)).unwrap();
            client.finish_step(&mut [], None).unwrap();
        }
        client.barrier().unwrap();
        let mut values = [0.0; 100];
        client.pull(&mut [("w", &mut values)], false).unwrap();
        assert_eq!(values, [-100.0; 100]);
    };
    thread::scope(|scope| {
        let run = &run;
        (0..2).for_each(|trainer| drop(scope.spawn(move || run(trainer))));
    });
}

#[test]
fn nan_is_refused_by_the_name_of_trainer_and_tensor_and_changes_nothing() {
    let job = Job::new(1, 1, Mode::Async);
    let mut client = job.connect(0, 1);
    client.create_dense(dense("w", 3, Rule::Sgd), &[1.0; 3]).unwrap();
    let error = client
        .push(&[("w", &[0.0, f32::NAN, 0.0])], Pace::default())
        .unwrap_err();
    assert_eq!(error.to_string(), "trainer 0 sent NaN or infinite values for `w`");
    let mut values = [0.0; 3];
    client.pull(&mut [("w", &mut values)], false).unwrap();
    assert_eq!(values, [1.0; 3]);
}

#[test]
fn gradients_travel_in_half_precision_or_as_their_largest_elements() {
    let push = |gradients, pushed: &[&[f32]]| {
        let job = Job::new(2, 1, Mode::Async);
        let mut config = job.config(0, 1);
        config.gradients = gradients;
        let mut client = Client::connect(config).unwrap();
        client.create_dense(dense("w", 4, Rule::Sgd), &[0.0; 4]).unwrap();
        client.create_table(table("emb")).unwrap();
        for gradient in pushed {
            let gradient: Vec<f32> = gradient.iter().map(|g| -g).collect();
            client.push(&[("w", &gradient)], rate(1.0)).unwrap();
        }
        let mut values = [0.0; 4];
        client.pull(&mut [("w", &mut values)], false).unwrap();
        values
    };
    let third = 1.0 / 3.0;
    let sent = push(Gradients::Bf16, &[&[1.0, third, -2.0, 0.0]]);
    assert_eq!(sent, [1.0, 0.333_984_38, -2.0, 0.0]);
    let sent = push(Gradients::F16, &[&[1.0, third, -2.0, 0.0]]);
    assert_eq!(sent, [1.0, 0.333_251_95, -2.0, 0.0]);
    // The largest half of the elements; the others wait until they are among them.
    let small = [3.0, 1.0, -5.0, 0.0];
    assert_eq!(push(Gradients::TopK(0.5), &[&small]), [3.0, 0.0, -5.0, 0.0]);
    let later = [0.0, 1.0, 0.0, 0.0];
    assert_eq!(
        push(Gradients::TopK(0.5), &[&small, &later]),
        [3.0, 2.0, -5.0, 0.0]
    );
}

#[test]
fn a_wrong_secret_is_refused() {
    let job = Job::new(1, 1, Mode::Sync);
    let mut config = job.config(0, 1);
    config.secret = Some(RunSecret::new("guess"));
    let error = Client::connect(config).err().unwrap();
    assert_eq!(
        error.to_string(),
        "the other side does not know this run's secret"
    );
}

#[test]
fn a_trainer_of_this_machine_uses_shared_memory_if_the_server_has_enough() {
    let job = Job::new(2, 2, Mode::Async);
    assert!(job.connect(1, 1).uses_shared_memory());
    assert!(!job.connect(0, 1).uses_shared_memory());
    let little = server::Config {
        memory: 100_000,
        ..server::Config::default()
    };
    let job = Job::with(1, 2, Mode::Async, little);
    let mut trainer = job.connect(1, 1);
    assert!(!trainer.uses_shared_memory());
    trainer.stat().unwrap();
}

#[test]
fn a_waiting_trainer_learns_whom_it_waits_for() {
    let config = server::Config {
        patience: Duration::from_millis(50),
        ..server::Config::default()
    };
    let job = Job::with(1, 2, Mode::Sync, config);
    thread::scope(|scope| {
        let job = &job;
        let waiting = scope.spawn(move || {
            let mut client = job.connect(0, 1);
            client.create_dense(dense("w", 1, Rule::Sgd), &[0.0]).unwrap();
            client.push(&[("w", &[1.0])], Pace::default()).unwrap();
            client.finish_step(&mut [("w", &mut [0.0])], None).unwrap();
        });
        let mut other = job.connect(1, 1);
        while job.heard.0.lock().unwrap().is_empty() {
            thread::yield_now();
        }
        assert_eq!(job.heard.0.lock().unwrap()[0], "step 0 waits for trainer 1");
        other.finish_step(&mut [], None).unwrap();
        waiting.join().unwrap();
    });
}

#[test]
fn a_server_stays_until_its_trainers_have_left_and_closed_their_connections() {
    let server = Server::new(server::Config::default());
    let address: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let admission = Admission::ByAddress(Default::default());
    let listening = listen(&server, &[address], &admission, |_| None).unwrap();
    let mut job = Job::new(1, 1, Mode::Sync);
    job.addresses = vec![listening.addresses[0].to_string()];
    let mut config = job.config(0, 1);
    config.secret = None;
    let mut client = Client::connect(config).unwrap();
    client.create_dense(dense("w", 1, Rule::Sgd), &[1.0]).unwrap();
    let ended = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let waiting = {
        let (server, ended) = (Arc::clone(&server), Arc::clone(&ended));
        thread::spawn(move || {
            server.wait_until_all_left();
            ended.store(true, std::sync::atomic::Ordering::SeqCst);
        })
    };
    client.leave().unwrap();
    client.wait_for_end().unwrap();
    // Trainer 0 saves the model after the last step.
    client.pull(&mut [("w", &mut [0.0])], false).unwrap();
    assert!(!ended.load(std::sync::atomic::Ordering::SeqCst));
    drop(client);
    waiting.join().unwrap();
}

#[test]
fn prometheus_reads_the_state_of_a_server() {
    use std::io::{Read, Write};
    let server = Server::new(server::Config {
        memory: 1 << 20,
        ..server::Config::default()
    });
    let address = server::serve_metrics(&server, "127.0.0.1:0".parse().unwrap()).unwrap();
    let get = |path: &str| {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    };
    let reply = get("/metrics");
    assert!(reply.starts_with("HTTP/1.1 200 OK\r\n"), "{reply}");
    assert!(
        reply.contains("\npaddle_pserver_memory_limit_bytes 1048576\n"),
        "{reply}"
    );
    assert!(get("/").starts_with("HTTP/1.1 404"));
}

#[test]
fn a_model_is_saved_and_loaded_on_another_number_of_servers() {
    let folder = tempfile::tempdir().unwrap();
    let ids: Vec<u64> = (0..5000).map(|i| i * 7).collect();
    let values: Vec<f32> = (0..200_000).map(|i| i as f32).collect();
    let mut rows = vec![0.0; ids.len() * 3];
    {
        let job = Job::new(3, 1, Mode::Async);
        let mut client = job.connect(0, 1);
        client
            .create_dense(dense("w", 200_000, Rule::Sgd), &values)
            .unwrap();
        client.create_table(table("emb")).unwrap();
        client.lookup("emb", &ids, true, &mut rows).unwrap();
        client.save(folder.path()).unwrap();
    }
    assert!(folder.path().join("done").exists());
    let job = Job::new(2, 1, Mode::Async);
    let mut client = job.connect(0, 1);
    client
        .create_dense(dense("w", 200_000, Rule::Sgd), &vec![0.0; 200_000])
        .unwrap();
    let mut spec = table("emb");
    spec.seed = 99;
    client.create_table(spec).unwrap();
    client.load(folder.path()).unwrap();
    let (mut loaded, mut loaded_rows) = (vec![0.0; 200_000], vec![0.0; rows.len()]);
    client.pull(&mut [("w", &mut loaded)], false).unwrap();
    client.lookup("emb", &ids, false, &mut loaded_rows).unwrap();
    assert_eq!((loaded, loaded_rows), (values, rows));
}
