//! `publish <path>`: shares a file with a link.

use std::ffi::OsString;
use std::time::Duration;

use paddlecloud_transfer::FileService;

use super::get::show;
use super::{Context, done};
use crate::error::CliError;
use crate::printer::{Format, Table};
use crate::time_text::rfc3339;
use crate::transfer::location::{Remote, translate_datacenter};
use crate::transfer::remote::must_suit_slash;

/// How long a link is valid by default.
const USUAL: Duration = Duration::from_secs(7 * 86_400);

/// Share a file with a link
///
/// Anyone with the link can read the file until it expires (after 7 days by default) or is revoked. Only files in your
/// home can be shared.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A path `/pfs/…`; without one, lists active links
    path: Option<OsString>,

    /// How long the link is valid: `12h`, `7d`
    #[arg(long, value_name = "TIME", value_parser = crate::time_text::parse_span)]
    expires: Option<Duration>,

    /// Revoke the link with this id
    #[arg(long, value_name = "ID", conflicts_with_all = ["path", "expires"])]
    revoke: Option<String>,

    /// Output format
    #[arg(long, short, value_name = "FORMAT", value_parser = Format::for_programs_or_names())]
    output: Option<Format>,
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let mut path = args.path.as_deref().map(Remote::parse).transpose()?;
    if path.is_none() && args.expires.is_some() {
        return Err(CliError::usage("`--expires` needs a path"));
    }
    let session = context.session().await?;
    translate_datacenter(&session, path.as_mut()).await?;
    let files = session.client.files();
    if let Some(id) = &args.revoke {
        files.unpublish(id).await?;
        context.world.err.line(format!("link {id} has been revoked"));
        return done();
    }
    match path {
        Some(remote) => {
            must_suit_slash(&files, &remote.path).await?;
            let share = files.publish(&remote.path, args.expires.unwrap_or(USUAL)).await?;
            if !context.world.out.structured(args.output, &share)? {
                context
                    .world
                    .out
                    .line(share.link.as_deref().unwrap_or_default())?;
            }
            let program = context.program;
            context
                .world
                .err
                .line(format!("works until {}", rfc3339(share.expires)));
            context
                .world
                .err
                .hint(&format!("`{program} publish --revoke {}` revokes it", share.id));
        }
        None => list(&files.published().await?, args.output, context)?,
    }
    done()
}

fn list(
    shares: &[paddlecloud_api::files::ShareView],
    format: Option<Format>,
    context: &mut Context<'_>,
) -> Result<(), CliError> {
    let out = &mut context.world.out;
    if out.listed(format, shares, |share| share.id.clone())? {
        return Ok(());
    }
    let mut table = Table::new(&["ID", "EXPIRES", "PATH"]);
    for share in shares {
        table.push(vec![
            share.id.clone(),
            rfc3339(share.expires),
            share.path.to_string(),
        ]);
    }
    show(&table, "no link is active", context)
}
