//! A trainer's program: its batches and rates depend on the values it pulls and on a state of its own, so that a step that
//! is lost, repeated or made with the wrong state changes everything after it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::client::{Client, ClientError};
use crate::message::Code;
use crate::optimizer::{Optimizer, Pace, Progress};
use crate::placement::mix;

use super::cluster::Cluster;
use super::disturbance::{Events, What};
use super::plan::{Contradiction, DensePlan, Plan, Random, TablePlan};

/// What a job ends with.
#[derive(Debug, PartialEq)]
pub struct Model {
    /// Values and averages.
    dense: Vec<(Vec<f32>, Vec<f32>)>,
    /// Of each dense tensor.
    optimizers: Vec<(Progress, Vec<f32>)>,
    /// By id.
    rows: Vec<Vec<(u64, Vec<f32>)>>,
    /// Updates of each tensor.
    counters: Vec<(String, u64)>,
    /// This trainer's state.
    state: u64,
}

impl Model {
    /// What is different, if anything.
    pub fn compare(&self, other: &Model) -> Result<(), String> {
        let parts = [
            ("values or averages", self.dense == other.dense),
            ("the state of optimizers", self.optimizers == other.optimizers),
            ("rows", self.rows == other.rows),
            ("counters", self.counters == other.counters),
            ("the trainer's state", self.state == other.state),
        ];
        let different: Vec<&str> = parts
            .iter()
            .filter(|(_, same)| !same)
            .map(|(name, _)| *name)
            .collect();
        match different.is_empty() {
            true => Ok(()),
            false => Err(format!("different: {}", different.join(", "))),
        }
    }
}

/// How an attempt of a trainer ended.
enum End {
    Done(Box<Model>),
    /// The run was stopped.
    Stopped,
    /// Its step was refused, because trainers contradict each other.
    Contradicted,
    Killed,
    /// Killed, but it still ends its step.
    Zombie(Box<Client>, Vec<u8>),
}

/// Runs attempt after attempt until training is done; `None` if the run was stopped, or trainers contradict each other.
pub fn run(
    plan: &Plan,
    cluster: &Cluster,
    events: &Events,
    number: u32,
    stop_at: Option<u64>,
) -> Option<Model> {
    loop {
        let client = cluster
            .connect(number)
            .unwrap_or_else(|error| cluster.fail(number, &error));
        let mut trainer = Trainer {
            plan,
            cluster,
            events,
            number,
            client,
            state: plan.first_state(number),
        };
        let end = trainer.program(stop_at);
        let next = || cluster.attempts[number as usize].fetch_add(1, Ordering::Relaxed);
        match end {
            End::Done(model) => return Some(*model),
            End::Stopped | End::Contradicted => return None,
            End::Killed => {
                next();
            }
            End::Zombie(mut client, state) => {
                next();
                // Whether it is in time or not: it counts once, or is refused.
                std::thread::scope(|scope| {
                    scope.spawn(move || drop(client.finish_step(&mut [], Some(&state))));
                    drop(cluster.connect(number));
                });
            }
        }
    }
}

struct Trainer<'a> {
    plan: &'a Plan,
    cluster: &'a Cluster,
    events: &'a Events,
    number: u32,
    client: Client,
    state: u64,
}

