//! `secret set|list|delete`: values that only workers see, in environment variables.

use paddlecloud_api::admin::SecretRequest;

use super::{Context, done};
use crate::error::CliError;
use crate::printer::{Format, Table};
use crate::secret_input;

/// Where a secret may be instead of stdin.
const VALUE: &str = "PADDLECLOUD_SECRET";

/// Store secrets for jobs
///
/// `submit -secret NAME[=VARIABLE]` gives a secret to the workers of a job as an environment variable. Secrets are stored
/// encrypted and are never shown again.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Store a secret, or replace one of the same name
    ///
    /// Asks for the value, or reads it from PADDLECLOUD_SECRET, or from stdin if that is not a terminal.
    Set {
        /// The name of the secret
        name: String,
    },
    /// List the names of your secrets
    List {
        /// Output format
        #[arg(long, short, value_name = "FORMAT", value_parser = Format::for_programs_or_names())]
        output: Option<Format>,
    },
    /// Delete a secret; running workers keep it
    Delete {
        /// The name of the secret
        name: String,
    },
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let session = context.session().await?;
    let client = &session.client;
    match &args.action {
        Action::Set { name } => {
            let value = secret_input::read(VALUE, &format!("value of {name}: "), context)?;
            let value = value.ok_or_else(|| {
                CliError::usage("no value was given")
                    .with_hint(format!("type it, send it through stdin, or set {VALUE}"))
            })?;
            client.secret_set(name, &SecretRequest { value }).await?;
            context.world.err.line(format!("secret `{name}` is stored"));
        }
        Action::List { output } => {
            let secrets = client.secret_list().await?;
            let out = &mut context.world.out;
            if !out.listed(*output, &secrets, |secret| secret.name.clone())? {
                let mut table = Table::new(&["NAME", "CREATED"]);
                secrets
                    .into_iter()
                    .for_each(|secret| table.push(vec![secret.name, secret.created]));
                out.table(&table)?;
            }
        }
        Action::Delete { name } => {
            client.secret_delete(name).await?;
            context
                .world
                .err
                .line(format!("secret `{name}` has been deleted"));
        }
    }
    done()
}
