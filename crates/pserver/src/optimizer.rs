//! How a gradient changes values: the optimizers, regularization, clipping and averaging.
//!
//! This file defines optimizers and begins their updates; `update` has the arithmetic and `encoding` the wire format.

mod encoding;
mod update;

use crate::schedule::Schedule;

pub use update::{Update, all_finite};

/// The rule and its constants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rule {
    Sgd,
    Momentum {
        momentum: f32,
        nesterov: bool,
    },
    Adagrad {
        epsilon: f32,
    },
    /// One sum of squares per row; for a dense tensor the same as `Adagrad`.
    RowAdagrad {
        epsilon: f32,
    },
    Adam {
        beta1: f32,
        beta2: f32,
        epsilon: f32,
    },
    AdamW {
        beta1: f32,
        beta2: f32,
        epsilon: f32,
        decay: f32,
    },
    Adamax {
        beta1: f32,
        beta2: f32,
        epsilon: f32,
    },
    RmsProp {
        rho: f32,
        momentum: f32,
        epsilon: f32,
    },
    AdaDelta {
        rho: f32,
        epsilon: f32,
    },
    Ftrl {
        beta: f32,
        l1: f32,
        l2: f32,
    },
    /// The form of 2017: `v = momentum * v - rate_i * (g + l2 * w); w += v`, where `scale` computes a rate for each
    /// element from the gradients without regularization.
    Velocity {
        momentum: f32,
        scale: Scale,
    },
}

/// The factor of an element's rate in [`Rule::Velocity`]. `s` stands for sums and running means of squares.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scale {
    One,
    /// `s += g * g; 1 / sqrt(s + epsilon)`
    Adagrad {
        epsilon: f32,
    },
    /// `s = rho * s + (1 - rho) * g * g`, starting with the first square; `1 / sqrt(s + epsilon)`
    DecayedAdagrad {
        rho: f32,
        epsilon: f32,
    },
    /// As `DecayedAdagrad`, with the variance: `1 / sqrt(s - mean * mean + epsilon)`
    RmsProp {
        rho: f32,
        epsilon: f32,
    },
    AdaDelta {
        rho: f32,
        epsilon: f32,
    },
}

impl Scale {
    fn state_per_element(self) -> usize {
        match self {
            Scale::One => 0,
            Scale::Adagrad { .. } | Scale::DecayedAdagrad { .. } => 1,
            Scale::RmsProp { .. } | Scale::AdaDelta { .. } => 2,
        }
    }
}

/// How a tensor is updated.
#[derive(Debug, Clone, PartialEq)]
pub struct Optimizer {
    pub rule: Rule,
    pub schedule: Schedule,
    /// Added to the gradient: `l1 * sign(w)`.
    pub l1: f32,
    /// Added to the gradient: `l2 * w`.
    pub l2: f32,
    /// After each update, every value moves towards 0 by `rate * proximal_l1`, but not beyond.
    pub proximal_l1: f32,
    /// Every element of a gradient is first clipped to ±clip; 0: no clipping.
    pub clip: f32,
    /// Steps over which the values are averaged; 0: no average.
    pub average: u32,
}

/// What changes from one update of a tensor to the next, apart from values and state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Updates so far.
    pub updates: u64,
    /// Samples so far, as reported by the pushes.
    pub samples: u64,
    beta1_power: f32,
    beta2_power: f32,
}

/// What pushes specify about an update.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Pace {
    /// Overrides the schedule.
    pub rate: Option<f32>,
    /// The number of samples of the gradients.
    pub samples: u64,
}

impl Default for Progress {
    fn default() -> Progress {
        Progress {
            updates: 0,
            samples: 0,
            beta1_power: 1.0,
            beta2_power: 1.0,
        }
    }
}

impl Optimizer {
    pub fn new(rule: Rule, rate: f32) -> Optimizer {
        Optimizer {
            rule,
            schedule: Schedule::constant(rate),
            l1: 0.0,
            l2: 0.0,
            proximal_l1: 0.0,
            clip: 0.0,
            average: 0,
        }
    }

    /// Floats of state per element; one more for an average.
    pub fn state_per_element(&self) -> usize {
        let of_rule = match self.rule {
            Rule::Sgd | Rule::RowAdagrad { .. } => 0,
            Rule::Momentum { .. } | Rule::Adagrad { .. } => 1,
            Rule::RmsProp { momentum: 0.0, .. } => 1,
            Rule::RmsProp { .. } | Rule::AdaDelta { .. } | Rule::Ftrl { .. } => 2,
            Rule::Adam { .. } | Rule::AdamW { .. } | Rule::Adamax { .. } => 2,
            Rule::Velocity { momentum, scale } => scale.state_per_element() + usize::from(momentum != 0.0),
        };
        of_rule + usize::from(self.average > 0)
    }

    /// Floats of state per row, independent of its length.
    pub fn state_per_row(&self) -> usize {
        usize::from(matches!(self.rule, Rule::RowAdagrad { .. }))
    }

    /// Begins the next update.
    pub fn begin(&self, progress: &mut Progress, pace: Pace) -> Update {
        progress.samples = progress.samples.saturating_add(pace.samples);
        let rate = pace
            .rate
            .unwrap_or_else(|| self.schedule.rate(progress.updates, progress.samples));
        progress.updates += 1;
        if let Rule::Adam { beta1, beta2, .. }
        | Rule::AdamW { beta1, beta2, .. }
        | Rule::Adamax { beta1, beta2, .. } = self.rule
        {
            progress.beta1_power *= beta1;
            progress.beta2_power *= beta2;
        }
        Update::new(self, progress, rate)
    }
}

#[cfg(test)]
mod tests;
