//! The nodes as they will be when a job that does not fit now can start.
//!
//! Running jobs are assumed to end in a given order; the future is the first moment at which the job fits. It is kept
//! while that job waits and adjusted at every start and end, because recomputing it would walk over all running jobs.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;

use jiff::Timestamp;

use super::cluster::Cluster;
use super::placing::place;
use super::queue::Key;
use super::room::{Load, Room, Shape};
use super::running::{End, Order, Run, Running, Turn};
use super::tree::RoomTree;

#[derive(Debug, Clone, Default)]
pub(super) struct Future {
    goal: Option<Goal>,
    /// What is free now, plus what the jobs that will have ended release.
    tree: RoomTree,
    order: Order,
    /// All running jobs up to this one will have ended.
    upto: Option<Turn>,
    gone: HashMap<usize, Load>,
    /// Per part: how many workers would fit if the other parts did not use the same room. Exact for a job with one
    /// part; with several parts, counting stops once there are enough.
    fitting: Vec<u64>,
    /// The same for the first part and what is free now.
    fitting_now: u64,
    /// The nodes that changed since the last query; all of them after a change of goal.
    changed: Changed,
    /// A job started or ended since the last [`Future::move_to_first_fit`].
    is_stale: bool,
    /// A job without a maximum runtime ended since the last [`Future::move_to_first_fit`].
    has_hope: bool,
}

/// The nodes whose room changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Changed {
    #[default]
    Any,
    These(Vec<usize>),
}

/// The job that waits for this future.
#[derive(Debug, Clone)]
struct Goal {
    key: Key,
    shape: Arc<Shape>,
}

impl Future {
    pub fn new(cluster: &Cluster) -> Future {
        Future {
            tree: cluster.free().clone(),
            ..Future::default()
        }
    }

    pub fn tree(&self) -> &RoomTree {
        &self.tree
    }

    /// Returns the nodes whose room changed since the last call.
    pub fn take_changed(&mut self) -> Changed {
        std::mem::replace(&mut self.changed, Changed::These(Vec::new()))
    }

    /// Sets the job whose start is predicted.
    pub fn aim(&mut self, cluster: &Cluster, key: Key, shape: &Arc<Shape>) {
        if self.goal.as_ref().is_some_and(|goal| goal.key == key) {
            return;
        }
        self.goal = Some(Goal {
            key,
            shape: Arc::clone(shape),
        });
        self.rewind(cluster, best_order(cluster, shape));
        self.fitting_now = self.fitting.first().copied().unwrap_or_default();
        self.changed = Changed::Any;
        self.is_stale = true;
    }

    /// Whether this job will have ended.
    pub fn is_gone(&self, turn: Turn) -> bool {
        self.upto.is_some_and(|upto| self.order.is_upto(turn, upto))
    }

    /// True if this job of equal workers certainly does not fit now, so that its placement need not be tried.
    pub fn is_too_big_now(&self, key: Key) -> bool {
        let goal = self.goal.as_ref().filter(|goal| goal.key == key);
        let part = goal.and_then(|goal| goal.shape.only_part());
        part.is_some_and(|part| self.fitting_now < u64::from(part.count))
    }

    /// Recounts what fits on some nodes now; `before` returns their previous room.
    fn recount(&mut self, cluster: &Cluster, loads: &[(usize, Load)], before: impl Fn(usize, &Load) -> Room) {
        let Some(part) = self.goal.as_ref().and_then(|goal| goal.shape.only_part()) else {
            return;
        };
        for (node, load) in loads {
            let now = part.each().times(*node, &cluster.free().get(*node), u32::MAX);
            let before = part.each().times(*node, &before(*node, load), u32::MAX);
            self.fitting_now = self.fitting_now + u64::from(now) - u64::from(before);
        }
    }

    /// Applies a start that the cluster already contains.
    pub fn started(&mut self, cluster: &Cluster, turn: Turn, loads: &[(usize, Load)]) {
        self.recount(cluster, loads, |node, load| cluster.room_without(node, load));
        if self.is_gone(turn) {
            self.forget(loads);
        }
        self.refresh(cluster, loads);
        self.is_stale = true;
    }

    /// Applies an end that the cluster already contains.
    pub fn ended(&mut self, cluster: &Cluster, turn: Turn, loads: &[(usize, Load)]) {
        self.recount(cluster, loads, |node, load| cluster.room_with(node, load));
        if self.is_gone(turn) {
            self.recall(loads);
        }
        self.refresh(cluster, loads);
        self.is_stale = true;
        self.has_hope |= turn.0 == End::Unknown;
    }

    /// Moves to the first moment at which the job fits and returns its time: `Some(None)` if it depends on a job
    /// without a maximum runtime, `None` if there is no such moment.
    pub fn move_to_first_fit(&mut self, cluster: &Cluster, running: &Running) -> Option<Option<Timestamp>> {
        let shape = Arc::clone(&self.goal.as_ref()?.shape);
        match shape.parts.len() {
            1 => self.shift(cluster, running, &shape)?,
            _ if self.is_stale => self.walk(cluster, running, &shape)?,
            _ => {}
        }
        self.is_stale = false;
        let (last, _) = running.last(self.order, Bound::Included(self.upto?))?;
        self.upto = Some(last);
        match (self.order, last.0) {
            (Order::ByEnd, End::By(end)) => Some(Some(end)),
            _ => Some(None),
        }
    }

