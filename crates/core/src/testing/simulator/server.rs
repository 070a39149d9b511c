//! The simulated server: handles the conductor's output in the required order (store, then carry out, then reply) and
//! may crash anywhere in between.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::conductor::{Conductor, Input, Loopback, Output, Refusal, Reply, Unrecorded, Write};
use crate::job::{Boot, Event, Job, News, Outcome, Phase, Worker, WorkerKey};
use crate::ports::{AttemptKey, EngineCommand, EngineState, Report};
use crate::quantity::{Bytes, Cpu};
use crate::scheduler::{Scheduler, Usage};

use super::engine::Stage;
use super::faults::CrashPoint;
use super::{Finding, World, broken};

/// An input and the request that waits for the reply.
pub(super) struct Asked {
    pub input: Input,
    /// Index of the client's request.
    pub client: Option<usize>,
}

impl Asked {
    pub(super) fn without_client(input: Input) -> Asked {
        Asked { input, client: None }
    }
}

impl World {
    pub(super) fn start_server(&mut self) -> Finding {
        self.note(|| "the server starts".into());
        // The server may have crashed between removing a job and removing its folders.
        let store = &self.store;
        self.engine.prepared.retain(|run| store.get(run).is_some());
        let mut scheduler = Scheduler::new(self.inventory.clone(), self.policy);
        for (user, quota) in &self.quotas {
            scheduler.set_quota(user.clone(), *quota);
        }
        scheduler.set_group_quotas(self.group_quotas.clone());
        let jobs: Vec<Job> = self.store.active().map(|job| Job::clone(job)).collect();
        let boot = if self.boot_changed {
            Boot::Changed
        } else {
            Boot::Same
        };
        let engine = EngineState {
            attempts: self.known_attempts(),
            nodes: self.inventory.nodes.clone(),
            boot,
        };
        let (server, output) = Conductor::restore(
            scheduler,
            Box::new(Loopback::default()),
            jobs,
            engine,
            &self.unrecorded,
            self.clock(),
        );
        self.server = Some(server);
        let crash = self.faults.crash_point(&mut self.rng);
        self.write_and_act(output, crash, Vec::new())
    }

    /// What the engine lists, and what it is about to launch: a server that starts over has already given orders.
    fn known_attempts(&self) -> Vec<Report> {
        let mut known = self.engine.listed();
        for command in &self.commands {
            let EngineCommand::Launch { job, worker, attempt } = command else {
                continue;
            };
            let attempt = AttemptKey {
                job: job.id.clone(),
                worker: *worker,
                attempt: *attempt,
            };
            if !self.engine.attempts.contains_key(&attempt) {
                let news = News::Launched;
                known.push(Report { attempt, news });
            }
        }
        known
    }

    pub(super) fn serve(&mut self, asked: Vec<Asked>) -> Finding {
        let now = self.clock();
        let Some(server) = self.server.as_mut() else {
            return Ok(());
        };
        let output = server.handle(asked.iter().map(|one| one.input.clone()), now);
        let ends_something = |one: &Asked| matches!(one.input, Input::Kill { .. } | Input::Remove { .. });
        let crash = match asked.iter().any(ends_something) && self.faults.refuses_kill(&mut self.rng) {
            true => CrashPoint::WriteRefused,
            false => self.faults.crash_point(&mut self.rng),
        };
        self.write_and_act(output, crash, asked)
    }

    /// The store refuses writes: orders that stop something are carried out anyway, and time passes before the next attempt.
    fn act_unrecorded(&mut self, asked: &[Asked]) -> Finding {
        let now = self.clock();
        for one in asked {
            match &one.input {
                Input::Kill { job, after } => {
                    let stored = self.store.get(job).filter(|job| !job.phase.is_final()).cloned();
                    let Some(stored) = stored else { continue };
                    self.coverage.unrecorded_kills += 1;
                    self.commands.extend(self.unrecorded.kill(&stored, *after, now));
                }
                Input::Remove { job } if self.store.get(job).is_some() => {
                    self.commands.push_back(self.unrecorded.remove(job.clone()));
                    self.engine.discardable.insert(job.clone());
                }
                _ => {}
            }
        }
        for _ in 0..self.rng.below(6) {
            self.carry_out_one()?;
            self.progress_one()?;
        }
        Ok(())
    }

