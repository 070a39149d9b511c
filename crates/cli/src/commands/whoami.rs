//! `whoami`: the caller as the server sees them.

use super::{Context, done};
use crate::error::CliError;
use crate::printer::Format;

/// Print user, datacenter, namespace, endpoint and home
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Output format
    #[arg(long, short, value_name = "FORMAT", value_parser = Format::for_programs_or_names())]
    output: Option<Format>,
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let session = context.session().await?;
    let who = session.client.whoami_get().await?;
    let endpoint = session.client.endpoint().to_string();
    let view = serde_json::json!({
        "user": who.user,
        "namespace": who.namespace,
        "datacenter": session.datacenter,
        "endpoint": endpoint,
        "home": who.home,
        "admin": who.admin,
    });
    let out = &mut context.world.out;
    if args.output == Some(Format::Name) {
        out.line(&who.user)?;
    } else if !out.structured(args.output, &view)? {
        let rows = [
            ("user", who.user.as_str()),
            ("datacenter", &session.datacenter),
            ("namespace", &who.namespace),
            ("endpoint", &endpoint),
            ("home", &who.home),
        ];
        for (name, value) in rows {
            out.line(format!("{name:<12}{value}"))?;
        }
    }
    done()
}
