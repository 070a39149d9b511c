//! How many decisions the scheduler makes per second, and how that depends on the length of the queue.
//!
//! `cargo run --release -p paddlecloud-core --example bench_scheduler [uniform|mixed|hard|quotas|labels [JOBS]]`
//!
//! Times are processor time, not wall time, if the system reports it: other work on the machine does not count.
//!
//! 10,000 nodes, a queue of 1,000, 10,000 and 100,000 jobs that is kept at its length: a running job ends, a new one is
//! submitted, the scheduler decides. The cluster is full all the time, so every decision competes with the whole queue.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use paddlecloud_core::gpu::GpuType;
use paddlecloud_core::names::{JobId, UserName};
use paddlecloud_core::quantity::{Bytes, Cpu};
use paddlecloud_core::scheduler::{
    Inventory, Node, NodeTraits, Policy, Quota, Request, Requirement, Scheduler,
};
use paddlecloud_core::spec::Resources;

const NODES: usize = 10_000;
const QUEUES: [usize; 3] = [1_000, 10_000, 100_000];
const RACKS: u64 = 20;
const MEASURED: Duration = Duration::from_secs(3);

fn main() {
    println!("{NODES} nodes of 64 cores and 256Gi, a quarter of them with 8 GPUs; one thread");
    let filter = std::env::args().nth(1).unwrap_or_default();
    let length: Option<usize> = std::env::args().nth(2).and_then(|length| length.parse().ok());
    for workload in [
        Workload::Uniform,
        Workload::Mixed,
        Workload::Hard,
        Workload::Quotas,
        Workload::Labels,
    ] {
        if !workload.describe().starts_with(&filter) {
            continue;
        }
        println!("\n{}", workload.describe());
        println!("  queued   decisions/s   µs/decision   worst ms   submits/s   explain ms (last)");
        for queued in QUEUES
            .into_iter()
            .filter(|queued| length.is_none_or(|only| only == *queued))
        {
            Bench::new(workload, queued).run();
        }
    }
}

/// What the jobs are like.
#[derive(Debug, Clone, Copy)]
enum Workload {
    Uniform,
    Mixed,
    Hard,
    Quotas,
    Labels,
}

impl Workload {
    fn describe(self) -> &'static str {
        match self {
            Workload::Uniform => "uniform: every job has 4 trainers of 4 cores, nobody has a quota",
            Workload::Mixed => {
                "mixed: 24 shapes with parameter servers and GPUs, 3 priorities, 4 runtimes, 200 users, half with a quota"
            }
            Workload::Hard => {
                "hard: as mixed, sizes at random (thousands of shapes), and 1 job in 100 wants 500 whole nodes"
            }
            Workload::Quotas => {
                "quotas: as hard, and every user may use 2,000 cores, of 3,200 that would be an even share"
            }
            Workload::Labels => {
                "labels: as mixed, and half of the jobs require one of 20 racks, a GPU type of 4, or both"
            }
        }
    }

    fn request(self, number: u64, random: &mut Random) -> Request {
        let user = match self {
            Workload::Uniform => 0,
            _ => random.below(200),
        };
        Request {
            id: JobId::new(number, 0),
            user: user_name(user),
            priority: match self {
                Workload::Uniform => 0,
                _ => random.below(3) as i32,
            },
            order: number,
            roles: self.roles(random),
            max_runtime: match self {
                Workload::Uniform => None,
                _ => [None, Some(1), Some(8), Some(48)][random.below(4) as usize]
                    .map(SignedDuration::from_hours),
            },
            required: self.required(random),
        }
    }

    fn required(self, random: &mut Random) -> Requirement {
        let mut required = Requirement::default();
        if !matches!(self, Workload::Labels) {
            return required;
        }
        let choice = random.below(6);
        if choice < 2 {
            let rack = ("rack".to_owned(), random.below(RACKS).to_string());
            required.labels.extend([rack]);
        }
        if choice == 1 || choice == 2 {
            required.gpu_type = Some(gpu_type(random.below(4)));
        }
        required
    }

    /// How many cores a user may use.
    fn quota(self, user: u64) -> Option<u64> {
        match self {
            Workload::Mixed | Workload::Hard | Workload::Labels if user.is_multiple_of(2) => Some(8_000),
            Workload::Quotas => Some(2_000),
            _ => None,
        }
    }

    fn roles(self, random: &mut Random) -> Vec<(u32, Resources)> {
        let shape = random.below(24);
        let servers = (2, worker(1, 2, 0));
        match self {
            Workload::Uniform => vec![(4, worker(4, 8, 0))],
            Workload::Hard | Workload::Quotas if random.below(100) == 0 => vec![(500, worker(64, 128, 0))],
            Workload::Hard | Workload::Quotas => {
                let cores = 1 + random.below(32);
                vec![
                    servers,
                    (
                        1 + random.below(32) as u32,
                        worker(cores, 1 + random.below(64), 0),
                    ),
                ]
            }
            Workload::Mixed | Workload::Labels if shape < 6 => {
                vec![(1 + shape as u32, worker(4, 16, 1 + shape as u32 % 4))]
            }
            Workload::Mixed | Workload::Labels => vec![
                servers,
                (1 << (shape % 6), worker(1 << (shape / 6), 2 << (shape / 6), 0)),
            ],
        }
    }
}

