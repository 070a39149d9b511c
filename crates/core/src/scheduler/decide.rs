//! One round of decisions: who starts now.
//!
//! Jobs are tried in the order of the queue. The first that does not fit gets a reservation; those behind it
//! start only if they fit beside it, or are over before it begins.

use std::sync::Arc;

use jiff::Timestamp;

use super::Scheduler;
use super::accounts::UserId;
use super::placing::{Share, loads, may_fit, place};
use super::queue::{Fit, Group, GroupId, Key, Standing, Waiting};
use super::quota::Tally;
use super::request::Admission;
use super::reservation::{Reservation, Spare};
use super::running::{End, Run};
use super::words;

/// What came of trying the first job of a group.
enum Outcome {
    Start(Vec<Share>),
    /// Not even room for it.
    Stuck,
    /// Room for it, but kept for another.
    Blocked,
    /// Its user's quota is kept for another job of the same user.
    QuotaKept,
}

impl Scheduler {
    pub(super) fn decide_round(&mut self, now: Timestamp) -> Vec<Admission> {
        let mut admitted = Vec::new();
        if self.alone.is_some() {
            return admitted;
        }
        self.wake(now);
        loop {
            self.check_reservation();
            let Some((key, group)) = self.queue.first_ready() else {
                break;
            };
            let ahead = self.queue.first_stuck().filter(|(stuck, _)| *stuck < key);
            let outcome = match ahead {
                None => self.try_first(group),
                Some(ahead) => self.try_behind(ahead, group, now),
            };
            match outcome {
                Outcome::Start(shares) => admitted.push(self.admit(key, ahead.is_none(), &shares, now)),
                Outcome::Stuck => self.queue.set_standing(group, Standing::Stuck),
                Outcome::Blocked => self.queue.set_standing(group, Standing::Blocked),
                Outcome::QuotaKept => self.queue.put_aside(group),
            }
            if self.alone.is_some() {
                break;
            }
        }
        self.queue.end_round(&self.accounts);
        admitted
    }

    /// Lets those try again that freed room may have helped.
    fn wake(&mut self, now: Timestamp) {
        if !std::mem::take(&mut self.grown) {
            return;
        }
        let first = self.queue.first_stuck();
        match first.filter(|(_, group)| matches!(self.try_first(*group), Outcome::Stuck)) {
            Some(first) => self.wake_behind(first, now),
            None => self.wake_all(),
        }
    }

    fn wake_all(&mut self) {
        self.forget_reservation();
        let (free, idle) = (self.cluster.free(), self.running.is_empty());
        self.queue.unstick(free.total().cpu, |group| match group.fit {
            Fit::Beside => may_fit(free, &group.shape),
            Fit::Alone => idle,
            Fit::Never => false,
        });
    }

    /// The first stuck job stays where it is. Of the many behind it, only those try that have a chance beside it.
    fn wake_behind(&mut self, first: (Key, GroupId), now: Timestamp) {
        let kept = self.reserve(first, now);
        let (free, spare) = (self.cluster.free(), self.spare.tree());
        self.queue.wake(first.1, free.total().cpu, |group| {
            if group.fit != Fit::Beside || !may_fit(free, &group.shape) {
                return Standing::Stuck;
            }
            let beside = !kept.everything && may_fit(spare, &group.shape);
            match beside || is_over_before(&kept, group, now) {
                true => Standing::Ready,
                false => Standing::Blocked,
            }
        });
    }

    /// What is kept, and who is blocked by it, follows the first stuck job.
    fn check_reservation(&mut self) {
        let first = self.queue.first_stuck().map(|(key, _)| key);
        if std::mem::replace(&mut self.kept_for, first) != first {
            self.forget_reservation();
        }
    }

    pub(super) fn forget_reservation(&mut self) {
        if self.reservation.take().is_some() {
            self.spare.clear(&self.cluster);
        }
        self.queue.unblock();
    }

