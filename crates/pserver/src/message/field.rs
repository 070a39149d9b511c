//! The values of a head and their encoding.

use std::sync::Arc;

use crate::optimizer::{Optimizer, Progress, Range, ranged};
use crate::steps::Mode;
use crate::tensor_name::name;
use crate::wire::{Reader, WireError, Writer, bounded};

use super::{
    DenseSpec, Encoding, Entry, EntryKind, Init, Limits, MAX_ELEMENTS, MAX_RANK, MAX_ROW, Origin, Session,
    TableSpec, TensorId,
};

/// A value of a head.
pub trait Field: Sized {
    fn encode(&self, to: &mut Writer);
    fn decode(from: &mut Reader<'_>) -> Result<Self, WireError>;
}

/// A value that occurs in lists. Its minimum size bounds the length that a list may claim.
trait Item: Field {
    const LEAST_BYTES: usize;
}

impl Field for u32 {
    fn encode(&self, to: &mut Writer) {
        to.u32(*self);
    }

    fn decode(from: &mut Reader<'_>) -> Result<u32, WireError> {
        from.u32()
    }
}

impl Field for u64 {
    fn encode(&self, to: &mut Writer) {
        to.u64(*self);
    }

    fn decode(from: &mut Reader<'_>) -> Result<u64, WireError> {
        from.u64()
    }
}

impl Field for bool {
    fn encode(&self, to: &mut Writer) {
        to.u8(u8::from(*self));
    }

    fn decode(from: &mut Reader<'_>) -> Result<bool, WireError> {
        from.flag("a flag")
    }
}

impl Item for u32 {
    const LEAST_BYTES: usize = 4;
}

impl Item for u64 {
    const LEAST_BYTES: usize = 8;
}

impl<T: Item> Field for Vec<T> {
    fn encode(&self, to: &mut Writer) {
        to.u32(self.len() as u32);
        self.iter().for_each(|item| item.encode(to));
    }

    fn decode(from: &mut Reader<'_>) -> Result<Vec<T>, WireError> {
        let count = from.count("the length of a list", T::LEAST_BYTES)?;
        (0..count).map(|_| T::decode(from)).collect()
    }
}

impl Field for Option<TensorId> {
    fn encode(&self, to: &mut Writer) {
        let known = self.unwrap_or(TensorId { id: 0, first: 0 });
        to.u8(u8::from(self.is_some())).u32(known.id).u32(known.first);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Option<TensorId>, WireError> {
        let known = from.flag("a place")?;
        let place = TensorId {
            id: from.u32()?,
            first: from.u32()?,
        };
        Ok(known.then_some(place))
    }
}

impl Field for Session {
    fn encode(&self, to: &mut Writer) {
        match self.mode {
            Mode::Sync => to.u8(0).u32(0),
            Mode::Async => to.u8(1).u32(0),
            Mode::Bounded(bound) => to.u8(2).u32(bound),
        };
        to.u8(u8::from(self.mean))
            .text(&self.checkpoints)
            .u64(self.checkpoint_every)
            .text(&self.resume);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Session, WireError> {
        let mode = match (from.u8()?, from.u32()?) {
            (0, _) => Mode::Sync,
            (1, _) => Mode::Async,
            (2, bound) => Mode::Bounded(bound),
            (found, _) => {
                return Err(WireError::Unknown {
                    what: "a mode",
                    found: u64::from(found),
                });
            }
        };
        Ok(Session {
            mode,
            mean: from.flag("`mean`")?,
            checkpoints: from.text("the folder of checkpoints")?,
            checkpoint_every: from.u64()?,
            resume: from.text("the folder of the run to resume")?,
        })
    }
}

impl Field for Origin {
    fn encode(&self, to: &mut Writer) {
        to.u8(match self {
            Origin::Start => 0,
            Origin::ThisRun => 1,
            Origin::OtherRun => 2,
        });
    }

    fn decode(from: &mut Reader<'_>) -> Result<Origin, WireError> {
        match from.u8()? {
            0 => Ok(Origin::Start),
            1 => Ok(Origin::ThisRun),
            2 => Ok(Origin::OtherRun),
            found => Err(WireError::Unknown {
                what: "what servers go back to",
                found: u64::from(found),
            }),
        }
    }
}

impl Field for DenseSpec {
    fn encode(&self, to: &mut Writer) {
        to.text(&self.name);
        self.shape.encode(to);
        self.optimizer.encode(to);
    }

    fn decode(from: &mut Reader<'_>) -> Result<DenseSpec, WireError> {
        let spec = DenseSpec {
            name: name(from)?,
            shape: Field::decode(from)?,
            optimizer: Optimizer::decode(from)?,
        };
        bounded("the rank of a tensor", spec.shape.len() as u64, MAX_RANK as u64)?;
        let multiply = |product: u64, length: &u64| product.checked_mul(*length);
        let elements = spec.shape.iter().try_fold(1, multiply).unwrap_or(u64::MAX);
        bounded("the elements of a tensor", elements, MAX_ELEMENTS)?;
        Ok(spec)
    }
}

impl Field for Progress {
    fn encode(&self, to: &mut Writer) {
        Progress::encode(self, to);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Progress, WireError> {
        Progress::decode(from)
    }
}

impl Field for String {
    fn encode(&self, to: &mut Writer) {
        to.text(self);
    }

