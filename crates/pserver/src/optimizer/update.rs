//! The arithmetic of one update, element by element.
//!
//! It is plain `f32` in the order written here, without fused operations. A program that performs the same operations
//! in the same order gets the same bits. Vectorization changes nothing, because no element depends on another. What is
//! the same for all elements is computed once per update, in the precision that the optimizer asks for.

mod rmsprop;

use super::{Optimizer, Progress, Rule, Scale};

/// One update with its constants computed; applied to any number of slices.
#[derive(Debug, Clone, Copy)]
pub struct Update {
    rule: Rule,
    /// Constants are computed in `f64`.
    double: bool,
    rate: f32,
    /// The rate after the rule's own correction: Adam's by `1 - beta1^t`, Adagrad's by its decay.
    corrected: f32,
    /// AdamW: the factor of a value before its update, and what is then subtracted of it. PyTorch multiplies, PaddlePaddle
    /// subtracts; the factor rounds away a small decay.
    left: f32,
    lost: f32,
    l1: f32,
    l2: f32,
    proximal_l1: f32,
    clip: f32,
    /// Adam: `sqrt(1 - beta2^t)`.
    correction2: f32,
    /// The weight of the newest values in the average; 0: no average.
    newest: f32,
    is_first: bool,
}

impl Update {
    pub(super) fn new(optimizer: &Optimizer, progress: &Progress, rate: f64) -> Update {
        let newest = match optimizer.average {
            0 => 0.0,
            window => 1.0 / progress.updates.min(u64::from(window)) as f32,
        };
        let (corrected, correction2) = corrections(optimizer, progress, rate);
        Update {
            rule: optimizer.rule,
            double: optimizer.double,
            rate: rate as f32,
            corrected,
            left: match optimizer.rule {
                Rule::AdamW { decay, .. } if optimizer.double => (1.0 - rate * decay) as f32,
                _ => 1.0,
            },
            lost: match optimizer.rule {
                Rule::AdamW { decay, .. } if !optimizer.double => rate as f32 * decay as f32,
                _ => 0.0,
            },
            l1: optimizer.l1,
            l2: optimizer.l2,
            proximal_l1: optimizer.proximal_l1,
            clip: optimizer.clip,
            correction2,
            newest,
            is_first: progress.updates == 1,
        }
    }

