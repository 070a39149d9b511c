//! Every rule finds a minimum and decodes to itself; what happens to a gradient before and after a rule.

mod references;

use super::*;
use crate::wire::{Reader, Writer};

fn velocity(scale: Scale) -> Rule {
    Rule::Velocity { momentum: 0.5, scale }
}

fn all_rules() -> Vec<Rule> {
    vec![
        Rule::Sgd,
        Rule::Momentum {
            momentum: 0.9,
            dampening: 0.0,
            nesterov: true,
        },
        Rule::Adagrad {
            epsilon: 1e-6,
            lr_decay: 0.0,
            initial: 0.0,
        },
        Rule::RowAdagrad { epsilon: 1e-6 },
        Rule::Adam {
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            of_sparse: false,
        },
        Rule::AdamW {
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            decay: 0.01,
        },
        Rule::RmsProp {
            rho: 0.95,
            momentum: 0.0,
            epsilon: 1e-6,
            centered: false,
            epsilon_outside: false,
        },
        Rule::RmsProp {
            rho: 0.95,
            momentum: 0.9,
            epsilon: 1e-6,
            centered: true,
            epsilon_outside: true,
        },
        Rule::AdaDelta {
            rho: 0.95,
            epsilon: 1e-6,
        },
        Rule::Ftrl {
            beta: 1.0,
            l1: 0.01,
            l2: 0.1,
        },
        Rule::Adamax {
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 0.0,
            epsilon_inside: false,
        },
        velocity(Scale::One),
        velocity(Scale::Adagrad { epsilon: 1e-6 }),
        velocity(Scale::DecayedAdagrad {
            rho: 0.95,
            epsilon: 1e-6,
        }),
        velocity(Scale::RmsProp {
            rho: 0.95,
            epsilon: 1e-6,
        }),
        velocity(Scale::AdaDelta {
            rho: 0.95,
            epsilon: 1e-6,
        }),
    ]
}

#[test]
fn every_optimizer_walks_to_the_minimum_of_a_parabola() {
    for rule in all_rules() {
        let rate = match rule {
            Rule::AdaDelta { .. } => 50.0,
            Rule::Velocity {
                scale: Scale::AdaDelta { .. },
                ..
            } => 5.0,
            Rule::Velocity {
                scale: Scale::RmsProp { .. },
                ..
            } => 0.001,
            Rule::Ftrl { .. } => 5.0,
            Rule::Adagrad { .. } | Rule::RowAdagrad { .. } => 0.5,
            Rule::Sgd => 0.1,
            _ => 0.05,
        };
        let mut optimizer = Optimizer::new(rule, rate);
        optimizer.average = 10;
        let mut values = [3.0, -2.0];
        let mut state = vec![0.0; optimizer.state_per_row() + 2 * optimizer.state_per_element()];
        let mut progress = Progress::default();
        for _ in 0..2000 {
            let gradient = [values[0] - 1.0, values[1] - 1.0];
            let update = optimizer.begin(&mut progress, Pace::default());
            update.apply_row(&mut values, &mut state, &gradient);
        }
        let average = &state[state.len() - 2..];
        for value in values.iter().chain(average) {
            assert!(
                (value - 1.0).abs() < 0.15,
                "{rule:?} ends at {values:?}, {average:?}"
            );
        }
    }
}

#[test]
fn an_optimizer_reads_back() {
    for rule in all_rules() {
        let mut optimizer = Optimizer::new(rule, 0.25);
        (optimizer.l1, optimizer.l2, optimizer.clip, optimizer.average) = (0.1, 0.2, 0.3, 4);
        let mut head = Writer::new();
        optimizer.encode(&mut head);
        let head = head.finish();
        let mut reader = Reader::new(&head);
        assert_eq!(Optimizer::decode(&mut reader), Ok(optimizer));
        reader.end().unwrap();
    }
}

#[test]
fn nan_and_infinity_are_noticed_wherever_they_are() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for at in 0..100 {
            let mut values = [1.0; 100];
            assert!(all_finite(&values));
            values[at] = bad;
            assert!(!all_finite(&values));
        }
    }
}

#[test]
fn a_gradient_is_clipped_before_it_is_regularized() {
    let mut optimizer = Optimizer::new(Rule::Sgd, 1.0);
    (optimizer.clip, optimizer.l2) = (1.0, 0.5);
    let mut values = [2.0];
    optimizer
        .begin(&mut Progress::default(), Pace::default())
        .apply(&mut values, &mut [], &[10.0]);
    assert_eq!(values, [2.0 - (1.0 + 0.5 * 2.0)]);
}

