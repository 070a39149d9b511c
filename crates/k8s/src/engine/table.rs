//! The table of all attempts that were launched and not cleaned, with their current state.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use paddlecloud_core::job::{News, WorkerKey};
use paddlecloud_core::names::JobId;
use paddlecloud_core::ports::AttemptKey;
use paddlecloud_worker::link::FromServer;
use paddlecloud_worker::protocol::{self, Command, WorkerPlan};
use tokio::sync::mpsc;

use super::obstacles::Refusal;
use super::pods::Disruption;
use super::records::PodRecord;

/// One attempt. Its plan is in its record: it is large, and needed only when its launcher connects or starts the program.
pub struct Attempt {
    /// The worker's name.
    pub worker: String,
    /// How many workers its job has.
    pub gang: usize,
    pub pod: PodRecord,
    pub uid: Option<String>,
    pub news: News,
    /// The address for its peers; known once its launcher has connected.
    pub address: Option<Ipv4Addr>,
    pub link: Option<LinkHandle>,
    /// Orders given so far, for a launcher that connects or reconnects later.
    pub go: bool,
    pub stop: Option<Stop>,
    /// The stage of its pod, and since when.
    pub stage: Stage,
    pub since: Instant,
    pub node: Option<String>,
    /// Since when its launcher is silent; `None` while it is connected.
    pub silent_since: Option<Instant>,
    /// What the scheduler said of its pod before a node was removed: it is outdated until the scheduler says something else.
    pub outdated: Option<String>,
    /// Whether the cluster considers its running pod unreachable.
    pub out_of_sight: bool,
    /// Why the cluster is about to end its pod: what its status says, or, until then, that the kubelet asked its launcher to
    /// exit.
    pub disruption: Option<Disruption>,
    /// Whether its pod is marked for deletion.
    pub is_deleted: bool,
    /// How its program ended after the kubelet had asked the launcher to exit, and since when that is known. The status of
    /// the pod says a moment later why.
    pub unexplained: Option<(protocol::Exit, Instant)>,
    /// The cluster's latest refusal to delete its pod.
    pub refusal: Option<Refusal>,
    /// When the cluster was last asked why the pod waits.
    pub asked: Option<Instant>,
    /// Its pod has ended, and the meaning of that is being determined.
    pub settling: bool,
}

/// The stage of an attempt's pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// The pod is not being created: it is not its turn, its run has no owner yet, or the last try failed. If the answer to
    /// a try was lost, the pod may exist; its launcher is rejected, and it is deleted with its run's owner.
    Queued,
    /// The pod has not been seen yet.
    Unmade,
    /// It has no node, for this reason.
    Unseated(String),
    /// It is being created; the current problem, if any.
    Pending(Option<String>),
    Running,
}

/// The open connection of an attempt's launcher.
#[derive(Clone)]
pub struct LinkHandle {
    pub number: u64,
    pub outgoing: mpsc::UnboundedSender<FromServer>,
}

/// An order to stop an attempt.
#[derive(Debug, Clone, Copy)]
pub struct Stop {
    pub grace: Duration,
    /// When the attempt must have ended.
    pub due: Instant,
}

impl Attempt {
    pub fn new(worker: String, gang: usize, pod: PodRecord, news: News) -> Attempt {
        Attempt {
            worker,
            gang,
            pod,
            uid: None,
            news,
            address: None,
            link: None,
            go: false,
            stop: None,
            stage: Stage::Unmade,
            since: Instant::now(),
            node: None,
            silent_since: Some(Instant::now()),
            outdated: None,
            out_of_sight: false,
            disruption: None,
            is_deleted: false,
            unexplained: None,
            refusal: None,
            asked: None,
            settling: false,
        }
    }

    /// Sets the stage of its pod. `since` changes only with the kind of stage.
    pub fn enter(&mut self, stage: Stage) {
        if std::mem::discriminant(&self.stage) != std::mem::discriminant(&stage) {
            self.since = Instant::now();
            self.asked = None;
        }
        self.stage = stage;
    }

    /// Whether it has ended, or its end is being settled.
    pub fn is_over(&self) -> bool {
        self.settling || self.news.is_end()
    }

    /// Whether its launcher has not reported yet.
    pub fn is_awaited(&self) -> bool {
        matches!(self.news, News::Launched | News::Unseated(_) | News::Seated(_))
    }

    /// Whether the cluster has said why it ends the pod, or will not: who deletes a pod need not give a reason.
    pub fn is_explained(&self) -> bool {
        let has_reason = self
            .disruption
            .as_ref()
            .is_some_and(|disruption| *disruption != Disruption::by_unknown());
        has_reason || self.is_deleted || self.stop.is_some()
    }

    pub fn send(&self, message: FromServer) {
        if let Some(link) = &self.link {
            // If the link has ended, the next one gets all orders again.
            let _ = link.outgoing.send(message);
        }
    }