fn traits(node: u64) -> NodeTraits {
    NodeTraits {
        labels: [("rack".to_owned(), (node / 4 % RACKS).to_string())].into(),
        gpu_types: match node % 4 {
            0 => [gpu_type(node / 4 / RACKS % 4)].into(),
            _ => Default::default(),
        },
        ..NodeTraits::default()
    }
}

fn gpu_type(number: u64) -> GpuType {
    let name = ["a100", "h100", "t4", "v100"][number as usize];
    name.parse().expect("a plain word is a GPU type")
}

fn worker(cores: u64, gib: u64, gpu: u32) -> Resources {
    Resources {
        cpu: Cpu::cores(cores),
        memory: Bytes::new(gib << 30),
        gpu,
    }
}

fn user_name(number: u64) -> UserName {
    format!("user{number}")
        .parse()
        .expect("a plain word is a user name")
}

struct Bench {
    workload: Workload,
    queued: usize,
    scheduler: Scheduler,
    random: Random,
    submitted: u64,
    running: Vec<JobId>,
    second: i64,
}

impl Bench {
    /// Fills the cluster, then the queue.
    fn new(workload: Workload, queued: usize) -> Bench {
        let nodes = (0..NODES).map(|index| Node {
            name: format!("node{index}").as_str().into(),
            cpu: Cpu::cores(64),
            memory: Bytes::new(256 << 30),
            gpus: if index % 4 == 0 { 8 } else { 0 },
            taken: Default::default(),
            traits: Arc::new(traits(index as u64)),
        });
        let mut scheduler = Scheduler::new(
            Inventory {
                nodes: nodes.collect(),
            },
            Policy::default(),
        );
        for user in 0..200 {
            let cpu = workload.quota(user).map(Cpu::cores);
            let quota = Quota {
                cpu,
                ..Quota::default()
            };
            scheduler.set_quota(user_name(user), quota);
        }
        Bench {
            workload,
            queued,
            scheduler,
            random: Random(0x5eed),
            submitted: 0,
            running: Vec::new(),
            second: 0,
        }
    }

    fn run(mut self) {
        let mut waiting = 0;
        let (mut submitting, mut submits) = (Duration::ZERO, 0u32);
        while waiting < self.queued {
            let start = Instant::now();
            (0..self.queued - waiting).for_each(|_| self.submit());
            submitting += start.elapsed();
            submits += (self.queued - waiting) as u32;
            waiting = self.queued - self.decide().min(self.queued);
        }
        let (mut decisions, mut worst) = (0usize, Duration::ZERO);
        let (wall, start) = (Instant::now(), cpu_time());
        while wall.elapsed() < MEASURED {
            let round = Instant::now();
            decisions += self.round();
            worst = worst.max(round.elapsed());
        }
        let busy = cpu_time()
            .zip(start)
            .map_or(wall.elapsed(), |(end, start)| end - start);
        let last = JobId::new(self.submitted, 0);
        let asked = Instant::now();
        let why = self.scheduler.explain(&last, self.now());
        let explained = if why.is_some() {
            asked.elapsed()
        } else {
            Duration::ZERO
        };
        println!(
            "{:8}  {:12.0}  {:12.1}  {:9.2}  {:10.0}  {:8.2}",
            self.queued,
            decisions as f64 / busy.as_secs_f64(),
            busy.as_secs_f64() * 1e6 / decisions.max(1) as f64,
            worst.as_secs_f64() * 1e3,
            f64::from(submits) / submitting.as_secs_f64(),
            explained.as_secs_f64() * 1e3,
        );
    }

    /// One job ends; for each job that starts, a new one is submitted. Returns how many started.
    fn round(&mut self) -> usize {
        self.second += 1;
        if !self.running.is_empty() {
            let index = self.random.below(self.running.len() as u64) as usize;
            let gone = self.running.swap_remove(index);
            self.scheduler.release(&gone, self.now());
        }
        let started = self.decide();
        (0..started).for_each(|_| self.submit());
        started
    }

    fn submit(&mut self) {
        self.submitted += 1;
        let request = self.workload.request(self.submitted, &mut self.random);
        let now = self.now();
        self.scheduler.enqueue(request, now);
    }

    fn decide(&mut self) -> usize {
        let admitted = self.scheduler.decide(self.now());
        let count = admitted.len();
        self.running
            .extend(admitted.into_iter().map(|admission| admission.id));
        count
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_second(self.second).expect("a small number of seconds")
    }
}

/// The processor time of this thread so far; `None` if the system does not report it.
fn cpu_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanos = text.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

/// A small generator (xorshift): the same workload in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}