    /// `1 - share`, in the optimizer's precision.
    fn rest(&self, share: f64) -> f32 {
        match self.double {
            true => (1.0 - share) as f32,
            false => 1.0 - share as f32,
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
        if self.begins_by_row() {
            let is_first = state[..values.len()].iter().all(|first| *first == 0.0);
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
        let divisor = squares[0].sqrt() + epsilon as f32;
        for (value, gradient) in values.iter_mut().zip(gradient) {
            let g = self.prepared(*gradient, *value);
            *value -= self.rate * g / divisor;
        }
        self.finish(values, average);
    }

    /// Whether the first update differs from the others: a row has its own first one.
    fn begins_by_row(&self) -> bool {
        match self.rule {
            Rule::Momentum { dampening, .. } => dampening != 0.0,
            Rule::Velocity { scale, .. } => {
                matches!(scale, Scale::DecayedAdagrad { .. } | Scale::RmsProp { .. })
            }
            _ => false,
        }
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
            Rule::Momentum { momentum, dampening, nesterov } => {
                let share = if self.is_first { 1.0 } else { self.rest(dampening) };
                self.momentum(values, state, gradient, [momentum as f32, share], nesterov);
            }
            // A dense tensor has no rows: every element has its own sum.
            Rule::Adagrad { epsilon, .. } | Rule::RowAdagrad { epsilon } => self.adagrad(values, state, gradient, epsilon as f32),
            Rule::Adam { beta1, beta2, epsilon, of_sparse: true } => {
                let epsilons = [epsilon as f32, epsilon as f32 / self.correction2];
                self.adam(values, state, gradient, [beta1, beta2], epsilons);
            }
            Rule::Adam { beta1, beta2, epsilon, .. } | Rule::AdamW { beta1, beta2, epsilon, .. } => {
                self.adam(values, state, gradient, [beta1, beta2], [epsilon as f32; 2]);
            }
            Rule::Adamax { beta1, beta2, epsilon, epsilon_inside } => {
                self.adamax(values, state, gradient, [beta1, beta2], epsilon as f32, epsilon_inside);
            }
            Rule::RmsProp { rho, momentum, epsilon, centered, epsilon_outside } => {
                let constants = [rho as f32, self.rest(rho), momentum as f32, epsilon as f32];
                rmsprop::apply(self, values, state, gradient, constants, centered, epsilon_outside);
            }
            Rule::AdaDelta { rho, epsilon } => self.adadelta(values, state, gradient, rho, epsilon as f32),
            Rule::Ftrl { beta, l1, l2 } => self.ftrl(values, state, gradient, [beta, l1, l2].map(|number| number as f32)),
            Rule::Velocity { momentum, scale } => self.velocity(values, state, gradient, momentum as f32, scale),
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
        [momentum, share]: [f32; 2],
        nesterov: bool,
    ) {
        for ((w, v), g) in values.iter_mut().zip(state).zip(gradient) {
            let g = self.prepared(*g, *w);
            *v = momentum * *v + share * g;
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
            *w -= self.corrected * g / (a.sqrt() + epsilon);
        }
    }

    fn adam(
        &self,
        values: &mut [f32],
        state: &mut [f32],
        gradient: &[f32],
        betas: [f64; 2],
        [epsilon, of_zero]: [f32; 2],
    ) {
        let [rest1, rest2] = betas.map(|beta| self.rest(beta));
        let [beta1, beta2] = betas.map(|beta| beta as f32);
        let (first, second) = state.split_at_mut(values.len());
        for (((w, m), v), g) in values.iter_mut().zip(first).zip(second).zip(gradient) {
            let g = self.prepared(*g, *w);
            *m = beta1 * *m + rest1 * g;
            *v = beta2 * *v + rest2 * (g * g);
            let epsilon = if g == 0.0 { of_zero } else { epsilon };
            let step = self.corrected * (*m / (v.sqrt() / self.correction2 + epsilon));
            *w = self.left * *w - self.lost * *w - step;
        }
    }

    fn adamax(
        &self,
        values: &mut [f32],
        state: &mut [f32],
        gradient: &[f32],
        [beta1, beta2]: [f64; 2],
        epsilon: f32,
        epsilon_inside: bool,
    ) {
        let (rest1, beta1, beta2) = (self.rest(beta1), beta1 as f32, beta2 as f32);
        let (first, largest) = state.split_at_mut(values.len());
        for (((w, m), u), g) in values.iter_mut().zip(first).zip(largest).zip(gradient) {
            let g = self.prepared(*g, *w);
            *m = beta1 * *m + rest1 * g;
            *u = match epsilon_inside {
                true => (beta2 * *u).max(g.abs() + epsilon),
                false => (beta2 * *u + epsilon).max(g.abs()),
            };
            // A value that never had a gradient stays: the step would be 0 / 0.
            if *u > 0.0 {
                *w -= self.corrected * (*m / *u);
            }
        }
    }

    fn adadelta(&self, values: &mut [f32], state: &mut [f32], gradient: &[f32], rho: f64, epsilon: f32) {
        let (rest, rho) = (self.rest(rho), rho as f32);
        let (squares, changes) = state.split_at_mut(values.len());
        for (((w, s), c), g) in values.iter_mut().zip(squares).zip(changes).zip(gradient) {
            let g = self.prepared(*g, *w);
            *s = rho * *s + rest * (g * g);
            let change = ((*c + epsilon) / (*s + epsilon)).sqrt() * g;
            *c = rho * *c + rest * (change * change);
            *w -= self.rate * change;
        }
    }

    fn ftrl(&self, values: &mut [f32], state: &mut [f32], gradient: &[f32], constants: [f32; 3]) {
        let [beta, l1, l2] = constants;
        // It would divide by the rate.
        if self.rate == 0.0 {
            return;
        }
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
                    self.rate / (squares[at] + epsilon as f32).sqrt()
                }
                Scale::DecayedAdagrad { rho, epsilon } => {
                    squares[at] = rho as f32 * squares[at] + self.share(rho) * (g * g);
                    self.rate / (squares[at] + epsilon as f32).sqrt()
                }
                Scale::RmsProp { rho, epsilon } => {
                    squares[at] = rho as f32 * squares[at] + self.share(rho) * (g * g);
                    means[at] = rho as f32 * means[at] + self.rest(rho) * g;
                    self.rate / (squares[at] - means[at] * means[at] + epsilon as f32).sqrt()
                }
                Scale::AdaDelta { rho, epsilon } => {
                    let (rest, rho, epsilon) = (self.rest(rho), rho as f32, epsilon as f32);
                    squares[at] = rho * squares[at] + rest * (g * g);
                    let factor = ((means[at] + epsilon) / (squares[at] + epsilon)).sqrt();
                    let change = g * factor;
                    means[at] = rho * means[at] + rest * (change * change);
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
    fn share(&self, rho: f64) -> f32 {
        match self.is_first {
            true => 1.0,
            false => self.rest(rho),
        }
    }
}

/// The rate after the rule's own correction, and the divisor of Adam's root.
fn corrections(optimizer: &Optimizer, progress: &Progress, rate: f64) -> (f32, f32) {
    let of_next = matches!(optimizer.rule, Rule::Adam { of_sparse: true, .. });
    match (optimizer.rule.betas(), optimizer.rule) {
        (Some((beta1, beta2)), _) if optimizer.double => {
            let updates = progress.updates as f64 + f64::from(u8::from(of_next));
            let corrected = rate / (1.0 - beta1.powf(updates));
            (corrected as f32, (1.0 - beta2.powf(updates)).sqrt() as f32)
        }
        (Some((beta1, beta2)), _) => {
            let [more1, more2] = [beta1, beta2].map(|beta| if of_next { beta as f32 } else { 1.0 });
            let corrected = rate as f32 / (1.0 - progress.beta1_power * more1);
            (corrected, (1.0 - progress.beta2_power * more2).sqrt())
        }
        (None, Rule::Adagrad { lr_decay, .. }) => {
            let before = progress.updates.saturating_sub(1) as f64;
            ((rate / (1.0 + before * lr_decay)) as f32, 1.0)
        }
        _ => (rate as f32, 1.0),
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
