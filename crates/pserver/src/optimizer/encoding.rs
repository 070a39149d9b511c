//! The encoding of optimizers and their progress in messages and checkpoints.

use crate::schedule::Schedule;
use crate::wire::{Reader, WireError, Writer};

use super::constants::{MOST, RULES};
use super::{Optimizer, Progress, Rule};

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
        let (kind, numbers) = self.rule.numbers();
        to.u8(kind);
        for number in &numbers[..RULES[usize::from(kind)].1.len()] {
            to.f64(*number);
        }
        to.f32(self.l1)
            .f32(self.l2)
            .f32(self.proximal_l1)
            .f32(self.clip)
            .u32(self.average)
            .u8(u8::from(self.double));
        self.schedule.encode(to);
    }

    /// Reads an optimizer whose constants are in their ranges.
    pub fn decode(from: &mut Reader<'_>) -> Result<Optimizer, WireError> {
        let kind = from.u8()?;
        let unknown = WireError::Unknown {
            what: "an optimizer",
            found: u64::from(kind),
        };
        let (_, names) = RULES.get(usize::from(kind)).ok_or(unknown.clone())?;
        let mut numbers = [0.0; MOST];
        for number in &mut numbers[..names.len()] {
            *number = from.f64()?;
        }
        let optimizer = Optimizer {
            rule: Rule::of_numbers(kind, numbers).ok_or(unknown)?,
            l1: from.f32()?,
            l2: from.f32()?,
            proximal_l1: from.f32()?,
            clip: from.f32()?,
            average: from.u32()?,
            double: from.flag("`double`")?,
            schedule: Schedule::decode(from)?,
        };
        optimizer.check()?;
        Ok(optimizer)
    }
}
