//! Bugs put into the real code on purpose, one line each, to prove that the simulator finds such bugs.
//!
//! Off unless a test of this crate (or a build with the feature `planted-bugs`) switches one on for its
//! own thread. In every other build [`bug`] is constantly false and costs nothing.

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
    /// Reports of earlier attempts are taken for the current one.
    OldAttemptsCount,
    /// One worker of a job is never launched.
    OneWorkerNotLaunched,
    /// Trainers start before the parameter servers listen.
    GoWithoutPservers,
    /// A parameter server that ends early is not noticed.
    PserverMayEnd,
    /// The first trainer that is done ends the job well.
    OneTrainerIsEnough,
    /// Failed workers are restarted more often than asked for.
    RetriesWithoutEnd,
    /// A restart keeps the attempt's number.
    SameAttemptAgain,
    /// A restart is ordered before it is stored.
    RestartNotWritten,
    /// Parameter servers are not stopped when the trainers are done.
    PserversKeepRunning,
    /// A kill rewrites how a job that was already stopping ends.
    KillRewritesOutcome,
    /// The start limit never passes.
    NoStartLimit,
    /// A stop that went missing is not repeated.
    StopOnlyOnce,
    /// A launch that went missing is not repeated.
    LaunchOnlyOnce,
    /// A go that went missing is not repeated.
    GoOnlyOnce,
    /// An attempt that vanished is launched again under the same number.
    LaunchTheVanished,
    /// A restart of the machine changes nothing.
    RebootIgnored,
    /// A submit is acknowledged and not stored.
    AcceptWithoutWriting,
    /// Two live jobs of a user may have the same name.
    NamesNotChecked,
    /// A killed job keeps its name until its last worker is gone.
    NameKeptAfterKill,
    /// The record of a job is removed while its workers run.
    RemovedWhileRunning,
    /// A job's room is given away while its workers still end.
    RoomFreeTooEarly,
    /// A job that is killed while it waits stays in the queue.
    KilledStaysQueued,
    /// The same key makes a second job.
    KeyForgotten,
    /// Jobs taken over from an earlier server take no room.
    AdoptedTakeNoRoom,
}

#[cfg(any(test, feature = "planted-bugs"))]
mod switch {
    use std::cell::Cell;

    use super::Planted;

    thread_local! {
        static ACTIVE: Cell<Option<Planted>> = const { Cell::new(None) };
    }

    /// Runs `body` with the bug in place, on this thread only.
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

    /// Whether this bug is in place.
    pub fn bug(planted: Planted) -> bool {
        ACTIVE.get() == Some(planted)
    }
}

#[cfg(any(test, feature = "planted-bugs"))]
pub use switch::{bug, with_bug};

/// Whether this bug is in place: never.
#[cfg(not(any(test, feature = "planted-bugs")))]
#[inline(always)]
pub const fn bug(_planted: Planted) -> bool {
    false
}
