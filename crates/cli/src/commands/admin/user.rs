//! `admin user add|list|show|set|disable|enable|delete`.

use paddlecloud_api::admin::{Dispose, UserRequest, UserView};
use paddlecloud_core::quantity::counted;

use super::{limit, limit_text, limits};
use crate::commands::login::PASSWORD;
use crate::commands::{Context, done};
use crate::error::CliError;
use crate::printer::{Format, Table};
use crate::secret_input;
use crate::session::Session;

#[derive(Debug, clap::Subcommand)]
pub enum Action {
    Add(Add),
    /// List users
    List {
        /// Output format
        #[arg(long, short, value_name = "FORMAT", value_parser = Format::for_programs_or_names())]
        output: Option<Format>,
    },
    /// Show one user
    Show {
        /// The name of the user
        name: String,

        /// Output format
        #[arg(long, short, value_name = "FORMAT", value_parser = Format::for_programs())]
        output: Option<Format>,
    },
    Set(Set),
    /// End a user's access and kill their queued jobs; running jobs continue
    Disable {
        /// The name of the user
        name: String,
    },
    /// Give a disabled user access again
    Enable {
        /// The name of the user
        name: String,
    },
    Delete(Delete),
}

/// Add a user
///
/// Asks for the password, or reads it from PADDLECLOUD_PASSWORD, or from stdin if that is not a terminal.
#[derive(Debug, clap::Args)]
pub struct Add {
    /// The name, usually an e-mail address
    name: String,

    /// Make the user an administrator
    #[arg(long)]
    admin: bool,

    /// Make it an account for a program, without a password; create tokens with `token create --user`
    #[arg(long)]
    service: bool,

    /// Set no password: the user logs in with a certificate or tokens
    #[arg(long, conflicts_with = "service")]
    no_password: bool,

    #[command(flatten)]
    settings: Settings,
}

/// Change a user; settings that are not given stay as they are
#[derive(Debug, clap::Args)]
pub struct Set {
    /// The name of the user
    name: String,

    /// Whether the user is an administrator
    #[arg(long, value_name = "BOOL")]
    admin: Option<bool>,

    /// Ask for a new password
    #[arg(long)]
    password: bool,

    #[command(flatten)]
    settings: Settings,
}

/// Delete a user; requires `--keep`, `--give-to` or `--purge`
#[derive(Debug, clap::Args)]
pub struct Delete {
    /// The name of the user
    name: String,

    /// Keep jobs and home under a name that nobody can log in with
    #[arg(long, conflicts_with_all = ["give_to", "purge"])]
    keep: bool,

    /// Give jobs and home to another user
    #[arg(long, value_name = "NAME", conflicts_with = "purge")]
    give_to: Option<String>,

    /// Remove jobs and home
    #[arg(long)]
    purge: bool,
}

#[derive(Debug, clap::Args)]
pub struct Settings {
    /// Limits: `cpu=16,memory=64Gi`; `none` removes one
    #[arg(long, value_name = "LIMITS", value_parser = limit, value_delimiter = ',')]
    quota: Vec<(String, String)>,

    /// All groups of the user, separated by commas; empty for none
    #[arg(long, value_name = "NAMES")]
    groups: Option<String>,

    /// The system user that runs the user's workers; empty for none
    #[arg(long, value_name = "NAME")]
    system_user: Option<String>,

    /// The subject (`sub`) of the server's login provider that logs in as this user, instead of a password; empty for none
    #[arg(long, value_name = "SUBJECT")]
    oidc_subject: Option<String>,
}

impl Settings {
    fn request(&self) -> UserRequest {
        let names = |text: &String| {
            let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
            words.map(str::to_owned).collect()
        };
        UserRequest {
            groups: self.groups.as_ref().map(names),
            limits: limits(&self.quota),
            system_user: self.system_user.clone(),
            oidc_subject: self.oidc_subject.clone(),
            ..UserRequest::default()
        }
    }
}

pub async fn run(action: &Action, session: &Session, context: &mut Context<'_>) -> Result<u8, CliError> {
    let client = &session.client;
    match action {
        Action::Add(args) => args.run(session, context).await?,
        Action::List { output } => list(&client.user_list().await?, *output, context)?,
        Action::Show { name, output } => show(&client.user_get(name).await?, *output, context)?,
        Action::Set(args) => args.run(session, context).await?,
        Action::Disable { name } => switch(name, true, session, context).await?,
        Action::Enable { name } => switch(name, false, session, context).await?,
        Action::Delete(args) => args.run(session, context).await?,
    }
    done()
}

impl Add {
    async fn run(&self, session: &Session, context: &mut Context<'_>) -> Result<(), CliError> {
        let request = UserRequest {
            name: Some(self.name.clone()),
            password: self.password(context)?,
            admin: Some(self.admin),
            service: Some(self.service),
            ..self.settings.request()
        };
        let user = session.client.user_add(&request).await?;
        let line = format!("user `{}` has been added", user.name);
        context.world.err.line(line);
        Ok(())
    }

