//! Learning rates that depend on the number of updates or samples so far.

use std::fmt;

use crate::optimizer::{OutOfRange, Range, ranged};
use crate::wire::{Reader, WireError, Writer, bounded};

/// Maximum steps of a piecewise schedule.
const MAX_PIECES: usize = 1024;

/// The shape of a schedule after its warm-up. `base` is the initial rate.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    Constant,
    /// `base * decay ^ (t / every)`; `staircase` truncates the exponent to an integer.
    Exponential {
        decay: f64,
        every: f64,
        staircase: bool,
    },
    /// `base / (1 + decay * t / every)`
    InverseTime {
        decay: f64,
        every: u64,
    },
    /// `base / (1 + decay * t) ^ power`
    InversePower {
        decay: f64,
        power: f64,
    },
    /// `base - slope * t`, but never less than `end`.
    Linear {
        slope: f64,
        end: f64,
    },
    /// From `base` to `end` within `steps`, by the given power of the remaining fraction.
    Polynomial {
        end: f64,
        steps: u64,
        power: f64,
    },
    /// From `base` to `end` within `steps` along half a cosine.
    Cosine {
        end: f64,
        steps: u64,
    },
    /// `base` before the first boundary; from each boundary on, the rate given with it.
    Piecewise(Vec<(u64, f64)>),
}

/// What `t` counts in a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counts {
    /// Updates before this one.
    Updates,
    /// Samples of all updates, including this one.
    Samples,
}

/// A learning rate for every update, computed in `f64`.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    pub base: f64,
    pub shape: Shape,
    pub counts: Counts,
    /// How long the rate rises from 0; the shape begins after that.
    pub warmup: u64,
}

impl Schedule {
    pub fn constant(rate: f64) -> Schedule {
        Schedule {
            base: rate,
            shape: Shape::Constant,
            counts: Counts::Updates,
            warmup: 0,
        }
    }

    /// The rate of an update after `updates` others; `samples` includes its own.
    pub fn rate(&self, updates: u64, samples: u64) -> f64 {
        let t = match self.counts {
            Counts::Updates => updates,
            Counts::Samples => samples,
        };
        if t < self.warmup {
            return self.base * (t + 1) as f64 / self.warmup as f64;
        }
        self.after_warmup(t - self.warmup)
    }

    /// Checks that every number is one that gives rates of at least 0.
    pub fn check(&self) -> Result<(), OutOfRange> {
        let base = match self.shape {
            Shape::Constant => "lr",
            _ => "base",
        };
        ranged(base, self.base, Range::NotNegative)?;
        let finite = |name, value| ranged(name, value, Range::Finite);
        let not_negative = |name, value| ranged(name, value, Range::NotNegative);
        let positive = |name, value| ranged(name, value, Range::Positive);
        match &self.shape {
            Shape::Constant => Ok(()),
            Shape::Exponential { decay, every, .. } => {
                not_negative("decay", *decay)?;
                positive("every", *every)
            }
            Shape::InverseTime { decay, every } => {
                not_negative("decay", *decay)?;
                positive("every", *every as f64)
            }
            Shape::InversePower { decay, power } => {
                not_negative("decay", *decay)?;
                finite("power", *power)
            }
            Shape::Linear { slope, end } => {
                finite("slope", *slope)?;
                not_negative("end", *end)
            }
            Shape::Polynomial { end, steps, power } => {
                not_negative("end", *end)?;
                positive("steps", *steps as f64)?;
                not_negative("power", *power)
            }
            Shape::Cosine { end, steps } => {
                not_negative("end", *end)?;
                positive("steps", *steps as f64)
            }
            Shape::Piecewise(pieces) => {
                let mut rates = pieces.iter().map(|(_, rate)| *rate);
                rates.try_for_each(|rate| not_negative("boundaries", rate))
            }
        }
    }

    fn after_warmup(&self, t: u64) -> f64 {
        let base = self.base;
        match &self.shape {
            Shape::Constant => base,
            Shape::Exponential {
                decay,
                every,
                staircase,
            } => {
                let exponent = t as f64 / if *every > 0.0 { *every } else { 1.0 };
                base * decay.powf(if *staircase { exponent.floor() } else { exponent })
            }
            Shape::InverseTime { decay, every } => base / (1.0 + decay * t as f64 / (*every).max(1) as f64),
            Shape::InversePower { decay, power } => base * (1.0 + decay * t as f64).powf(-power),
            Shape::Linear { slope, end } => (base - slope * t as f64).max(*end),
            Shape::Polynomial { end, steps, power } => {
                let left = 1.0 - t.min(*steps) as f64 / (*steps).max(1) as f64;
                (base - end) * left.powf(*power) + end
            }
            Shape::Cosine { end, steps } => {
                let done = t.min(*steps) as f64 / (*steps).max(1) as f64;
                end + (base - end) * (1.0 + (std::f64::consts::PI * done).cos()) / 2.0
            }
            Shape::Piecewise(pieces) => {
                let reached = pieces.iter().rev().find(|(boundary, _)| *boundary <= t);
                reached.map_or(base, |(_, rate)| *rate)
            }
        }
    }

