//! `cargo xtask spec`: keeps generated, committed files up to date.
//!
//! These are openapi.json, the Python generated from it, and the reference pages of commands and routes.

mod routes;

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::step;
use crate::test::build_programs;
use crate::workspace::Workspace;

pub fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    match args {
        [] => write(workspace),
        [flag] if flag == "--check" => check(workspace),
        [other, ..] => bail!("`cargo xtask spec` takes only `--check`, got `{other}`"),
    }
}

/// A committed file and its expected contents.
struct Generated {
    path: &'static str,
    text: String,
}

/// An error if a committed file differs from what the programs print.
pub fn check(workspace: &Workspace) -> Result<()> {
    for file in generate(workspace)? {
        let path = file.path;
        let committed = fs::read_to_string(workspace.path(path))
            .with_context(|| format!("cannot read {path}; `cargo xtask spec` writes it"))?;
        if let Some(line) = first_difference(&committed, &file.text) {
            bail!("{path}:{line}: differs from the code");
        }
    }
    python(workspace, &["--check"])
}

/// Writes or checks the Python files generated from openapi.json.
fn python(workspace: &Workspace, options: &[&str]) -> Result<()> {
    let mut command = Command::new("python3");
    step::run(command.arg(workspace.path("crates/py/stubs.py")).args(options))
}

fn write(workspace: &Workspace) -> Result<()> {
    for file in generate(workspace)? {
        fs::write(workspace.path(file.path), file.text)
            .with_context(|| format!("cannot write {}", file.path))?;
        eprintln!("wrote {}", file.path);
    }
    python(workspace, &[])
}

fn generate(workspace: &Workspace) -> Result<Vec<Generated>> {
    build_programs(workspace)?;
    let document = step::capture(program(workspace, "paddlecloud-server")?.arg("openapi"))?;
    let document = parsed(&document)?;
    let commands = step::capture(program(workspace, "paddlectl")?.args(["help", "--markdown"]))?;
    Ok(vec![
        Generated {
            path: "crates/api/openapi.json",
            text: indented(&document)?,
        },
        Generated {
            path: "docs/reference/rest.md",
            text: routes::page(&document)?,
        },
        Generated {
            path: "docs/reference/commands.md",
            text: String::from_utf8(commands).context("`paddlectl help` did not print text")?,
        },
    ])
}

/// The single executable under the name that selects a program.
#[cfg(target_os = "linux")]
fn program(workspace: &Workspace, name: &str) -> Result<Command> {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new(workspace.built_program());
    command.arg0(name);
    Ok(command)
}

#[cfg(not(target_os = "linux"))]
fn program(_: &Workspace, _: &str) -> Result<Command> {
    bail!("the reference is printed by the server too, which needs Linux")
}

fn parsed(printed: &[u8]) -> Result<serde_json::Value> {
    let document: serde_json::Value =
        serde_json::from_slice(printed).context("`paddlecloud-server openapi` did not print JSON")?;
    if document.get("openapi").is_none() {
        bail!("`paddlecloud-server openapi` did not print an OpenAPI document");
    }
    Ok(document)
}

/// Indented, with a final newline, so that a change of one route is a change of few lines.
fn indented(document: &serde_json::Value) -> Result<String> {
    Ok(serde_json::to_string_pretty(document)? + "\n")
}

/// The first line, counted from 1, in which two texts differ.
fn first_difference(left: &str, right: &str) -> Option<usize> {
    if left == right {
        return None;
    }
    let same = left
        .lines()
        .zip(right.lines())
        .take_while(|(l, r)| l == r)
        .count();
    Some(same + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_documents_do_not_differ() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
    }

    #[test]
    fn the_first_differing_line_is_named() {
        assert_eq!(first_difference("a\nb\nc\n", "a\nx\nc\n"), Some(2));
        assert_eq!(first_difference("a\n", "a\nb\n"), Some(2));
    }

    #[test]
    fn anything_but_a_document_is_refused() {
        assert!(parsed(b"usage: paddlecloud").is_err());
        assert!(parsed(b"{\"paths\":{}}").is_err());
        let document = parsed(b"{\"openapi\":\"3.1.0\"}").unwrap();
        assert_eq!(indented(&document).unwrap(), "{\n  \"openapi\": \"3.1.0\"\n}\n");
    }
}
