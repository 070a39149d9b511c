//! Random workloads: the scheduler against the reference, and promises checked from outside.

use std::collections::{HashMap, HashSet};

use jiff::SignedDuration;
use proptest::prelude::*;

use super::build::*;
use super::reference::{Reference, Run, asked, needs};
use crate::names::{JobId, NodeName, UserName};
use crate::quantity::{Bytes, Cpu};
use crate::scheduler::{
    Admission, Admits, Change, GroupQuota, Inventory, NodeChange, Policy, Quota, Request, Requirement,
    Scheduler, StorageExcess, StorageHold, Usage,
};

const USERS: [&str; 3] = ["ann", "bob", "eve"];

#[derive(Debug, Clone)]
pub(super) enum Step {
    Submit(Request),
    /// The running job with this index in the order of starts ends.
    End(usize),
    /// The waiting job with this index is killed.
    Withdraw(usize),
    Wait(i64),
    SetQuota(usize, Quota),
    SetGroupQuotas(Vec<GroupQuota>),
    /// The user's files exceed their quota, or no longer do.
    SetStorage(usize, bool),
    /// The node with this index gets other labels and types.
    Relabel(usize, Vec<&'static str>, Admits),
}

fn resources() -> impl Strategy<Value = crate::spec::Resources> {
    (1u64..5, 1u64..6, prop_oneof![4 => Just(0u32), 1 => 1u32..3])
        .prop_map(|(cores, gib, gpu)| size(cores, gib, gpu))
}

fn request(roles: usize) -> impl Strategy<Value = Request> {
    let sizes = prop::collection::vec((1u32..4, resources()), 1..=roles);
    let runtime = prop::option::weighted(0.7, 1i64..30);
    (
        sizes,
        0..USERS.len(),
        prop_oneof![3 => Just(0), 1 => -1..3],
        runtime,
    )
        .prop_map(|(roles, user_index, priority, runtime)| Request {
            id: id(0),
            user: user(USERS[user_index]),
            priority,
            order: 0,
            roles,
            max_runtime: runtime.map(SignedDuration::from_secs),
            required: Requirement::default(),
        })
}

fn quota() -> impl Strategy<Value = Quota> {
    let limit = || prop::option::of(0u32..12);
    let few = || prop::option::of(0u32..4);
    (limit(), limit(), limit(), limit(), few(), few()).prop_map(
        |(cpu, memory, gpu, parallelism, jobs, weight)| Quota {
            cpu: cpu.map(|cores| Cpu::cores(cores.into())),
            memory: memory.map(|gib| Bytes::new(u64::from(gib) * GI)),
            gpu,
            parallelism,
            jobs,
            weight,
            ..Quota::default()
        },
    )
}

/// Up to two groups; a user may be in both.
fn group_quotas() -> impl Strategy<Value = Vec<GroupQuota>> {
    let members = prop::sample::subsequence(USERS.to_vec(), 1..=USERS.len());
    let group = (members, quota()).prop_map(|(members, quota)| GroupQuota {
        group: "team".into(),
        quota,
        members: members.into_iter().map(user).collect(),
    });
    prop::collection::vec(group, 0..3)
}

pub(super) fn steps(roles: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => request(roles).prop_map(Step::Submit),
        5 => (0usize..8).prop_map(Step::End),
        1 => (0usize..8).prop_map(Step::Withdraw),
        2 => (1i64..15).prop_map(Step::Wait),
        1 => (0..USERS.len(), quota()).prop_map(|(user, quota)| Step::SetQuota(user, quota)),
        1 => group_quotas().prop_map(Step::SetGroupQuotas),
        1 => (0..USERS.len(), any::<bool>()).prop_map(|(user, is_over)| Step::SetStorage(user, is_over)),
    ];
    prop::collection::vec(step, 1..60)
}

