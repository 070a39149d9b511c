//! `delete registry [name]`: deletes stored credentials.

use super::{Context, done};
use crate::error::CliError;

/// Delete the specified resource.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    resource: Resource,
}

#[derive(Debug, clap::Subcommand)]
enum Resource {
    /// Delete a registry's credentials
    Registry {
        /// Its name; optional if there is exactly one
        name: Option<String>,
    },
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let Resource::Registry { name } = &args.resource;
    let session = context.session().await?;
    let deleted = session.client.registry_delete(name.as_deref()).await?;
    context
        .world
        .err
        .line(format!("registry `{deleted}` has been deleted"));
    done()
}
