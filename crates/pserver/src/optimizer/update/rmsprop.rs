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
    let all = Slices {
        values,
        squares,
        means,
        speed,
        gradient,
    };
    let constants = [rho, rest, momentum, epsilon];
    match (centered, all.speed.is_empty()) {
        (false, true) => all.each::<false, false>(update, constants, epsilon_outside),
        (false, false) => all.each::<false, true>(update, constants, epsilon_outside),
        (true, true) => all.each::<true, false>(update, constants, epsilon_outside),
        (true, false) => all.each::<true, true>(update, constants, epsilon_outside),
    }
}

/// A tensor's portion; `means` and `speed` are empty where they are not kept.
struct Slices<'a> {
    values: &'a mut [f32],
    squares: &'a mut [f32],
    means: &'a mut [f32],
    speed: &'a mut [f32],
    gradient: &'a [f32],
}

impl Slices<'_> {
    /// One loop for each layout of the state, which the compiler can vectorize.
    fn each<const CENTERED: bool, const MOVES: bool>(
        self,
        update: &Update,
        [rho, rest, momentum, epsilon]: [f32; 4],
        epsilon_outside: bool,
    ) {
        let count = self.values.len();
        let (values, squares) = (self.values, &mut self.squares[..count]);
        let means = &mut self.means[..if CENTERED { count } else { 0 }];
        let speed = &mut self.speed[..if MOVES { count } else { 0 }];
        let gradient = &self.gradient[..count];
        for at in 0..count {
            let g = update.prepared(gradient[at], values[at]);
            squares[at] = rho * squares[at] + rest * (g * g);
            let mut variance = squares[at];
            if CENTERED {
                means[at] = rho * means[at] + rest * g;
                variance -= means[at] * means[at];
            }
            // Rounding can make a variance negative.
            let divisor = match epsilon_outside {
                true => variance.max(0.0).sqrt() + epsilon,
                false => (variance + epsilon).max(0.0).sqrt(),
            };
            let rate = if MOVES && epsilon_outside {
                1.0
            } else {
                update.rate
            };
            let mut step = rate * g / divisor;
            if MOVES {
                speed[at] = momentum * speed[at] + step;
                step = match epsilon_outside {
                    true => update.rate * speed[at],
                    false => speed[at],
                };
            }
            values[at] -= step;
        }
    }
}
