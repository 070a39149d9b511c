//! Why a job waits, in words its owner understands.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::names::JobId;

/// Why a queued job does not run yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Why {
    /// One line: `waits for 3 cores: 4 asked, 1 free of 8`.
    pub reason: String,
    /// The first of the jobs that start before it.
    pub ahead: Vec<JobId>,
    /// How many start before it.
    pub ahead_total: usize,
    /// When it starts at the latest, where that can be told.
    pub estimate: Option<Estimate>,
    /// The smallest change that would start it now: `would start now with -parallelism 6`.
    pub change: Option<String>,
}

/// A time and what it rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Estimate {
    pub at: Timestamp,
    /// `if running jobs use all of their -max-runtime`.
    pub basis: String,
}
