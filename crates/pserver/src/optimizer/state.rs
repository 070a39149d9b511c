//! The state that an optimizer keeps beside values: how much there is, and what it is before the first update.

use super::{Optimizer, Progress, Rule};

impl Rule {
    pub(super) fn betas(self) -> Option<(f64, f64)> {
        match self {
            Rule::Adam { beta1, beta2, .. }
            | Rule::AdamW { beta1, beta2, .. }
            | Rule::Adamax { beta1, beta2, .. } => Some((beta1, beta2)),
            _ => None,
        }
    }

    fn state_per_element(self) -> usize {
        match self {
            Rule::Sgd | Rule::RowAdagrad { .. } => 0,
            Rule::Momentum { .. } | Rule::Adagrad { .. } => 1,
            Rule::RmsProp {
                momentum, centered, ..
            } => 1 + usize::from(centered) + usize::from(momentum != 0.0),
            Rule::AdaDelta { .. } | Rule::Ftrl { .. } => 2,
            Rule::Adam { .. } | Rule::AdamW { .. } | Rule::Adamax { .. } => 2,
            Rule::Velocity { momentum, scale } => scale.state_per_element() + usize::from(momentum != 0.0),
        }
    }

    /// The first value of sums of squares; the other state begins at 0.
    fn initial(self) -> f32 {
        match self {
            Rule::Adagrad { initial, .. } => initial as f32,
            _ => 0.0,
        }
    }
}

impl Optimizer {
    /// Floats of state per element; one more for an average.
    pub fn state_per_element(&self) -> usize {
        self.rule.state_per_element() + usize::from(self.average > 0)
    }

    /// Floats of state per row, independent of its length.
    pub fn state_per_row(&self) -> usize {
        usize::from(matches!(self.rule, Rule::RowAdagrad { .. }))
    }

    /// Sets the state to that before the first update of `values`; an average begins as the values.
    pub fn reset(&self, values: &[f32], state: &mut [f32]) {
        let averaged = match self.average {
            0 => 0,
            _ => values.len(),
        };
        let (of_rule, average) = state.split_at_mut(state.len() - averaged);
        of_rule.fill(self.rule.initial());
        average.copy_from_slice(&values[..averaged]);
    }

    /// The same for a dense tensor, which has no rows.
    pub fn of_dense(mut self) -> Optimizer {
        if let Rule::RowAdagrad { epsilon } = self.rule {
            self.rule = Rule::Adagrad {
                epsilon,
                lr_decay: 0.0,
                initial: 0.0,
            };
        }
        self
    }

    /// Whether this optimizer can make updates of a tensor declared with `declared`: the rule and the layout of the
    /// state are the same, only constants differ.
    pub fn continues(&self, declared: &Optimizer) -> bool {
        self.rule.name() == declared.rule.name()
            && self.state_per_element() == declared.state_per_element()
            && self.state_per_row() == declared.state_per_row()
            && (self.average > 0) == (declared.average > 0)
    }

    /// The progress after `updates` with these constants.
    pub fn progress_after(&self, updates: u64, samples: u64) -> Progress {
        let (beta1, beta2) = self.rule.betas().unwrap_or((1.0, 1.0));
        Progress {
            updates,
            samples,
            beta1_power: power(beta1 as f32, updates),
            beta2_power: power(beta2 as f32, updates),
        }
    }
}

/// The repeated product, with the rounding errors of one update after the other.
fn power(beta: f32, updates: u64) -> f32 {
    let mut power = 1.0;
    for _ in 0..updates {
        let next = power * beta;
        if next == power {
            break;
        }
        power = next;
    }
    power
}
