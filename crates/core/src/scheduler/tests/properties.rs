//! Random workloads: the scheduler against the reference, and promises checked from outside.

use std::collections::{HashMap, HashSet};

use jiff::SignedDuration;
use proptest::prelude::*;

use super::build::*;
use super::reference::Reference;
use crate::names::JobId;
use crate::quantity::{Bytes, Cpu};
use crate::scheduler::{Admission, Inventory, Quota, Request, Scheduler, Usage};

const USERS: [&str; 3] = ["ann", "bob", "eve"];

#[derive(Debug, Clone)]
enum Step {
    Submit(Request),
    /// The running job at this place in the order of starts ends.
    End(usize),
    /// The waiting job at this place is killed.
    Withdraw(usize),
    Wait(i64),
    SetQuota(usize, Quota),
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
        })
}

fn quota() -> impl Strategy<Value = Quota> {
    let limit = || prop::option::of(0u32..12);
    (limit(), limit(), limit(), limit()).prop_map(|(cpu, memory, gpu, parallelism)| Quota {
        cpu: cpu.map(|cores| Cpu::cores(cores.into())),
        memory: memory.map(|gib| Bytes::new(u64::from(gib) * GI)),
        gpu,
        parallelism,
    })
}

fn steps(roles: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => request(roles).prop_map(Step::Submit),
        5 => (0usize..8).prop_map(Step::End),
        1 => (0usize..8).prop_map(Step::Withdraw),
        2 => (1i64..15).prop_map(Step::Wait),
        1 => (0..USERS.len(), quota()).prop_map(|(user, quota)| Step::SetQuota(user, quota)),
    ];
    prop::collection::vec(step, 1..60)
}