pub(super) fn inventory() -> impl Strategy<Value = Inventory> {
    let node_size = (1u64..9, 1u64..12, prop_oneof![2 => Just(0u32), 1 => 1u32..4]);
    prop::collection::vec(node_size, 1..5).prop_map(|sizes| Inventory {
        nodes: sizes
            .into_iter()
            .enumerate()
            .map(|(index, (cores, gib, gpus))| node(&format!("n{index}"), cores, gib, gpus))
            .collect(),
    })
}

/// The scheduler and the reference side by side.
pub(super) struct Pair {
    scheduler: Scheduler,
    reference: Reference,
    inventory: Inventory,
    cards: HashMap<JobId, Vec<(NodeName, u32)>>,
    second: i64,
    submitted: u64,
}

impl Pair {
    pub(super) fn new(inventory: Inventory, oversubscribe_alone: bool) -> Pair {
        let make = if oversubscribe_alone { embedded } else { strict };
        Pair {
            scheduler: make(inventory.clone()),
            reference: Reference::new(&inventory, oversubscribe_alone),
            inventory,
            cards: HashMap::new(),
            second: 0,
            submitted: 0,
        }
    }

    /// With fair shares between users.
    pub(super) fn fair(inventory: Inventory) -> Pair {
        let mut pair = Pair::new(inventory.clone(), false);
        let policy = Policy {
            fair_share: true,
            ..Policy::default()
        };
        pair.scheduler = Scheduler::new(inventory, policy);
        pair.reference.fair_share = true;
        pair
    }

    pub(super) fn apply(&mut self, step: Step) {
        match step {
            Step::Submit(request) => self.submit(request),
            Step::End(index) => self.end(index),
            Step::Withdraw(index) => {
                if index < self.reference.waiting.len() {
                    let gone = self.reference.waiting.remove(index);
                    self.scheduler.withdraw(&gone.id);
                }
            }
            Step::Wait(seconds) => self.second += seconds,
            Step::SetQuota(index, quota) => {
                let user = user(USERS[index]);
                self.scheduler.set_quota(user.clone(), quota);
                self.reference.quotas.insert(user, quota);
            }
            Step::SetGroupQuotas(quotas) => {
                self.scheduler.set_group_quotas(quotas.clone());
                self.reference.group_quotas = quotas;
            }
            Step::SetStorage(index, is_over) => self.set_storage(&user(USERS[index]), is_over),
            Step::Relabel(index, words, admits) => {
                if let Some(node) = self.inventory.nodes.get(index) {
                    let node = node.clone().having(&words).admitting(admits);
                    self.inventory.nodes[index] = node.clone();
                    self.reference.traits[index] = node.traits.clone();
                    self.scheduler.change_node(NodeChange::Set(node));
                }
            }
        }
    }

    fn set_storage(&mut self, user: &UserName, is_over: bool) {
        let hold = StorageHold::Over(StorageExcess::Files { used: 3, limit: 2 });
        self.scheduler.hold_for_storage(user, is_over.then_some(hold));
        match is_over {
            true => self.reference.over_storage.insert(user.clone()),
            false => self.reference.over_storage.remove(user),
        };
    }

    fn submit(&mut self, request: Request) {
        self.submitted += 1;
        let request = Request {
            id: id(self.submitted),
            order: self.submitted,
            ..request
        };
        if self.scheduler.check_fits_ever(&request).is_ok() {
            self.scheduler.enqueue(request.clone(), at(self.second));
            self.reference.waiting.push(request);
        }
    }

    fn end(&mut self, index: usize) {
        if index < self.reference.running.len() {
            let gone = self.reference.running.remove(index).request.id;
            self.cards.remove(&gone);
            self.scheduler.release(&gone, at(self.second));
        }
    }

    fn decide(&mut self) -> Vec<Admission> {
        let admitted = self.scheduler.decide(at(self.second));
        for admission in &admitted {
            let seats = admission.placement.workers.iter();
            let cards = seats.flat_map(|seat| seat.gpus.iter().map(|card| (seat.node.clone(), *card)));
            self.cards.insert(admission.id.clone(), cards.collect());
        }
        admitted
    }

