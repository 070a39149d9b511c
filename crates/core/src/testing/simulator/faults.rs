//! The faults of a simulation run and their rates.

use jiff::SignedDuration;

use crate::ports::{EngineCommand, Report};
use crate::testing::rng::Rng;

use super::{Finding, World};

/// Where the server crashes, or has to start over, while it handles a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CrashPoint {
    Never,
    /// The store refuses the batch. The server survives and starts over, while earlier orders are still in flight.
    WriteRefused,
    BeforeWrite,
    BeforeCommands,
    AmongCommands,
    BeforeReplies,
}

/// The rate of each fault in percent. Each run has its own mix.
#[derive(Debug, Clone, Copy)]
pub(super) struct Faults {
    crash: u32,
    drop: u32,
    repeat: u32,
    lose_reply: u32,
    reboot: bool,
    clock: bool,
    vanish: bool,
}

impl Faults {
    pub(super) fn choose(rng: &mut Rng) -> Faults {
        let mut rate = |most: usize| if rng.chance(60) { rng.below(most) as u32 } else { 0 };
        Faults {
            crash: rate(12),
            drop: rate(30),
            repeat: rate(40),
            lose_reply: rate(40),
            reboot: rate(10) > 5,
            clock: rate(10) > 4,
            vanish: rate(10) > 4,
        }
    }

    pub(super) fn none() -> Faults {
        Faults {
            crash: 0,
            drop: 0,
            repeat: 0,
            lose_reply: 0,
            reboot: false,
            clock: false,
            vanish: false,
        }
    }

    pub(super) fn repeats(&self, rng: &mut Rng) -> bool {
        rng.chance(self.repeat)
    }

    pub(super) fn loses_reply(&self, rng: &mut Rng) -> bool {
        rng.chance(self.lose_reply)
    }

    /// Whether the disk is full when a user wants to kill a job.
    pub(super) fn refuses_kill(&self, rng: &mut Rng) -> bool {
        self.crash > 0 && rng.chance(25)
    }

    /// Whether the server crashes before it has stored what it carried out without a record.
    pub(super) fn forgets_kill(&self, rng: &mut Rng) -> bool {
        self.crash > 0 && rng.chance(30)
    }

    pub(super) fn crash_point(&self, rng: &mut Rng) -> CrashPoint {
        if !rng.chance(self.crash) {
            return CrashPoint::Never;
        }
        match rng.below(5) {
            4 => CrashPoint::WriteRefused,
            0 => CrashPoint::BeforeWrite,
            1 => CrashPoint::BeforeCommands,
            2 => CrashPoint::AmongCommands,
            _ => CrashPoint::BeforeReplies,
        }
    }
}

impl World {
    pub(super) fn misfortune(&mut self) -> Finding {
        match self.rng.below(8) {
            0 if self.faults.reboot => self.reboot(),
            1 if self.faults.clock => return self.clock_jumps(),
            2 if self.faults.vanish => self.attempt_vanishes(),
            3 | 4 if self.faults.crash > 0 => self.crash(),
            5 | 6 if self.faults.drop > 0 => self.connection_comes_back(),
            _ => {}
        }
        Ok(())
    }

    /// A report is sent, or lost until the connection comes back.
    pub(super) fn send(&mut self, report: Report) {
        if self.rng.chance(self.faults.drop) {
            self.coverage.dropped += 1;
            return;
        }
        self.reports.push(report);
    }

    /// The engine repeats all its reports, as after every reconnect.
    fn connection_comes_back(&mut self) {
        self.note(|| "the connection to the engine comes back".into());
        let listed = self.engine.listed();
        self.reports.extend(listed);
    }

    /// Crashes the server; everything it had not done yet is lost. Some reports arrive late, at the next server.
    pub(super) fn crash(&mut self) {
        if self.server.take().is_none() {
            return;
        }
        self.note(|| "the server is gone".into());
        let is_cut = |command: &EngineCommand| match command {
            EngineCommand::Launch { job, .. } => self.engine.is_only_prepared(&job.id),
            _ => false,
        };
        self.coverage.prepared += usize::from(self.commands.iter().any(is_cut));
        self.coverage.crashes += 1;
        self.commands.clear();
        // Workers may have been stopped, and the reason is lost.
        let forgotten = std::mem::take(&mut self.unrecorded);
        self.coverage.forgotten_kills += forgotten.killed().count();
        self.unlucky.extend(forgotten.killed().cloned());
        self.wake_at = None;
        let mut rng = self.rng.clone();
        self.reports.retain(|_| rng.chance(30));
        self.rng = rng;
    }

    fn reboot(&mut self) {
        self.crash();
        self.note(|| "the machine restarts".into());
        self.coverage.reboots += 1;
        self.boot_changed = true;
        let hit: Vec<_> = self
            .store
            .active()
            .filter(|job| job.phase.occupies())
            .map(|job| job.id.clone())
            .collect();
        self.unlucky.extend(hit.iter().cloned());
        self.rebooted.extend(hit);
        self.engine.reboot();
        self.reports.clear();
    }

    /// A server that notices the change continues as if nothing had happened. A server that does not notice it, or
    /// crashes before it has stored it, expires limits early: that may end a job, but nothing worse.
    fn clock_jumps(&mut self) -> Finding {
        self.coverage.clock_jumps += 1;
        let hour = 3_600_000;
        let jump = match self.rng.chance(50) {
            true => hour,
            false => -hour,
        };
        self.clock_error += jump;
        self.note(|| format!("the clock jumps by {jump} ms"));
        let hit: Vec<_> = self.store.active().map(|job| job.id.clone()).collect();
        let is_noticed = self.rng.chance(50);
        if let (true, Some(server)) = (is_noticed, self.server.as_mut()) {
            server.clock_was_set(SignedDuration::from_millis(jump));
            self.serve(Vec::new())?;
        }
        if !is_noticed || self.server.is_none() {
            self.unlucky.extend(hit);
        }
        Ok(())
    }

    /// An attempt that the server knows disappears without a trace while the server is down.
    fn attempt_vanishes(&mut self) {
        let heard_of = |world: &World, key: &crate::ports::AttemptKey| {
            let worker = world.store.get(&key.job).and_then(|job| job.worker(key.worker));
            worker.is_some_and(|worker| {
                worker.attempt == key.attempt && worker.status > crate::job::WorkerStatus::Waiting
            })
        };
        self.crash();
        let candidates: Vec<_> = self
            .engine
            .live()
            .filter(|key| heard_of(self, key))
            .cloned()
            .collect();
        if let Some(key) = self.rng.pick(&candidates).cloned() {
            self.note(|| format!("{key:?} vanishes"));
            self.coverage.vanished += 1;
            self.engine.vanish(&key);
        }
    }
}