    fn write_and_act(&mut self, output: Output, crash: CrashPoint, asked: Vec<Asked>) -> Finding {
        match crash {
            CrashPoint::BeforeWrite => {
                self.crash();
                return Ok(());
            }
            CrashPoint::WriteRefused => {
                self.note(|| "the store refuses".into());
                self.coverage.refused_writes += 1;
                self.act_unrecorded(&asked)?;
                if !self.unrecorded.is_empty() && self.faults.forgets_kill(&mut self.rng) {
                    self.crash();
                    return Ok(());
                }
                return self.start_server();
            }
            _ => {}
        }
        self.check_writes(&output)?;
        self.store.save(&output.writes, &self.engine)?;
        self.boot_changed = false;
        self.unrecorded = Unrecorded::default();
        self.wake_at = output.wake_at;
        self.commands.extend(output.commands);
        match crash {
            CrashPoint::BeforeWrite | CrashPoint::WriteRefused | CrashPoint::BeforeCommands => self.crash(),
            CrashPoint::AmongCommands => {
                for _ in 0..self.rng.below(self.commands.len() + 1) {
                    self.carry_out_one()?;
                }
                self.crash();
            }
            CrashPoint::BeforeReplies => {
                while !self.commands.is_empty() {
                    self.carry_out_one()?;
                }
                self.crash();
            }
            CrashPoint::Never => {
                for (one, reply) in asked.into_iter().zip(output.replies) {
                    self.reply(one, reply)?;
                }
            }
        }
        self.check_usage()
    }

    /// Only admitted jobs hold resources: the usage of every user and group, recounted from the store, is exactly what
    /// the server counts.
    fn check_usage(&self) -> Finding {
        let Some(server) = &self.server else {
            return Ok(());
        };
        let mut together = Usage::default();
        for user in &self.users {
            let mut held = Usage::default();
            let own = self.store.active().filter(|job| job.user == *user);
            for job in own.filter(|job| job.phase.occupies()) {
                let total = job.spec.total();
                let one = Usage {
                    cpu: total.cpu,
                    memory: total.memory,
                    gpu: total.gpu,
                    parallelism: job.spec.parallelism,
                    jobs: 1,
                };
                held = plus(held, one);
            }
            let used = server.usage(user);
            if used != held {
                return broken(format!("{user} uses {used:?}, the stored jobs hold {held:?}"));
            }
            together = plus(together, held);
        }
        let group = server.group_usage(&self.users[0]).pop();
        match group.filter(|group| group.usage != together) {
            Some(group) => broken(format!(
                "a group uses {:?}, its jobs hold {together:?}",
                group.usage
            )),
            None => Ok(()),
        }
    }

    fn reply(&mut self, asked: Asked, reply: Result<Reply, Refusal>) -> Finding {
        if self.faults.loses_reply(&mut self.rng) {
            return Ok(());
        }
        self.check_reply(asked.client, &asked.input, reply)
    }

    /// Checks a whole output before it is stored.
    fn check_writes(&mut self, output: &Output) -> Finding {
        let mut seen = BTreeSet::new();
        for write in &output.writes {
            let id = match write {
                Write::Save(job) => &job.id,
                Write::Remove(id) => id,
            };
            if !seen.insert(id.clone()) {
                return broken(format!("{id} is written twice in one batch"));
            }
            if let Write::Save(job) = write {
                self.check_reclaimed(job)?;
                self.check_unrecovered(job)?;
                self.check_orders(job, &output.commands)?;
                self.note_write(job);
                self.check_final(job)?;
            }
        }
        Ok(())
    }

    /// A job is stopped for another only if its owner borrows.
    fn check_reclaimed(&mut self, job: &Job) -> Finding {
        let before = self.store.get(&job.id).map(|job| job.phase);
        let runs = before.is_some_and(Phase::wants_workers);
        let reclaimed = runs && job.phase == Phase::Withdrawing && job.message.contains("borrowed");
        let (true, Some(server)) = (reclaimed, &self.server) else {
            return Ok(());
        };
        self.coverage.reclaimed += 1;
        let (used, guarantee) = (server.usage(&job.user), server.quota(&job.user).guarantee);
        let borrows = used.cpu > guarantee.cpu || used.memory > guarantee.memory || used.gpu > guarantee.gpu;
        match borrows {
            true => Ok(()),
            false => broken(format!(
                "{} is stopped for another, but its owner borrows nothing",
                job.id
            )),
        }
    }

    /// A running job that lacks a worker is withdrawn only if another job waits, or lacks a worker too.
    fn check_unrecovered(&mut self, job: &Job) -> Finding {
        let before = self.store.get(&job.id).map(|job| job.phase);
        let runs = before.is_some_and(Phase::wants_workers);
        let withdrawn = runs && job.phase == Phase::Withdrawing && job.message.contains("had no node");
        let (true, Some(server)) = (withdrawn, &self.server) else {
            return Ok(());
        };
        self.coverage.unrecovered += 1;
        let needs_room =
            |other: &&Arc<Job>| other.id != job.id && (other.phase == Phase::Pending || other.awaits_seats());
        match server.jobs().any(|other| needs_room(&other)) {
            true => Ok(()),
            false => broken(format!("{} is withdrawn, and nobody needs its room", job.id)),
        }
    }

