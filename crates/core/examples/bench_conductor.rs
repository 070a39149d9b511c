//! How long the conductor takes per input while more and more jobs are queued. Prints, asserts nothing.
//!
//! `cargo run --release -p paddlecloud-core --example bench_conductor`

use std::sync::Arc;
use std::time::Instant;

use paddlecloud_core::conductor::{Conductor, Input, Loopback, NameOrigin, Submission, Unrecorded};
use paddlecloud_core::exit::Exit;
use paddlecloud_core::job::{Boot, News, WorkerKey};
use paddlecloud_core::names::JobId;
use paddlecloud_core::ports::{AttemptKey, EngineState, Report};
use paddlecloud_core::quantity::{Bytes, Cpu};
use paddlecloud_core::scheduler::{Inventory, Node, Policy, Scheduler};
use paddlecloud_core::testing::samples::{noon, seconds, spec, user};

const CORES: u64 = 64;
const ROUNDS: u32 = 10_000;

fn main() {
    println!(
        "{:>8} {:>16} {:>22} {:>12}",
        "queued", "submit, µs", "run one through, µs", "restore, ms"
    );
    for queued in [1_000, 10_000, 100_000] {
        let mut bench = Bench::new();
        let submit = bench.fill(queued);
        let run = bench.run_through(ROUNDS.min(queued / 2));
        let restore = bench.restore();
        println!("{queued:>8} {submit:>16.2} {run:>22.2} {restore:>12.1}");
    }
}

struct Bench {
    conductor: Conductor,
    submitted: u32,
    running: Vec<JobId>,
}

impl Bench {
    fn new() -> Bench {
        let engine = EngineState {
            attempts: Vec::new(),
            nodes: Vec::new(),
            boot: Boot::Same,
        };
        let (conductor, _) = Conductor::restore(
            scheduler(),
            Box::new(Loopback::default()),
            Vec::new(),
            engine,
            &Unrecorded::default(),
            noon(),
        );
        Bench {
            conductor,
            submitted: 0,
            running: Vec::new(),
        }
    }

    fn submission(&mut self) -> Input {
        let number = self.submitted;
        self.submitted += 1;
        Input::Submit(Submission {
            id: JobId::new(u64::from(number), 0),
            user: user(&format!("user{}", number % 50)),
            spec: Arc::new(spec(&format!("job-{number}"), 0, 1)),
            name: NameOrigin::Request,
            key: Some(format!("key-{number}").parse().expect("a valid key")),
        })
    }

    /// Mean time of a submit, in microseconds.
    fn fill(&mut self, queued: u32) -> f64 {
        let inputs: Vec<Input> = (0..queued + CORES as u32).map(|_| self.submission()).collect();
        let start = Instant::now();
        for input in inputs {
            let output = self.conductor.handle([input], noon());
            self.note_launches(&output);
        }
        micros(start) / f64::from(queued)
    }

    /// Mean time for all reports of one job and the start of the next, in microseconds.
    fn run_through(&mut self, rounds: u32) -> f64 {
        let start = Instant::now();
        for _ in 0..rounds {
            let job = self.running.pop().expect("a job runs");
            for news in [News::Up, News::Started, News::Exited(Exit::with_code(0))] {
                let attempt = AttemptKey {
                    job: job.clone(),
                    worker: WorkerKey::trainer(0),
                    attempt: 1,
                };
                let output = self
                    .conductor
                    .handle([Input::Report(Report { attempt, news })], seconds(1));
                self.note_launches(&output);
            }
        }
        micros(start) / f64::from(rounds)
    }

    /// Time to restore everything, in milliseconds.
    fn restore(&mut self) -> f64 {
        let jobs = self.conductor.jobs().map(|job| (**job).clone()).collect();
        let engine = EngineState {
            attempts: Vec::new(),
            nodes: Vec::new(),
            boot: Boot::Same,
        };
        let start = Instant::now();
        let (conductor, _) = Conductor::restore(
            scheduler(),
            Box::new(Loopback::default()),
            jobs,
            engine,
            &Unrecorded::default(),
            seconds(2),
        );
        self.conductor = conductor;
        micros(start) / 1000.0
    }

    fn note_launches(&mut self, output: &paddlecloud_core::conductor::Output) {
        for command in &output.commands {
            if let paddlecloud_core::ports::EngineCommand::Launch { job, .. } = command {
                self.running.push(job.id.clone());
            }
        }
    }
}

fn scheduler() -> Scheduler {
    let node = Node {
        name: "here".into(),
        cpu: Cpu::cores(CORES),
        memory: Bytes::mib(1024 * CORES),
        gpus: 0,
        taken: Default::default(),
        traits: Default::default(),
    };
    Scheduler::new(Inventory { nodes: vec![node] }, Policy::default())
}

fn micros(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e6
}
