//! `logout`: revokes the stored token and deletes it.

use paddlecloud_api::error::ErrorName;

use super::{Context, done};
use crate::config::{self, Choice};
use crate::error::CliError;
use crate::session;

/// Revoke the token of `login` and delete it
#[derive(Debug, clap::Args)]
pub struct Args {}

pub async fn run(_: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let Choice::Remote(mut datacenter) = config::choice(&context.flags.overrides(), &context.world.env)?
    else {
        context
            .world
            .err
            .line("the embedded server of this machine needs no login");
        return done();
    };
    // Revokes only the stored token: with a password the client would first get another one.
    datacenter.password = None;
    let revoked = session::remote(&datacenter, &context.world.env).logout().await;
    let forgotten = session::forget_token(&datacenter, &context.world.env);
    match revoked {
        // It had ended before.
        Err(error) if error.refusal() == Some(ErrorName::Unauthorized) => {}
        other => other?,
    }
    forgotten.map_err(|error| CliError::refused(format!("cannot delete the stored token: {error}")))?;
    context
        .world
        .err
        .line(format!("logged out of `{}`", datacenter.name));
    done()
}
