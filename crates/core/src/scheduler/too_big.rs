//! A request that no amount of waiting would start.

/// Says that the job can never start, and the largest that could.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct TooBig {
    /// What is asked for and what there is.
    pub problem: String,
    /// The largest request of this kind that would be taken.
    pub largest: Option<String>,
}
