//! Peers, measured on the same machine in the same run if a package manager can install them.
//!
//! A peer that is unavailable or does not work is listed with the reason, and the benchmark continues. For peers that
//! cannot be installed at all, published figures are quoted, without a ratio: they come from another machine.

mod hyperqueue;
mod install;
mod kubectl;
mod ray;
mod sandbox;

use crate::table::{PeerFigure, Question};
use install::{Installed, Missing};

/// The available peers.
pub struct Peers {
    kubectl: Result<Installed, Missing>,
    hyperqueue: Result<Installed, Missing>,
    ray: Result<Installed, Missing>,
}

impl Peers {
    /// Installs missing peers into `target/bench-peers`.
    pub fn install() -> Self {
        Self {
            kubectl: install::kubectl(),
            hyperqueue: install::python_package("hyperqueue", "hyperqueue"),
            ray: install::python_package("ray", "ray[default]"),
        }
    }

    /// Peers' figures beside one group of ours.
    pub fn figures_for(&self, group: &str, jobs: usize) -> Vec<PeerFigure> {
        let found = match group {
            "start" => vec![
                figures("kubectl", &self.kubectl, kubectl::start),
                figures("HyperQueue", &self.hyperqueue, hyperqueue::start),
                figures("Ray", &self.ray, ray::start),
            ],
            "queue" => vec![figures("HyperQueue", &self.hyperqueue, |peer| {
                hyperqueue::queue(peer, jobs)
            })],
            _ => Vec::new(),
        };
        found.into_iter().flatten().chain(published(group)).collect()
    }
}

fn figures(
    name: &str,
    peer: &Result<Installed, Missing>,
    measure: impl Fn(&Installed) -> Result<Vec<PeerFigure>, String>,
) -> Vec<PeerFigure> {
    let measured = match peer {
        Ok(installed) => measure(installed),
        Err(missing) => Err(missing.to_string()),
    };
    measured.unwrap_or_else(|reason| {
        eprintln!("note: {name} is not measured: {reason}");
        Vec::new()
    })
}

/// Sustained rates from the makers' own guides and benchmarks; other machines, other units of work.
fn published(group: &str) -> Vec<PeerFigure> {
    if group != "queue" {
        return Vec::new();
    }
    [
        ("Slurm 24.11", "500 batch jobs/s"),
        ("Volcano", "55 one-pod jobs/s"),
        ("Kueue", "43 workloads/s"),
    ]
    .map(|(name, text)| PeerFigure::published(Question::Submits, name, text))
    .into()
}
