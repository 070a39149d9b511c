//! `config get-datacenters|use-datacenter|set`: shows the configuration without its secrets, or changes it.

use serde::Serialize;

use super::{Context, done};
use crate::config::{self, ConfigFile, EMBEDDED, SETTABLE};
use crate::error::CliError;
use crate::printer::{Format, Table};
use crate::{secret_input, session};

/// Show the configuration, choose a datacenter
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Show the datacenters and the current one, without secrets
    #[command(visible_alias = "get-datacenters")]
    View {
        /// Output format
        #[arg(long, short, value_name = "FORMAT", value_parser = Format::for_programs())]
        output: Option<Format>,
    },
    /// Make this the current datacenter; changes only that line of the file
    #[command(visible_alias = "use-datacenter")]
    Use {
        /// Its name in the configuration
        name: String,
    },
    /// Set a field of the current datacenter, or of the one that `--datacenter` names; changes only that line of the
    /// file
    Set {
        /// What to set
        #[arg(value_parser = SETTABLE)]
        key: String,
        /// The value; passwords and tokens are prompted for, or read from PADDLECLOUD_PASSWORD or stdin
        value: Option<String>,
    },
}

/// A datacenter without its secrets.
#[derive(Serialize)]
struct EntryView {
    current: bool,
    name: String,
    username: Option<String>,
    endpoint: String,
    login: &'static str,
}

pub fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    match &args.action {
        None => view(None, context),
        Some(Action::View { output }) => view(*output, context),
        Some(Action::Use { name }) => choose(name, context),
        Some(Action::Set { key, value }) => set(key, value.as_deref(), context),
    }
}

fn view(format: Option<Format>, context: &mut Context<'_>) -> Result<u8, CliError> {
    let location = config::location(&context.flags.overrides(), &context.world.env);
    let file = location.as_ref().map(config::load).transpose()?.flatten();
    let (entries, path) = match &file {
        Some(file) => (entries(file, context)?, Some(file.path.display().to_string())),
        None => (vec![embedded_entry()], None),
    };
    let view = serde_json::json!({ "config": path, "datacenters": entries });
    if context.world.out.structured(format, &view)? {
        return done();
    }
    match path {
        Some(path) => context.world.err.line(format!("configuration: {path}")),
        None => context
            .world
            .err
            .line("nothing is configured; the embedded server on this machine is used"),
    }
    let mut table = Table::new(&["CURRENT", "NAME", "USER", "ENDPOINT", "LOGIN"]);
    for entry in entries {
        table.push(vec![
            if entry.current { "*" } else { "" }.to_owned(),
            entry.name,
            entry.username.unwrap_or_default(),
            entry.endpoint,
            entry.login.to_owned(),
        ]);
    }
    context.world.out.table(&table)?;
    done()
}

fn entries(file: &ConfigFile, context: &Context<'_>) -> Result<Vec<EntryView>, CliError> {
    let datacenter = context.flags.datacenter.as_deref();
    let current = file.chosen(datacenter).ok().map(|entry| entry.name.clone());
    let mut views = Vec::new();
    for entry in &file.entries {
        let datacenter = file.checked(entry)?;
        let login = match () {
            () if datacenter.usercert.is_some() => "certificate",
            () if datacenter.token.is_some() => "token",
            () if session::keeps_token(&datacenter, &context.world.env) => "token",
            () if datacenter.password.is_some() => "password",
            () => "none",
        };
        let username = datacenter.username.clone();
        let username = username.or_else(|| session::stored_user(&datacenter, &context.world.env));
        views.push(EntryView {
            current: current.as_deref() == Some(entry.name.as_str()),
            name: datacenter.name,
            username,
            endpoint: datacenter.endpoint.to_string(),
            login,
        });
    }
    Ok(views)
}

fn embedded_entry() -> EntryView {
    EntryView {
        current: true,
        name: EMBEDDED.to_owned(),
        username: None,
        endpoint: "this machine".to_owned(),
        login: "none",
    }
}

fn set(key: &str, value: Option<&str>, context: &mut Context<'_>) -> Result<u8, CliError> {
    let is_secret = ["password", "token"].contains(&key);
    let value = match value {
        Some(_) if is_secret => {
            return Err(CliError::usage(format!(
                "`config set {key}` takes no value: others could see it in the list of processes"
            ))
            .with_hint("leave it out; the command prompts for it, or reads it from stdin"));
        }
        Some(value) => value.to_owned(),
        None if is_secret => secret_input::must_read("PADDLECLOUD_PASSWORD", &format!("{key}: "), context)?,
        None => return Err(CliError::usage(format!("`config set {key}` needs a value"))),
    };
    let location = config::location(&context.flags.overrides(), &context.world.env);
    let file = location.as_ref().map(config::load).transpose()?.flatten();
    let datacenter = context.flags.datacenter.as_deref();
    let Some(file) = file else {
        let name = datacenter.unwrap_or(EMBEDDED).to_owned();
        return Err(config::ConfigError::NothingConfigured(name).into());
    };
    let name = config::set(&file.path, datacenter, key, &value)?;
    context.world.err.line(format!("`{key}` of `{name}` is set"));
    done()
}

fn choose(name: &str, context: &mut Context<'_>) -> Result<u8, CliError> {
    let location = config::location(&context.flags.overrides(), &context.world.env);
    let file = location.as_ref().map(config::load).transpose()?.flatten();
    let Some(file) = file else {
        return Err(config::ConfigError::NothingConfigured(name.to_owned()).into());
    };
    config::choose(&file.path, name)?;
    context
        .world
        .err
        .line(format!("`{name}` is now the current datacenter"));
    done()
}
