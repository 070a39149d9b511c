//! HyperQueue, through its Python package: server, worker and client are threads of one Python process.
//!
//! The package brings no command line and no journal, so there is no start of a client to compare, and a
//! submitted job is in memory only.

use std::fs;
use std::time::Duration;

use serde_json::Value;

use super::Installed;
use super::sandbox::Sandbox;
use crate::process::{megabytes, milliseconds, percent};
use crate::table::{PeerFigure, Question};

const PROGRAM: &str = include_str!("measure_hyperqueue.py");
const LIMIT: Duration = Duration::from_secs(60);

/// What the server costs that does nothing, and how long a job takes to its first line.
pub fn start(peer: &Installed) -> Result<Vec<PeerFigure>, String> {
    let reply = measure(peer, &["start"])?;
    let first_line = Duration::from_secs_f64(number(&reply, "first_line_s")?);
    let from_new_client = Duration::from_secs_f64(number(&reply, "from_new_client_s")?);
    let memory = number(&reply, "memory_kib")?;
    let share = number(&reply, "cpu_share")?;
    let figure = |question, text, value| PeerFigure::measured(question, &peer.name, text, value);
    Ok(vec![
        figure(
            Question::FirstLine,
            format!("{}, connected client", milliseconds(first_line)),
            first_line.as_secs_f64(),
        ),
        figure(
            Question::FirstLine,
            format!("{}, new client", milliseconds(from_new_client)),
            from_new_client.as_secs_f64(),
        ),
        figure(
            Question::IdleMemory,
            format!("{}, with Python", megabytes(memory as u64)),
            memory,
        ),
        figure(Question::IdleCpu, percent(share), share),
    ])
}

/// How fast jobs of one task are taken in while nothing can run.
pub fn queue(peer: &Installed, jobs: usize) -> Result<Vec<PeerFigure>, String> {
    let reply = measure(peer, &["queue", &jobs.to_string()])?;
    let (rate, clients) = (number(&reply, "per_second")?, number(&reply, "clients")?);
    let text = format!("{rate:.0}/s, not durable, clients: {clients}");
    Ok(vec![PeerFigure::measured(
        Question::Submits,
        &peer.name,
        text,
        rate,
    )])
}

fn measure(peer: &Installed, args: &[&str]) -> Result<Value, String> {
    Sandbox::with(peer, |sandbox| {
        // A file, because it starts itself again as further clients.
        let program = sandbox.folder().join("measure_hyperqueue.py");
        fs::write(&program, PROGRAM).map_err(|error| error.to_string())?;
        let output = sandbox
            .command("python", LIMIT)
            .arg(program)
            .args(args)
            .output()
            .map_err(|error| error.to_string())?;
        // The server prints a table of its own first.
        let stdout = String::from_utf8_lossy(&output.stdout);
        let last = stdout.lines().last().unwrap_or_default();
        serde_json::from_str(last).map_err(|_| {
            let stderr = String::from_utf8_lossy(&output.stderr);
            format!("{}: {}", output.status, stderr.lines().last().unwrap_or_default())
        })
    })
}

fn number(reply: &Value, key: &str) -> Result<f64, String> {
    reply[key].as_f64().ok_or_else(|| format!("it gave no `{key}`"))
}