    /// A job that starts launches all workers; a job that stops stops all of them.
    fn check_orders(&self, job: &Job, commands: &[EngineCommand]) -> Finding {
        let before = self.store.get(&job.id).map_or(Phase::Pending, |job| job.phase);
        let starts = before == Phase::Pending && job.phase == Phase::Starting;
        let withdraws = before.wants_workers() && job.phase == Phase::Withdrawing;
        let stops = before.outcome().is_none() && matches!(job.phase, Phase::Stopping(_)) || withdraws;
        if !starts && !stops {
            return Ok(());
        }
        let ordered = |select: &dyn Fn(&EngineCommand) -> Option<(WorkerKey, u32)>| {
            commands.iter().filter_map(select).collect::<BTreeSet<_>>()
        };
        let launched = ordered(&|command| match command {
            EngineCommand::Launch {
                job: other,
                worker,
                attempt,
            } if other.id == job.id => Some((*worker, *attempt)),
            _ => None,
        });
        let stopped = ordered(&|command| match command {
            EngineCommand::Stop { attempt, .. } if attempt.job == job.id => {
                Some((attempt.worker, attempt.attempt))
            }
            _ => None,
        });
        let forgotten = |orders: &BTreeSet<(WorkerKey, u32)>| {
            let live = job.workers.iter().filter(|worker| worker.status.is_live());
            live.map(|worker| (worker.key, worker.attempt))
                .find(|key| !orders.contains(key))
        };
        if let Some(worker) = forgotten(&launched).filter(|_| starts) {
            return broken(format!("{} starts without {worker:?}", job.id));
        }
        // After the machine restarted, no worker is left to stop.
        if let Some(worker) = forgotten(&stopped).filter(|_| stops && !self.boot_changed) {
            return broken(format!("{} stops without telling {worker:?}", job.id));
        }
        Ok(())
    }

    fn note_write(&mut self, job: &Arc<Job>) {
        let restarts: u32 = job.workers.iter().map(|worker| worker.restarts).sum();
        let before: u32 = self
            .store
            .get(&job.id)
            .map_or(0, |job| job.workers.iter().map(|worker| worker.restarts).sum());
        self.coverage.restarts += restarts.saturating_sub(before) as usize;
        let withdrawn = self.store.get(&job.id).map_or(0, |job| job.withdrawn);
        self.coverage.withdrawn += usize::from(job.withdrawn > withdrawn);
        self.note(|| {
            let workers: Vec<String> = job
                .workers
                .iter()
                .map(|worker| format!("{} #{} {}", worker.key, worker.attempt, worker.status))
                .collect();
            format!(
                "stored: {} {:?} [{}] {}",
                job.id,
                job.phase,
                workers.join(", "),
                job.message
            )
        });
    }

    /// Checks that a final job ended for a reason and never changes again.
    fn check_final(&mut self, job: &Arc<Job>) -> Finding {
        let Phase::Final(outcome) = job.phase else {
            return Ok(());
        };
        let unlucky = self.unlucky.contains(&job.id) || self.engine.unlucky.contains(&job.id);
        let justified = match outcome {
            Outcome::Succeeded => {
                self.coverage.succeeded += 1;
                job.trainers().all(|trainer| self.ended_well(job, trainer))
            }
            Outcome::Failed => {
                self.coverage.failed += 1;
                unlucky || job.spec.max_runtime.is_some()
            }
            Outcome::Killed => {
                self.coverage.killed += 1;
                self.clients.killed(&job.id)
            }
            Outcome::Lost => {
                self.coverage.lost += 1;
                self.rebooted.contains(&job.id)
            }
        };
        if !justified {
            return broken(format!(
                "{} ended {outcome} without a reason: {}",
                job.id, job.message
            ));
        }
        check_deaf(job)
    }

    fn ended_well(&self, job: &Job, trainer: &Worker) -> bool {
        let key = AttemptKey {
            job: job.id.clone(),
            worker: trainer.key,
            attempt: trainer.attempt,
        };
        let stage = self.engine.attempts.get(&key).map(|attempt| &attempt.stage);
        matches!(stage, Some(Stage::Gone(News::Exited(exit))) if exit.is_success())
    }
}

/// Checks that no event changes a final job.
fn check_deaf(job: &Job) -> Finding {
    let mut copy = job.clone();
    let now = job.changed_at;
    let mut actions = copy.on_event(Event::KillRequested(crate::job::AfterKill::Remove), now);
    for worker in &job.workers {
        let (worker, attempt) = (worker.key, worker.attempt);
        actions.extend(copy.on_event(
            Event::Worker {
                worker,
                attempt,
                news: News::Started,
            },
            now,
        ));
    }
    actions.extend(copy.on_event(Event::Rebooted, now));
    if copy != *job || !actions.is_empty() {
        return broken(format!("{} is final and still listens", job.id));
    }
    Ok(())
}

fn plus(one: Usage, other: Usage) -> Usage {
    Usage {
        cpu: Cpu::millis(one.cpu.as_millis() + other.cpu.as_millis()),
        memory: Bytes::new(one.memory.as_u64() + other.memory.as_u64()),
        gpu: one.gpu + other.gpu,
        parallelism: one.parallelism + other.parallelism,
        jobs: one.jobs + other.jobs,
    }
}
