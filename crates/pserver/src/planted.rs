//! Bugs planted in the server on purpose, one line each, to prove that the crash suite finds such bugs.
//!
//! Only tests of this crate can switch one on, for one server. In every other build [`Server::has_bug`] is constant false.

use crate::server::Server;

/// Every planted bug. The first five are ones that this server had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(test), expect(dead_code, reason = "only tests plant bugs"))]
pub(crate) enum Planted {
    /// The file that is loaded last decides how often a dense tensor was updated.
    LastFileCounts,
    /// A trainer that restarts alone gets its state of the latest checkpoint.
    StateOfCheckpoint,
    /// If trainers push one tensor with different rates, that of the first trainer wins.
    FirstRateWins,
    /// All runs save their checkpoints in one folder.
    OneFolderForAllRuns,
    /// A full table drops rows as soon as one more is needed.
    EvictsAtOnce,
    /// Tensors that were created after the checkpoint keep their values.
    LaterTensorsStay,
    /// How often ids without a row were seen is not saved.
    ForgetsSightings,
    /// All rows count as used at the time of the checkpoint.
    ForgetsLastUse,
    /// What trainers had pushed of a step survives a rollback.
    KeepsPending,
    /// Trainers' states are not saved.
    ForgetsStates,
}

impl Planted {
    #[cfg(test)]
    pub(crate) const ALL: [Planted; 10] = [
        Planted::LastFileCounts,
        Planted::StateOfCheckpoint,
        Planted::FirstRateWins,
        Planted::OneFolderForAllRuns,
        Planted::EvictsAtOnce,
        Planted::LaterTensorsStay,
        Planted::ForgetsSightings,
        Planted::ForgetsLastUse,
        Planted::KeepsPending,
        Planted::ForgetsStates,
    ];
}

impl Server {
    /// Whether this bug is planted: never in a program.
    #[cfg(not(test))]
    #[inline(always)]
    pub(crate) const fn has_bug(&self, _planted: Planted) -> bool {
        false
    }

    #[cfg(test)]
    pub(crate) fn has_bug(&self, planted: Planted) -> bool {
        self.planted.get() == Some(&planted)
    }
}
