//! What a job trains and what happens to it: a function of the seed.

use crate::message::{DenseSpec, Init, Limits, TableSpec};
use crate::optimizer::{Optimizer, Rule, Scale};
use crate::placement::mix;
use crate::planted::Planted;
use crate::schedule::{Counts, Schedule, Shape};

use super::disturbance::{Event, What};

/// Numbers that depend on the seed alone.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = mix(self.0);
        (self.0 >> 11) % limit
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

#[derive(Debug, Clone)]
pub struct DensePlan {
    pub spec: DenseSpec,
    /// The step before which it is created; 0: at the start of the program.
    pub created: u64,
    /// The trainer gives a rate with each push.
    pub has_own_rate: bool,
    /// The trainer gives constants with each push.
    pub has_own_constants: bool,
}

#[derive(Debug, Clone)]
pub struct TablePlan {
    pub spec: TableSpec,
    /// Ids are below this.
    pub range: u64,
    pub per_step: u64,
}

/// One trainer pushes its dense gradients, or its rows, with another rate than the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contradiction {
    pub trainer: u32,
    pub step: u64,
    pub of_rows: bool,
}

#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub servers: u32,
    pub trainers: u32,
    pub steps: u64,
    pub every: u64,
    pub mean: bool,
    pub dense: Vec<DensePlan>,
    pub tables: Vec<TablePlan>,
    /// Per trainer: after this many steps it has no more batches.
    pub ends: Vec<u64>,
    /// The run is stopped at a step, and continued on this many servers.
    pub resume: Option<(u64, u32)>,
    /// Another run has used the same folder for checkpoints.
    pub has_earlier: bool,
    pub contradiction: Option<Contradiction>,
}

impl Plan {
    pub fn new(seed: u64) -> Plan {
        let mut random = Random(mix(seed ^ 0x5eed));
        let steps = 9 + random.below(8);
        let trainers = 1 + random.below(3) as u32;
        let servers = [1, 2, 3, 5][random.below(4) as usize];
        let every = 1 + random.below(5);
        let tables: Vec<TablePlan> = (0..1 + random.below(2))
            .map(|at| table(&mut random, at))
            .collect();
        let mut ends: Vec<u64> = (0..trainers)
            .map(|_| steps - random.below(3) * random.below(2))
            .collect();
        ends[random.below(u64::from(trainers)) as usize] = steps;
        let resume = random.one_in(2).then(|| {
            // With another number of servers, tables that evict drop other rows.
            let evicts = tables.iter().any(|table| table.spec.limits.evict);
            let others = [1, 2, 3, 5][random.below(4) as usize];
            (2 + random.below(steps - 4), if evicts { servers } else { others })
        });
        // Every trainer declares every tensor.
        let first_end = ends.iter().copied().min().unwrap_or(steps);
        let dense = (0..2 + random.below(3))
            .map(|at| dense(&mut random, at, first_end))
            .collect();
        Plan {
            seed,
            servers,
            trainers,
            steps,
            every,
            mean: random.one_in(2),
            dense,
            tables,
            ends,
            resume,
            has_earlier: random.one_in(3),
            contradiction: None,
        }
    }

    /// Another job whose checkpoints lie beside: it trains on other batches.
    pub fn earlier(&self) -> Option<Plan> {
        self.has_earlier.then(|| Plan {
            seed: mix(self.seed),
            ..self.clone()
        })
    }

    /// The same job with trainers that contradict each other; half of those with several trainers have one.
    pub fn contradicting(&self) -> Option<Plan> {
        let mut random = Random(mix(self.seed ^ 0xd1ff));
        if self.trainers == 1 || random.one_in(2) {
            return None;
        }
        // All trainers take part in this step.
        let step = random.below(self.ends.iter().copied().min()?);
        let has_dense = self.dense.iter().any(|dense| dense.created <= step);
        Some(Plan {
            contradiction: Some(Contradiction {
                trainer: random.below(u64::from(self.trainers)) as u32,
                step,
                of_rows: random.one_in(2) || !has_dense,
            }),
            ..self.clone()
        })
    }

    /// The kills of a run of this job on so many servers.
    pub fn events(&self, servers: u32, run: u64) -> Vec<Event> {
        let mut random = Random(mix(self.seed ^ (run << 32)));
        let first = match (run, self.resume) {
            (1, Some((stop_at, _))) => stop_at,
            _ => 0,
        };
        let count = 2 + random.below(4);
        let event = |random: &mut Random| Event {
            step: first + random.below((self.steps - first).max(1)),
            trainer: random.below(u64::from(self.trainers)) as u32,
            phase: random.below(4) as u32,
            what: what(random, servers),
        };
        let events = (0..count).map(|_| event(&mut random));
        // A trainer that contradicts others ends there; nobody must have to repeat steps with it later.
        let is_before = |event: &Event| {
            self.contradiction
                .is_none_or(|contradiction| event.step + 1 < contradiction.step)
        };
        events.filter(is_before).collect()
    }

    /// Whether a job can show a planted bug at all.
    pub fn can_show(&self, bug: Planted) -> bool {
        match bug {
            Planted::OneFolderForAllRuns => self.has_earlier,
            Planted::FirstRateWins => self.contradicting().is_some(),
            _ => true,
        }
    }

    /// The number that all of a trainer's batches begin with.
    pub fn first_state(&self, trainer: u32) -> u64 {
        mix(self.seed ^ mix(u64::from(trainer)))
    }
}

