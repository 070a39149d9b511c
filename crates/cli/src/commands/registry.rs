//! `registry`: stores the credentials of an image registry.

use paddlecloud_api::admin::RegistryRequest;

use super::{Context, done};
use crate::error::CliError;
use crate::secret_input;

/// Where a registry's password may be instead of stdin.
const PASSWORD: &str = "PADDLECLOUD_REGISTRY_PASSWORD";

/// Add registry secret on paddlectl.
///
/// `submit -registry NAME` uses the credentials to pull a private image. They are stored encrypted; `get registry`
/// lists registries without them. The password is prompted for, or read from PADDLECLOUD_REGISTRY_PASSWORD or from
/// stdin.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The name `submit -registry` uses
    #[arg(long, value_name = "NAME")]
    name: String,

    /// The user at the registry
    #[arg(long, value_name = "USER")]
    username: String,

    /// Their password; other users of this machine can see it while the command runs
    #[arg(long, value_name = "PASSWORD")]
    password: Option<String>,

    /// The registry's address
    #[arg(long, value_name = "ADDRESS")]
    server: String,
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let password = match &args.password {
        Some(password) => {
            let note =
                "`-password` is visible to other users of this machine while the command runs; stdin is not";
            context.world.err.note(note);
            password.clone()
        }
        None => {
            let prompt = format!("password of {} at {}: ", args.username, args.server);
            secret_input::must_read(PASSWORD, &prompt, context)?
        }
    };
    let session = context.session().await?;
    let request = RegistryRequest {
        name: args.name.clone(),
        server: args.server.clone(),
        username: args.username.clone(),
        password,
    };
    session.client.registry_create(&request).await?;
    context
        .world
        .err
        .line(format!("registry `{}` is stored", args.name));
    done()
}