    /// Lets the scheduler and the reference decide, and compares them.
    pub(super) fn decide_both(&mut self) -> Result<(), TestCaseError> {
        let admitted = self.decide();
        let ours: Vec<_> = admitted
            .iter()
            .map(|admission| (admission.id.clone(), nodes_of(admission)))
            .collect();
        let theirs = self.reference.decide(at(self.second));
        prop_assert_eq!(ours, theirs);
        self.check_promises()
    }

    /// Lets only the scheduler decide; the reference checks and records each start.
    pub(super) fn decide_checked(&mut self) -> Result<(), TestCaseError> {
        for admission in self.decide() {
            let nodes = nodes_of(&admission);
            let waiting = self.reference.waiting.iter();
            let mut found = waiting
                .enumerate()
                .filter(|(_, request)| request.id == admission.id);
            let (index, _) = found.next().expect("only a waiting job starts");
            let request = self.reference.waiting.remove(index);
            self.check_start(&request, &nodes)?;
            let started = at(self.second);
            self.reference.running.push(Run {
                request,
                nodes,
                started,
            });
        }
        self.check_promises()
    }

    /// All workers have a node with room for them, within the quota.
    fn check_start(&self, request: &Request, nodes: &[usize]) -> Result<(), TestCaseError> {
        let needs = needs(request);
        prop_assert_eq!(nodes.len(), needs.len());
        let mut free = self.reference.free_with(&self.reference.running);
        for (need, node) in needs.iter().zip(nodes) {
            prop_assert!(
                self.reference.admits(*node, request, need),
                "node {node} does not match {request:?}"
            );
            for kind in 0..3 {
                let left = free[*node][kind].checked_sub(need[kind]);
                prop_assert!(left.is_some(), "{request:?} exceeds node {node}");
                free[*node][kind] = left.unwrap_or_default();
            }
        }
        let taken = [self.reference.used(&request.user), asked(request)];
        prop_assert!(
            self.reference.within_quota(&request.user, &taken),
            "beyond the quota: {request:?}"
        );
        prop_assert!(
            self.reference.within_groups(request, None),
            "beyond a group's quota: {request:?}"
        );
        let is_over = self.reference.over_storage.contains(&request.user);
        prop_assert!(!is_over, "above the storage quota: {request:?}");
        Ok(())
    }

