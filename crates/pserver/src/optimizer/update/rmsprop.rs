//! RMSprop in the forms of PyTorch and PaddlePaddle, which place epsilon and the rate differently.

use super::Update;

/// Constants: rho, 1 - rho, momentum, epsilon. State: squares, then means if `centered`, then the velocity if there is one.
pub(super) fn apply(
    update: &Update,
    values: &mut [f32],
    state: &mut [f32],
    gradient: &[f32],
    [rho, rest, momentum, epsilon]: [f32; 4],
    centered: bool,
    epsilon_outside: bool,
) {
    let count = values.len();
    let (squares, state) = state.split_at_mut(count);
    let (means, speed) = state.split_at_mut(count * usize::from(centered));
    let divisor = |variance: f32| match epsilon_outside {
        // Rounding can make a variance negative.
        true => variance.max(0.0).sqrt() + epsilon,
        false => (variance + epsilon).max(0.0).sqrt(),
    };
    for at in 0..count {
        let g = update.prepared(gradient[at], values[at]);
        squares[at] = rho * squares[at] + rest * (g * g);
        let mut variance = squares[at];
        if let Some(mean) = means.get_mut(at) {
            *mean = rho * *mean + rest * g;
            variance -= *mean * *mean;
        }
        let divisor = divisor(variance);
        match speed.get_mut(at) {
            None => values[at] -= update.rate * g / divisor,
            Some(v) if epsilon_outside => {
                *v = momentum * *v + g / divisor;
                values[at] -= update.rate * *v;
            }
            Some(v) => {
                *v = momentum * *v + update.rate * g / divisor;
                values[at] -= *v;
            }
        }
    }
}
