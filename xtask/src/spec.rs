//! `cargo xtask spec`: keeps the committed openapi.json equal to what the routes say.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::step;
use crate::test::build_programs;
use crate::workspace::Workspace;

/// Where the document is committed, from the root.
const COMMITTED: &str = "crates/api/openapi.json";

pub fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    match args {
        [] => write(workspace),
        [flag] if flag == "--check" => check(workspace),
        [other, ..] => bail!("`cargo xtask spec` takes only `--check`, got `{other}`"),
    }
}

/// An error when the committed document is not what the program prints.
pub fn check(workspace: &Workspace) -> Result<()> {
    let generated = generate(workspace)?;
    let committed = fs::read_to_string(workspace.path(COMMITTED))
        .with_context(|| format!("cannot read {COMMITTED}; `cargo xtask spec` writes it"))?;
    match first_difference(&committed, &generated) {
        None => Ok(()),
        Some(line) => bail!("{COMMITTED}:{line}: differs from the routes"),
    }
}

fn write(workspace: &Workspace) -> Result<()> {
    let generated = generate(workspace)?;
    fs::write(workspace.path(COMMITTED), generated).with_context(|| format!("cannot write {COMMITTED}"))?;
    eprintln!("wrote {COMMITTED}");
    Ok(())
}

fn generate(workspace: &Workspace) -> Result<String> {
    build_programs(workspace)?;
    let printed = step::capture(server(workspace)?.arg("openapi"))?;
    normalized(&printed)
}

/// The one program picks its face by the name it is called with.
#[cfg(target_os = "linux")]
fn server(workspace: &Workspace) -> Result<Command> {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new(workspace.built_program());
    command.arg0("paddlecloud-server");
    Ok(command)
}

#[cfg(not(target_os = "linux"))]
fn server(_: &Workspace) -> Result<Command> {
    bail!("openapi.json is printed by the server, which needs Linux")
}

/// Indented, with a final newline, so that a change of one route is a change of few lines.
fn normalized(printed: &[u8]) -> Result<String> {
    let document: serde_json::Value =
        serde_json::from_slice(printed).context("`paddlecloud-server openapi` did not print JSON")?;
    if document.get("openapi").is_none() {
        bail!("`paddlecloud-server openapi` did not print an OpenAPI document");
    }
    Ok(serde_json::to_string_pretty(&document)? + "\n")
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
    fn something_else_than_a_document_is_refused() {
        assert!(normalized(b"usage: paddlecloud").is_err());
        assert!(normalized(b"{\"paths\":{}}").is_err());
        assert_eq!(
            normalized(b"{\"openapi\":\"3.1.0\"}").unwrap(),
            "{\n  \"openapi\": \"3.1.0\"\n}\n"
        );
    }
}
