//! The arithmetic of one update, element by element.
//!
//! It is plain `f32` in the order written here, without fused operations. A program that performs the same operations
//! in the same order gets the same bits. Vectorization changes nothing, because no element depends on another.

use super::{Optimizer, Progress, Rule, Scale};

/// One update with its constants computed; applied to any number of slices.
#[derive(Debug, Clone, Copy)]
pub struct Update {
    rule: Rule,
    rate: f32,
    l1: f32,
    l2: f32,
    proximal_l1: f32,
    clip: f32,
    /// Adam: `1 - beta1^t` and `sqrt(1 - beta2^t)`.
    correction1: f32,
    correction2: f32,
    /// The weight of the newest values in the average; 0: no average.
    newest: f32,
    is_first: bool,
}

impl Update {
    pub(super) fn new(optimizer: &Optimizer, progress: &Progress, rate: f32) -> Update {
        let newest = match optimizer.average {
            0 => 0.0,
            window => 1.0 / progress.updates.min(u64::from(window)) as f32,
        };
        Update {
            rule: optimizer.rule,
            rate,
            l1: optimizer.l1,
            l2: optimizer.l2,
            proximal_l1: optimizer.proximal_l1,
            clip: optimizer.clip,
            correction1: 1.0 - progress.beta1_power,
            correction2: (1.0 - progress.beta2_power).sqrt(),
            newest,
            is_first: progress.updates == 1,
        }
    }

    /// Updates `values` and their `state`, which holds [`Optimizer::state_per_element`] runs as long as `values`.
    pub fn apply(&self, values: &mut [f32], state: &mut [f32], gradient: &[f32]) {
        let kept = match self.newest > 0.0 {
            true => state.len() - values.len(),
            false => state.len(),
        };
        let (state, average) = state.split_at_mut(kept);
        self.apply_rule(values, state, gradient);
        self.finish(values, average);
    }

    /// As [`Update::apply`] for a row whose state begins with [`Optimizer::state_per_row`] floats.
    pub fn apply_row(&self, values: &mut [f32], state: &mut [f32], gradient: &[f32]) {
        if let Rule::Velocity {
            scale: Scale::DecayedAdagrad { .. } | Scale::RmsProp { .. },
            ..
        } = self.rule
        {
            // A row has its own first update.
            let is_first = state[..values.len()].iter().all(|square| *square == 0.0);
            return Update { is_first, ..*self }.apply(values, state, gradient);
        }
        let Rule::RowAdagrad { epsilon } = self.rule else {
            return self.apply(values, state, gradient);
        };
        let (squares, average) = state.split_at_mut(1);
        let mut sum = 0.0;
        for (value, gradient) in values.iter().zip(gradient) {
            let g = self.prepared(*gradient, *value);
            sum += g * g;
        }
        squares[0] += sum / values.len() as f32;
        let divisor = squares[0].sqrt() + epsilon;
        for (value, gradient) in values.iter_mut().zip(gradient) {
            let g = self.prepared(*gradient, *value);
            *value -= self.rate * g / divisor;
        }
        self.finish(values, average);
    }

    /// Follows every rule: shrinks the values towards 0, then updates the average.
    fn finish(&self, values: &mut [f32], average: &mut [f32]) {
        if self.proximal_l1 != 0.0 {
            let step = self.rate * self.proximal_l1;
            for w in values.iter_mut() {
                *w = sign(*w) * (w.abs() - step).max(0.0);
            }
        }
        for (mean, value) in average.iter_mut().zip(&*values) {
            *mean += (*value - *mean) * self.newest;
        }
    }

    #[inline(always)]
    fn clipped(&self, gradient: f32) -> f32 {
        match self.clip > 0.0 {
            true => gradient.clamp(-self.clip, self.clip),
            false => gradient,
        }
    }

    #[inline(always)]
    fn regularized(&self, gradient: f32, value: f32) -> f32 {
        let mut g = gradient;
        if self.l2 != 0.0 {
            g += self.l2 * value;
        }
        if self.l1 != 0.0 {
            g += self.l1 * sign(value);
        }
        g
    }

    /// Clips first, then regularizes.
    #[inline(always)]
    fn prepared(&self, gradient: f32, value: f32) -> f32 {
        self.regularized(self.clipped(gradient), value)
    }

