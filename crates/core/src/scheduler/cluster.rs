//! The nodes and what runs on them: assigns room and GPU cards to jobs and releases them.
//!
//! Knows neither queue nor quota. The load of a node may exceed its capacity (jobs adopted after the inventory shrank,
//! a job that runs alone on too little). Such a node has no free room, and releases are still exact.

use std::collections::{BTreeMap, HashMap};

use super::eligible::{Eligible, Matches, NodeTraits, Nodes, WorkerRequirement};
use super::placing::Share;
use super::request::{Inventory, Node, NodeChange, Placement, Request, Seat};
use super::room::{Load, Need, Room, Shape};
use super::tree::RoomTree;
use crate::names::NodeName;

/// All nodes, those with fewer GPU cards first, so that jobs without GPUs leave the cards usable.
#[derive(Debug, Clone)]
pub(super) struct Cluster {
    machines: Vec<Machine>,
    places: HashMap<NodeName, usize>,
    free: RoomTree,
    idle: RoomTree,
    /// What would be free if only jobs without a maximum runtime ran.
    lasting: RoomTree,
    matches: Matches,
}

#[derive(Debug, Clone)]
struct Machine {
    node: Node,
    capacity: Room,
    /// What other workloads hold.
    taken: Load,
    used: Load,
    /// The part of `used` held by jobs without a maximum runtime.
    endless: Load,
    /// How many jobs hold each card: at most one, unless adopted jobs overlap.
    holders: Vec<u32>,
}

/// The resources that one job holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Holding {
    /// Sorted by node.
    pub loads: Vec<(usize, Load)>,
    cards: Vec<(usize, u32)>,
    /// What it holds on nodes that are not in the inventory now. It counts again when they return.
    away: Vec<Part>,
    /// The job has no maximum runtime.
    is_endless: bool,
}

/// What a job holds on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    node: NodeName,
    load: Load,
    cards: Vec<u32>,
}

impl Holding {
    fn cards_on(&self, node: usize) -> Vec<u32> {
        let cards = self.cards.iter().filter(|(place, _)| *place == node);
        cards.map(|(_, card)| *card).collect()
    }
}

/// The effect of a node change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Difference {
    None,
    /// Only the free room changed.
    Free,
    /// The capacity changed: jobs may fit that did not before, or no longer fit.
    Capacity,
}

impl Machine {
    fn new(node: Node) -> Machine {
        Machine {
            capacity: capacity(&node),
            taken: taken(&node),
            used: Load::default(),
            endless: Load::default(),
            holders: vec![0; node.gpus as usize],
            node,
        }
    }

    /// The room left beside other workloads and `used`.
    fn room_left(&self, used: &Load) -> Room {
        let mut all = self.taken;
        all.add(used);
        self.capacity.minus(&all)
    }

    fn free_cards(&self, count: u32) -> Vec<u32> {
        let ids = 0u32..;
        let free = ids
            .zip(&self.holders)
            .filter(|(_, holders)| **holders == 0)
            .map(|(id, _)| id);
        free.take(count as usize).collect()
    }
}

fn capacity(node: &Node) -> Room {
    Room {
        gpu: u64::from(node.gpus),
        cpu: node.cpu.as_millis(),
        memory: node.memory.as_u64(),
    }
}

fn taken(node: &Node) -> Load {
    Load {
        gpu: node.taken.gpus.into(),
        cpu: node.taken.cpu.as_millis().into(),
        memory: node.taken.memory.as_u64().into(),
    }
}

fn traits(machines: &[Machine]) -> impl ExactSizeIterator<Item = &NodeTraits> + Clone {
    machines.iter().map(|machine| &*machine.node.traits)
}

impl Cluster {
    pub fn new(inventory: Inventory) -> Cluster {
        let mut machines: Vec<Machine> = inventory.nodes.into_iter().map(Machine::new).collect();
        // The sort is stable: nodes with equally many cards keep the inventory's order.
        machines.sort_by_key(|machine| machine.holders.len());
        let names = machines.iter().enumerate();
        let places = names
            .map(|(place, machine)| (machine.node.name.clone(), place))
            .collect();
        let idle: Vec<Room> = machines.iter().map(|machine| machine.capacity).collect();
        let free: Vec<Room> = machines
            .iter()
            .map(|machine| machine.room_left(&Load::default()))
            .collect();
        let free = RoomTree::new(&free);
        Cluster {
            matches: Matches::new(traits(&machines)),
            machines,
            places,
            lasting: free.clone(),
            free,
            idle: RoomTree::new(&idle),
        }
    }

    /// What a request asks for, with the nodes that it may use.
    pub fn shape(&self, request: &Request) -> Shape {
        Shape::of(request, |uses_gpus| {
            self.eligible(WorkerRequirement::of(&request.required, uses_gpus))
        })
    }

    /// The same shape after a change of nodes.
    pub fn renewed(&self, shape: &Shape) -> Shape {
        let mut shape = shape.clone();
        for part in &mut shape.parts {
            let required = match &part.eligible.required {
                Some(required) => WorkerRequirement::clone(required),
                None => WorkerRequirement::of(&Default::default(), part.need.gpu > 0),
            };
            part.eligible = self.eligible(required);
        }
        shape
    }

