//! Short ways to write machines, requests and times.

use jiff::{SignedDuration, Timestamp};

use crate::names::{JobId, UserName};
use crate::quantity::{Bytes, Cpu};
use crate::scheduler::{
    Admits, Inventory, Node, NodeTraits, Policy, Reason, Request, Requirement, Scheduler, Taken,
};
use crate::spec::Resources;

pub const GI: u64 = 1 << 30;

pub fn id(number: u64) -> JobId {
    JobId::new(number, 0)
}

pub fn user(name: &str) -> UserName {
    name.parse().unwrap()
}

pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

pub fn size(cores: u64, gib: u64, gpu: u32) -> Resources {
    Resources {
        cpu: Cpu::cores(cores),
        memory: Bytes::new(gib * GI),
        gpu,
    }
}

pub fn node(name: &str, cores: u64, gib: u64, gpus: u32) -> Node {
    Node {
        name: name.into(),
        cpu: Cpu::cores(cores),
        memory: Bytes::new(gib * GI),
        gpus,
        taken: Taken::default(),
        traits: Default::default(),
    }
}

/// Nodes of this many cores with 2Gi each.
pub fn nodes(cores: &[u64]) -> Inventory {
    let nodes = cores.iter().enumerate();
    Inventory {
        nodes: nodes
            .map(|(index, cores)| node(&format!("n{index}"), *cores, 2 * cores, 0))
            .collect(),
    }
}

pub fn strict(inventory: Inventory) -> Scheduler {
    Scheduler::new(inventory, Policy::default())
}

pub fn embedded(inventory: Inventory) -> Scheduler {
    Scheduler::new(
        inventory,
        Policy {
            oversubscribe_alone: true,
            ..Policy::default()
        },
    )
}

pub fn fair(inventory: Inventory) -> Scheduler {
    Scheduler::new(
        inventory,
        Policy {
            fair_share: true,
            ..Policy::default()
        },
    )
}

/// Trainers of one core and 1Gi, no end, of user `me`, in the order of the number.
pub fn job(number: u64, trainers: u32) -> Request {
    Request {
        id: id(number),
        user: user("me"),
        priority: 0,
        order: number,
        roles: vec![(trainers, size(1, 1, 0))],
        max_runtime: None,
        required: Requirement::default(),
    }
}

/// What a job requires, in short: `pool=a` is a label, `t4` a GPU type.
pub fn required(words: &[&str]) -> Requirement {
    let mut required = Requirement::default();
    for word in words {
        match word.split_once('=') {
            Some((key, value)) => drop(required.labels.insert(key.to_owned(), value.to_owned())),
            None => required.gpu_type = Some(word.parse().unwrap()),
        }
    }
    required
}

impl Node {
    /// The same node with these labels, and GPUs of these types.
    pub fn having(self, words: &[&str]) -> Node {
        let mut traits = NodeTraits::default();
        for word in words {
            match word.split_once('=') {
                Some((key, value)) => drop(traits.labels.insert(key.to_owned(), value.to_owned())),
                None => drop(traits.gpu_types.insert(word.parse().unwrap())),
            }
        }
        Node {
            traits: traits.into(),
            ..self
        }
    }

    pub fn admitting(self, admits: Admits) -> Node {
        let traits = NodeTraits {
            admits,
            ..NodeTraits::clone(&self.traits)
        };
        Node {
            traits: traits.into(),
            ..self
        }
    }
}

impl Request {
    pub fn by(mut self, name: &str) -> Request {
        self.user = user(name);
        self
    }

    pub fn urgent(mut self, priority: i32) -> Request {
        self.priority = priority;
        self
    }

    pub fn of_size(mut self, each: Resources) -> Request {
        self.roles.last_mut().unwrap().1 = each;
        self
    }

    pub fn with_servers(mut self, count: u32, each: Resources) -> Request {
        self.roles.insert(0, (count, each));
        self
    }

    pub fn on(mut self, words: &[&str]) -> Request {
        self.required = required(words);
        self
    }

    pub fn for_seconds(mut self, seconds: i64) -> Request {
        self.max_runtime = Some(SignedDuration::from_secs(seconds));
        self
    }
}

impl Scheduler {
    /// Queues all requests, decides, and returns the jobs that started.
    pub fn run(&mut self, requests: impl IntoIterator<Item = Request>, second: i64) -> Vec<JobId> {
        for request in requests {
            self.enqueue(request, at(second));
        }
        let admitted = self.decide(at(second));
        admitted.into_iter().map(|admission| admission.id).collect()
    }

    pub fn end_and_run(&mut self, job: u64, second: i64) -> Vec<JobId> {
        self.release(&id(job), at(second));
        self.run([], second)
    }

    pub fn reason(&self, job: u64, second: i64) -> Reason {
        let why = self.explain(&id(job), at(second)).unwrap();
        let listed = Some((why.reason.clone(), why.matching));
        assert_eq!(self.reasons(&[id(job), id(job)]).of, [listed.clone(), listed]);
        why.reason
    }
}