    /// All orders given so far, for a launcher that has just connected; `lines` are the preamble of its log.
    pub fn orders(&self, lines: Vec<String>) -> Vec<FromServer> {
        let go = self.go.then_some(Command::Go { lines });
        let stop = self.stop.map(|stop| Command::Stop {
            grace_ms: u64::try_from(stop.grace.as_millis()).ok(),
        });
        go.into_iter().chain(stop).map(FromServer::Command).collect()
    }
}

/// All attempts, those of one job next to each other.
#[derive(Default)]
pub struct Table {
    attempts: BTreeMap<AttemptKey, Attempt>,
}

impl Table {
    pub fn get(&self, key: &AttemptKey) -> Option<&Attempt> {
        self.attempts.get(key)
    }

    pub fn get_mut(&mut self, key: &AttemptKey) -> Option<&mut Attempt> {
        self.attempts.get_mut(key)
    }

    pub fn contains(&self, key: &AttemptKey) -> bool {
        self.attempts.contains_key(key)
    }

    pub fn insert(&mut self, key: AttemptKey, attempt: Attempt) {
        self.attempts.insert(key, attempt);
    }

    /// Takes an attempt that is queued out of the queue, so that its launch ends. Returns whether it was queued; then the
    /// caller must end it.
    pub fn take_from_queue(&mut self, key: &AttemptKey) -> bool {
        let queued = |entry: &&mut Attempt| entry.stage == Stage::Queued && !entry.is_over();
        let Some(entry) = self.attempts.get_mut(key).filter(queued) else {
            return false;
        };
        entry.settling = true;
        true
    }

    pub fn remove(&mut self, key: &AttemptKey) -> Option<Attempt> {
        self.attempts.remove(key)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&AttemptKey, &mut Attempt)> {
        self.attempts.iter_mut()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&AttemptKey, &Attempt)> {
        self.attempts.iter()
    }

    pub fn has_job(&self, job: &JobId) -> bool {
        self.of_job(job).next().is_some()
    }

    pub fn of_job<'a>(&'a self, job: &'a JobId) -> impl Iterator<Item = (&'a AttemptKey, &'a Attempt)> {
        // Parameter servers sort before trainers.
        let first = AttemptKey {
            job: job.clone(),
            worker: WorkerKey::pserver(0),
            attempt: 0,
        };
        self.attempts
            .range(first..)
            .take_while(move |(key, _)| key.job == *job)
    }

    /// The attempts of a job whose launchers have reported before and are not connected now.
    pub fn unlinked(&self, job: &JobId) -> Vec<AttemptKey> {
        let unlinked = self
            .of_job(job)
            .filter(|(_, entry)| entry.link.is_none() && !entry.is_awaited() && !entry.news.is_end());
        unlinked.map(|(key, _)| key.clone()).collect()
    }

    /// The current address of each worker of a job, by name, from its latest attempt.
    pub fn addresses(&self, job: &JobId) -> BTreeMap<String, Ipv4Addr> {
        let mut latest: BTreeMap<&str, (u32, Ipv4Addr)> = BTreeMap::new();
        for (key, attempt) in self.of_job(job) {
            let Some(address) = attempt.address else { continue };
            let entry = latest.entry(&attempt.worker).or_insert((key.attempt, address));
            if key.attempt >= entry.0 {
                *entry = (key.attempt, address);
            }
        }
        latest
            .into_iter()
            .map(|(name, (_, address))| (name.to_owned(), address))
            .collect()
    }

    /// The addresses of all peers of an attempt, if all are known.
    pub fn peers(&self, key: &AttemptKey) -> Option<FromServer> {
        let addresses = self.addresses(&key.job);
        let all_known = addresses.len() == self.get(key)?.gang;
        all_known.then(|| FromServer::Peers {
            hosts: addresses.into_iter().collect(),
        })
    }

    /// The preamble of an attempt's log: in its plan, workers have names in quotes, and here their addresses. One pass over
    /// each line, because the lines of a large job list thousands of workers.
    pub fn preamble(&self, job: &JobId, plan: &WorkerPlan) -> Vec<String> {
        let addresses = self.addresses(job);
        let address = |name: &str| match addresses.get(name) {
            Some(address) => address.to_string(),
            None => name.to_owned(),
        };
        let lines = plan.preamble.iter();
        lines
            .map(|line| line.split('\'').map(address).collect::<Vec<_>>().join("'"))
            .collect()
    }

    /// Sends every launcher of a job the addresses of its peers, once all are known.
    pub fn announce_peers(&self, job: &JobId) {
        let Some((first, _)) = self.of_job(job).next() else {
            return;
        };
        let Some(peers) = self.peers(first) else { return };
        for (_, attempt) in self.of_job(job) {
            attempt.send(peers.clone());
        }
    }
}
