//! The encoding of optimizers and their progress in messages and checkpoints.

use crate::schedule::Schedule;
use crate::wire::{Reader, WireError, Writer};

use super::{Optimizer, Progress, Rule, Scale};

/// A number for the rule, and its constants.
type Numbers = (u8, [f32; 4]);

impl Progress {
    pub fn encode(&self, to: &mut Writer) {
        to.u64(self.updates)
            .u64(self.samples)
            .f32(self.beta1_power)
            .f32(self.beta2_power);
    }

    pub fn decode(from: &mut Reader<'_>) -> Result<Progress, WireError> {
        Ok(Progress {
            updates: from.u64()?,
            samples: from.u64()?,
            beta1_power: from.f32()?,
            beta2_power: from.f32()?,
        })
    }
}

impl Optimizer {
    pub fn encode(&self, to: &mut Writer) {
        let (kind, numbers) = numbers_of(self.rule);
        to.u8(kind);
        for number in numbers {
            to.f32(number);
        }
        to.f32(self.l1)
            .f32(self.l2)
            .f32(self.proximal_l1)
            .f32(self.clip)
            .u32(self.average);
        self.schedule.encode(to);
    }

    pub fn decode(from: &mut Reader<'_>) -> Result<Optimizer, WireError> {
        let kind = from.u8()?;
        let numbers = [from.f32()?, from.f32()?, from.f32()?, from.f32()?];
        let rule = rule_of((kind, numbers)).ok_or(WireError::Unknown {
            what: "an optimizer",
            found: u64::from(kind),
        })?;
        Ok(Optimizer {
            rule,
            l1: from.f32()?,
            l2: from.f32()?,
            proximal_l1: from.f32()?,
            clip: from.f32()?,
            average: from.u32()?,
            schedule: Schedule::decode(from)?,
        })
    }
}

#[rustfmt::skip] // One line per rule.
fn numbers_of(rule: Rule) -> Numbers {
    match rule {
        Rule::Sgd => (0, [0.0; 4]),
        Rule::Momentum { momentum, nesterov } => (1, [momentum, f32::from(u8::from(nesterov)), 0.0, 0.0]),
        Rule::Adagrad { epsilon } => (2, [epsilon, 0.0, 0.0, 0.0]),
        Rule::RowAdagrad { epsilon } => (3, [epsilon, 0.0, 0.0, 0.0]),
        Rule::Adam { beta1, beta2, epsilon } => (4, [beta1, beta2, epsilon, 0.0]),
        Rule::AdamW { beta1, beta2, epsilon, decay } => (5, [beta1, beta2, epsilon, decay]),
        Rule::RmsProp { rho, momentum, epsilon } => (6, [rho, momentum, epsilon, 0.0]),
        Rule::AdaDelta { rho, epsilon } => (7, [rho, epsilon, 0.0, 0.0]),
        Rule::Ftrl { beta, l1, l2 } => (8, [beta, l1, l2, 0.0]),
        Rule::Adamax { beta1, beta2, epsilon } => (9, [beta1, beta2, epsilon, 0.0]),
        Rule::Velocity { momentum, scale } => match scale {
            Scale::One => (10, [momentum, 0.0, 0.0, 0.0]),
            Scale::Adagrad { epsilon } => (11, [momentum, epsilon, 0.0, 0.0]),
            Scale::DecayedAdagrad { rho, epsilon } => (12, [momentum, epsilon, rho, 0.0]),
            Scale::RmsProp { rho, epsilon } => (13, [momentum, epsilon, rho, 0.0]),
            Scale::AdaDelta { rho, epsilon } => (14, [momentum, epsilon, rho, 0.0]),
        },
    }
}

#[rustfmt::skip] // One line per rule.
fn rule_of((kind, [a, b, c, d]): Numbers) -> Option<Rule> {
    let velocity = |scale| Rule::Velocity { momentum: a, scale };
    Some(match kind {
        0 => Rule::Sgd,
        1 => Rule::Momentum { momentum: a, nesterov: b != 0.0 },
        2 => Rule::Adagrad { epsilon: a },
        3 => Rule::RowAdagrad { epsilon: a },
        4 => Rule::Adam { beta1: a, beta2: b, epsilon: c },
        5 => Rule::AdamW { beta1: a, beta2: b, epsilon: c, decay: d },
        6 => Rule::RmsProp { rho: a, momentum: b, epsilon: c },
        7 => Rule::AdaDelta { rho: a, epsilon: b },
        8 => Rule::Ftrl { beta: a, l1: b, l2: c },
        9 => Rule::Adamax { beta1: a, beta2: b, epsilon: c },
        10 => velocity(Scale::One),
        11 => velocity(Scale::Adagrad { epsilon: b }),
        12 => velocity(Scale::DecayedAdagrad { rho: c, epsilon: b }),
        13 => velocity(Scale::RmsProp { rho: c, epsilon: b }),
        14 => velocity(Scale::AdaDelta { rho: c, epsilon: b }),
        _ => return None,
    })
}
