//! Copies a worker's output to stdout for `kubectl logs`. Uses its own thread: the reader of stdout may be slow, and
//! the link must not wait for it.

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use paddlecloud_worker::log::{LogReader, Piece};
use paddlecloud_worker::printed::Printer;

const BLOCK: usize = 64 << 10;

/// The current end of the log, and the progress of the copy.
#[derive(Debug, Default, Clone, Copy)]
struct Mark {
    end: u64,
    complete: bool,
    /// The end of the copied part; `u64::MAX` once the copy is complete or has failed.
    copied: u64,
}

#[derive(Default)]
struct Shared {
    mark: Mutex<Mark>,
    changed: Condvar,
}

impl Shared {
    fn mark(&self) -> MutexGuard<'_, Mark> {
        self.mark.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, change: impl FnOnce(&mut Mark)) {
        change(&mut self.mark());
        self.changed.notify_all();
    }

    fn wait(&self, limit: Duration, done: impl Fn(&Mark) -> bool) -> Mark {
        let waiting = |mark: &mut Mark| !done(mark);
        let waited = self.changed.wait_timeout_while(self.mark(), limit, waiting);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// A handle of the copying thread.
pub struct StdoutCopy {
    shared: Arc<Shared>,
}

impl StdoutCopy {
    pub fn start(log: &Path, stdout: impl Write + Send + 'static) -> StdoutCopy {
        let shared = Arc::new(Shared::default());
        let (theirs, log) = (Arc::clone(&shared), log.to_owned());
        let copy = move || {
            copy(&theirs, &log, stdout);
            theirs.set(|mark| mark.copied = u64::MAX);
        };
        if std::thread::Builder::new()
            .name("stdout".into())
            .spawn(copy)
            .is_err()
        {
            shared.set(|mark| mark.copied = u64::MAX);
        }
        StdoutCopy { shared }
    }

    pub fn grown(&self, end: u64) {
        self.shared.set(|mark| mark.end = mark.end.max(end));
    }

    /// Bytes before this offset are no longer needed.
    pub fn copied(&self) -> u64 {
        self.shared.mark().copied
    }

    /// Marks the log as complete: nothing is added.
    pub fn complete(&self, end: u64) {
        self.shared.set(|mark| {
            mark.end = mark.end.max(end);
            mark.complete = true;
        });
    }

    /// Waits until a complete log is copied, up to a limit.
    pub fn wait(&self, limit: Duration) {
        self.shared.wait(limit, |mark| mark.copied == u64::MAX);
    }
}

fn copy(shared: &Shared, log: &Path, stdout: impl Write) {
    let mut reader = LogReader::open(log);
    let mut next = 0;
    let mut stdout = Printer::new(stdout);
    loop {
        let mark = shared.wait(Duration::MAX, |mark| mark.end > next || mark.complete);
        let most = match mark.complete {
            true => BLOCK,
            false => usize::try_from(mark.end - next).map_or(BLOCK, |rest| rest.min(BLOCK)),
        };
        let Ok(pieces) = reader.read_at(next, most) else {
            return;
        };
        if pieces.is_empty() {
            if mark.complete {
                return;
            }
            next = mark.end;
        }
        for piece in pieces {
            next = piece.end();
            if let Piece::Chunk(chunk) = piece
                && stdout.print(chunk.offset, &chunk.bytes).is_err()
            {
                return;
            }
        }
        let _ = stdout.flush();
        shared.mark().copied = next;
    }
}
