//! How a job exceeds the machines: the amounts and their texts.
//!
//! They name no job, so they can be shown to every user.

use std::fmt;

use super::cluster::Cluster;
use super::room::{Load, Part, Shape};
use super::unmatched::{Matching, Unmatched};
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
    /// No machine matches what some of its workers require.
    NoNode(Unmatched),
    /// The same for the machines that match what some of its workers require.
    Among { excess: Box<Excess>, matching: Matching },
}

impl Excess {
    /// How a shape exceeds all nodes together, or else the largest node.
    pub(super) fn together(shape: &Shape, cluster: &Cluster) -> Excess {
        let short = Shortage::all(&shape.total, cluster.idle().total());
        match (no_node(shape, cluster), short.is_empty()) {
            (Some(excess), _) => excess,
            (None, true) => larger_than_any(shape, cluster)
                .or_else(|| more_than_match(shape, cluster))
                .unwrap_or(Excess::OneByOne),
            (None, false) => Excess::Together(short),
        }
    }

    /// The same, but checks the largest node first.
    pub(super) fn one_by_one(shape: &Shape, cluster: &Cluster) -> Excess {
        no_node(shape, cluster)
            .or_else(|| larger_than_any(shape, cluster))
            .unwrap_or_else(|| Excess::together(shape, cluster))
    }

    /// The excess without the machines that were considered.
    pub fn on_its_own(&self) -> &Excess {
        match self {
            Excess::Among { excess, .. } => excess.on_its_own(),
            excess => excess,
        }
    }

    /// Names the machines that were considered, if workers require certain ones.
    fn among(self, part: &Part, cluster: &Cluster) -> Excess {
        match Matching::of(part, cluster) {
            None => self,
            Some(matching) => Excess::Among {
                excess: Box::new(self),
                matching,
            },
        }
    }
}

fn no_node(shape: &Shape, cluster: &Cluster) -> Option<Excess> {
    let mut parts = shape.parts.iter();
    parts
        .find_map(|part| Unmatched::of(part, cluster))
        .map(Excess::NoNode)
}

fn larger_than_any(shape: &Shape, cluster: &Cluster) -> Option<Excess> {
    shape.parts.iter().find_map(|part| {
        let idle = cluster.idle();
        let most = match part.eligible.nodes.set() {
            None => *idle.most(),
            Some(_) => idle.most_of(&part.eligible.nodes),
        };
        let need = Load::of(&part.need, 1);
        let short = Shortage::all(&need, &Load::of(&most, 1)).into_iter().next()?;
        let needs_type = part.eligible.required.is_none() && short.kind == ResourceKind::Gpu;
        Some(match needs_type && idle.most().gpu >= part.need.gpu {
            true => Excess::NoNode(Unmatched::untyped(cluster)),
            false => Excess::OneWorker(short).among(part, cluster),
        })
    })
}

/// How some workers together exceed the machines that match.
fn more_than_match(shape: &Shape, cluster: &Cluster) -> Option<Excess> {
    let limited = |part: &&Part| part.eligible.nodes.set().is_some();
    shape.parts.iter().filter(limited).find_map(|part| {
        let there = cluster.idle().total_of(&part.eligible.nodes);
        let short = Shortage::all(&Load::of(&part.need, part.count), &there);
        (!short.is_empty()).then(|| Excess::Together(short).among(part, cluster))
    })
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
            Excess::NoNode(unmatched) => unmatched.fmt(f),
            Excess::Among { excess, matching } => write!(f, "{excess}; {matching}"),
        }
    }
}
