//! The rules by name and the constants of each: read from programs, checked, sent and described by one table.

use std::fmt;

use super::{Optimizer, Rule, Scale};

/// A constant that no rule can train with.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("`{name}` must be {range}, not {value}")]
pub struct OutOfRange {
    pub name: &'static str,
    pub range: &'static str,
    pub value: f64,
}

/// Constants of a rule at most.
pub(super) const MOST: usize = 5;

/// Name of each rule in programs, and of its constants. The position is the rule's number in messages.
#[rustfmt::skip] // One line per rule.
pub(super) const RULES: &[(&str, &[&str])] = &[
    ("sgd", &[]),
    ("momentum", &["momentum", "dampening", "nesterov"]),
    ("adagrad", &["epsilon", "lr_decay", "initial"]),
    ("row_adagrad", &["epsilon"]),
    ("adam", &["beta1", "beta2", "epsilon", "of_sparse"]),
    ("adamw", &["beta1", "beta2", "epsilon", "decay"]),
    ("rmsprop", &["rho", "momentum", "epsilon", "centered", "epsilon_outside"]),
    ("adadelta", &["rho", "epsilon"]),
    ("ftrl", &["beta", "shrink1", "shrink2"]),
    ("adamax", &["beta1", "beta2", "epsilon", "epsilon_inside"]),
    ("velocity", &["momentum"]),
    ("velocity_adagrad", &["momentum", "epsilon"]),
    ("velocity_decayed_adagrad", &["momentum", "epsilon", "rho"]),
    ("velocity_rmsprop", &["momentum", "epsilon", "rho"]),
    ("velocity_adadelta", &["momentum", "epsilon", "rho"]),
];

impl Rule {
    /// The rule's number in messages, and its constants in the order of [`RULES`].
    #[rustfmt::skip] // One line per rule.
    pub(super) fn numbers(self) -> (u8, [f64; MOST]) {
        let flag = |value: bool| f64::from(u8::from(value));
        match self {
            Rule::Sgd => (0, [0.0; MOST]),
            Rule::Momentum { momentum, dampening, nesterov } => (1, [momentum, dampening, flag(nesterov), 0.0, 0.0]),
            Rule::Adagrad { epsilon, lr_decay, initial } => (2, [epsilon, lr_decay, initial, 0.0, 0.0]),
            Rule::RowAdagrad { epsilon } => (3, [epsilon, 0.0, 0.0, 0.0, 0.0]),
            Rule::Adam { beta1, beta2, epsilon, of_sparse } => (4, [beta1, beta2, epsilon, flag(of_sparse), 0.0]),
            Rule::AdamW { beta1, beta2, epsilon, decay } => (5, [beta1, beta2, epsilon, decay, 0.0]),
            Rule::RmsProp { rho, momentum, epsilon, centered, epsilon_outside } => {
                (6, [rho, momentum, epsilon, flag(centered), flag(epsilon_outside)])
            }
            Rule::AdaDelta { rho, epsilon } => (7, [rho, epsilon, 0.0, 0.0, 0.0]),
            Rule::Ftrl { beta, l1, l2 } => (8, [beta, l1, l2, 0.0, 0.0]),
            Rule::Adamax { beta1, beta2, epsilon, epsilon_inside } => {
                (9, [beta1, beta2, epsilon, flag(epsilon_inside), 0.0])
            }
            Rule::Velocity { momentum, scale } => match scale {
                Scale::One => (10, [momentum, 0.0, 0.0, 0.0, 0.0]),
                Scale::Adagrad { epsilon } => (11, [momentum, epsilon, 0.0, 0.0, 0.0]),
                Scale::DecayedAdagrad { rho, epsilon } => (12, [momentum, epsilon, rho, 0.0, 0.0]),
                Scale::RmsProp { rho, epsilon } => (13, [momentum, epsilon, rho, 0.0, 0.0]),
                Scale::AdaDelta { rho, epsilon } => (14, [momentum, epsilon, rho, 0.0, 0.0]),
            },
        }
    }

