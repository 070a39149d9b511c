//! Decides which queued job starts when and where: whole jobs, by priority, first in first out.
//!
//! Values in, values out: it neither starts anything nor asks the clock.

mod cluster;
mod placing;
mod quota;
mod request;
mod room;
mod too_big;
mod tree;
mod why;

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;

pub use quota::{Quota, Usage};
pub use request::{Admission, Inventory, Node, Placement, Policy, Request, Seat};
pub use too_big::TooBig;
pub use why::{Estimate, Why};

use crate::names::{JobId, UserName};
use cluster::{Cluster, Holding};
use quota::Tally;
use room::Shape;

/// The queue, the nodes and what runs on them.
#[derive(Debug)]
pub struct Scheduler {
    policy: Policy,
    cluster: Cluster,
    queue: BTreeMap<(i32, u64), Request>,
    running: HashMap<JobId, (Request, Holding)>,
    quotas: HashMap<UserName, Quota>,
    usage: HashMap<UserName, Tally>,
}

impl Scheduler {
    pub fn new(inventory: Inventory, policy: Policy) -> Self {
        Scheduler {
            policy,
            cluster: Cluster::new(inventory),
            queue: BTreeMap::new(),
            running: HashMap::new(),
            quotas: HashMap::new(),
            usage: HashMap::new(),
        }
    }

    /// Refuses what could not start even if nothing else ran.
    pub fn check_fits_ever(&self, request: &Request) -> Result<(), TooBig> {
        let fits = placing::place(self.cluster.idle(), &Shape::of(request)).is_some();
        if fits || self.policy.oversubscribe_alone {
            return Ok(());
        }
        Err(TooBig {
            problem: "the job is bigger than all machines together".into(),
            largest: None,
        })
    }

    /// Queues a job. The same id again replaces the first; a job that runs is not queued.
    pub fn enqueue(&mut self, request: Request, _now: Timestamp) {
        self.withdraw(&request.id);
        self.queue.insert((-request.priority, request.order), request);
    }

    /// Takes a queued job out. Unknown and running jobs are left alone.
    pub fn withdraw(&mut self, id: &JobId) {
        self.queue.retain(|_, request| request.id != *id);
    }

    /// Takes over a job that already runs.
    pub fn occupy(&mut self, request: Request, placement: Placement, _started: Timestamp) {
        let holding = self.cluster.adopt(&request, &placement);
        let used = self.usage.entry(request.user.clone()).or_default();
        *used = used.plus(Tally::of(&request));
        self.running.insert(request.id.clone(), (request, holding));
    }

    /// Gives back what a job held, once its last process is gone.
    pub fn release(&mut self, id: &JobId, _now: Timestamp) {
        let Some((request, holding)) = self.running.remove(id) else {
            return;
        };
        self.cluster.give(&holding);
        let used = self.usage.entry(request.user.clone()).or_default();
        *used = used.minus(Tally::of(&request));
    }

    /// The jobs that start now; they count as running from here on.
    pub fn decide(&mut self, _now: Timestamp) -> Vec<Admission> {
        let mut admitted = Vec::new();
        while let Some(first) = self.queue.first_entry() {
            let shape = Shape::of(first.get());
            let Some(shares) = placing::place(self.cluster.free(), &shape) else {
                break;
            };
            let request = first.remove();
            let (placement, holding) = self.cluster.seat(&request, &shape, &shares);
            let used = self.usage.entry(request.user.clone()).or_default();
            *used = used.plus(Tally::of(&request));
            admitted.push(Admission {
                id: request.id.clone(),
                placement,
                note: None,
            });
            self.running.insert(request.id.clone(), (request, holding));
        }
        admitted
    }

    /// Why a queued job does not run; `None` for a job that is not queued.
    pub fn explain(&self, id: &JobId, _now: Timestamp) -> Option<Why> {
        let at = self.queue.values().position(|request| request.id == *id)?;
        Some(Why {
            reason: "waits for its turn".into(),
            ahead: self
                .queue
                .values()
                .take(at.min(10))
                .map(|r| r.id.clone())
                .collect(),
            ahead_total: at,
            estimate: None,
            change: None,
        })
    }

    pub fn set_quota(&mut self, user: UserName, quota: Quota) {
        self.quotas.insert(user, quota);
    }

    pub fn quota(&self, user: &UserName) -> Quota {
        self.quotas.get(user).copied().unwrap_or_default()
    }

    /// What the user has running.
    pub fn usage(&self, user: &UserName) -> Usage {
        self.usage.get(user).copied().unwrap_or_default().usage()
    }

    pub fn set_inventory(&mut self, inventory: Inventory) {
        let mut cluster = Cluster::new(inventory);
        for (_, holding) in self.running.values_mut() {
            *holding = self.cluster.move_to(holding, &mut cluster);
        }
        self.cluster = cluster;
    }
}