    /// For jobs of equal workers. More room never hurts them, so the moment can be searched from the current one.
    fn shift(&mut self, cluster: &Cluster, running: &Running, shape: &Shape) -> Option<()> {
        let needed = u64::from(shape.parts[0].count);
        let has_hope = std::mem::take(&mut self.has_hope);
        if has_hope && self.order == Order::ByStart && best_order(cluster, shape) == Order::ByEnd {
            self.rewind(cluster, Order::ByEnd);
        }
        while self.fitting[0] < needed {
            match (self.advance(cluster, running), self.order) {
                (Some(()), _) => {}
                (None, Order::ByEnd) => self.rewind(cluster, Order::ByStart),
                (None, Order::ByStart) => return None,
            }
        }
        while let Some((last, run)) = running.last(self.order, Bound::Included(self.upto?)) {
            if self.fitting[0] - self.loss(cluster, shape, run) < needed {
                break;
            }
            self.retreat(cluster, running, last, run);
        }
        Some(())
    }

    /// For jobs of several parts. First fit may fail with more room where it succeeded with less, so every moment is tried.
    fn walk(&mut self, cluster: &Cluster, running: &Running, shape: &Shape) -> Option<()> {
        let orders = [Order::ByEnd, Order::ByStart];
        let best = best_order(cluster, shape);
        for order in orders.into_iter().skip_while(|order| *order != best) {
            self.rewind(cluster, order);
            while self.advance(cluster, running).is_some() {
                if self.may_fit(shape) && place(&self.tree, shape).is_some() {
                    return Some(());
                }
            }
        }
        None
    }

    fn may_fit(&self, shape: &Shape) -> bool {
        let mut parts = self.fitting.iter().zip(&shape.parts);
        parts.all(|(fitting, part)| *fitting >= u64::from(part.count))
    }

    /// Returns to the present.
    fn rewind(&mut self, cluster: &Cluster, order: Order) {
        self.order = order;
        self.upto = None;
        let gone: Vec<(usize, Load)> = self.gone.drain().collect();
        self.refresh(cluster, &gone);
        if let Some(goal) = &self.goal {
            let parts = goal.shape.parts.iter();
            self.fitting = parts
                .map(|part| self.tree.count(part.each(), part.count))
                .collect();
        }
    }

    /// Assumes that one more job has ended.
    fn advance(&mut self, cluster: &Cluster, running: &Running) -> Option<()> {
        let (turn, run) = running.next(self.order, self.upto)?;
        self.upto = Some(turn);
        self.forget(&run.holding.loads);
        self.refresh(cluster, &run.holding.loads);
        Some(())
    }

    /// Assumes that the last job still runs.
    fn retreat(&mut self, cluster: &Cluster, running: &Running, last: Turn, run: &Run) {
        let before = running.last(self.order, Bound::Excluded(last));
        self.upto = before.map(|(turn, _)| turn);
        self.recall(&run.holding.loads);
        self.refresh(cluster, &run.holding.loads);
    }

    /// How many workers of the first part would no longer fit if this job still ran.
    fn loss(&self, cluster: &Cluster, shape: &Shape, run: &Run) -> u64 {
        let need = shape.parts[0].each();
        let lost = run.holding.loads.iter().map(|(node, load)| {
            let mut gone = self.gone[node];
            gone.remove(load);
            let with = need.times(*node, &cluster.room_without(*node, &gone), u32::MAX);
            u64::from(need.times(*node, &self.tree.get(*node), u32::MAX) - with)
        });
        lost.sum()
    }

    fn forget(&mut self, loads: &[(usize, Load)]) {
        for (node, load) in loads {
            self.gone.entry(*node).or_default().add(load);
        }
    }

    fn recall(&mut self, loads: &[(usize, Load)]) {
        for (node, load) in loads {
            let gone = self
                .gone
                .get_mut(node)
                .expect("only those come back that were gone");
            gone.remove(load);
            if *gone == Load::default() {
                self.gone.remove(node);
            }
        }
    }

    fn refresh(&mut self, cluster: &Cluster, loads: &[(usize, Load)]) {
        let nothing = Load::default();
        for (node, _) in loads {
            let before = self.tree.get(*node);
            let room = cluster.room_without(*node, self.gone.get(node).unwrap_or(&nothing));
            if before == room {
                continue;
            }
            if let Changed::These(nodes) = &mut self.changed {
                nodes.push(*node);
            }
            self.tree.set(*node, room);
            let parts = self.goal.iter().flat_map(|goal| &goal.shape.parts);
            for (fitting, part) in self.fitting.iter_mut().zip(parts) {
                let (now, then) = (
                    part.each().times(*node, &room, u32::MAX),
                    part.each().times(*node, &before, u32::MAX),
                );
                *fitting = (*fitting + u64::from(now)).saturating_sub(u64::from(then));
            }
        }
    }
}

/// By end, if the job can start once every job with a maximum runtime has ended.
fn best_order(cluster: &Cluster, shape: &Shape) -> Order {
    let fits = |part: &super::room::Part| cluster.lasting().has(part.each(), part.count);
    match shape.parts.iter().all(fits) {
        true => Order::ByEnd,
        false => Order::ByStart,
    }
}