impl Trainer<'_> {
    fn program(&mut self, stop_at: Option<u64>) -> End {
        let error = match self.train(stop_at) {
            Ok(end) => return end,
            Err(error) => error,
        };
        let is_conflict = matches!(&error, ClientError::Refused(refused) if refused.code == Code::Conflict);
        if is_conflict && self.plan.contradiction.is_some() {
            return End::Contradicted;
        }
        // A trainer may have ended the first step before the others.
        if self.client.step() <= 1 && self.cluster.may_begin_again(&error) {
            return End::Killed;
        }
        self.cluster.fail(self.number, &error)
    }

    fn train(&mut self, stop_at: Option<u64>) -> Result<End, ClientError> {
        self.declare()?;
        self.restore()?;
        loop {
            match self.turn(stop_at) {
                Ok(None) => {}
                Ok(Some(end)) => return Ok(end),
                Err(error) if error.rolled_back_to().is_some() => self.restore()?,
                Err(error) => return Err(error),
            }
        }
    }

    /// What the program declares at its start: all tensors that exist at its step.
    fn declare(&mut self) -> Result<(), ClientError> {
        loop {
            let step = self.client.step();
            let plan = self.plan;
            let mut dense = plan
                .dense
                .iter()
                .filter(|dense| dense.created == 0 || dense.created < step);
            let tables = plan.tables.iter();
            let declared = dense.try_for_each(|dense| self.create(dense));
            let declared = declared.and_then(|()| {
                tables
                    .map(|table| table.spec.clone())
                    .try_for_each(|spec| self.client.create_table(spec))
            });
            match declared {
                Err(error) if error.rolled_back_to().is_some() => {}
                other => return other,
            }
        }
    }

    fn create(&mut self, dense: &DensePlan) -> Result<(), ClientError> {
        let values: Vec<f32> = (0..dense.spec.elements())
            .map(|at| ((at % 1000) as f32 * 0.37).sin())
            .collect();
        self.client.create_dense(dense.spec.clone(), &values)
    }

    /// The state at the start of the step, which is the first one if none was kept.
    fn restore(&mut self) -> Result<(), ClientError> {
        loop {
            match self.client.kept() {
                Ok(kept) => {
                    let first = self.plan.first_state(self.number);
                    self.state = kept.try_into().map_or(first, u64::from_le_bytes);
                    return Ok(());
                }
                Err(error) if error.rolled_back_to().is_some() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// One step, or the end.
    fn turn(&mut self, stop_at: Option<u64>) -> Result<Option<End>, ClientError> {
        let plan = self.plan;
        let step = self.client.step();
        let has_ended = step >= plan.ends[self.number as usize];
        if has_ended {
            self.client.leave()?;
        }
        if stop_at.is_some_and(|stop_at| has_ended || step >= stop_at) {
            // Until all have come so far, they may have to go back.
            self.client.barrier()?;
            return Ok(Some(End::Stopped));
        }
        if has_ended {
            self.client.wait_for_end()?;
            return self.read().map(|model| Some(End::Done(Box::new(model))));
        }
        for dense in plan
            .dense
            .iter()
            .filter(|dense| dense.created == step && step > 0)
        {
            self.create(dense)?;
        }
        let mut random = Random(self.state);
        let live: Vec<&DensePlan> = plan.dense.iter().filter(|dense| dense.created <= step).collect();
        let mut values: Vec<Vec<f32>> = live
            .iter()
            .map(|dense| vec![0.0; dense.spec.elements() as usize])
            .collect();
        for (dense, values) in live.iter().zip(&mut values) {
            self.client.pull(&mut [(&dense.spec.name, values)], false)?;
        }
        if let Some(end) = self.disturb(step, 0, &random) {
            return Ok(Some(end));
        }
        let mut rows = Vec::new();
        for table in &plan.tables {
            rows.push(self.lookup(table, &mut random)?);
        }
        if let Some(end) = self.disturb(step, 1, &random) {
            return Ok(Some(end));
        }
        for (dense, values) in live.iter().zip(&values) {
            let gradient = gradient(values, &mut random);
            let pace = self.pace(dense.has_own_rate, step, false);
            let constants = dense.has_own_constants.then(|| constants(dense, step));
            self.client
                .push_with(&[(&dense.spec.name, &gradient)], pace, constants)?;
        }
        if let Some(end) = self.disturb(step, 2, &random) {
            return Ok(Some(end));
        }
        for (table, (ids, rows)) in plan.tables.iter().zip(&rows) {
            let gradients = gradient(rows, &mut random);
            let pace = self.pace(false, step, true);
            self.client.push_rows(&table.spec.name, ids, &gradients, pace)?;
        }
        if let Some(end) = self.disturb(step, 3, &random) {
            return Ok(Some(end));
        }
        self.state = random.0;
        self.client
            .finish_step(&mut [], Some(&self.state.to_le_bytes()))?;
        Ok(None)
    }

    fn pace(&self, has_own_rate: bool, step: u64, of_rows: bool) -> Pace {
        let is_contradicting = self.plan.contradiction.is_some_and(|contradiction| {
            contradiction
                == (Contradiction {
                    trainer: self.number,
                    step,
                    of_rows,
                })
        });
        Pace {
            rate: match is_contradicting {
                true => Some(0.5),
                false => has_own_rate.then(|| 0.05 / (1 + step % 5) as f32),
            },
            samples: 1 + step % 3,
        }
    }

    fn lookup(
        &mut self,
        table: &TablePlan,
        random: &mut Random,
    ) -> Result<(Vec<u64>, Vec<f32>), ClientError> {
        // Some ids are wanted at every step, others now and then.
        let mut id = |at: u64| if at < 5 { at } else { random.below(table.range) };
        let ids: Vec<u64> = (0..table.per_step).map(|at| mix(id(at))).collect();
        let mut rows = vec![0.0; ids.len() * table.spec.row as usize];
        self.client.lookup(&table.spec.name, &ids, true, &mut rows)?;
        Ok((ids, rows))
    }

    /// Lets happen what the plan has for this place. Returns how this attempt ends, if it does.
    fn disturb(&mut self, step: u64, phase: u32, random: &Random) -> Option<End> {
        let cluster = self.cluster;
        while let Some(what) = self.events.take(step, self.number, phase) {
            match what {
                What::KillServer { server, is_unwritten } => cluster.kill(&[server], is_unwritten),
                What::KillAllServers => {
                    let all: Vec<u32> = (0..cluster.servers()).collect();
                    cluster.kill(&all, false);
                }
                What::KillServerAndTrainer { server } => {
                    cluster.kill(&[server], false);
                    return Some(End::Killed);
                }
                What::CutConnections { server } => cluster.cut_connections(server),
                What::KillTrainer => return Some(End::Killed),
                // Only a trainer that has pushed everything can end its step.
                What::Zombie if phase < 3 => return Some(End::Killed),
                What::Zombie => {
                    let client = self.cluster.connect(self.number);
                    let client = std::mem::replace(&mut self.client, client.ok()?);
                    return Some(End::Zombie(Box::new(client), random.0.to_le_bytes().to_vec()));
                }
            }
        }
        None
    }

    fn read(&mut self) -> Result<Model, ClientError> {
        let (mut dense, mut optimizers) = (Vec::new(), Vec::new());
        for plan in &self.plan.dense {
            let mut read = |averaged| {
                let mut values = vec![0.0; plan.spec.elements() as usize];
                self.client
                    .pull(&mut [(&plan.spec.name, &mut values)], averaged)?;
                Ok::<_, ClientError>(values)
            };
            dense.push((read(false)?, read(true)?));
            let slots = plan.spec.optimizer.clone().of_dense().state_per_element();
            let mut state = vec![0.0; slots * plan.spec.elements() as usize];
            let progress = self.client.optimizer_state(&plan.spec.name, &mut state)?;
            optimizers.push((progress, state));
        }
        let mut rows = Vec::new();
        for table in &self.plan.tables {
            let mut found = Vec::new();
            self.client.scan(&table.spec.name, 0, |ids, values| {
                let values = values.chunks(table.spec.row as usize).map(<[f32]>::to_vec);
                found.extend(ids.iter().copied().zip(values));
                Ok::<_, ClientError>(())
            })?;
            found.sort_by_key(|(id, _)| *id);
            rows.push(found);
        }
        Ok(Model {
            dense,
            optimizers,
            rows,
            counters: self.counters()?,
            state: self.state,
        })
    }

    /// The updates of each tensor: a server without a block of it counts none.
    fn counters(&mut self) -> Result<Vec<(String, u64)>, ClientError> {
        let stats = self.client.stat()?;
        let names = self.plan.dense.iter().map(|dense| &dense.spec.name);
        let names = names.chain(self.plan.tables.iter().map(|table| &table.spec.name));
        let updates = |stat: &String, name: &str| {
            let (_, of_tensor) = stat.split_once(&format!("\"name\":\"{name}\""))?;
            let (_, rest) = of_tensor.split_once("\"updates\":")?;
            rest.split('}').next()?.parse::<u64>().ok()
        };
        let of_name = |name: &String| {
            let found = stats.iter().filter_map(|stat| updates(stat, name));
            (name.clone(), found.max().unwrap_or(0))
        };
        Ok(names.map(of_name).collect())
    }
}

/// What a scheduler of weight decay would give.
fn constants(dense: &DensePlan, step: u64) -> Arc<Optimizer> {
    Arc::new(Optimizer {
        l2: 0.001 * (step % 4) as f32,
        ..dense.spec.optimizer.clone()
    })
}

fn gradient(values: &[f32], random: &mut Random) -> Vec<f32> {
    let noise = random.below(1 << 20) as f32 / (1 << 20) as f32;
    let of_element = |(at, value): (usize, &f32)| value * 0.1 + (at % 7) as f32 * 0.01 + noise - 0.5;
    values.iter().enumerate().map(of_element).collect()
}
