//! A gate for a worker: the worker's `cat $GATE` returns only when the test opens it.
//!
//! A test controls the time with it, without sleeping.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};

use crate::wait::wait_until;

/// A named pipe. A reader waits for a writer; several may wait, and each needs its own opening.
#[derive(Debug)]
pub struct Gate {
    path: PathBuf,
}

impl Gate {
    pub(crate) fn new(path: PathBuf) -> Self {
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe in a fresh folder");
        Self { path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// As `-env` takes it: `GATE=/…`.
    pub fn variable(&self, name: &str) -> String {
        format!("{name}={}", self.path.display())
    }

    /// Waits until a reader is at the gate, then lets it through.
    pub fn open(&self) {
        wait_until("a reader must be at the gate", || self.try_open());
    }

    /// Lets every reader through until there were enough. Two may arrive together or one after the other.
    pub fn open_until(&self, what: &str, mut is_enough: impl FnMut() -> bool) {
        wait_until(what, || {
            drop(self.try_open());
            is_enough().then_some(())
        });
    }

    fn try_open(&self) -> Option<File> {
        let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).expect("flags of open are small");
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(nonblocking);
        options.open(&self.path).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_reader_continues_when_the_gate_opens() {
        let folder = tempfile::tempdir().unwrap();
        let gate = Gate::new(folder.path().join("gate"));
        let mut waiting = Command::new("cat")
            .arg(gate.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        assert!(waiting.try_wait().unwrap().is_none());
        gate.open();
        assert!(waiting.wait().unwrap().success());
    }
}
