//! `token create|list|revoke|renew`: tokens for programs and other machines.

use std::time::Duration;

use paddlecloud_api::admin::{NewTokenRequest, TokenView};

use super::{Context, done};
use crate::error::CliError;
use crate::printer::{Format, Table};

/// Create, list and revoke tokens
///
/// A token lets a program act for you without your password. Its secret is printed once, by `token create`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Create a token and print its secret
    Create {
        /// What it is for
        name: String,

        /// What it may be used for: read, submit, files, admin; default: everything you may do
        #[arg(long, value_name = "SCOPES")]
        scopes: Option<String>,

        /// How long it is valid: `12h`, `7d`; default: the server's
        #[arg(long, value_name = "TIME", value_parser = crate::time_text::parse_span)]
        expires: Option<Duration>,

        /// Another user (administrators only)
        #[arg(long, value_name = "NAME")]
        user: Option<String>,

        /// Output format
        #[arg(long, short, value_name = "FORMAT", value_parser = Format::for_programs())]
        output: Option<Format>,
    },
    /// List valid tokens
    List {
        /// Another user (administrators only)
        #[arg(long, value_name = "NAME")]
        user: Option<String>,

        /// Output format
        #[arg(long, short, value_name = "FORMAT", value_parser = Format::for_programs_or_names())]
        output: Option<Format>,
    },
    /// Revoke a token
    Revoke {
        /// Its id, from `token list`
        id: String,

        /// Another user (administrators only)
        #[arg(long, value_name = "NAME")]
        user: Option<String>,
    },
    /// Exchange the token of `login` for a new one
    Renew,
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let session = context.session().await?;
    let client = &session.client;
    match &args.action {
        Action::Create {
            name,
            scopes,
            expires,
            user,
            output,
        } => {
            let request = NewTokenRequest {
                name: name.clone(),
                scopes: scopes.clone(),
                lifetime_seconds: expires.map(|span| i64::try_from(span.as_secs()).unwrap_or(i64::MAX)),
                user: user.clone(),
            };
            let made = client.token_create(&request).await?;
            if !context.world.out.structured(*output, &made)? {
                context.world.out.line(&made.token)?;
            }
            let line = format!(
                "token {}, valid until {}; it is not shown again",
                made.view.id, made.view.expires
            );
            context.world.err.line(line);
        }
        Action::List { user, output } => list(&client.token_list(user.as_deref()).await?, *output, context)?,
        Action::Revoke { id, user } => {
            client.token_revoke(id, user.as_deref()).await?;
            context.world.err.line(format!("token {id} has been revoked"));
        }
        Action::Renew => {
            let made = client.token_renew().await?;
            let line = format!("the new token is stored and valid until {}", made.view.expires);
            context.world.err.line(line);
        }
    }
    done()
}

fn list(tokens: &[TokenView], format: Option<Format>, context: &mut Context<'_>) -> Result<(), CliError> {
    let out = &mut context.world.out;
    if out.listed(format, tokens, |token| token.id.clone())? {
        return Ok(());
    }
    let mut table = Table::new(&["ID", "NAME", "SCOPES", "CREATED", "EXPIRES"]);
    for token in tokens {
        table.push(vec![
            token.id.clone(),
            token.name.clone(),
            token.scopes.clone(),
            token.created.clone(),
            token.expires.clone(),
        ]);
    }
    out.table(&table)
}
