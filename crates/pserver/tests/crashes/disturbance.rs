//! What happens to a job: kills of servers and trainers, and broken connections, each at one place of one trainer's program.

use std::sync::{Mutex, PoisonError};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The process of a server is replaced. `is_unwritten`: its latest checkpoint did not reach the disk.
    KillServer {
        server: u32,
        is_unwritten: bool,
    },
    KillAllServers,
    /// The trainer's next attempt joins after the rollback, or takes part in it.
    KillServerAndTrainer {
        server: u32,
    },
    /// The server lives on; all connections to it break.
    CutConnections {
        server: u32,
    },
    KillTrainer,
    /// The trainer's machine was thought to be lost: its next attempt runs while the earlier one ends its step.
    Zombie,
}

#[derive(Debug, Clone)]
pub struct Event {
    pub step: u64,
    /// In whose program it happens.
    pub trainer: u32,
    /// Before its lookups, its pushes, its second push, or the end of the step.
    pub phase: u32,
    pub what: What,
}

/// The events that have not happened yet.
pub struct Events(Mutex<Vec<Event>>);

impl Events {
    pub fn new(events: Vec<Event>) -> Events {
        Events(Mutex::new(events))
    }

    /// The next event at this place; it happens once.
    pub fn take(&self, step: u64, trainer: u32, phase: u32) -> Option<What> {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_here = |event: &Event| (event.step, event.trainer, event.phase) == (step, trainer, phase);
        let at = events.iter().position(is_here)?;
        Some(events.swap_remove(at).what)
    }
}