fn what(random: &mut Random, servers: u32) -> What {
    let server = random.below(u64::from(servers)) as u32;
    match random.below(10) {
        0..4 => What::KillServer {
            server,
            is_unwritten: random.one_in(3),
        },
        4 => What::KillAllServers,
        5 => What::KillServerAndTrainer { server },
        6 => What::CutConnections { server },
        7 => What::Zombie,
        _ => What::KillTrainer,
    }
}

fn dense(random: &mut Random, at: u64, end: u64) -> DensePlan {
    let elements = match random.below(120) {
        0 => 1_000_000,
        1..5 => 200_001,
        5..20 => 65_537,
        20..30 => 65_536,
        30..80 => 1 + random.below(300),
        _ => 1,
    };
    let created = match random.one_in(3) {
        true => 0,
        false => 1 + random.below(end - 2),
    };
    let optimizer = optimizer(random, true);
    let has_own_rate = random.one_in(2);
    DensePlan {
        spec: DenseSpec {
            name: format!("dense {at}"),
            shape: vec![elements],
            optimizer,
        },
        created,
        has_own_rate,
        has_own_constants: random.one_in(3),
    }
}

fn table(random: &mut Random, at: u64) -> TablePlan {
    let limits = Limits {
        admit_after: random.below(4) as u32,
        rows: 0,
        evict: false,
        idle_steps: [0, 0, 2, 4][random.below(4) as usize],
    };
    let limits = match random.one_in(2) {
        true => Limits {
            rows: 40 + random.below(100),
            evict: true,
            ..limits
        },
        false => limits,
    };
    TablePlan {
        spec: TableSpec {
            name: format!("table {at}"),
            row: 1 + random.below(5) as u32,
            optimizer: optimizer(random, false),
            init: match random.below(3) {
                0 => Init::Zero,
                1 => Init::Uniform { low: -1.0, high: 1.0 },
                _ => Init::Normal {
                    mean: 0.0,
                    deviation: 0.1,
                },
            },
            seed: random.below(1000),
            limits,
        },
        range: 50 + random.below(500),
        per_step: 10 + random.below(40),
    }
}

fn optimizer(random: &mut Random, is_dense: bool) -> Optimizer {
    let mut schedule = Schedule::constant(0.05);
    schedule.counts = [Counts::Updates, Counts::Samples][random.below(2) as usize];
    schedule.shape = match random.below(8) {
        0 => Shape::Constant,
        1 => Shape::Exponential {
            decay: 0.5,
            every: 7.0,
            staircase: random.one_in(2),
        },
        2 => Shape::InverseTime { decay: 0.5, every: 9 },
        3 => Shape::InversePower {
            decay: 0.1,
            power: 0.75,
        },
        4 => Shape::Linear {
            slope: 0.001,
            end: 0.01,
        },
        5 => Shape::Polynomial {
            end: 0.001,
            steps: 50,
            power: 2.0,
        },
        6 => Shape::Piecewise(vec![(4, 0.03), (11, 0.01)]),
        _ => Shape::Cosine {
            end: 0.001,
            steps: 60,
        },
    };
    schedule.warmup = random.below(3);
    let rules = rules(random);
    let rule = rules[random.below(rules.len() as u64) as usize];
    Optimizer {
        schedule,
        double: random.one_in(2),
        l1: [0.0, 0.001][random.below(2) as usize],
        l2: [0.0, 0.01][random.below(2) as usize],
        proximal_l1: [0.0, 0.001][random.below(2) as usize],
        clip: [0.0, 0.5][random.below(2) as usize],
        average: match is_dense || random.one_in(2) {
            true => [0, 3][random.below(2) as usize],
            false => 0,
        },
        ..Optimizer::new(rule, 0.05)
    }
}

/// All of them.
fn rules(random: &mut Random) -> Vec<Rule> {
    let epsilon = 1e-6;
    let (rho, beta1, beta2) = (0.9, 0.9, 0.99);
    let velocity = |momentum, scale| Rule::Velocity { momentum, scale };
    vec![
        Rule::Sgd,
        Rule::Momentum {
            momentum: 0.9,
            dampening: [0.0, 0.1][random.below(2) as usize],
            nesterov: false,
        },
        Rule::Momentum {
            momentum: 0.8,
            dampening: 0.0,
            nesterov: true,
        },
        Rule::Adagrad {
            epsilon,
            lr_decay: 0.01,
            initial: 0.1,
        },
        Rule::RowAdagrad { epsilon },
        Rule::Adam {
            beta1,
            beta2,
            epsilon,
            of_sparse: false,
        },
        Rule::AdamW {
            beta1,
            beta2,
            epsilon,
            decay: 0.01,
        },
        Rule::Adamax {
            beta1,
            beta2,
            epsilon,
            epsilon_inside: random.one_in(2),
        },
        Rule::RmsProp {
            rho,
            momentum: 0.5,
            epsilon,
            centered: random.one_in(2),
            epsilon_outside: random.one_in(2),
        },
        Rule::AdaDelta { rho, epsilon },
        Rule::Ftrl {
            beta: 1.0,
            l1: 0.01,
            l2: 0.1,
        },
        velocity(0.9, Scale::One),
        velocity(0.0, Scale::Adagrad { epsilon }),
        velocity(0.9, Scale::DecayedAdagrad { rho, epsilon }),
        velocity(0.5, Scale::RmsProp { rho, epsilon }),
        velocity(0.0, Scale::AdaDelta { rho, epsilon }),
    ]
}
