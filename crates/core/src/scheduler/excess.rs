//! How a job exceeds the machines: the amounts and their texts.
//!
//! They name no job, so they can be shown to every user.

use std::fmt;

use super::room::{Load, Shape};
use super::tree::RoomTree;
use crate::quantity::{bare_cores, counted, readable_bytes, readable_cores};

/// A resource of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceKind {
    /// Counted in thousandths of a core.
    Cpu,
    /// Counted in bytes.
    Memory,
    Gpu,
}

impl ResourceKind {
    /// `2 cores`, `4 GiB of memory`, `1 GPU`.
    pub fn amount(self, amount: u128) -> String {
        match self {
            ResourceKind::Cpu => readable_cores(amount),
            ResourceKind::Memory => format!("{} of memory", readable_bytes(amount)),
            ResourceKind::Gpu => counted(amount, "GPU"),
        }
    }

    /// The amount alone, where the resource is clear: `2`, `4 GiB`, `1`.
    pub fn number(self, amount: u128) -> String {
        match self {
            ResourceKind::Cpu => bare_cores(amount),
            ResourceKind::Memory => readable_bytes(amount),
            ResourceKind::Gpu => amount.to_string(),
        }
    }
}

/// A resource of which more is requested than exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    pub kind: ResourceKind,
    pub asked: u128,
    pub there: u128,
}

impl Shortage {
    /// All shortages, cpu first.
    pub(super) fn all(asked: &Load, there: &Load) -> Vec<Shortage> {
        let kinds = [
            (ResourceKind::Cpu, asked.cpu, there.cpu),
            (ResourceKind::Memory, asked.memory, there.memory),
            (ResourceKind::Gpu, asked.gpu, there.gpu),
        ];
        let short = kinds.into_iter().filter(|(_, asked, there)| asked > there);
        short
            .map(|(kind, asked, there)| Shortage { kind, asked, there })
            .collect()
    }

    /// The missing amount.
    pub fn lack(&self) -> u128 {
        self.asked.saturating_sub(self.there)
    }
}

/// How a job exceeds the machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Excess {
    /// It requests more than all machines have together.
    Together(Vec<Shortage>),
    /// One of its workers is larger than the largest machine.
    OneWorker(Shortage),
    /// Neither of these, but its workers do not all fit.
    OneByOne,
}

impl Excess {
    /// How a shape exceeds all nodes together, or else the largest node.
    pub(super) fn together(shape: &Shape, idle: &RoomTree) -> Excess {
        let short = Shortage::all(&shape.total, idle.total());
        match short.is_empty() {
            true => larger_than_any(shape, idle).unwrap_or(Excess::OneByOne),
            false => Excess::Together(short),
        }
    }

    /// The same, but checks the largest node first.
    pub(super) fn one_by_one(shape: &Shape, idle: &RoomTree) -> Excess {
        larger_than_any(shape, idle).unwrap_or_else(|| Excess::together(shape, idle))
    }
}

fn larger_than_any(shape: &Shape, idle: &RoomTree) -> Option<Excess> {
    let most = Load::of(idle.most(), 1);
    let mut short = shape
        .parts
        .iter()
        .flat_map(|part| Shortage::all(&Load::of(&part.need, 1), &most));
    short.next().map(Excess::OneWorker)
}

impl fmt::Display for Excess {
    /// `10 cores requested, 2 in total`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = |short: &Shortage| (short.kind.amount(short.asked), short.kind.number(short.there));
        match self {
            Excess::Together(short) => {
                for (index, (asked, there)) in short.iter().map(words).enumerate() {
                    let between = if index == 0 { "" } else { "; " };
                    write!(f, "{between}{asked} requested, {there} in total")?;
                }
                Ok(())
            }
            Excess::OneWorker(short) => {
                let (asked, there) = words(short);
                write!(
                    f,
                    "{asked} requested for one worker, {there} on the largest machine"
                )
            }
            Excess::OneByOne => f.write_str("the workers do not fit onto the individual machines"),
        }
    }
}
