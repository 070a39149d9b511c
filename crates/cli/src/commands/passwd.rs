//! `passwd`: changes the caller's own password.

use paddlecloud_api::admin::PasswordRequest;

use super::login::PASSWORD;
use super::{Context, done};
use crate::error::CliError;
use crate::secret_input;

/// Where a new password may be instead of stdin.
pub const NEW_PASSWORD: &str = "PADDLECLOUD_NEW_PASSWORD";

/// Change your password
///
/// Asks for the old password and the new one, or reads them from PADDLECLOUD_PASSWORD and PADDLECLOUD_NEW_PASSWORD, or
/// as two lines from stdin if that is not a terminal. Existing tokens are revoked: log in again.
#[derive(Debug, clap::Args)]
pub struct Args {}

pub async fn run(_: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let session = context.session().await?;
    let old = secret_input::must_read(PASSWORD, "old password: ", context)?;
    let new = secret_input::new_secret(NEW_PASSWORD, "new password: ", context)?;
    session.client.password_set(&PasswordRequest { old, new }).await?;
    let program = context.program;
    context.world.err.line("the password was changed");
    context.world.err.hint(&format!(
        "earlier tokens have been revoked: run `{program} login`"
    ));
    done()
}
