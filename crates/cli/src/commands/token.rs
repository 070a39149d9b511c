//! `token create|list|revoke|renew`: tokens for programs and other machines.

use std::time::Duration;

use paddlecloud_api::admin::{NewTokenRequest, TokenView};
use paddlecloud_api::client::Client;
use paddlecloud_api::error::ErrorName;

use super::{Context, done};
use crate::error::CliError;
use crate::printer::{Format, Table};
use crate::time_text::short_time;

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
        /// Its id, or its name if no other token has it
        token: String,

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
        Action::Revoke { token, user } => {
            let id = revoke(client, token, user.as_deref()).await?;
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

/// Revokes the token of this id, else the only one of this name. Returns its id.
async fn revoke(client: &Client, token: &str, user: Option<&str>) -> Result<String, CliError> {
    let refused = match client.token_revoke(token, user).await {
        Err(error) if error.refusal() == Some(ErrorName::NotFound) => error,
        revoked => return revoked.map(|()| token.to_owned()).map_err(CliError::from),
    };
    let mut named = client.token_list(user).await?;
    named.retain(|known| known.name == token);
    match named.as_slice() {
        [] => Err(refused.into()),
        [only] => {
            client.token_revoke(&only.id, user).await?;
            Ok(only.id.clone())
        }
        several => {
            let ids: Vec<&str> = several.iter().map(|known| known.id.as_str()).collect();
            let problem = format!("{} tokens are called `{token}`", several.len());
            let hint = format!("name one by its id: {}", ids.join(", "));
            Err(CliError::refused(problem).with_hint(hint))
        }
    }
}

fn list(tokens: &[TokenView], format: Option<Format>, context: &mut Context<'_>) -> Result<(), CliError> {
    let out = &mut context.world.out;
    if out.listed(format, tokens, |token| token.id.clone())? {
        return Ok(());
    }
    let now = (context.world.now)();
    let is_terminal = out.is_terminal;
    let time = |text: &String| match text.parse() {
        Ok(time) if is_terminal => short_time(time, now),
        _ => text.clone(),
    };
    let mut table = Table::new(&["ID", "NAME", "SCOPES", "CREATED", "EXPIRES"]).with_flexible("NAME");
    for token in tokens {
        table.push(vec![
            token.id.clone(),
            token.name.clone(),
            token.scopes.clone(),
            time(&token.created),
            time(&token.expires),
        ]);
    }
    out.table(&table)
}
