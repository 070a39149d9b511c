//! Ray: its command line, an idle head node, and a job of one line.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::Installed;
use super::sandbox::Sandbox;
use crate::process::{cost, median};
use crate::table::{Figure, PeerFigure, Question, middle};

const COMMANDS: usize = 5;
const JOBS: usize = 3;
const LIMIT: Duration = Duration::from_secs(60);

/// The default; the sandbox has its own ports.
const DASHBOARD: &str = "http://127.0.0.1:8265";

/// What the job prints; not in its command, which Ray prints too.
const LINE: &str = "hello 42";

pub fn start(peer: &Installed) -> Result<Vec<PeerFigure>, String> {
    Sandbox::with(peer, |sandbox| {
        let mut figures = vec![command(sandbox, peer)];
        start_head(sandbox)?;
        figures.push(first_line(sandbox, peer)?);
        let idle = sandbox.idle();
        let processes = format!("{} processes", sandbox.processes().len());
        figures.extend(idle.figures(peer, &processes));
        Ok(figures)
    })
}

fn command(sandbox: &Sandbox, peer: &Installed) -> PeerFigure {
    let version = || cost(sandbox.command("ray", LIMIT).arg("--version"));
    // The first run compiles its modules.
    version();
    let cost = median(COMMANDS, version);
    PeerFigure::measured(Question::Command, &peer.name, "", &cost.figures())
}

/// Returns when Ray says that it has started; its processes continue in the background.
fn start_head(sandbox: &Sandbox) -> Result<(), String> {
    let log = std::fs::File::create(sandbox.folder().join("start.log")).map_err(|error| error.to_string())?;
    let status = sandbox
        .command("ray", LIMIT)
        .args(["start", "--head", "--disable-usage-stats", "--temp-dir"])
        .arg(sandbox.folder().join("ray"))
        .args(["--node-ip-address=127.0.0.1", "--dashboard-host=127.0.0.1"])
        // A file: background processes would keep a pipe open.
        .stdout(log)
        .stderr(Stdio::null())
        .status()
        .map_err(|error| error.to_string())?;
    if status.success() {
        return Ok(());
    }
    Err(format!("`ray start` ended with {status}"))
}

fn first_line(sandbox: &Sandbox, peer: &Installed) -> Result<PeerFigure, String> {
    let times: Result<Vec<Duration>, String> = (0..JOBS).map(|_| submit_to_first_line(sandbox)).collect();
    let time = middle(times?);
    Ok(PeerFigure::measured(
        Question::FirstLine,
        &peer.name,
        "",
        &[Figure::time(time)],
    ))
}

fn submit_to_first_line(sandbox: &Sandbox) -> Result<Duration, String> {
    let started = Instant::now();
    let mut submit = sandbox
        .command("ray", LIMIT)
        .args(["job", "submit", "--address", DASHBOARD, "--"])
        .args(["sh", "-c", "echo hello $((6 * 7))"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| error.to_string())?;
    let stdout = BufReader::new(submit.stdout.take().expect("stdout is a pipe"));
    let mut took = None;
    for line in stdout.lines().map_while(Result::ok) {
        if took.is_none() && line.contains(LINE) {
            took = Some(started.elapsed());
        }
    }
    let status = submit.wait().map_err(|error| error.to_string())?;
    took.ok_or_else(|| format!("`ray job submit` ended with {status} and without the job's line"))
}