fn inventory() -> impl Strategy<Value = Inventory> {
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
struct Pair {
    scheduler: Scheduler,
    reference: Reference,
    inventory: Inventory,
    cards: HashMap<JobId, Vec<(u32, u32)>>,
    second: i64,
    submitted: u64,
}

impl Pair {
    fn new(inventory: Inventory, oversubscribe_alone: bool) -> Pair {
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

    fn apply(&mut self, step: Step) {
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
        }
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
            let cards = seats.flat_map(|seat| seat.gpus.iter().map(|card| (seat.node, *card)));
            self.cards.insert(admission.id.clone(), cards.collect());
        }
        admitted
    }

    fn nodes(admission: &Admission) -> Vec<usize> {
        let seats = admission.placement.workers.iter();
        seats.map(|seat| seat.node as usize).collect()
    }

    /// Lets the reference decide too and compares.
    fn decide_both(&mut self) -> Result<(), TestCaseError> {
        let ours: Vec<_> = self
            .decide()
            .iter()
            .map(|admission| (admission.id.clone(), Self::nodes(admission)))
            .collect();
        let theirs = self.reference.decide(at(self.second));
        prop_assert_eq!(ours, theirs);
        Ok(())
    }

    fn check_promises(&self) -> Result<(), TestCaseError> {
        for name in USERS.map(user) {
            let [cpu, memory, gpu, trainers] = self.reference.used(&name);
            let expected = Usage {
                cpu: Cpu::millis(cpu),
                memory: Bytes::new(memory),
                gpu: gpu.try_into().unwrap(),
                parallelism: trainers.try_into().unwrap(),
            };
            prop_assert_eq!(self.scheduler.usage(&name), expected);
        }
        let mut held = HashSet::new();
        for (node, card) in self.cards.values().flatten() {
            prop_assert!(*card < self.inventory.nodes[*node as usize].gpus);
            prop_assert!(
                held.insert((*node, *card)),
                "card {card} of node {node} is held twice"
            );
        }
        Ok(())
    }

    /// Ends everything until the queue is empty. What cannot start alone within its quota stays.
    fn drain(&mut self) -> Result<(), TestCaseError> {
        while !self.reference.running.is_empty() {
            self.end(0);
            self.decide_both()?;
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

/// Applies the flag of a proposal to a request.
fn changed(request: &Request, change: &str) -> Request {
    let flag = change.split('`').nth(1).unwrap();
    let (name, value) = flag.split_once(' ').unwrap();
    let mut request = request.clone();
    let trainers = request.roles.last_mut().unwrap();
    match name {
        "-parallelism" => trainers.0 = value.parse().unwrap(),
        "-cpu" => trainers.1.cpu = value.parse().unwrap(),
        "-memory" => trainers.1.memory = value.parse().unwrap(),
        "-max-runtime" => request.max_runtime = Some(value.parse().unwrap()),
        _ => panic!("unknown flag in `{change}`"),
    }
    request
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn decisions_are_those_of_the_reference(inventory in inventory(), steps in steps(1)) {
        let mut pair = Pair::new(inventory, false);
        for step in steps {
            pair.apply(step);
            pair.decide_both()?;
            pair.check_promises()?;
        }
        pair.drain()?;
    }

    #[test]
    fn decisions_are_those_of_the_reference_where_big_jobs_run_alone(
        cores in 1u64..9, gib in 1u64..12, steps in steps(1),
    ) {
        let nodes = vec![node("here", cores, gib, 1)];
        let mut pair = Pair::new(Inventory { nodes }, true);
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
            pair.check_promises()?;
        }
        pair.drain()?;
    }

    #[test]
    fn nothing_is_taken_that_is_not_there(inventory in inventory(), steps in steps(2)) {
        let mut pair = Pair::new(inventory, false);
        for step in steps {
            pair.apply(step);
            for admission in pair.decide() {
                let waiting = &mut pair.reference.waiting;
                let index = waiting.iter().position(|request| request.id == admission.id).unwrap();
                let request = waiting.remove(index);
                let nodes = Pair::nodes(&admission);
                let workers: u32 = request.roles.iter().map(|(count, _)| count).sum();
                prop_assert_eq!(nodes.len(), workers as usize);
                let mut free = pair.reference.free_beside(&pair.reference.running);
                let needs = request.roles.iter().flat_map(|(count, each)| std::iter::repeat_n(each, *count as usize));
                for (each, node) in needs.zip(&nodes) {
                    let need = [each.cpu.as_millis(), each.memory.as_u64(), u64::from(each.gpu)];
                    for kind in 0..3 {
                        prop_assert!(free[*node][kind] >= need[kind], "{:?} exceeds node {}", request, node);
                        free[*node][kind] -= need[kind];
                    }
                }
                let started = at(pair.second);
                let used = pair.reference.used(&request.user);
                let taken = [used, super::reference::asked(&request)];
                prop_assert!(pair.reference.within_quota(&request.user, &taken), "quota exceeded");
                pair.reference.running.push(super::reference::Run { request, nodes, started });
            }
        }
    }

    #[test]
    fn those_who_pass_never_delay_the_first_that_waits(inventory in inventory(), steps in steps(1)) {
        let mut pair = Pair::new(inventory, false);
        for step in steps {
            pair.apply(step);
            // A round in which nobody passes: the queue up to the first job that does not fit.
            let mut strict = pair.reference.clone();
            strict.waiting.sort_by_key(|request| (std::cmp::Reverse(request.priority), request.order));
            let mut ordered = strict.clone();
            let mut first = None;
            for request in &strict.waiting {
                ordered.waiting = vec![request.clone()];
                let lets = strict.waiting.iter().take_while(|other| other.id != request.id)
                    .all(|other| other.user != request.user);
                if lets && ordered.decide(at(pair.second)).is_empty() {
                    let free = ordered.free_beside(&ordered.running);
                    let used = ordered.used(&request.user);
                    let mut alone = ordered.clone();
                    alone.running.clear();
                    alone.quotas.clear();
                    let quota_lets = ordered.quotas.get(&request.user).is_none_or(|quota| *quota == Quota::default());
                    let _ = used;
                    if quota_lets && ordered.place(&free, request).is_none() {
                        first = ordered.start_of(request, at(pair.second)).map(|start| (request.clone(), start));
                    }
                    break;
                }
                if !lets { break; }
            }
            pair.decide_both()?;
            if let Some((request, (Some(start), _))) = first
                && pair.reference.waiting.iter().any(|waiting| waiting.id == request.id)
            {
                let (after, _) = pair.reference.start_of(&request, at(pair.second)).unwrap();
                prop_assert!(after.is_some_and(|after| after <= start), "{after:?} is later than {start}");
            }
        }
    }

    #[test]
    fn a_proposed_change_really_starts_the_job(inventory in inventory(), steps in steps(2)) {
        let mut pair = Pair::new(inventory, false);
        for step in steps {
            pair.apply(step);
            pair.decide_both()?;
        }
        let now = at(pair.second);
        for request in &pair.reference.waiting {
            let Some(change) = pair.scheduler.explain(&request.id, now).unwrap().change else {
                continue;
            };
            let mut scheduler = pair.scheduler.clone();
            scheduler.withdraw(&request.id);
            scheduler.enqueue(changed(request, &change), now);
            let started = scheduler.decide(now);
            prop_assert!(started.iter().any(|admission| admission.id == request.id), "{change}: {request:?}");
        }
    }

    #[test]
    fn the_same_events_lead_to_the_same_decisions(inventory in inventory(), steps in steps(2)) {
        let (mut one, mut other) = (Pair::new(inventory.clone(), false), Pair::new(inventory, false));
        for step in steps {
            one.apply(step.clone());
            other.apply(step);
            let now = at(one.second);
            prop_assert_eq!(one.scheduler.decide(now), other.scheduler.decide(now));
            one.reference.decide(now);
            other.reference.decide(now);
        }
    }
}
