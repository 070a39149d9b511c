//! Amounts of cpu, memory and cards on one node, and the shape of a whole job made of them.

use std::cmp::Reverse;

use super::eligible::{Eligible, NodeSet, Nodes};
use super::request::Request;
use crate::spec::Resources;

/// What is free on a node, or what one worker needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Room {
    pub gpu: u64,
    pub cpu: u64,
    pub memory: u64,
}

/// A sum of rooms over nodes or workers, wide enough never to overflow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Load {
    pub gpu: u128,
    pub cpu: u128,
    pub memory: u128,
}

impl From<&Resources> for Room {
    fn from(each: &Resources) -> Room {
        Room {
            gpu: u64::from(each.gpu),
            cpu: each.cpu.as_millis(),
            memory: each.memory.as_u64(),
        }
    }
}

impl Room {
    pub fn holds(&self, need: &Room) -> bool {
        self.cpu >= need.cpu && self.memory >= need.memory && self.gpu >= need.gpu
    }

    /// How many workers with this need fit, at most `most`.
    pub fn times(&self, need: &Room, most: u32) -> u32 {
        let dimension = |room: u64, need: u64| room.checked_div(need).unwrap_or(u64::MAX);
        let fit = dimension(self.cpu, need.cpu)
            .min(dimension(self.memory, need.memory))
            .min(dimension(self.gpu, need.gpu));
        u32::try_from(fit).unwrap_or(u32::MAX).min(most)
    }

    /// The maximum of each amount: the most that a group of nodes can offer.
    pub fn highest(&self, other: &Room) -> Room {
        Room {
            gpu: self.gpu.max(other.gpu),
            cpu: self.cpu.max(other.cpu),
            memory: self.memory.max(other.memory),
        }
    }

    pub fn lowest(&self, other: &Room) -> Room {
        Room {
            gpu: self.gpu.min(other.gpu),
            cpu: self.cpu.min(other.cpu),
            memory: self.memory.min(other.memory),
        }
    }

    /// The room left beside a load; nothing where the load is larger.
    pub fn minus(&self, load: &Load) -> Room {
        let left = |room: u64, load: u128| u64::try_from(u128::from(room).saturating_sub(load)).unwrap_or(0);
        Room {
            gpu: left(self.gpu, load.gpu),
            cpu: left(self.cpu, load.cpu),
            memory: left(self.memory, load.memory),
        }
    }
}

impl Load {
    pub fn of(need: &Room, count: u32) -> Load {
        let count = u128::from(count);
        Load {
            gpu: u128::from(need.gpu) * count,
            cpu: u128::from(need.cpu) * count,
            memory: u128::from(need.memory) * count,
        }
    }

    pub fn add(&mut self, other: &Load) {
        self.gpu += other.gpu;
        self.cpu += other.cpu;
        self.memory += other.memory;
    }

    /// Subtracts what [`Load::add`] added.
    pub fn remove(&mut self, other: &Load) {
        self.gpu -= other.gpu;
        self.cpu -= other.cpu;
        self.memory -= other.memory;
    }

    pub fn holds(&self, other: &Load) -> bool {
        self.cpu >= other.cpu && self.memory >= other.memory && self.gpu >= other.gpu
    }
}

/// What one worker needs, and where it may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Need<'a> {
    pub room: &'a Room,
    /// `None`: on every node.
    pub nodes: Option<&'a NodeSet>,
}

impl<'a> Need<'a> {
    pub fn new(room: &'a Room, nodes: &'a Nodes) -> Need<'a> {
        let nodes = nodes.set();
        Need { room, nodes }
    }

    /// How many such workers fit into this room of a node, at most `most`.
    pub fn times(&self, node: usize, room: &Room, most: u32) -> u32 {
        match self.nodes.is_none_or(|nodes| nodes.has(node)) {
            true => room.times(self.room, most),
            false => 0,
        }
    }
}

/// Identical workers of a job.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Part {
    /// Index into the request's roles.
    pub role: usize,
    pub count: u32,
    pub need: Room,
    pub eligible: Eligible,
}

impl Part {
    /// One worker.
    pub fn each(&self) -> Need<'_> {
        Need::new(&self.need, &self.eligible.nodes)
    }
}

/// What matters for placing a job. Jobs of one shape fit or fail together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    /// Largest workers first: they are the hardest to place. Roles without workers are left out.
    pub parts: Vec<Part>,
    pub total: Load,
    /// Workers of the last role; a quota may limit them.
    pub trainers: u32,
}

impl Shape {
    /// `eligible` finds the nodes for workers that use GPUs, and for those that do not.
    pub fn of(request: &Request, eligible: impl Fn(bool) -> Eligible) -> Shape {
        let mut parts: Vec<Part> = request
            .roles
            .iter()
            .enumerate()
            .filter(|(_, (count, _))| *count > 0)
            .map(|(role, (count, each))| Part {
                role,
                count: *count,
                need: Room::from(each),
                eligible: eligible(each.gpu > 0),
            })
            .collect();
        parts.sort_by_key(|part| Reverse(part.need));
        let mut total = Load::default();
        for part in &parts {
            total.add(&Load::of(&part.need, part.count));
        }
        Shape {
            parts,
            total,
            trainers: request.trainers(),
        }
    }

    /// The part of a job whose workers are all equal.
    pub fn only_part(&self) -> Option<&Part> {
        match &self.parts[..] {
            [part] => Some(part),
            _ => None,
        }
    }

    /// How many workers the job has.
    pub fn workers(&self) -> u64 {
        self.parts.iter().map(|part| u64::from(part.count)).sum()
    }
}
