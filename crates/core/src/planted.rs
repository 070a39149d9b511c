//! Bugs planted in the real code on purpose, one line each, to prove that the simulator finds such bugs.
//!
//! Off unless a test of this crate (or a build with the feature `planted-bugs`) enables one for its own thread. In
//! every other build [`bug`] is constant false and costs nothing.

macro_rules! planted {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Every planted bug.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Planted {
            $($(#[$doc])* $name,)*
        }

        impl Planted {
            /// The whole list.
            pub const ALL: &[Planted] = &[$(Planted::$name,)*];
        }
    };
}

planted! {
    /// A final job reacts to late reports.
    FinalCanChange,
    /// A job is final while workers still run.
    FinalTooEarly,
    /// Reports of earlier attempts are applied to the current one.
    OldAttemptsCount,
    /// One worker of a job is never launched.
    OneWorkerNotLaunched,
    /// Trainers start before the parameter servers listen.
    GoWithoutPservers,
    /// A parameter server that exits early is not noticed.
    PserverMayEnd,
    /// The first trainer that finishes makes the job succeed.
    OneTrainerIsEnough,
    /// Failed workers are restarted more often than allowed.
    RetriesWithoutEnd,
    /// A restart keeps the attempt's number.
    SameAttemptAgain,
    /// A restart is ordered before it is stored.
    RestartNotWritten,
    /// Parameter servers are not stopped when the trainers are done.
    PserversKeepRunning,
    /// A kill changes the outcome of a job that was already stopping.
    KillRewritesOutcome,
    /// The start limit never expires.
    NoStartLimit,
    /// A lost stop is not repeated.
    StopOnlyOnce,
    /// A lost launch is not repeated.
    LaunchOnlyOnce,
    /// A lost go is not repeated.
    GoOnlyOnce,
    /// A vanished attempt is launched again under the same number.
    LaunchTheVanished,
    /// A restart of the machine changes nothing.
    RebootIgnored,
    /// A submit is acknowledged but not stored.
    AcceptWithoutWriting,
    /// Two live jobs of a user may have the same name.
    NamesNotChecked,
    /// A submit without a name gets that of another live job.
    GeneratedNameTaken,
    /// A killed job keeps its name until its last worker is gone.
    NameKeptAfterKill,
    /// The record of a job is removed while its workers run.
    RemovedWhileRunning,
    /// A job's resources are reused while its workers are still stopping.
    RoomFreeTooEarly,
    /// A job that is killed while queued stays in the queue.
    KilledStaysQueued,
    /// The same key creates a second job.
    KeyForgotten,
    /// A job that found no room is queued again while some of its workers still run.
    RequeuedTooEarly,
    /// A job is stopped for another although its owner uses no more than the guarantee.
    ReclaimFromTheGuaranteed,
    /// A running job that lacks a worker keeps the room of the others for ever.
    NeverWithdrawTheIncomplete,
    /// A running job that lacks a worker is stopped although nobody needs its room.
    WithdrawForNobody,
    /// Jobs adopted from an earlier server hold no resources.
    AdoptedTakeNoRoom,
    /// A kill that was carried out while the store refused writes is not stored later.
    UnrecordedKillForgotten,
}

#[cfg(any(test, feature = "planted-bugs"))]
mod switch {
    use std::cell::Cell;

    use super::Planted;

    thread_local! {
        static ACTIVE: Cell<Option<Planted>> = const { Cell::new(None) };
    }

    /// Runs `body` with the bug enabled, on this thread only.
    pub fn with_bug<T>(planted: Planted, body: impl FnOnce() -> T) -> T {
        struct Off;
        impl Drop for Off {
            fn drop(&mut self) {
                ACTIVE.set(None);
            }
        }
        ACTIVE.set(Some(planted));
        let _off = Off;
        body()
    }

    /// Whether this bug is enabled.
    pub fn bug(planted: Planted) -> bool {
        ACTIVE.get() == Some(planted)
    }
}

#[cfg(any(test, feature = "planted-bugs"))]
pub use switch::{bug, with_bug};

/// Whether this bug is enabled: never.
#[cfg(not(any(test, feature = "planted-bugs")))]
#[inline(always)]
pub const fn bug(_planted: Planted) -> bool {
    false
}
