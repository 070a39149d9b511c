//! `doctor`: finds what a program from 2017 needs to run today. Reads and changes local files only.

use std::path::{Path, PathBuf};

use super::Context;
use crate::doctor::{examine, unified};
use crate::error::{CliError, DONE, FAILED};

/// Check programs written for Paddle of 2016 and 2017
///
/// Reads Python 2 and Python 3 without running it. Prints the lines whose names are not supported, with what to use
/// instead, and a patch for `print`, `cPickle`, files that must be binary and pickles of Python 2. Exits with 1 if
/// changes are needed.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Change the files instead of printing a patch
    #[arg(long)]
    fix: bool,
    /// Programs, or folders whose `.py` files are checked
    #[arg(value_name = "FILE|FOLDER", required = true)]
    paths: Vec<PathBuf>,
}

pub fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let mut files = Vec::new();
    for path in &args.paths {
        collect(path, &mut files)?;
    }
    let (mut problems, mut changed) = (0, 0);
    for file in &files {
        let bytes = std::fs::read(file).map_err(|error| unreadable(file, &error))?;
        let name = file.display().to_string();
        let Some((text, findings)) = String::from_utf8(bytes)
            .ok()
            .and_then(|text| examine(&text).map(|findings| (text, findings)))
        else {
            context
                .world
                .err
                .note(&format!("`{name}` is not text in UTF-8 and was skipped"));
            continue;
        };
        for problem in &findings.problems {
            problems += 1;
            context
                .world
                .out
                .line(format!("{name}:{}: {}", problem.line, problem.message))?;
        }
        if findings.fixed != text {
            changed += 1;
            if args.fix {
                std::fs::write(file, &findings.fixed).map_err(|error| unwritable(file, &error))?;
                context.world.out.line(format!("fixed {name}"))?;
            } else {
                context
                    .world
                    .out
                    .line(unified(&name, &text, &findings.fixed).trim_end_matches('\n'))?;
            }
        }
    }
    sum_up(context, files.len(), changed, problems, args.fix);
    let is_done = problems == 0 && (changed == 0 || args.fix);
    Ok(if is_done { DONE } else { FAILED })
}

fn sum_up(context: &mut Context<'_>, files: usize, changed: usize, problems: usize, fix: bool) {
    let files = counted(files, "file");
    let said = match (changed, problems) {
        (0, 0) => format!("checked {files}: nothing to do"),
        (_, 0) if fix => format!("checked {files}, fixed {changed}"),
        (_, 0) => format!("checked {files}: {changed} can be fixed by `--fix`"),
        (_, _) => format!(
            "checked {files}: {} not supported, {changed} {} `--fix`",
            counted(problems, "line"),
            if fix { "fixed by" } else { "can be fixed by" }
        ),
    };
    context.world.err.line(said);
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// A file itself, or the Python files below a folder in the order of their names; hidden folders are skipped.
fn collect(path: &Path, files: &mut Vec<PathBuf>) -> Result<(), CliError> {
    if !path.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let entries = std::fs::read_dir(path).map_err(|error| unreadable(path, &error))?;
    let mut entries: Vec<PathBuf> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
    entries.sort();
    for entry in entries {
        let name = entry.file_name().unwrap_or_default().to_string_lossy();
        if entry.is_dir() && !name.starts_with('.') && !entry.is_symlink() {
            collect(&entry, files)?;
        } else if entry.is_file() && name.ends_with(".py") {
            files.push(entry);
        }
    }
    Ok(())
}

fn unreadable(path: &Path, error: &std::io::Error) -> CliError {
    CliError::refused(format!("cannot read `{}`: {error}", path.display()))
}

fn unwritable(path: &Path, error: &std::io::Error) -> CliError {
    CliError::refused(format!("cannot write `{}`: {error}", path.display()))
}