    #[rustfmt::skip] // One line per rule.
    pub(super) fn of_numbers(kind: u8, [a, b, c, d, e]: [f64; MOST]) -> Option<Rule> {
        let velocity = |scale| Rule::Velocity { momentum: a, scale };
        Some(match kind {
            0 => Rule::Sgd,
            1 => Rule::Momentum { momentum: a, dampening: b, nesterov: c != 0.0 },
            2 => Rule::Adagrad { epsilon: a, lr_decay: b, initial: c },
            3 => Rule::RowAdagrad { epsilon: a },
            4 => Rule::Adam { beta1: a, beta2: b, epsilon: c, of_sparse: d != 0.0 },
            5 => Rule::AdamW { beta1: a, beta2: b, epsilon: c, decay: d },
            6 => Rule::RmsProp { rho: a, momentum: b, epsilon: c, centered: d != 0.0, epsilon_outside: e != 0.0 },
            7 => Rule::AdaDelta { rho: a, epsilon: b },
            8 => Rule::Ftrl { beta: a, l1: b, l2: c },
            9 => Rule::Adamax { beta1: a, beta2: b, epsilon: c, epsilon_inside: d != 0.0 },
            10 => velocity(Scale::One),
            11 => velocity(Scale::Adagrad { epsilon: b }),
            12 => velocity(Scale::DecayedAdagrad { rho: c, epsilon: b }),
            13 => velocity(Scale::RmsProp { rho: c, epsilon: b }),
            14 => velocity(Scale::AdaDelta { rho: c, epsilon: b }),
            _ => return None,
        })
    }

    /// The rule of a program, with the constants that `number` knows by name; `None` if there is no such rule.
    pub fn named<E>(name: &str, number: impl Fn(&str) -> Result<f64, E>) -> Option<Result<Rule, E>> {
        let kind = RULES.iter().position(|(rule, _)| *rule == name)?;
        let mut numbers = [0.0; MOST];
        for (at, constant) in RULES[kind].1.iter().enumerate() {
            match number(constant) {
                Ok(found) => numbers[at] = found,
                Err(error) => return Some(Err(error)),
            }
        }
        Rule::of_numbers(kind as u8, numbers).map(Ok)
    }

    pub fn name(self) -> &'static str {
        RULES[usize::from(self.numbers().0)].0
    }

    /// The constants by name.
    pub fn constants(self) -> impl Iterator<Item = (&'static str, f64)> {
        let (kind, numbers) = self.numbers();
        RULES[usize::from(kind)].1.iter().copied().zip(numbers)
    }
}

impl Optimizer {
    /// All constants by name.
    pub(super) fn constants(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let common = [
            ("l1", f64::from(self.l1)),
            ("l2", f64::from(self.l2)),
            ("proximal_l1", f64::from(self.proximal_l1)),
            ("clip", f64::from(self.clip)),
            ("average", f64::from(self.average)),
            ("double", f64::from(u8::from(self.double))),
        ];
        self.rule.constants().chain(common)
    }

    /// Checks that every constant is one that its rule can train with.
    pub fn check(&self) -> Result<(), OutOfRange> {
        for (name, value) in self.constants() {
            ranged(name, value, range_of(name))?;
        }
        self.schedule.check()
    }
}

fn range_of(constant: &str) -> Range {
    match constant {
        "beta1" | "beta2" => Range::BelowOne,
        "rho" => Range::UpToOne,
        "dampening" => Range::Finite,
        _ => Range::NotNegative,
    }
}

/// The values that a constant may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Range {
    Finite,
    NotNegative,
    Positive,
    BelowOne,
    UpToOne,
}

impl Range {
    fn contains(self, value: f64) -> bool {
        // As it is rounded: a beta of almost 1 would divide by 0.
        let single = value as f32;
        match self {
            Range::Finite => single.is_finite(),
            Range::NotNegative => single.is_finite() && value >= 0.0,
            Range::Positive => single.is_finite() && value > 0.0,
            Range::BelowOne => value >= 0.0 && single < 1.0,
            Range::UpToOne => (0.0..=1.0).contains(&value),
        }
    }

    fn text(self) -> &'static str {
        match self {
            Range::Finite => "a finite number",
            Range::NotNegative => "a finite number of at least 0",
            Range::Positive => "a finite number above 0",
            Range::BelowOne => "at least 0 and below 1",
            Range::UpToOne => "between 0 and 1",
        }
    }
}

/// Checks one constant.
pub fn ranged(name: &'static str, value: f64, range: Range) -> Result<(), OutOfRange> {
    match range.contains(value) {
        true => Ok(()),
        false => Err(OutOfRange {
            name,
            range: range.text(),
            value,
        }),
    }
}

impl fmt::Display for Optimizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({}", self.rule.name(), self.schedule)?;
        for (name, value) in self.constants() {
            // What is common to all rules is seldom set.
            if value != 0.0 {
                write!(f, ", {name}={value}")?;
            }
        }
        f.write_str(")")
    }
}
