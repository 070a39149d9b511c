//! HyperQueue, through its Python package: server, worker and client are threads of one Python process.
//!
//! The package has no command line and no journal, so there is no start of a client to compare, and a submitted job is
//! in memory only.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::Installed;
use super::sandbox::Sandbox;
use crate::table::{Figure, PeerFigure, Question, Unit};

const PROGRAM: &str = include_str!("measure_hyperqueue.py");
const COMPLAINTS: &str = "stderr";
const LIMIT: Duration = Duration::from_secs(90);

/// How long a job takes to its first line, and what an idle server costs.
pub fn start(peer: &Installed) -> Result<Vec<PeerFigure>, String> {
    Sandbox::with(peer, |sandbox| {
        let mut program = run(sandbox, &["start"])?;
        let reply = reply(sandbox, &mut program)?;
        let mut figures = vec![
            first_line(peer, "connected client", number(&reply, "first_line_s")?),
            first_line(peer, "new client", number(&reply, "from_new_client_s")?),
        ];
        figures.extend(sandbox.idle().figures(peer, "with Python"));
        end(program)?;
        Ok(figures)
    })
}

/// How fast jobs of one task are taken in while nothing can run.
pub fn queue(peer: &Installed, jobs: usize) -> Result<Vec<PeerFigure>, String> {
    Sandbox::with(peer, |sandbox| {
        let mut program = run(sandbox, &["queue", &jobs.to_string()])?;
        let reply = reply(sandbox, &mut program)?;
        end(program)?;
        let (rate, clients) = (number(&reply, "per_second")?, number(&reply, "clients")?);
        Ok(vec![PeerFigure::measured(
            Question::Submits,
            &peer.name,
            &format!("not durable, clients: {clients}"),
            &[Figure::new(rate, Unit::PerSecond)],
        )])
    })
}

fn first_line(peer: &Installed, remark: &str, seconds: f64) -> PeerFigure {
    let time = Figure::time(Duration::from_secs_f64(seconds));
    PeerFigure::measured(Question::FirstLine, &peer.name, remark, &[time])
}

fn run(sandbox: &Sandbox, args: &[&str]) -> Result<Child, String> {
    // A file, because it starts itself again as further clients.
    let program = sandbox.folder().join("measure_hyperqueue.py");
    fs::write(&program, PROGRAM).map_err(|error| error.to_string())?;
    let complaints = File::create(sandbox.folder().join(COMPLAINTS)).map_err(|error| error.to_string())?;
    sandbox
        .command("python", LIMIT)
        .arg(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(complaints)
        .spawn()
        .map_err(|error| error.to_string())
}

/// The program's line of JSON; the server prints a table of its own first.
fn reply(sandbox: &Sandbox, program: &mut Child) -> Result<Value, String> {
    let stdout = BufReader::new(program.stdout.take().expect("stdout is a pipe"));
    let line = stdout
        .lines()
        .map_while(Result::ok)
        .find(|line| line.starts_with('{'));
    line.and_then(|line| serde_json::from_str(&line).ok())
        .ok_or_else(|| {
            let complaints = fs::read_to_string(sandbox.folder().join(COMPLAINTS)).unwrap_or_default();
            let last = complaints.lines().last().unwrap_or("it said nothing");
            format!("the program gave no figures: {last}")
        })
}

/// Ends its input, which it waits for, and waits for it.
fn end(mut program: Child) -> Result<(), String> {
    drop(program.stdin.take());
    program.wait().map(drop).map_err(|error| error.to_string())
}

fn number(reply: &Value, key: &str) -> Result<f64, String> {
    reply[key].as_f64().ok_or_else(|| format!("it gave no `{key}`"))
}