    fn eligible(&self, required: WorkerRequirement) -> Eligible {
        self.matches.find(required, traits(&self.machines))
    }

    /// Keeps the nodes that match a waiting job for other jobs.
    pub fn remember(&mut self, shape: &Shape) {
        shape
            .parts
            .iter()
            .for_each(|part| self.matches.remember(&part.eligible));
    }

    /// What every node has.
    pub fn traits(&self) -> impl ExactSizeIterator<Item = &NodeTraits> + Clone {
        traits(&self.machines)
    }

    /// What is free now.
    pub fn free(&self) -> &RoomTree {
        &self.free
    }

    /// The capacity: what would be free if nothing ran, neither our jobs nor other workloads.
    pub fn idle(&self) -> &RoomTree {
        &self.idle
    }

    /// What would be free if every job with a maximum runtime had ended.
    pub fn lasting(&self) -> &RoomTree {
        &self.lasting
    }

    /// What would be free on a node without part of its load.
    pub fn room_without(&self, node: usize, gone: &Load) -> Room {
        let machine = &self.machines[node];
        let mut used = machine.used;
        used.remove(gone);
        machine.room_left(&used)
    }

    /// What would be free on a node with additional load.
    pub fn room_with(&self, node: usize, more: &Load) -> Room {
        let machine = &self.machines[node];
        let mut used = machine.used;
        used.add(more);
        machine.room_left(&used)
    }

    /// What other workloads hold on these nodes together.
    pub fn taken(&self, nodes: &Nodes) -> Load {
        let mut all = Load::default();
        let here = self.machines.iter().enumerate();
        here.filter(|(node, _)| nodes.has(*node))
            .for_each(|(_, machine)| all.add(&machine.taken));
        all
    }

    /// Whether a job would not fit even without our jobs, because of other workloads.
    pub fn waits_for_others(&self, shape: &Shape) -> bool {
        let is_shared = self
            .machines
            .iter()
            .any(|machine| machine.taken != Load::default());
        let without_ours = || {
            let rooms: Vec<Room> = self
                .machines
                .iter()
                .map(|machine| machine.room_left(&Load::default()))
                .collect();
            RoomTree::new(&rooms)
        };
        is_shared && super::placing::place(&without_ours(), shape).is_none()
    }

    /// Spreads a job over idle nodes that are too small for it, least loaded first. Only the GPU cards must suffice.
    pub fn squeeze(&self, shape: &Shape) -> Option<Vec<Share>> {
        let mut used = vec![Load::default(); self.machines.len()];
        let mut shares = Vec::new();
        for (index, part) in shape.parts.iter().enumerate() {
            let one = Load::of(&part.need, 1);
            for _ in 0..part.count {
                let node = self.least_loaded(&used, part.each())?;
                used[node].add(&one);
                shares.push(Share {
                    part: index,
                    node,
                    count: 1,
                });
            }
        }
        Some(shares)
    }

    fn least_loaded(&self, used: &[Load], need: Need) -> Option<usize> {
        let nodes = self.machines.iter().zip(used).enumerate();
        let matching = nodes.filter(|(node, _)| need.nodes.is_none_or(|nodes| nodes.has(*node)));
        let with_cards =
            matching.filter(|(_, (machine, used))| machine.capacity.minus(used).gpu >= need.room.gpu);
        let by_load = with_cards.min_by_key(|(_, (machine, used))| {
            used.cpu * 1_000_000 / u128::from(machine.capacity.cpu.max(1))
        });
        by_load.map(|(node, _)| node)
    }

    /// Turns shares into seats and occupies them.
    pub fn seat(&mut self, request: &Request, shape: &Shape, shares: &[Share]) -> (Placement, Holding) {
        let mut by_role: Vec<Vec<Seat>> = request.roles.iter().map(|_| Vec::new()).collect();
        let mut holding = Holding {
            loads: super::placing::loads(&shape.parts, shares),
            cards: Vec::new(),
            away: Vec::new(),
            is_endless: request.max_runtime.is_none(),
        };
        for share in shares {
            let part = &shape.parts[share.part];
            let seats = &mut by_role[part.role];
            seats.reserve(share.count as usize);
            for _ in 0..share.count {
                seats.push(self.one_seat(share.node, &part.need, &mut holding));
            }
        }
        self.take(&holding);
        let workers = by_role.into_iter().flatten().collect();
        (Placement { workers }, holding)
    }

    fn one_seat(&mut self, node: usize, need: &Room, holding: &mut Holding) -> Seat {
        let machine = &mut self.machines[node];
        let count = u32::try_from(need.gpu).unwrap_or(u32::MAX);
        let gpus = if count == 0 {
            Vec::new()
        } else {
            machine.free_cards(count)
        };
        for card in &gpus {
            machine.holders[*card as usize] += 1;
            holding.cards.push((node, *card));
        }
        let node = machine.node.name.clone();
        Seat { node, gpus }
    }

