//! `login`: proves the password to the server and keeps the token it gives.

use std::io::{BufRead, IsTerminal};

use super::{Context, done};
use crate::config::{self, Choice};
use crate::console::Silence;
use crate::error::CliError;
use crate::session;

/// Check the password and keep a token
///
/// The password is asked for, or read from stdin when that is no terminal. Only the token is kept, in a file that only
/// you can read; the configuration need not hold a password then.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The user; the configuration's when left out
    #[arg(long, short)]
    username: Option<String>,
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let Choice::Remote(mut datacenter) = config::choice(&context.flags.wanted(), &context.world.env)? else {
        context
            .world
            .err
            .line("the embedded server of this machine needs no login");
        return done();
    };
    if let Some(user) = &args.username {
        datacenter.username = Some(user.clone());
    }
    let Some(user) = datacenter.username.clone() else {
        return Err(
            CliError::usage(format!("datacenter `{}` has no user name", datacenter.name))
                .with_hint("write `username:` into the configuration, or use `-username`"),
        );
    };
    if datacenter.password.is_none() || args.username.is_some() || !std::io::stdin().is_terminal() {
        let typed = read_password(&format!("password of {user} at {}: ", datacenter.name), context)?;
        datacenter.password = typed.or(datacenter.password);
    }
    if datacenter.password.is_none() {
        return Err(CliError::usage("no password was given").with_hint("type it, or send it through stdin"));
    }
    session::remote(&datacenter, &context.world.env).login().await?;
    context
        .world
        .err
        .line(format!("logged in to `{}` as {user}", datacenter.name));
    done()
}

/// One line of stdin, not shown while it is typed; `None` when there is nothing.
fn read_password(prompt: &str, context: &mut Context<'_>) -> Result<Option<String>, CliError> {
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
