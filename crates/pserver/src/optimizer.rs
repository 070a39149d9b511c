//! How a gradient changes values: the optimizers, regularization, clipping and averaging.
//!
//! This file defines optimizers and begins their updates. `update` has the arithmetic, `constants` the names and ranges
//! of their numbers, and `encoding` the wire format.

mod constants;
mod encoding;
mod state;
mod update;

use crate::schedule::Schedule;

pub use constants::{OutOfRange, Range, ranged};
pub use update::{Update, all_finite};

/// The rule and its constants. Flags select the form of another framework.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rule {
    Sgd,
    Momentum {
        momentum: f64,
        /// `v = momentum * v + (1 - dampening) * g`, but the first `v` is `g`.
        dampening: f64,
        nesterov: bool,
    },
    Adagrad {
        epsilon: f64,
        /// The rate of update t is divided by `1 + (t - 1) * lr_decay`.
        lr_decay: f64,
        /// The first value of the sums.
        initial: f64,
    },
    /// One sum of squares per row; for a dense tensor the same as `Adagrad`.
    RowAdagrad {
        epsilon: f64,
    },
    Adam {
        beta1: f64,
        beta2: f64,
        epsilon: f64,
        /// As PaddlePaddle with a sparse gradient: corrected as the next update, and where the gradient has no row, so that it
        /// is 0, epsilon is divided by `sqrt(1 - beta2^t)`.
        of_sparse: bool,
    },
    AdamW {
        beta1: f64,
        beta2: f64,
        epsilon: f64,
        decay: f64,
    },
    Adamax {
        beta1: f64,
        beta2: f64,
        epsilon: f64,
        /// `max(beta2 * u, |g| + epsilon)`, as PyTorch; otherwise `max(beta2 * u + epsilon, |g|)`, as PaddlePaddle.
        epsilon_inside: bool,
    },
    RmsProp {
        rho: f64,
        momentum: f64,
        epsilon: f64,
        /// Subtracts the square of the running mean of the gradient.
        centered: bool,
        /// `g / (sqrt(s) + epsilon)` and the rate applied to the velocity, as PyTorch; otherwise `g / sqrt(s + epsilon)`
        /// and the rate inside the velocity, as PaddlePaddle.
        epsilon_outside: bool,
    },
    AdaDelta {
        rho: f64,
        epsilon: f64,
    },
    Ftrl {
        beta: f64,
        l1: f64,
        l2: f64,
    },
    /// The form of 2017: `v = momentum * v - rate_i * (g + l2 * w); w += v`, where `scale` computes a rate for each
    /// element from the gradients without regularization.
    Velocity {
        momentum: f64,
        scale: Scale,
    },
}

/// The factor of an element's rate in [`Rule::Velocity`]. `s` stands for sums and running means of squares.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scale {
    One,
    /// `s += g * g; 1 / sqrt(s + epsilon)`
    Adagrad {
        epsilon: f64,
    },
    /// `s = rho * s + (1 - rho) * g * g`, starting with the first square; `1 / sqrt(s + epsilon)`
    DecayedAdagrad {
        rho: f64,
        epsilon: f64,
    },
    /// As `DecayedAdagrad`, with the variance: `1 / sqrt(s - mean * mean + epsilon)`
    RmsProp {
        rho: f64,
        epsilon: f64,
    },
    AdaDelta {
        rho: f64,
        epsilon: f64,
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
    /// Rates and constants are computed in `f64` and rounded once, and Adam's correction is `1 - beta ^ t`, as in
    /// PyTorch. Otherwise every constant is rounded to `f32` first, and the correction uses the product of the betas of
    /// all updates, as in PaddlePaddle.
    pub double: bool,
}

/// What changes from one update of a tensor to the next, apart from values and state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Updates so far.
    pub updates: u64,
    /// Samples so far, as reported by the pushes.
    pub samples: u64,
    /// The products of the betas of all updates.
    pub beta1_power: f32,
    pub beta2_power: f32,
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
            schedule: Schedule::constant(f64::from(rate)),
            l1: 0.0,
            l2: 0.0,
            proximal_l1: 0.0,
            clip: 0.0,
            average: 0,
            double: false,
        }
    }

    /// Begins the next update. `progress` is that of the tensor, whichever optimizer made its earlier updates.
    pub fn begin(&self, progress: &mut Progress, pace: Pace) -> Update {
        progress.samples = progress.samples.saturating_add(pace.samples);
        let rate = match pace.rate {
            Some(rate) => f64::from(rate),
            None => self.schedule.rate(progress.updates, progress.samples),
        };
        progress.updates += 1;
        if let Some((beta1, beta2)) = self.rule.betas() {
            progress.beta1_power *= beta1 as f32;
            progress.beta2_power *= beta2 as f32;
        }
        Update::new(self, progress, rate)
    }
}

#[cfg(test)]
mod tests;