    /// Occupies the seats of a job that already runs.
    pub fn adopt(&mut self, request: &Request, placement: &Placement) -> Holding {
        let needs = request
            .roles
            .iter()
            .flat_map(|(count, each)| std::iter::repeat_n(Room::from(each), *count as usize));
        let parts = placement.workers.iter().zip(needs).map(|(seat, need)| Part {
            node: seat.node.clone(),
            load: Load::of(&need, 1),
            cards: seat.gpus.clone(),
        });
        self.take_over(parts.collect(), request.max_runtime.is_none())
    }

    fn take(&mut self, holding: &Holding) {
        for (node, load) in &holding.loads {
            self.machines[*node].used.add(load);
            if holding.is_endless {
                self.machines[*node].endless.add(load);
            }
            self.refresh(*node);
        }
    }

    /// Occupies again what was just released, for a job that is being stopped.
    pub fn take_for_now(&mut self, holding: &mut Holding) {
        holding.is_endless = false;
        for (node, card) in &holding.cards {
            self.machines[*node].holders[*card as usize] += 1;
        }
        self.take(holding);
    }

    /// Releases what a job held.
    pub fn give(&mut self, holding: &Holding) {
        for (node, card) in &holding.cards {
            self.machines[*node].holders[*card as usize] -= 1;
        }
        for (node, load) in &holding.loads {
            self.machines[*node].used.remove(load);
            if holding.is_endless {
                self.machines[*node].endless.remove(load);
            }
            self.refresh(*node);
        }
    }

    fn refresh(&mut self, node: usize) {
        let machine = &self.machines[node];
        self.free.set(node, machine.room_left(&machine.used));
        self.lasting.set(node, machine.room_left(&machine.endless));
    }

    /// Applies a change of one node and returns its effect. The load of a removed node counts again when it returns: a node
    /// that is closed for a while is removed, and its workers continue.
    ///
    /// New amounts for a known node cost logarithmic time. A new or removed node, or another number of cards, costs a
    /// walk over all nodes and running jobs.
    pub fn change<'a>(
        &mut self,
        change: NodeChange,
        holdings: impl Iterator<Item = &'a mut Holding>,
    ) -> Difference {
        match change {
            NodeChange::Set(node) => match self.places.get(&node.name).copied() {
                Some(place) if self.machines[place].node.gpus == node.gpus => self.renumber(place, node),
                _ => self.rebuild(NodeChange::Set(node), holdings),
            },
            NodeChange::Removed(name) if !self.places.contains_key(&name) => Difference::None,
            removed => self.rebuild(removed, holdings),
        }
    }

    fn renumber(&mut self, place: usize, node: Node) -> Difference {
        let machine = &mut self.machines[place];
        if machine.node == node {
            return Difference::None;
        }
        let before = std::mem::replace(&mut machine.capacity, capacity(&node));
        machine.taken = taken(&node);
        let has_traits = machine.node.traits == node.traits;
        machine.node = node;
        let now = machine.capacity;
        self.idle.set(place, now);
        self.refresh(place);
        if !has_traits {
            self.matches = Matches::new(traits(&self.machines));
        }
        match before == now && has_traits {
            true => Difference::Free,
            false => Difference::Capacity,
        }
    }

    fn rebuild<'a>(
        &mut self,
        change: NodeChange,
        holdings: impl Iterator<Item = &'a mut Holding>,
    ) -> Difference {
        let mut inventory = Inventory {
            nodes: self.machines.iter().map(|machine| machine.node.clone()).collect(),
        };
        inventory.apply(change);
        self.replace(inventory, holdings);
        Difference::Capacity
    }

    /// Replaces all nodes. Nodes with the same name keep their load.
    pub fn replace<'a>(&mut self, inventory: Inventory, holdings: impl Iterator<Item = &'a mut Holding>) {
        let mut next = Cluster::new(inventory);
        for holding in holdings {
            let parts = self.by_name(holding);
            *holding = next.take_over(parts, holding.is_endless);
        }
        *self = next;
    }

    /// What a job holds, by the names of the nodes.
    fn by_name(&self, holding: &Holding) -> Vec<Part> {
        let present = holding.loads.iter().map(|(node, load)| Part {
            node: self.machines[*node].node.name.clone(),
            load: *load,
            cards: holding.cards_on(*node),
        });
        present.chain(holding.away.iter().cloned()).collect()
    }

    fn take_over(&mut self, parts: Vec<Part>, is_endless: bool) -> Holding {
        let mut holding = Holding {
            is_endless,
            ..Holding::default()
        };
        let mut loads: BTreeMap<usize, Load> = BTreeMap::new();
        for part in parts {
            let Some(node) = self.places.get(&part.node).copied() else {
                holding.away.push(part);
                continue;
            };
            loads.entry(node).or_default().add(&part.load);
            for card in part.cards {
                if let Some(holders) = self.machines[node].holders.get_mut(card as usize) {
                    *holders += 1;
                    holding.cards.push((node, card));
                }
            }
        }
        holding.loads = loads.into_iter().collect();
        self.take(&holding);
        holding
    }
}
