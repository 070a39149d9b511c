//! `login`: checks the password with the server and stores the token it returns.

use std::io::IsTerminal;

use paddlecloud_api::client::trust;

use super::{Context, done};
use crate::config::{self, Choice, Datacenter};
use crate::error::CliError;
use crate::secret_input;
use crate::session;

/// Where a password may be instead of stdin.
pub const PASSWORD: &str = "PADDLECLOUD_PASSWORD";

/// Check the password and store a token
///
/// Asks for the password, or reads it from PADDLECLOUD_PASSWORD, or from stdin if that is not a terminal. Only the token
/// is stored, in a file that only you can read, so the configuration needs no password.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The user; default: the configuration's
    #[arg(long, short)]
    username: Option<String>,

    /// The password; other users of this machine can see it while the command runs
    #[arg(long, value_name = "PASSWORD")]
    password: Option<String>,

    /// The fingerprint of the server's certificate authority (CA), if this system does not trust it: `SHA256:…`
    #[arg(long, value_name = "FINGERPRINT")]
    fingerprint: Option<String>,
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
                .with_hint("set `username:` in the configuration, or use `-username`"),
        );
    };
    // Before any secret is read or sent.
    trust_server(&datacenter, args.fingerprint.as_deref(), context).await?;
    if let Some(password) = &args.password {
        context.world.err.note(
            "`-password` is visible to other users of this machine while the command runs; stdin is not",
        );
        datacenter.password = Some(password.clone());
    } else if datacenter.password.is_none() || args.username.is_some() || !std::io::stdin().is_terminal() {
        let prompt = format!("password of {user} at {}: ", datacenter.name);
        let typed = secret_input::read(PASSWORD, &prompt, context)?;
        datacenter.password = typed.or(datacenter.password);
    }
    if datacenter.password.is_none() {
        let error = CliError::usage("no password was given");
        return Err(error.with_hint(format!("type it, pass it on stdin, or set {PASSWORD}")));
    }
    session::remote(&datacenter, &context.world.env).login().await?;
    context
        .world
        .err
        .line(format!("logged in to `{}` as {user}", datacenter.name));
    done()
}

/// A server whose authority is not known is trusted only by a fingerprint, given or confirmed.
async fn trust_server(
    datacenter: &Datacenter,
    given: Option<&str>,
    context: &mut Context<'_>,
) -> Result<(), CliError> {
    if !datacenter.endpoint.is_tls() {
        return Ok(());
    }
    let options = session::tls_options(datacenter, &context.world.env);
    // Any other problem is reported by the login itself.
    if trust::is_trusted(&datacenter.endpoint, &options).await != Ok(false) {
        return Ok(());
    }
    let shown = trust::shown_authority(&datacenter.endpoint)
        .await
        .map_err(CliError::refused)?;
    let fingerprint = shown.fingerprint();
    let unknown = format!("the server's certificate is signed by an unknown CA, {fingerprint}");
    match given {
        Some(given) if shown.has_fingerprint(given) => {}
        Some(_) => {
            return Err(
                CliError::refused(format!("{unknown}, not by the one of `--fingerprint`"))
                    .with_hint("someone may be intercepting the connection: ask the server's administrator"),
            );
        }
        None if std::io::stdin().is_terminal() => {
            context.world.err.line(&unknown);
            context
                .world
                .err
                .line("is this the fingerprint that `paddlecloud-server init` printed? [y/N]");
            let mut answer = String::new();
            let read = std::io::stdin().read_line(&mut answer);
            if read.is_err() || !matches!(answer.trim(), "y" | "Y" | "yes") {
                return Err(CliError::refused("the server is not trusted; nothing was sent"));
            }
        }
        None => {
            return Err(CliError::refused(unknown).with_hint(
                "compare it with what `paddlecloud-server init` printed, then use `--fingerprint`; nothing was sent",
            ));
        }
    }
    session::accept_authority(datacenter, &context.world.env, &shown.pem())
        .map_err(|error| CliError::refused(format!("cannot store the CA certificate: {error}")))
}