    #[rustfmt::skip] // One line per rule.
    fn apply_rule(&self, values: &mut [f32], state: &mut [f32], gradient: &[f32]) {
        match self.rule {
            Rule::Sgd => self.sgd(values, gradient),
            Rule::Momentum { momentum, nesterov } => self.momentum(values, state, gradient, momentum, nesterov),
            // A dense tensor has no rows: every element has its own sum.
            Rule::Adagrad { epsilon } | Rule::RowAdagrad { epsilon } => self.adagrad(values, state, gradient, epsilon),
            Rule::Adam { beta1, beta2, epsilon } => self.adam(values, state, gradient, [beta1, beta2, epsilon], 1.0),
            Rule::AdamW { beta1, beta2, epsilon, decay } => {
                self.adam(values, state, gradient, [beta1, beta2, epsilon], 1.0 - self.rate * decay);
            }
            Rule::Adamax { beta1, beta2, epsilon } => self.adamax(values, state, gradient, [beta1, beta2, epsilon]),
            Rule::RmsProp { rho, momentum, epsilon } => self.rmsprop(values, state, gradient, [rho, momentum, epsilon]),
            Rule::AdaDelta { rho, epsilon } => self.adadelta(values, state, gradient, rho, epsilon),
            Rule::Ftrl { beta, l1, l2 } => self.ftrl(values, state, gradient, [beta, l1, l2]),
            Rule::Velocity { momentum, scale } => self.velocity(values, state, gradient, momentum, scale),
        }
    }

    fn sgd(&self, values: &mut [f32], gradient: &[f32]) {
        for (w, g) in values.iter_mut().zip(gradient) {
            *w -= self.rate * self.prepared(*g, *w);
        }
    }

    fn momentum(
        &self,
        values: &mut [f32],
        state: &mut [f32],
        gradient: &[f32],
        momentum: f32,
        nesterov: bool,
    ) {
        for ((w, v), g) in values.iter_mut().zip(state).zip(gradient) {
            let g = self.prepared(*g, *w);
            *v = momentum * *v + g;
            *w -= match nesterov {
                true => self.rate * (g + momentum * *v),
                false => self.rate * *v,
            };
        }
    }

    fn adagrad(&self, values: &mut [f32], state: &mut [f32], gradient: &[f32], epsilon: f32) {
        for ((w, a), g) in values.iter_mut().zip(state).zip(gradient) {
            let g = self.prepared(*g, *w);
            *a += g * g;
            *w -= self.rate * g / (a.sqrt() + epsilon);
        }
    }

    fn adam(&self, values: &mut [f32], state: &mut [f32], gradient: &[f32], constants: [f32; 3], kept: f32) {
        let [beta1, beta2, epsilon] = constants;
        let rate = self.rate / self.correction1;
        let (first, second) = state.split_at_mut(values.len());
        for (((w, m), v), g) in values.iter_mut().zip(first).zip(second).zip(gradient) {
            let g = self.prepared(*g, *w);
            *m = beta1 * *m + (1.0 - beta1) * g;
            *v = beta2 * *v + (1.0 - beta2) * (g * g);
            *w = kept * *w - rate * (*m / (v.sqrt() / self.correction2 + epsilon));
        }
    }

    fn adamax(&self, values: &mut [f32], state: &mut [f32], gradient: &[f32], constants: [f32; 3]) {
        let [beta1, beta2, epsilon] = constants;
        let rate = self.rate / self.correction1;
        let (first, largest) = state.split_at_mut(values.len());
        for (((w, m), u), g) in values.iter_mut().zip(first).zip(largest).zip(gradient) {
            let g = self.prepared(*g, *w);
            *m = beta1 * *m + (1.0 - beta1) * g;
            *u = (beta2 * *u + epsilon).max(g.abs());
            // A value that never had a gradient stays: the step would be 0 / 0.
            if *u > 0.0 {
                *w -= rate * (*m / *u);
            }
        }
    }

    fn rmsprop(&self, values: &mut [f32], state: &mut [f32], gradient: &[f32], constants: [f32; 3]) {
        let [rho, momentum, epsilon] = constants;
        let (squares, speed) = state.split_at_mut(values.len());
        if speed.is_empty() {
            for ((w, s), g) in values.iter_mut().zip(squares).zip(gradient) {
                let g = self.prepared(*g, *w);
                *s = rho * *s + (1.0 - rho) * (g * g);
                *w -= self.rate * g / (*s + epsilon).sqrt();
            }
            return;
        }
        for (((w, s), v), g) in values.iter_mut().zip(squares).zip(speed).zip(gradient) {
            let g = self.prepared(*g, *w);
            *s = rho * *s + (1.0 - rho) * (g * g);
            *v = momentum * *v + self.rate * g / (*s + epsilon).sqrt();
            *w -= *v;
        }
    }

