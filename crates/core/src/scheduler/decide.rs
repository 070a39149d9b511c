//! One round of decisions: which jobs start now.
//!
//! Jobs start in queue order until one does not fit. That job gets a reservation; jobs behind it start only if they do
//! not use the reserved room or end before the reservation begins.

use std::sync::Arc;

use jiff::Timestamp;

use super::demand::BackfillRoom;
use super::placing::{Share, place};
use super::queue::{Fit, JobGroupId, Key, Waiting};
use super::quota::RequestSum;
use super::request::Admission;
use super::reservation::{Reservation, Spare};
use super::running::{End, Run, Turn};
use super::search::{QuotaKept, Scene, first_start};
use super::{Alone, Scheduler};

impl Scheduler {
    pub(super) fn decide_round(&mut self, now: Timestamp) -> Vec<Admission> {
        let mut admitted = Vec::new();
        if self.alone.is_some() {
            return admitted;
        }
        let claim = self.start_claims(now, &mut admitted);
        self.stuck = claim.or_else(|| self.start_in_order(now, &mut admitted));
        if let Some(stuck) = self.stuck() {
            self.start_behind(stuck, now, &mut admitted);
        }
        admitted
    }

    /// Starts jobs up to the first one that does not fit, and returns that one.
    fn start_in_order(&mut self, now: Timestamp, admitted: &mut Vec<Admission>) -> Option<Key> {
        while self.alone.is_none() {
            let (key, group) = self.queue.first(&mut self.users)?;
            let Some(shares) = self.place_first(key, group) else {
                return Some(key);
            };
            admitted.push(self.start(key, &shares, now));
        }
        None
    }

    pub(super) fn start(&mut self, key: Key, shares: &[Share], now: Timestamp) -> Admission {
        let (admission, turn) = self.admit(key, shares, now);
        let loads = &self.running.get(turn).holding.loads;
        self.spare.started(&self.cluster, turn, loads);
        admission
    }

    pub(super) fn place_first(&self, key: Key, group: JobGroupId) -> Option<Vec<Share>> {
        let group = self.queue.group(group);
        match group.fit {
            _ if self.spare.is_too_big_now(key) => None,
            Fit::WithOthers => place(self.cluster.free(), &group.shape),
            Fit::Alone if self.running.is_empty() => self.cluster.squeeze(&group.shape),
            Fit::Alone | Fit::Never => None,
        }
    }

    /// Starts jobs behind a stuck job that do not delay it.
    fn start_behind(&mut self, stuck: (Key, JobGroupId), now: Timestamp, admitted: &mut Vec<Admission>) {
        if !self.may_any_start() {
            return;
        }
        let mut spare = std::mem::take(&mut self.spare);
        let kept = self.reserve(stuck, &mut spare, now);
        while let Some((key, shares)) = self.find_behind(stuck, &kept, &spare, now) {
            let (admission, turn) = self.admit(key, &shares, now);
            spare.passed(&self.cluster, turn, &self.running.get(turn).holding.loads);
            admitted.push(admission);
        }
        self.spare = spare;
    }

    /// False if certainly no queued job fits into the free room.
    fn may_any_start(&self) -> bool {
        let least = self.queue.index.summary();
        let may_fit = least.is_some_and(|least| least.first_in(0, self.cluster.free()).is_some());
        may_fit || !self.queue.sleepers.is_empty()
    }

    fn find_behind(
        &mut self,
        stuck: (Key, JobGroupId),
        kept: &Reservation,
        spare: &Spare,
        now: Timestamp,
    ) -> Option<(Key, Vec<Share>)> {
        let found = first_start(&Scene {
            queue: &self.queue,
            users: &self.users,
            stuck: stuck.0,
            backfill: BackfillRoom {
                kept,
                free: self.cluster.free(),
                spare: spare.tree(),
                now,
            },
            quota_kept: self.quota_kept(stuck),
        });
        for first in found.waiting {
            self.queue.park(first, &mut self.users);
        }
        for first in found.awake {
            self.queue.wake(first, &mut self.users);
        }
        found.start
    }

    /// Computes the reservation of a stuck job.
    pub(super) fn reserve(
        &self,
        (key, group): (Key, JobGroupId),
        spare: &mut Spare,
        now: Timestamp,
    ) -> Reservation {
        let group = self.queue.group(group);
        match group.fit {
            Fit::Alone => Reservation::of_everything(&self.running, now),
            Fit::WithOthers | Fit::Never => {
                spare.reserve(&self.cluster, &self.running, (key, &group.shape), now)
            }
        }
    }

    /// The quota that a stuck job will need.
    pub(super) fn quota_kept(&self, (key, group): (Key, JobGroupId)) -> QuotaKept {
        QuotaKept {
            user: self.queue.get(key).user,
            asked: self.queue.group(group).asked,
        }
    }

    fn admit(&mut self, key: Key, shares: &[Share], now: Timestamp) -> (Admission, Turn) {
        let group = self.queue.group(self.queue.get(key).group);
        let (shape, fit) = (Arc::clone(&group.shape), group.fit);
        let Waiting { request, user, .. } = self.queue.remove(key, &mut self.users);
        let end = End::of(now, request.max_runtime);
        let (placement, holding) = self.cluster.seat(&request, &shape, shares);
        let id = request.id;
        let alone = (fit == Fit::Alone).then(|| self.excess(&shape));
        if let Some(excess) = alone.clone() {
            let id = id.clone();
            self.alone = Some(Alone { id, excess });
        }
        let run = Run {
            id: id.clone(),
            user,
            asked: RequestSum::of(&shape),
            holding,
            started: now,
            leaving: false,
        };
        let turn = self.count(run, end);
        let admission = Admission { id, placement, alone };
        (admission, turn)
    }
}
