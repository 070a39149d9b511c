//! A command that runs in the background of a test, read line by line.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

use crate::wait::{LIMIT, wait_until};

/// A running command whose stdout and stderr are read as they arrive; killed when dropped.
#[derive(Debug)]
pub struct Background {
    line: String,
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Background {
    pub(crate) fn start(line: String, command: &mut Command) -> Self {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start `{line}`: {error}"));
        let (sender, lines) = channel();
        let stdout: Box<dyn Read + Send> = Box::new(child.stdout.take().expect("stdout is a pipe"));
        let stderr: Box<dyn Read + Send> = Box::new(child.stderr.take().expect("stderr is a pipe"));
        for stream in [stdout, stderr] {
            let sender = sender.clone();
            thread::spawn(move || {
                for bytes in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
                    // A test may drop the receiver early; the rest is still read, so that nothing blocks.
                    let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
                }
            });
        }
        Self {
            line,
            child,
            lines,
            seen: Vec::new(),
        }
    }

    /// The next line, from either stream, that contains `text`.
    #[track_caller]
    pub fn wait_for_line(&mut self, text: &str) -> String {
        loop {
            match self.lines.recv_timeout(LIMIT) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if line.contains(text) {
                        return line;
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.fail(&format!("no line with {text:?} came")),
                Err(RecvTimeoutError::Disconnected) => {
                    self.fail(&format!("it ended without a line with {text:?}"))
                }
            }
        }
    }

    /// Every line it has written so far.
    pub fn lines_so_far(&mut self) -> &[String] {
        self.seen.extend(self.lines.try_iter());
        &self.seen
    }

    /// What a terminal sends on Ctrl-C.
    pub fn interrupt(&self) {
        kill_process(self.pid(), Signal::INT).expect("the child is not reaped yet");
    }

    /// Returns a function that kills it, from any thread; it may have ended already.
    pub fn killer(&self) -> impl FnOnce() + Send + use<> {
        self.sender_of(Signal::KILL)
    }

    /// Like [`Background::interrupt`], from any thread; it may have ended already.
    pub fn interrupter(&self) -> impl FnOnce() + Send + use<> {
        self.sender_of(Signal::INT)
    }

    /// Suspends it, with its connections open, from any thread; it may have ended already.
    pub fn freezer(&self) -> impl FnOnce() + Send + use<> {
        self.sender_of(Signal::STOP)
    }

    /// Resumes it after that.
    pub fn thaw(&self) {
        self.sender_of(Signal::CONT)();
    }

    fn sender_of(&self, signal: Signal) -> impl FnOnce() + Send + use<> {
        let process = pidfd_open(self.pid(), PidfdFlags::empty()).expect("the child is not reaped yet");
        move || {
            let _ = pidfd_send_signal(process, signal);
        }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    fn pid(&self) -> Pid {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        pid.expect("a child has a pid")
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        let status = self.child.try_wait().expect("a child can be waited for");
        status.is_some()
    }

    /// Waits for its exit; returns the status and every line it wrote.
    #[track_caller]
    pub fn end(self) -> (ExitStatus, Vec<String>) {
        self.end_within(LIMIT)
    }

    /// The same for work that is known to be long: no line may take longer than this.
    #[track_caller]
    pub fn end_within(mut self, limit: Duration) -> (ExitStatus, Vec<String>) {
        let mut seen = std::mem::take(&mut self.seen);
        loop {
            match self.lines.recv_timeout(limit) {
                Ok(line) => seen.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    self.seen = seen;
                    self.fail("it does not end");
                }
            }
        }
        let what = format!("`{}` closed its streams and must end", self.line);
        let status = wait_until(&what, || {
            self.child.try_wait().expect("a child can be waited for")
        });
        (status, seen)
    }

    #[track_caller]
    fn fail(&self, why: &str) -> ! {
        panic!(
            "`{}`: {why}\n--- lines so far\n{}",
            self.line,
            self.seen.join("\n")
        )
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // Both fail only when it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