    fn adadelta(&self, values: &mut [f32], state: &mut [f32], gradient: &[f32], rho: f32, epsilon: f32) {
        let (squares, changes) = state.split_at_mut(values.len());
        for (((w, s), c), g) in values.iter_mut().zip(squares).zip(changes).zip(gradient) {
            let g = self.prepared(*g, *w);
            *s = rho * *s + (1.0 - rho) * (g * g);
            let change = ((*c + epsilon) / (*s + epsilon)).sqrt() * g;
            *c = rho * *c + (1.0 - rho) * (change * change);
            *w -= self.rate * change;
        }
    }

    fn ftrl(&self, values: &mut [f32], state: &mut [f32], gradient: &[f32], constants: [f32; 3]) {
        let [beta, l1, l2] = constants;
        let (squares, linear) = state.split_at_mut(values.len());
        for (((w, n), z), g) in values.iter_mut().zip(squares).zip(linear).zip(gradient) {
            let g = self.prepared(*g, *w);
            let before = n.sqrt();
            *n += g * g;
            let after = n.sqrt();
            *z += g - (after - before) / self.rate * *w;
            *w = match z.abs() <= l1 {
                true => 0.0,
                false => (sign(*z) * l1 - *z) / ((beta + after) / self.rate + l2),
            };
        }
    }

    /// The optimizers of 2017: a rate per element, and a velocity that includes rate and regularization.
    fn velocity(&self, values: &mut [f32], state: &mut [f32], gradient: &[f32], momentum: f32, scale: Scale) {
        let count = values.len();
        let (squares, rest) = state.split_at_mut(count * usize::from(scale.state_per_element() > 0));
        let (means, speed) = rest.split_at_mut(count * usize::from(scale.state_per_element() > 1));
        for at in 0..count {
            let g = self.clipped(gradient[at]);
            let rate = match scale {
                Scale::One => self.rate,
                Scale::Adagrad { epsilon } => {
                    squares[at] += g * g;
                    self.rate / (squares[at] + epsilon).sqrt()
                }
                Scale::DecayedAdagrad { rho, epsilon } => {
                    squares[at] = rho * squares[at] + self.share(rho) * (g * g);
                    self.rate / (squares[at] + epsilon).sqrt()
                }
                Scale::RmsProp { rho, epsilon } => {
                    squares[at] = rho * squares[at] + self.share(rho) * (g * g);
                    means[at] = rho * means[at] + (1.0 - rho) * g;
                    self.rate / (squares[at] - means[at] * means[at] + epsilon).sqrt()
                }
                Scale::AdaDelta { rho, epsilon } => {
                    squares[at] = rho * squares[at] + (1.0 - rho) * (g * g);
                    let factor = ((means[at] + epsilon) / (squares[at] + epsilon)).sqrt();
                    let change = g * factor;
                    means[at] = rho * means[at] + (1.0 - rho) * (change * change);
                    self.rate * factor
                }
            };
            let step = rate * self.regularized(g, values[at]);
            match speed.get_mut(at) {
                Some(v) => {
                    *v = momentum * *v - step;
                    values[at] += *v;
                }
                None => values[at] -= step,
            }
        }
    }

    /// The weight of a new square in a running mean, which starts with the first square.
    fn share(&self, rho: f32) -> f32 {
        match self.is_first {
            true => 1.0,
            false => 1.0 - rho,
        }
    }
}

/// As `numpy.sign`: the sign of 0 is 0.
#[inline(always)]
fn sign(value: f32) -> f32 {
    if value > 0.0 {
        1.0
    } else if value < 0.0 {
        -1.0
    } else {
        0.0
    }
}

/// Whether all values are finite.
pub fn all_finite(values: &[f32]) -> bool {
    const EXPONENT: u32 = 0x7f80_0000;
    let mut found = 0;
    for value in values {
        found |= u32::from(value.to_bits() & EXPONENT == EXPONENT);
    }
    found == 0
}