    fn check_promises(&self) -> Result<(), TestCaseError> {
        let usage = |[cpu, memory, gpu, trainers, jobs]: [u64; 5]| Usage {
            cpu: Cpu::millis(cpu),
            memory: Bytes::new(memory),
            gpu: gpu.try_into().unwrap(),
            parallelism: trainers.try_into().unwrap(),
            jobs: jobs.try_into().unwrap(),
        };
        for name in USERS.map(user) {
            prop_assert_eq!(self.scheduler.usage(&name), usage(self.reference.used(&name)));
            let groups = self.reference.group_quotas.iter();
            let limited = |group: &&GroupQuota| !group.quota.is_unlimited() && group.members.contains(&name);
            let expected = groups.filter(limited).map(|group| {
                let members = group.members.iter().map(|member| self.reference.used(member));
                usage(members.fold([0; 5], |sum, used| {
                    std::array::from_fn(|kind| sum[kind] + used[kind])
                }))
            });
            let counted = self
                .scheduler
                .group_usage(&name)
                .into_iter()
                .map(|group| group.usage);
            prop_assert_eq!(counted.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        }
        let mut held = HashSet::new();
        for (node, card) in self.cards.values().flatten() {
            prop_assert!(*card < self.inventory.nodes[index_of(node)].gpus);
            prop_assert!(
                held.insert((node.clone(), *card)),
                "card {card} of node {node} is held twice"
            );
        }
        Ok(())
    }

    /// The job with the reservation could start when it was promised.
    pub(super) fn check_kept_promise(&mut self) -> Result<(), TestCaseError> {
        let Some(promise) = self.reference.promise.take() else {
            return Ok(());
        };
        let left = self.reference.running.iter().filter(|run| {
            let end = run.request.max_runtime.map(|limit| run.started + limit);
            let over = end.zip(promise.start).is_some_and(|(end, start)| end < start);
            !over && !promise.gone.contains(&run.request.id)
        });
        let free = self.reference.free_with(left);
        let fits = self.reference.place(&free, &promise.request).is_some();
        prop_assert!(fits, "{:?} cannot start as promised", promise.request);
        Ok(())
    }

    /// Applies each proposed change separately and checks that the job starts.
    pub(super) fn try_proposals(&self) -> Result<(), TestCaseError> {
        let now = at(self.second);
        for request in &self.reference.waiting {
            let Some(change) = self.scheduler.explain(&request.id, now).unwrap().change else {
                continue;
            };
            let mut scheduler = self.scheduler.clone();
            match &change {
                Change::End(alone) => scheduler.release(alone, now),
                flag => {
                    scheduler.withdraw(&request.id);
                    scheduler.enqueue(changed(request, flag), now);
                }
            }
            let started = scheduler.decide(now);
            let is_started = started.iter().any(|admission| admission.id == request.id);
            prop_assert!(is_started, "{change:?}: {request:?}");
        }
        Ok(())
    }

    /// Ends jobs until the queue is empty. A job that cannot start alone within its quota stays.
    pub(super) fn drain(&mut self) -> Result<(), TestCaseError> {
        for name in USERS.map(user) {
            self.set_storage(&name, false);
        }
        self.decide_checked()?;
        while !self.reference.running.is_empty() {
            self.end(0);
            self.decide_checked()?;
        }
        for request in &self.reference.waiting {
            prop_assert!(
                self.scheduler.check_fits_ever(request).is_err(),
                "left waiting: {request:?}"
            );
        }
        for name in USERS.map(user) {
            prop_assert_eq!(self.scheduler.usage(&name), Usage::default());
        }
        Ok(())
    }
}

/// Nodes are named after their index: `n3`.
fn index_of(node: &NodeName) -> usize {
    node.as_str()[1..].parse().unwrap()
}

fn nodes_of(admission: &Admission) -> Vec<usize> {
    let seats = admission.placement.workers.iter();
    seats.map(|seat| index_of(&seat.node)).collect()
}

/// Applies a proposal to a request.
fn changed(request: &Request, change: &Change) -> Request {
    let mut request = request.clone();
    let trainers = request.roles.last_mut().unwrap();
    match change {
        Change::Trainers(count) => trainers.0 = *count,
        Change::Cpu(cpu) => trainers.1.cpu = *cpu,
        Change::Memory(memory) => trainers.1.memory = *memory,
        Change::Gpu(count) => trainers.1.gpu = *count,
        Change::Pservers(count) => request.roles[0].0 = *count,
        Change::MaxRuntime(limit) => request.max_runtime = Some(*limit),
        Change::End(_) => panic!("{change:?} changes another job"),
    }
    request
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn decisions_are_those_of_the_reference(inventory in inventory(), steps in steps(1)) {
        let mut pair = Pair::new(inventory, false);
        for step in steps {
            pair.apply(step);
            pair.decide_both()?;
        }
        pair.drain()?;
    }

    #[test]
    fn fair_decisions_are_those_of_the_reference(inventory in inventory(), steps in steps(1)) {
        let mut pair = Pair::fair(inventory);
        for step in steps {
            pair.apply(step);
            pair.decide_both()?;
        }
        pair.drain()?;
    }

    #[test]
    fn decisions_are_those_of_the_reference_with_parameter_servers(inventory in inventory(), steps in steps(2)) {
        let mut pair = Pair::new(inventory, false);
        for step in steps {
            pair.apply(step);
            pair.decide_both()?;
        }
        pair.drain()?;
    }

    #[test]
    fn decisions_are_those_of_the_reference_where_big_jobs_run_alone(
        (cores, gib) in (1u64..9, 1u64..12), steps in steps(2),
    ) {
        let nodes = vec![node("n0", cores, gib, 1)];
        let mut pair = Pair::new(Inventory { nodes }, true);
        for step in steps {
            pair.apply(step);
            pair.decide_both()?;
        }
    }

    #[test]
    fn whole_jobs_start_within_room_and_quota_and_all_end(inventory in inventory(), steps in steps(3)) {
        let mut pair = Pair::new(inventory, false);
        for step in steps {
            pair.apply(step);
            pair.decide_checked()?;
        }
        pair.drain()?;
    }

    #[test]
    fn backfilled_jobs_never_delay_the_first_waiting_job(inventory in inventory(), steps in steps(1)) {
        let mut pair = Pair::new(inventory, false);
        for step in steps {
            pair.apply(step);
            pair.decide_both()?;
            pair.check_kept_promise()?;
        }
    }

    #[test]
    fn a_proposed_change_really_starts_the_job(inventory in inventory(), steps in steps(2)) {
        let mut pair = Pair::new(inventory, false);
        for step in steps {
            pair.apply(step);
            pair.decide_checked()?;
        }
        pair.try_proposals()?;
    }

    #[test]
    fn a_proposed_change_really_starts_the_job_where_big_jobs_run_alone(
        (cores, gib) in (1u64..9, 1u64..12), steps in steps(2),
    ) {
        let nodes = vec![node("n0", cores, gib, 1)];
        let mut pair = Pair::new(Inventory { nodes }, true);
        for step in steps {
            pair.apply(step);
            pair.decide_both()?;
        }
        pair.try_proposals()?;
    }

    #[test]
    fn the_same_events_lead_to_the_same_decisions(inventory in inventory(), steps in steps(2)) {
        let (mut one, mut other) = (Pair::new(inventory.clone(), false), Pair::new(inventory, false));
        for step in steps {
            one.apply(step.clone());
            other.apply(step);
            one.decide_checked()?;
            other.decide_checked()?;
            let placed = |pair: &Pair| {
                let runs = pair.reference.running.iter();
                runs.map(|run| (run.request.id.clone(), run.nodes.clone())).collect::<Vec<_>>()
            };
            prop_assert_eq!(placed(&one), placed(&other));
            prop_assert_eq!(&one.cards, &other.cards);
        }
    }
}

/// Nodes and jobs large enough that a long queue builds up behind reservations.
pub(super) fn large() -> impl Strategy<Value = (Inventory, Vec<Step>, Vec<Step>)> {
    let nodes = prop::collection::vec((8u64..33, 8u64..65, 0u32..5), 4..10);
    let inventory = nodes.prop_map(|nodes| Inventory {
        nodes: (0..)
            .zip(nodes)
            .map(|(index, (cores, gib, gpus))| node(&format!("n{index}"), cores, gib, gpus))
            .collect(),
    });
    let size = (1u64..9, 1u64..17, prop_oneof![4 => Just(0u32), 1 => 1u32..3])
        .prop_map(|(cores, gib, gpu)| size(cores, gib, gpu));
    let job = (request(2), prop::collection::vec((1u32..9, size), 1..=2));
    let job = job
        .prop_map(|(request, roles)| Step::Submit(Request { roles, ..request }))
        .boxed();
    let step = prop_oneof![
        6 => job.clone(),
        6 => (0usize..30).prop_map(Step::End),
        1 => (0usize..200).prop_map(Step::Withdraw),
        2 => (1i64..15).prop_map(Step::Wait),
        1 => (0..1usize, quota()).prop_map(|(user, quota)| Step::SetQuota(user, quota)),
    ];
    let queue = prop::collection::vec(job, 100..150);
    (inventory, queue, prop::collection::vec(step, 1..60))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn decisions_are_those_of_the_reference_with_a_long_queue((inventory, queue, steps) in large()) {
        let mut pair = Pair::new(inventory, false);
        queue.into_iter().for_each(|step| pair.apply(step));
        for step in steps {
            pair.apply(step);
            pair.decide_both()?;
        }
    }
}
