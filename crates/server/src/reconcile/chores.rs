//! Carries out the engine's orders in tasks outside the loop: orders for one worker in sequence, all others concurrently.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use paddlecloud_core::job::WorkerKey;
use paddlecloud_core::names::JobId;
use paddlecloud_core::ports::{AttemptKey, Engine, EngineCommand, Report};
use tokio::sync::{mpsc, oneshot};

use super::orders::Orders;

/// A sequence of orders that must not overtake each other: those for one worker; the discard of a job follows all of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum OrderLine {
    Worker(JobId, WorkerKey),
    Job(JobId),
}

/// Fewer orders than this are kept without a check.
const KEPT_UNCHECKED: usize = 1024;

/// Orders in flight.
pub struct Chores<E> {
    orders: Arc<Orders<E>>,
    /// Reports that the engine cannot make.
    reports: mpsc::UnboundedSender<Report>,
    /// Resolves when the latest order of a line has been carried out.
    latest: HashMap<OrderLine, oneshot::Receiver<()>>,
    /// The size of `latest` at which done orders are removed from it.
    cleanup_size: usize,
    /// Attempts whose launch was ordered but has not been carried out.
    launches: Arc<Mutex<HashSet<AttemptKey>>>,
}

impl<E: Engine + 'static> Chores<E> {
    pub fn new(orders: Arc<Orders<E>>, reports: mpsc::UnboundedSender<Report>) -> Chores<E> {
        Chores {
            orders,
            reports,
            latest: HashMap::new(),
            cleanup_size: KEPT_UNCHECKED,
            launches: Arc::default(),
        }
    }

    /// Attempts whose launch is in flight.
    pub fn launches(&self) -> Vec<AttemptKey> {
        lock(&self.launches).iter().cloned().collect()
    }

    /// Carries out the order after all earlier ones of its line.
    pub fn add(&mut self, command: EngineCommand) {
        let before = self.before(&command);
        let (done, after) = oneshot::channel();
        if let Some(line) = line_of(&command) {
            self.latest.insert(line, after);
        }
        let launched = launched_by(&command);
        lock(&self.launches).extend(launched.clone());
        let (orders, launches) = (Arc::clone(&self.orders), Arc::clone(&self.launches));
        let reports = self.reports.clone();
        tokio::spawn(async move {
            for earlier in before {
                // A closed channel also means that the earlier order is done.
                let _ = earlier.await;
            }
            if let Some(report) = orders.carry_out(&command).await {
                // If the loop has ended, no report is needed: the next loop repeats the order.
                let _ = reports.send(report);
            }
            if let Some(attempt) = launched {
                lock(&launches).remove(&attempt);
            }
            drop(done);
        });
    }

    /// Takes the receivers of all orders that must finish first.
    fn before(&mut self, command: &EngineCommand) -> Vec<oneshot::Receiver<()>> {
        if let EngineCommand::Discard { job } = command {
            let of_job = |line: &OrderLine| match line {
                OrderLine::Worker(id, _) | OrderLine::Job(id) => id == job,
            };
            let lines: Vec<OrderLine> = self.latest.keys().filter(|line| of_job(line)).cloned().collect();
            return lines.iter().filter_map(|line| self.latest.remove(line)).collect();
        }
        let earlier = line_of(command).and_then(|line| self.latest.remove(&line));
        self.forget_finished();
        earlier.into_iter().collect()
    }

    /// Bounds the table by twice the number of orders in flight.
    fn forget_finished(&mut self) {
        if self.latest.len() > self.cleanup_size {
            self.latest
                .retain(|_, done| matches!(done.try_recv(), Err(oneshot::error::TryRecvError::Empty)));
            self.cleanup_size = KEPT_UNCHECKED.max(2 * self.latest.len());
        }
    }
}

fn lock(launches: &Mutex<HashSet<AttemptKey>>) -> MutexGuard<'_, HashSet<AttemptKey>> {
    launches.lock().unwrap_or_else(PoisonError::into_inner)
}

fn launched_by(command: &EngineCommand) -> Option<AttemptKey> {
    match command {
        EngineCommand::Launch { job, worker, attempt } => Some(AttemptKey {
            job: job.id.clone(),
            worker: *worker,
            attempt: *attempt,
        }),
        _ => None,
    }
}

fn line_of(command: &EngineCommand) -> Option<OrderLine> {
    match command {
        EngineCommand::Launch { job, worker, .. } => Some(OrderLine::Worker(job.id.clone(), *worker)),
        EngineCommand::Go { attempt }
        | EngineCommand::Stop { attempt, .. }
        | EngineCommand::Clean { attempt } => Some(OrderLine::Worker(attempt.job.clone(), attempt.worker)),
        EngineCommand::Discard { job } => Some(OrderLine::Job(job.clone())),
    }
}