#[test]
fn the_momentum_of_2017_has_rate_and_regularization_inside_the_velocity() {
    let mut optimizer = Optimizer::new(velocity(Scale::One), 1.0);
    optimizer.l2 = 0.5;
    let (mut values, mut state) = ([4.0], [0.0]);
    let mut progress = Progress::default();
    let mut update = |rate| {
        let update = optimizer.begin(
            &mut progress,
            Pace {
                rate: Some(rate),
                samples: 0,
            },
        );
        update.apply(&mut values, &mut state, &[1.0]);
        values[0]
    };
    // v = -1 * (1 + 0.5 * 4) = -3
    assert_eq!(update(1.0), 1.0);
    // With another rate, the velocity keeps the effect of the first rate: v = 0.5 * -3 - 0 = -1.5
    assert_eq!(update(0.0), -0.5);
}

#[test]
fn a_value_shrinks_to_zero_and_stays() {
    let mut optimizer = Optimizer::new(Rule::Sgd, 0.5);
    optimizer.proximal_l1 = 1.0;
    let mut values = [2.0, -0.25, 0.0];
    let update = optimizer.begin(&mut Progress::default(), Pace::default());
    update.apply(&mut values, &mut [], &[0.0; 3]);
    assert_eq!(values, [1.5, 0.0, 0.0]);
}

#[test]
fn every_constant_out_of_range_is_named() {
    let adam = |beta1, beta2, epsilon| Rule::Adam {
        beta1,
        beta2,
        epsilon,
        of_sparse: false,
    };
    let momentum = |momentum, dampening| Rule::Momentum {
        momentum,
        dampening,
        nesterov: false,
    };
    let adagrad = |epsilon, lr_decay, initial| Rule::Adagrad {
        epsilon,
        lr_decay,
        initial,
    };
    let bad = [
        (
            adam(1.0, 0.9, 0.0),
            "`beta1` must be at least 0 and below 1, not 1",
        ),
        (
            adam(0.9, 0.999_999_999, 0.0),
            "`beta2` must be at least 0 and below 1, not 0.999999999",
        ),
        (
            adam(0.9, -0.1, 0.0),
            "`beta2` must be at least 0 and below 1, not -0.1",
        ),
        (
            adam(0.9, 0.9, -1e-8),
            "`epsilon` must be a finite number of at least 0, not -0.00000001",
        ),
        (
            adam(f64::NAN, 0.9, 0.0),
            "`beta1` must be at least 0 and below 1, not NaN",
        ),
        (
            momentum(-0.5, 0.0),
            "`momentum` must be a finite number of at least 0, not -0.5",
        ),
        (
            momentum(0.5, f64::INFINITY),
            "`dampening` must be a finite number, not inf",
        ),
        (
            adagrad(0.0, -1.0, 0.0),
            "`lr_decay` must be a finite number of at least 0, not -1",
        ),
        (
            adagrad(0.0, 0.0, -1.0),
            "`initial` must be a finite number of at least 0, not -1",
        ),
        (
            Rule::AdaDelta {
                rho: 1.5,
                epsilon: 0.0,
            },
            "`rho` must be between 0 and 1, not 1.5",
        ),
        (
            Rule::Ftrl {
                beta: 1.0,
                l1: -1.0,
                l2: 0.0,
            },
            "`shrink1` must be a finite number of at least 0, not -1",
        ),
    ];
    for (rule, message) in bad {
        assert_eq!(
            Optimizer::new(rule, 0.1).check().unwrap_err().to_string(),
            message
        );
    }
    for rate in [f32::NAN, -0.1, f32::INFINITY] {
        let told = Optimizer::new(Rule::Sgd, rate).check().unwrap_err().to_string();
        assert!(
            told.starts_with("`lr` must be a finite number of at least 0, not "),
            "{told}"
        );
    }
    let changes: [fn(&mut Optimizer); 4] = [
        |optimizer| optimizer.clip = -1.0,
        |optimizer| optimizer.l1 = f32::NAN,
        |optimizer| optimizer.l2 = -1.0,
        |optimizer| optimizer.proximal_l1 = -1.0,
    ];
    for change in changes {
        let mut optimizer = Optimizer::new(Rule::Sgd, 0.1);
        change(&mut optimizer);
        let mut head = Writer::new();
        optimizer.encode(&mut head);
        let head = head.finish();
        assert!(matches!(
            Optimizer::decode(&mut Reader::new(&head)),
            Err(crate::wire::WireError::Constant(_))
        ));
    }
    all_rules()
        .into_iter()
        .for_each(|rule| Optimizer::new(rule, 0.0).check().unwrap());
}

#[test]
fn a_push_may_change_constants_but_not_the_state() {
    for rule in all_rules() {
        let declared = Optimizer::new(rule, 0.1);
        for other in all_rules() {
            let pushed = Optimizer::new(other, 0.2);
            let same =
                rule.name() == other.name() && declared.state_per_element() == pushed.state_per_element();
            assert_eq!(pushed.continues(&declared), same, "{pushed} for {declared}");
        }
    }
}
