//! Every rule of PyTorch and PaddlePaddle against the formulas of the framework, computed in `f64` by element.

use proptest::prelude::*;

use super::super::*;

/// One element of a reference: its value, its state, and the updates so far.
struct Element {
    w: f64,
    s: [f64; 3],
    t: i32,
}

type Reference = fn(&mut Element, g: f64, lr: f64, c: [f64; 3]);

fn torch_sgd(e: &mut Element, g: f64, lr: f64, [momentum, dampening, nesterov]: [f64; 3]) {
    e.s[0] = match e.t {
        1 => g,
        _ => momentum * e.s[0] + (1.0 - dampening) * g,
    };
    e.w -= lr
        * if nesterov != 0.0 {
            g + momentum * e.s[0]
        } else {
            e.s[0]
        };
}

fn adam(e: &mut Element, g: f64, lr: f64, [beta1, beta2, epsilon]: [f64; 3]) {
    e.s[0] = beta1 * e.s[0] + (1.0 - beta1) * g;
    e.s[1] = beta2 * e.s[1] + (1.0 - beta2) * g * g;
    let (first, second) = (1.0 - beta1.powi(e.t), 1.0 - beta2.powi(e.t));
    e.w -= lr / first * e.s[0] / ((e.s[1] / second).sqrt() + epsilon);
}

/// As PaddlePaddle's kernel computes it, whose powers are already those of the next update.
fn adam_of_sparse(e: &mut Element, g: f64, lr: f64, [beta1, beta2, epsilon]: [f64; 3]) {
    e.s[0] = beta1 * e.s[0] + (1.0 - beta1) * g;
    e.s[1] = beta2 * e.s[1] + (1.0 - beta2) * g * g;
    let (first, second) = (1.0 - beta1.powi(e.t + 1), 1.0 - beta2.powi(e.t + 1));
    let scale = if g == 0.0 { 1.0 } else { second.sqrt() };
    e.w -= lr * second.sqrt() / first * e.s[0] / (e.s[1].sqrt() + epsilon * scale);
}

fn adamw(e: &mut Element, g: f64, lr: f64, c: [f64; 3]) {
    e.w *= 1.0 - lr * 0.125;
    adam(e, g, lr, c);
}

fn adagrad(e: &mut Element, g: f64, lr: f64, [epsilon, lr_decay, initial]: [f64; 3]) {
    if e.t == 1 {
        e.s[0] = initial;
    }
    e.s[0] += g * g;
    e.w -= lr / (1.0 + f64::from(e.t - 1) * lr_decay) * g / (e.s[0].sqrt() + epsilon);
}

fn variance(e: &mut Element, g: f64, rho: f64) -> f64 {
    e.s[0] = rho * e.s[0] + (1.0 - rho) * g * g;
    e.s[1] = rho * e.s[1] + (1.0 - rho) * g;
    e.s[0] - e.s[1] * e.s[1]
}

fn torch_rmsprop(e: &mut Element, g: f64, lr: f64, [rho, momentum, epsilon]: [f64; 3]) {
    e.s[2] = momentum * e.s[2] + g / (variance(e, g, rho).max(0.0).sqrt() + epsilon);
    e.w -= lr * e.s[2];
}

fn paddle_rmsprop(e: &mut Element, g: f64, lr: f64, [rho, momentum, epsilon]: [f64; 3]) {
    e.s[2] = momentum * e.s[2] + lr * g / (variance(e, g, rho) + epsilon).sqrt();
    e.w -= e.s[2];
}

fn adadelta(e: &mut Element, g: f64, lr: f64, [rho, epsilon, _]: [f64; 3]) {
    e.s[0] = rho * e.s[0] + (1.0 - rho) * g * g;
    let change = ((e.s[1] + epsilon) / (e.s[0] + epsilon)).sqrt() * g;
    e.s[1] = rho * e.s[1] + (1.0 - rho) * change * change;
    e.w -= lr * change;
}

fn torch_adamax(e: &mut Element, g: f64, lr: f64, [beta1, beta2, epsilon]: [f64; 3]) {
    e.s[0] = beta1 * e.s[0] + (1.0 - beta1) * g;
    e.s[1] = (beta2 * e.s[1]).max(g.abs() + epsilon);
    e.w -= lr / (1.0 - beta1.powi(e.t)) * e.s[0] / e.s[1];
}

fn paddle_adamax(e: &mut Element, g: f64, lr: f64, [beta1, beta2, epsilon]: [f64; 3]) {
    e.s[0] = beta1 * e.s[0] + (1.0 - beta1) * g;
    e.s[1] = (beta2 * e.s[1] + epsilon).max(g.abs());
    e.w -= lr / (1.0 - beta1.powi(e.t)) * e.s[0] / e.s[1];
}

