//! A child process, stopped by its id when it is no longer needed.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How long a service may take to start on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(600);

/// How often a condition is checked.
const LOOK: Duration = Duration::from_millis(100);

/// A folder that is removed with its owner.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Result<Scratch> {
        let path = std::env::temp_dir().join(format!("paddlecloud-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).with_context(|| format!("cannot create `{}`", path.display()))?;
        Ok(Scratch(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A failure leaves only scratch files, which the system removes from its temporary folder.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A running program.
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program whose output goes to a file in `folder`. Its standard input ends when we exit.
    pub fn start(name: &str, folder: &Path, command: &mut Command) -> Result<Process> {
        let log = folder.join(format!("{name}.log"));
        let file = File::create(&log).with_context(|| format!("cannot write `{}`", log.display()))?;
        let child = command
            .stdin(Stdio::piped())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start `{name}`"))?;
        Ok(Process {
            name: name.to_owned(),
            child,
            log,
        })
    }

    /// Waits for a condition; an error if the program exits first or it takes too long.
    pub fn wait_until(&mut self, what: &str, mut is_so: impl FnMut() -> bool) -> Result<()> {
        let started = Instant::now();
        while !is_so() {
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended with {status}: {}", self.name, self.last_lines());
            }
            if started.elapsed() > LIMIT {
                bail!(
                    "{} is not {what} after {} s: {}",
                    self.name,
                    LIMIT.as_secs(),
                    self.last_lines()
                );
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// What follows a word at the beginning of a line of its output.
    pub fn line_after(&mut self, word: &str) -> Result<String> {
        let (log, word) = (self.log.clone(), format!("{word} "));
        let mut found = None;
        self.wait_until("ready", || {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            // Only complete lines count.
            let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
            found = whole
                .lines()
                .find_map(|line| line.strip_prefix(&word).map(str::to_owned));
            found.is_some()
        })?;
        found.context("it was found")
    }

    fn last_lines(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have exited by itself; either way it is reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ports that are free at this moment.
pub fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut held = Vec::with_capacity(N);
    for _ in 0..N {
        held.push(TcpListener::bind("127.0.0.1:0").context("cannot reserve a port")?);
    }
    let mut ports = [0; N];
    for (port, listener) in ports.iter_mut().zip(&held) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}