    fn decode(from: &mut Reader<'_>) -> Result<String, WireError> {
        from.text("a text")
    }
}

impl Field for TableSpec {
    fn encode(&self, to: &mut Writer) {
        to.text(&self.name).u32(self.row);
        self.optimizer.encode(to);
        self.init.encode(to);
        to.u64(self.seed);
        self.limits.encode(to);
    }

    fn decode(from: &mut Reader<'_>) -> Result<TableSpec, WireError> {
        let (name, row) = (name(from)?, from.u32()?);
        bounded("the length of a row", u64::from(row), u64::from(MAX_ROW))?;
        if row == 0 {
            return Err(WireError::Unknown {
                what: "the length of a row",
                found: 0,
            });
        }
        Ok(TableSpec {
            name,
            row,
            optimizer: Optimizer::decode(from)?,
            init: Init::decode(from)?,
            seed: from.u64()?,
            limits: Limits::decode(from)?,
        })
    }
}

impl Field for Init {
    fn encode(&self, to: &mut Writer) {
        match *self {
            Init::Zero => to.u8(0).f32(0.0).f32(0.0),
            Init::Uniform { low, high } => to.u8(1).f32(low).f32(high),
            Init::Normal { mean, deviation } => to.u8(2).f32(mean).f32(deviation),
        };
    }

    fn decode(from: &mut Reader<'_>) -> Result<Init, WireError> {
        let init = match (from.u8()?, from.f32()?, from.f32()?) {
            (0, ..) => Init::Zero,
            (1, low, high) => Init::Uniform { low, high },
            (2, mean, deviation) => Init::Normal { mean, deviation },
            (found, ..) => {
                return Err(WireError::Unknown {
                    what: "an initialization",
                    found: u64::from(found),
                });
            }
        };
        init.check()?;
        Ok(init)
    }
}

impl Field for Limits {
    fn encode(&self, to: &mut Writer) {
        to.u32(self.admit_after)
            .u64(self.rows)
            .u8(u8::from(self.evict))
            .u64(self.idle_steps);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Limits, WireError> {
        Ok(Limits {
            admit_after: from.u32()?,
            rows: from.u64()?,
            evict: from.flag("`evict`")?,
            idle_steps: from.u64()?,
        })
    }
}

impl Field for Encoding {
    fn encode(&self, to: &mut Writer) {
        match *self {
            Encoding::F32 => to.u8(0).u32(0),
            Encoding::Bf16 => to.u8(1).u32(0),
            Encoding::F16 => to.u8(2).u32(0),
            Encoding::Sparse { count } => to.u8(3).u32(count),
        };
    }

    fn decode(from: &mut Reader<'_>) -> Result<Encoding, WireError> {
        match (from.u8()?, from.u32()?) {
            (0, _) => Ok(Encoding::F32),
            (1, _) => Ok(Encoding::Bf16),
            (2, _) => Ok(Encoding::F16),
            (3, count) => Ok(Encoding::Sparse { count }),
            (found, _) => Err(WireError::Unknown {
                what: "an encoding",
                found: u64::from(found),
            }),
        }
    }
}

impl Item for Entry {
    const LEAST_BYTES: usize = 18;
}

/// What an entry has.
mod has {
    pub(super) const ROWS: u8 = 1;
    pub(super) const RATE: u8 = 2;
    pub(super) const OPTIMIZER: u8 = 4;
}

impl Field for Entry {
    fn encode(&self, to: &mut Writer) {
        let (rows, encoding) = match self.kind {
            EntryKind::Dense(encoding) => (None, encoding),
            EntryKind::Rows { count, encoding } => (Some(count), encoding),
        };
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        to.u32(self.tensor)
            .u32(self.samples)
            .u8(flag(rows.is_some(), has::ROWS)
                | flag(self.rate.is_some(), has::RATE)
                | flag(self.optimizer.is_some(), has::OPTIMIZER));
        to.u32(rows.unwrap_or(0));
        encoding.encode(to);
        if let Some(rate) = self.rate {
            to.f32(rate);
        }
        if let Some(optimizer) = &self.optimizer {
            optimizer.encode(to);
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Entry, WireError> {
        let (tensor, samples, has) = (from.u32()?, from.u32()?, from.u8()?);
        bounded("what an entry has", u64::from(has), 7)?;
        let count = from.u32()?;
        let encoding = Encoding::decode(from)?;
        let rate = match has & has::RATE {
            0 => None,
            _ => Some(from.f32()?),
        };
        if let Some(rate) = rate {
            ranged("lr", f64::from(rate), Range::NotNegative)?;
        }
        Ok(Entry {
            tensor,
            rate,
            optimizer: match has & has::OPTIMIZER {
                0 => None,
                _ => Some(Arc::new(Optimizer::decode(from)?)),
            },
            samples,
            kind: match has & has::ROWS {
                0 => EntryKind::Dense(encoding),
                _ => EntryKind::Rows { count, encoding },
            },
        })
    }
}