/// A rule with its constants, and what it must do.
fn cases() -> Vec<(Rule, Reference, [f64; 3])> {
    let (beta1, beta2, epsilon) = (0.8, 0.99, 1e-3);
    let (rho, momentum) = (0.9, 0.7);
    let sgd = |dampening, nesterov| Rule::Momentum {
        momentum,
        dampening,
        nesterov,
    };
    let rmsprop = |epsilon_outside| Rule::RmsProp {
        rho,
        momentum,
        epsilon: 0.1,
        centered: true,
        epsilon_outside,
    };
    let adamax = |epsilon_inside| Rule::Adamax {
        beta1,
        beta2,
        epsilon: 0.1,
        epsilon_inside,
    };
    let adam_for = |of_sparse| Rule::Adam {
        beta1,
        beta2,
        epsilon,
        of_sparse,
    };
    let (lr_decay, initial) = (0.25, 0.5);
    vec![
        (sgd(0.4, false), torch_sgd as Reference, [momentum, 0.4, 0.0]),
        (sgd(0.0, true), torch_sgd, [momentum, 0.0, 1.0]),
        (adam_for(false), adam, [beta1, beta2, epsilon]),
        (adam_for(true), adam_of_sparse, [beta1, beta2, epsilon]),
        (
            Rule::AdamW {
                beta1,
                beta2,
                epsilon,
                decay: 0.125,
            },
            adamw,
            [beta1, beta2, epsilon],
        ),
        (
            Rule::Adagrad {
                epsilon,
                lr_decay,
                initial,
            },
            adagrad,
            [epsilon, lr_decay, initial],
        ),
        (rmsprop(true), torch_rmsprop, [rho, momentum, 0.1]),
        (rmsprop(false), paddle_rmsprop, [rho, momentum, 0.1]),
        (Rule::AdaDelta { rho, epsilon }, adadelta, [rho, epsilon, 0.0]),
        (adamax(true), torch_adamax, [beta1, beta2, 0.1]),
        (adamax(false), paddle_adamax, [beta1, beta2, 0.1]),
    ]
}

proptest! {
    #[test]
    fn every_rule_has_the_numbers_of_its_framework(
        start in -2.0f32..2.0,
        gradients in proptest::collection::vec(prop_oneof![4 => -1.0f32..1.0, 1 => Just(0.0)], 20),
        rates in proptest::collection::vec(0.0f32..0.05, 20),
        double in any::<bool>(),
    ) {
        for (rule, reference, constants) in cases() {
            let mut optimizer = Optimizer::new(rule, 0.0);
            optimizer.double = double;
            let mut expected = Element { w: f64::from(start), s: [0.0; 3], t: 0 };
            let (mut values, mut progress) = ([start], Progress::default());
            let mut state = vec![0.0; optimizer.state_per_element()];
            optimizer.reset(&values, &mut state);
            for (g, rate) in gradients.iter().zip(&rates) {
                let pace = Pace { rate: Some(*rate), samples: 0 };
                optimizer.begin(&mut progress, pace).apply(&mut values, &mut state, &[*g]);
                expected.t += 1;
                reference(&mut expected, f64::from(*g), f64::from(*rate), constants);
            }
            let error = (f64::from(values[0]) - expected.w).abs();
            prop_assert!(error <= 3e-6, "{rule:?}: {} instead of {}", values[0], expected.w);
        }
    }
}

/// The correction of a step follows from that step's beta alone, whatever the earlier ones were.
#[test]
fn with_double_a_changed_beta_corrects_as_in_pytorch() {
    let with = |beta1| {
        let rule = Rule::Adam {
            beta1,
            beta2: 0.999,
            epsilon: 0.0,
            of_sparse: false,
        };
        let mut optimizer = Optimizer::new(rule, 1.0);
        optimizer.double = true;
        optimizer
    };
    let (mut values, mut state, mut progress) = ([0.0], [0.0; 2], Progress::default());
    with(0.9)
        .begin(&mut progress, Pace::default())
        .apply(&mut values, &mut state, &[1.0]);
    assert!((values[0] + 1.0).abs() < 1e-6, "{values:?}");
    with(0.5)
        .begin(&mut progress, Pace::default())
        .apply(&mut values, &mut state, &[1.0]);
    // mean = 0.5 * 0.1 + 0.5; 1 - 0.5 ^ 2 = 0.75
    assert!((values[0] - (-1.0 - 0.55 / 0.75)).abs() < 1e-5, "{values:?}");
}
