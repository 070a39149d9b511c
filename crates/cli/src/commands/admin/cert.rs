//! `admin cert issue|list|revoke`: certificates of users, signed by the server's own authority.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use paddlecloud_api::admin::CertificateRequest;

use super::{Context, done};
use crate::error::CliError;
use crate::printer::{Format, Table};
use crate::session::Session;

#[derive(Debug, clap::Subcommand)]
pub enum Action {
    /// Sign a certificate for a user and print it
    Issue {
        user: String,

        /// The request that `cert request` printed; `-` reads stdin
        request: PathBuf,

        /// How long it is valid: `90d`; default: a year
        #[arg(long, value_name = "TIME", value_parser = crate::time_text::parse_span)]
        expires: Option<Duration>,
    },
    /// List valid certificates
    List {
        /// Output format
        #[arg(long, short, value_name = "FORMAT", value_parser = Format::for_programs_or_names())]
        output: Option<Format>,
    },
    /// Revoke a certificate
    Revoke {
        /// Its id, from `admin cert list`
        id: String,
    },
}

pub async fn run(action: &Action, session: &Session, context: &mut Context<'_>) -> Result<u8, CliError> {
    match action {
        Action::Issue {
            user,
            request,
            expires,
        } => {
            let request = CertificateRequest {
                user: user.clone(),
                request: read(request)?,
                lifetime_seconds: expires.map(|span| i64::try_from(span.as_secs()).unwrap_or(i64::MAX)),
            };
            let issued = session.client.certificate_issue(&request).await?;
            context.world.out.bytes(issued.certificate.as_bytes())?;
            let line = format!(
                "certificate {} of {}, valid until {}",
                issued.view.id, issued.view.user, issued.view.expires
            );
            context.world.err.line(line);
        }
        Action::List { output } => {
            let list = session.client.certificate_list().await?;
            let out = &mut context.world.out;
            if *output == Some(Format::Name) {
                list.iter().try_for_each(|one| out.line(&one.id))?;
            } else if !out.structured(*output, &list)? {
                let mut table = Table::new(&["ID", "USER", "CREATED", "EXPIRES"]);
                for one in list {
                    table.push(vec![one.id, one.user, one.created, one.expires]);
                }
                out.table(&table)?;
            }
        }
        Action::Revoke { id } => {
            session.client.certificate_revoke(id).await?;
            context
                .world
                .err
                .line(format!("certificate {id} has been revoked"));
        }
    }
    done()
}

fn read(path: &Path) -> Result<String, CliError> {
    let mut text = String::new();
    let read = match path.to_str() {
        Some("-") => std::io::stdin().read_to_string(&mut text).map(drop),
        _ => std::fs::read_to_string(path).map(|found| text = found),
    };
    read.map_err(|error| CliError::usage(format!("cannot read `{}`: {error}", path.display())))?;
    Ok(text)
}
