//! Secrets as they are typed: from a prompt that does not show them, from stdin, or from the environment.

use std::io::{BufRead, IsTerminal};

use crate::commands::Context;
use crate::console::Silence;
use crate::error::CliError;

/// A secret: of the variable if it is set, else one line of stdin. `None` when there is nothing.
pub fn read(variable: &str, prompt: &str, context: &mut Context<'_>) -> Result<Option<String>, CliError> {
    if let Some(secret) = context.world.env.var(variable) {
        return Ok(Some(secret.to_owned()));
    }
    line(prompt, context)
}

/// The same, and an error when there is nothing.
pub fn must_read(variable: &str, prompt: &str, context: &mut Context<'_>) -> Result<String, CliError> {
    read(variable, prompt, context)?.ok_or_else(|| {
        CliError::usage("no password was given")
            .with_hint(format!("type it, send it through stdin, or set {variable}"))
    })
}

/// A new secret; at a terminal it is typed twice.
pub fn new_secret(variable: &str, prompt: &str, context: &mut Context<'_>) -> Result<String, CliError> {
    let typed = context.world.env.var(variable).is_none() && std::io::stdin().is_terminal();
    let first = must_read(variable, prompt, context)?;
    if typed && line("the same again: ", context)?.as_ref() != Some(&first) {
        return Err(CliError::usage("the two passwords differ").with_hint("nothing was changed; try again"));
    }
    Ok(first)
}

/// One line of stdin, not shown while it is typed; `None` when there is nothing.
pub fn line(prompt: &str, context: &mut Context<'_>) -> Result<Option<String>, CliError> {
    let stdin = std::io::stdin();
    let _silence = if stdin.is_terminal() {
        context.world.err.line(prompt.trim_end());
        Some(
            Silence::begin()
                .map_err(|error| CliError::refused(format!("cannot hide the password: {error}")))?,
        )
    } else {
        None
    };
    let mut line = String::new();
    stdin
        .lock()
        .read_line(&mut line)
        .map_err(|error| CliError::refused(format!("cannot read the password: {error}")))?;
    let password = line.trim_end_matches(['\r', '\n']);
    Ok((!password.is_empty()).then(|| password.to_owned()))
}