    pub fn encode(&self, to: &mut Writer) {
        to.f64(self.base)
            .u64(self.warmup)
            .u8(u8::from(self.counts == Counts::Samples));
        match &self.shape {
            Shape::Constant => to.u8(0),
            Shape::Exponential {
                decay,
                every,
                staircase,
            } => to.u8(1).f64(*decay).f64(*every).u8(u8::from(*staircase)),
            Shape::InverseTime { decay, every } => to.u8(2).f64(*decay).u64(*every),
            Shape::Polynomial { end, steps, power } => to.u8(3).f64(*end).u64(*steps).f64(*power),
            Shape::Cosine { end, steps } => to.u8(4).f64(*end).u64(*steps),
            Shape::Piecewise(pieces) => {
                to.u8(5).u32(pieces.len() as u32);
                for (boundary, rate) in pieces {
                    to.u64(*boundary).f64(*rate);
                }
                to
            }
            Shape::InversePower { decay, power } => to.u8(6).f64(*decay).f64(*power),
            Shape::Linear { slope, end } => to.u8(7).f64(*slope).f64(*end),
        };
    }

    pub fn decode(from: &mut Reader<'_>) -> Result<Schedule, WireError> {
        let (base, warmup) = (from.f64()?, from.u64()?);
        let counts = match from.flag("what a schedule counts")? {
            true => Counts::Samples,
            false => Counts::Updates,
        };
        let shape = match from.u8()? {
            0 => Shape::Constant,
            1 => Shape::Exponential {
                decay: from.f64()?,
                every: from.f64()?,
                staircase: from.flag("a staircase")?,
            },
            2 => Shape::InverseTime {
                decay: from.f64()?,
                every: from.u64()?,
            },
            3 => Shape::Polynomial {
                end: from.f64()?,
                steps: from.u64()?,
                power: from.f64()?,
            },
            4 => Shape::Cosine {
                end: from.f64()?,
                steps: from.u64()?,
            },
            5 => {
                let count = from.count("the pieces of a schedule", 16)?;
                bounded("the pieces of a schedule", count as u64, MAX_PIECES as u64)?;
                let pieces = (0..count).map(|_| Ok((from.u64()?, from.f64()?)));
                Shape::Piecewise(pieces.collect::<Result<_, WireError>>()?)
            }
            6 => Shape::InversePower {
                decay: from.f64()?,
                power: from.f64()?,
            },
            7 => Shape::Linear {
                slope: from.f64()?,
                end: from.f64()?,
            },
            found => {
                return Err(WireError::Unknown {
                    what: "a schedule",
                    found: u64::from(found),
                });
            }
        };
        Ok(Schedule {
            base,
            shape,
            counts,
            warmup,
        })
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.shape {
            Shape::Constant => write!(f, "lr={}", self.base),
            shape => write!(f, "base={}, {shape:?}", self.base),
        }?;
        match self.warmup {
            0 => Ok(()),
            warmup => write!(f, ", warmup={warmup}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(shape: Shape) -> Schedule {
        Schedule {
            base: 1.0,
            shape,
            counts: Counts::Updates,
            warmup: 0,
        }
    }

    #[test]
    fn rates_follow_their_shape() {
        let exponential = of(Shape::Exponential {
            decay: 0.5,
            every: 10.0,
            staircase: true,
        });
        assert_eq!([exponential.rate(9, 0), exponential.rate(10, 0)], [1.0, 0.5]);
        let inverse = of(Shape::InverseTime {
            decay: 1.0,
            every: 10,
        });
        assert_eq!([inverse.rate(0, 0), inverse.rate(10, 0)], [1.0, 0.5]);
        let polynomial = of(Shape::Polynomial {
            end: 0.0,
            steps: 4,
            power: 1.0,
        });
        assert_eq!([polynomial.rate(1, 0), polynomial.rate(9, 0)], [0.75, 0.0]);
        let cosine = of(Shape::Cosine { end: 0.0, steps: 2 });
        assert_eq!(
            [cosine.rate(0, 0), cosine.rate(1, 0), cosine.rate(2, 0)],
            [1.0, 0.5, 0.0]
        );
        let pieces = of(Shape::Piecewise(vec![(5, 0.1), (8, 0.01)]));
        assert_eq!(
            [pieces.rate(4, 0), pieces.rate(5, 0), pieces.rate(8, 0)],
            [1.0, 0.1, 0.01]
        );
    }

    #[test]
    fn a_warmup_comes_before_the_shape() {
        let schedule = Schedule {
            warmup: 4,
            ..of(Shape::Piecewise(vec![(1, 0.5)]))
        };
        let rates: Vec<f64> = (0..6).map(|t| schedule.rate(t, 0)).collect();
        assert_eq!(rates, [0.25, 0.5, 0.75, 1.0, 1.0, 0.5]);
    }

    #[test]
    fn the_schedules_of_2017_count_samples_with_those_of_the_update() {
        let by_samples = |shape| Schedule {
            counts: Counts::Samples,
            ..of(shape)
        };
        let inverse = by_samples(Shape::InversePower {
            decay: 0.5,
            power: 2.0,
        });
        assert_eq!([inverse.rate(7, 0), inverse.rate(7, 2)], [1.0, 0.25]);
        let linear = by_samples(Shape::Linear {
            slope: 0.01,
            end: 0.25,
        });
        assert_eq!([linear.rate(0, 50), linear.rate(0, 500)], [0.5, 0.25]);
        let mut head = Writer::new();
        linear.encode(&mut head);
        assert_eq!(Schedule::decode(&mut Reader::new(&head.finish())), Ok(linear));
    }
}
