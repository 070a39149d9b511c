//! `pserver stat|export|import|checkpoints`, for `paddle` inside a job and for `paddlectl` everywhere else.

use std::ffi::OsString;
use std::path::Path;

use paddlecloud_pserver::server::{CheckpointState, ListedCheckpoint, list_checkpoints};

use crate::model::{self, ConvertError};
use crate::pserver;

/// The commands of this file.
pub const COMMANDS: [&str; 4] = ["checkpoints", "export", "import", "stat"];

/// What a command says, and its exit code.
#[derive(Debug, Default)]
pub struct Report {
    pub lines: Vec<String>,
    pub errors: Vec<String>,
    pub code: u8,
}

impl Report {
    fn said(line: String) -> Report {
        Report {
            lines: vec![line],
            ..Report::default()
        }
    }

    fn failed(error: impl ToString, code: u8) -> Report {
        Report {
            errors: vec![error.to_string()],
            code,
            ..Report::default()
        }
    }
}

/// Runs `pserver <args>`, where the first one is among [`COMMANDS`].
pub fn pserver_tool(args: &[OsString]) -> Report {
    let Some((command, args)) = args.split_first() else {
        return Report::failed("a command is missing", 2);
    };
    match command.to_str() {
        Some("export") => converted(model::export(args)),
        Some("import") => converted(model::import(args)),
        Some("checkpoints") => checkpoints(args),
        _ => stat(args),
    }
}

fn converted(result: Result<String, ConvertError>) -> Report {
    match result {
        Ok(said) => Report::said(said),
        Err(error @ (ConvertError::Usage(_) | ConvertError::Flag(_))) => Report::failed(error, 2),
        Err(error) => Report::failed(error, 1),
    }
}

/// One line of JSON per parameter server.
fn stat(args: &[OsString]) -> Report {
    let mut report = Report::default();
    for reply in pserver::stat(args, |name| std::env::var(name).ok()) {
        match reply {
            Ok(text) => report.lines.push(text),
            Err(error) => {
                report.errors.push(error.to_string());
                report.code = 1;
            }
        }
    }
    report
}

/// A table of the checkpoints; fails if one is damaged.
fn checkpoints(args: &[OsString]) -> Report {
    let [folder] = args else {
        return Report::failed(format!("expected one folder, got {}", args.len()), 2);
    };
    let folder = Path::new(folder);
    let found = match list_checkpoints(folder) {
        Ok(found) => found,
        Err(error) => return Report::failed(format!("cannot read `{}`: {error}", folder.display()), 1),
    };
    if found.is_empty() {
        return Report::failed(format!("there is no checkpoint in `{}`", folder.display()), 1);
    }
    let is_damaged = found
        .iter()
        .any(|each| matches!(each.state, CheckpointState::Damaged(_)));
    let rows: Vec<[String; 6]> = found.iter().map(|each| row(folder, each)).collect();
    Report {
        code: u8::from(is_damaged),
        lines: table(&rows),
        ..Report::default()
    }
}

fn row(folder: &Path, checkpoint: &ListedCheckpoint) -> [String; 6] {
    let path = checkpoint.path.strip_prefix(folder).unwrap_or(&checkpoint.path);
    let run = path.parent().filter(|run| !run.as_os_str().is_empty());
    let run = run.map_or("-".to_owned(), |run| run.display().to_string());
    let unknown = || "-".to_owned();
    let (servers, trainers, state) = match &checkpoint.state {
        CheckpointState::Intact { servers, trainers } => {
            (servers.to_string(), trainers.to_string(), "ok".to_owned())
        }
        CheckpointState::Incomplete => (
            unknown(),
            unknown(),
            "incomplete: a server has not written its file".to_owned(),
        ),
        CheckpointState::Damaged(why) => (unknown(), unknown(), why.clone()),
    };
    let (step, bytes) = (checkpoint.step.to_string(), checkpoint.bytes.to_string());
    [run, step, servers, trainers, bytes, state]
}

/// Columns as wide as their widest cell; the last is as long as it is.
fn table(rows: &[[String; 6]]) -> Vec<String> {
    let head = ["RUN", "STEP", "SERVERS", "TRAINERS", "BYTES", "STATE"].map(str::to_owned);
    let all: Vec<&[String; 6]> = std::iter::once(&head).chain(rows).collect();
    let width = |column: usize| {
        all.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let line = |row: &&[String; 6]| {
        let cells = (0..5).map(|column| format!("{:<width$}  ", row[column], width = width(column)));
        cells.collect::<String>() + &row[5]
    };
    all.iter().map(line).collect()
}