    fn try_first(&self, group: GroupId) -> Outcome {
        let group = self.queue.group(group);
        let shares = match group.fit {
            Fit::Beside => place(self.cluster.free(), &group.shape),
            Fit::Alone if self.running.is_empty() => self.cluster.squeeze(&group.shape),
            Fit::Alone | Fit::Never => None,
        };
        shares.map_or(Outcome::Stuck, Outcome::Start)
    }

    fn try_behind(&mut self, ahead: (Key, GroupId), id: GroupId, now: Timestamp) -> Outcome {
        let group = self.queue.group(id);
        if group.fit != Fit::Beside || !may_fit(self.cluster.free(), &group.shape) {
            return Outcome::Stuck;
        }
        if !self.leaves_quota(ahead.1, group.first_user(), group.asked) {
            return Outcome::QuotaKept;
        }
        let kept = match self.reservation {
            Some(kept) => kept,
            None => self.reserve(ahead, now),
        };
        let group = self.queue.group(id);
        if is_over_before(&kept, group, now) {
            return place(self.cluster.free(), &group.shape).map_or(Outcome::Stuck, Outcome::Start);
        }
        if kept.everything {
            return Outcome::Blocked;
        }
        place(self.spare.tree(), &group.shape).map_or(Outcome::Blocked, Outcome::Start)
    }

    /// A job of the same user must not take the quota that the job ahead will need.
    pub(super) fn leaves_quota(&self, ahead: GroupId, user: Option<UserId>, asked: Tally) -> bool {
        let ahead = self.queue.group(ahead);
        let Some(user) = user.filter(|user| ahead.first_user() == Some(*user)) else {
            return true;
        };
        let account = self.accounts.get(user);
        account.quota.allows(account.used.plus(ahead.asked), asked)
    }

    fn reserve(&mut self, ahead: (Key, GroupId), now: Timestamp) -> Reservation {
        let nothing = Spare::default();
        let mut spare = std::mem::replace(&mut self.spare, nothing);
        let kept = self.reservation_for(ahead, &mut spare, now);
        self.spare = spare;
        self.reservation = Some(kept);
        kept
    }

    /// Works out what is kept for a stuck job.
    pub(super) fn reservation_for(
        &self,
        (key, group): (Key, GroupId),
        spare: &mut Spare,
        now: Timestamp,
    ) -> Reservation {
        let group = self.queue.group(group);
        match group.fit {
            Fit::Alone => Reservation::of_everything(key, &self.running, now),
            Fit::Beside | Fit::Never => spare.reserve(&self.cluster, &self.running, key, &group.shape, now),
        }
    }

    fn admit(&mut self, key: Key, is_first: bool, shares: &[Share], now: Timestamp) -> Admission {
        let group = self.queue.group(self.queue.get(key).group);
        let (shape, fit) = (Arc::clone(&group.shape), group.fit);
        let Waiting { request, user, .. } = self.queue.remove(key, &mut self.accounts);
        let end = End::of(now, request.max_runtime);
        if is_first {
            self.forget_reservation();
        } else if !self.reservation.is_some_and(|kept| is_before(end, kept.start)) {
            self.spare.lower(&loads(&shape.parts, shares));
        }
        let (placement, holding) = self.cluster.seat(&request, &shape, shares);
        self.follow(&holding);
        let id = request.id;
        let note = (fit == Fit::Alone).then(|| {
            self.alone = Some(id.clone());
            words::more_than_here(&shape, self.cluster.idle())
        });
        let run = Run {
            id: id.clone(),
            user,
            asked: Tally::of(&shape),
            holding,
        };
        self.count(run, end);
        Admission { id, placement, note }
    }
}

/// True when a job of this group that starts now is gone when the reservation begins.
fn is_over_before(kept: &Reservation, group: &Group, now: Timestamp) -> bool {
    is_before(End::of(now, group.max_runtime), kept.start)
}

/// Strictly: of jobs with the same end, only those that came first are taken to be gone.
pub(super) fn is_before(end: End, start: Option<Timestamp>) -> bool {
    matches!((end, start), (End::By(end), Some(start)) if end < start)
}