    fn password(&self, context: &mut Context<'_>) -> Result<Option<String>, CliError> {
        if self.service || self.no_password || self.settings.oidc_subject.is_some() {
            return Ok(None);
        }
        let prompt = format!("password of {}: ", self.name);
        secret_input::new_secret(PASSWORD, &prompt, context).map(Some)
    }
}

impl Set {
    async fn run(&self, session: &Session, context: &mut Context<'_>) -> Result<(), CliError> {
        let request = UserRequest {
            admin: self.admin,
            password: self.password(context)?,
            ..self.settings.request()
        };
        if request == UserRequest::default() {
            let usage = CliError::usage("nothing to change");
            return Err(usage.with_hint("for example `--quota cpu=16`"));
        }
        let user = session.client.user_set(&self.name, &request).await?;
        let line = format!("user `{}` has been changed", user.name);
        context.world.err.line(line);
        Ok(())
    }

    fn password(&self, context: &mut Context<'_>) -> Result<Option<String>, CliError> {
        if !self.password {
            return Ok(None);
        }
        let prompt = format!("new password of {}: ", self.name);
        secret_input::new_secret(PASSWORD, &prompt, context).map(Some)
    }
}

impl Delete {
    async fn run(&self, session: &Session, context: &mut Context<'_>) -> Result<(), CliError> {
        let (dispose, give_to) = (self.dispose()?, self.give_to.as_deref());
        let deleted = session.client.user_delete(&self.name, dispose, give_to).await?;
        let home = deleted.home.as_deref().unwrap_or("removed, or there was none");
        let jobs = deleted.jobs.as_deref().unwrap_or("removed");
        let err = &mut context.world.err;
        err.line(format!("user `{}` has been deleted", deleted.name));
        err.line(format!("jobs: {jobs}; home: {home}"));
        Ok(())
    }

    fn dispose(&self) -> Result<Dispose, CliError> {
        match (self.keep, &self.give_to, self.purge) {
            (true, ..) => Ok(Dispose::Keep),
            (_, Some(_), _) => Ok(Dispose::GiveTo),
            (.., true) => Ok(Dispose::Purge),
            _ => Err(
                CliError::usage("`delete` needs `--keep`, `--give-to NAME` or `--purge`")
                    .with_hint("they say what becomes of the user's jobs and home"),
            ),
        }
    }
}

async fn switch(
    name: &str,
    disabled: bool,
    session: &Session,
    context: &mut Context<'_>,
) -> Result<(), CliError> {
    let request = UserRequest {
        disabled: Some(disabled),
        ..UserRequest::default()
    };
    let user = session.client.user_set(name, &request).await?;
    let word = if disabled { "disabled" } else { "enabled" };
    let mut line = format!("user `{}` is {word}", user.name);
    if let (Some(killed), Some(running)) = (user.killed_jobs, user.running_jobs) {
        let killed = counted(killed as u128, "queued job");
        let running = counted(running as u128, "job");
        line += &format!("; {killed} killed, {running} still running");
    }
    context.world.err.line(line);
    Ok(())
}

fn kind(user: &UserView) -> &'static str {
    match (user.service, user.admin) {
        (true, _) => "service",
        (false, true) => "admin",
        (false, false) => "user",
    }
}

/// The user of the login provider who has the account.
fn provider(user: &UserView) -> String {
    match (&user.oidc_subject, &user.oidc_issuer) {
        (Some(subject), Some(issuer)) => format!("{subject} of {issuer}"),
        _ => String::new(),
    }
}

fn list(users: &[UserView], format: Option<Format>, context: &mut Context<'_>) -> Result<(), CliError> {
    let out = &mut context.world.out;
    if out.listed(format, users, |user| user.name.clone())? {
        return Ok(());
    }
    let mut table = Table::new(&["NAME", "KIND", "STATE", "FROM", "GROUPS", "LIMITS"]);
    for user in users {
        table.push(vec![
            user.name.clone(),
            kind(user).to_owned(),
            if user.disabled { "disabled" } else { "enabled" }.to_owned(),
            if user.configured {
                "configuration"
            } else {
                "database"
            }
            .to_owned(),
            user.groups.join(","),
            limit_text(&user.effective),
        ]);
    }
    out.table(&table)
}

fn show(user: &UserView, format: Option<Format>, context: &mut Context<'_>) -> Result<(), CliError> {
    let out = &mut context.world.out;
    if out.structured(format, user)? {
        return Ok(());
    }
    let rows = [
        ("name", user.name.clone()),
        ("kind", kind(user).to_owned()),
        (
            "state",
            if user.disabled { "disabled" } else { "enabled" }.to_owned(),
        ),
        ("groups", user.groups.join(",")),
        ("system user", user.system_user.clone().unwrap_or_default()),
        ("provider", provider(user)),
        ("own limits", limit_text(&user.limits)),
        ("limits", limit_text(&user.effective)),
    ];
    for (name, value) in rows {
        out.line(format!("{name:<12}{value}").trim_end())?;
    }
    Ok(())
}
