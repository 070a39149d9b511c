//! `login`: checks the password with the server, or waits until the user has logged in at the server's login provider, and stores the
//! token.

use std::io::IsTerminal;

use paddlecloud_api::client::{ClientError, Credentials, trust};
use paddlecloud_api::error::ErrorName;

use super::{Context, done};
use crate::config::{self, Choice, Datacenter};
use crate::error::CliError;
use crate::secret_input;
use crate::session;

/// Where a password may be instead of stdin.
pub const PASSWORD: &str = "PADDLECLOUD_PASSWORD";

/// The usual reason of a wait, which is not repeated.
const USUAL: &str = "the login has not been confirmed yet";

/// Check the password and store a token
///
/// Asks for the password, or reads it from PADDLECLOUD_PASSWORD, or from stdin if that is not a terminal. Only the token
/// is stored, in a file that only you can read, so the configuration needs no password.
///
/// With a token or certificate in the configuration no password is needed: checks that the server accepts it.
///
/// With `--oidc`, or if no user is named and the server has a login provider, shows a code to confirm in a browser instead.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// User name, also for later commands; default: the one in the configuration, or of the last login
    #[arg(long, short)]
    username: Option<String>,

    /// The password; other users of this machine can see it while the command runs
    #[arg(long, value_name = "PASSWORD")]
    password: Option<String>,

    /// Log in with the server's login provider, in a browser on any machine
    #[arg(long, conflicts_with_all = ["username", "password"])]
    oidc: bool,

    /// The fingerprint of the server's certificate authority (CA), if this system does not trust it: `SHA256:…`
    #[arg(long, value_name = "FINGERPRINT")]
    fingerprint: Option<String>,
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let Choice::Remote(datacenter) = config::choice(&context.flags.overrides(), &context.world.env)? else {
        context
            .world
            .err
            .line("the embedded server of this machine needs no login");
        return done();
    };
    for warning in session::warnings(&datacenter, &context.world.env) {
        context.world.err.note(&warning);
    }
    let asks_for_another = args.oidc || args.username.is_some() || args.password.is_some();
    if let Some(key) = configured_credential(&datacenter).filter(|_| !asks_for_another) {
        trust_server(&datacenter, args.fingerprint.as_deref(), context).await?;
        return try_configured(&datacenter, key, context).await;
    }
    let user = args.username.clone().or_else(|| datacenter.username.clone());
    let user = user.or_else(|| session::stored_user(&datacenter, &context.world.env));
    let is_nameless = user.is_none() && args.password.is_none();
    if args.oidc || is_nameless {
        trust_server(&datacenter, args.fingerprint.as_deref(), context).await?;
        if let Some(user) = provider_login(&datacenter, args.oidc, context).await? {
            // The next login is with the provider too.
            session::store_user(&datacenter, &context.world.env, None);
            let line = format!("logged in to `{}` as {user}", datacenter.name);
            context.world.err.line(line);
            return done();
        }
    }
    match user {
        Some(user) => password_login(args, *datacenter, user, context).await,
        None => Err(
            CliError::usage(format!("datacenter `{}` has no user name", datacenter.name))
                .with_hint("set `username:` in the configuration, or use `-username`"),
        ),
    }
}

async fn password_login(
    args: &Args,
    mut datacenter: Datacenter,
    user: String,
    context: &mut Context<'_>,
) -> Result<u8, CliError> {
    let configured = datacenter.username.as_ref();
    let is_another = configured.is_some_and(|configured| *configured != user);
    refuse_ignored(&datacenter, is_another)?;
    // Before any secret is read or sent.
    trust_server(&datacenter, args.fingerprint.as_deref(), context).await?;
    let password = read_password(args, &datacenter, &user, context)?;
    datacenter.password = Some(password.clone());
    if is_another {
        datacenter.username = Some(user.clone());
    }
    let credentials = Credentials {
        login: Some((user.clone(), password)),
        token: None,
    };
    // The token is stored for the entry as it is written: later commands find it there.
    let client = session::remote(&datacenter, &context.world.env).with_credentials(credentials);
    client.login().await?;
    session::store_user(&datacenter, &context.world.env, Some(&user));
    let name = &datacenter.name;
    context.world.err.line(format!("logged in to `{name}` as {user}"));
    match is_another {
        true => set_user(&datacenter, &user, context),
        false => done(),
    }
}

/// Refuses a login that later commands would not use, because the configuration has a credential of its own.
fn refuse_ignored(datacenter: &Datacenter, is_another: bool) -> Result<(), CliError> {
    let key = match () {
        () if datacenter.token.is_some() => "token",
        () if is_another && datacenter.password.is_some() => "password",
        () => return Ok(()),
    };
    let name = &datacenter.name;
    let problem = format!("commands would use the `{key}` of `{name}` in the configuration, not this login");
    Err(CliError::usage(problem).with_hint(format!("remove `{key}` there")))
}

/// The password of the command line, of the environment, of stdin, or of the configuration.
fn read_password(
    args: &Args,
    datacenter: &Datacenter,
    user: &str,
    context: &mut Context<'_>,
) -> Result<String, CliError> {
    if let Some(password) = &args.password {
        context.world.err.note(
            "`-password` is visible to other users of this machine while the command runs; stdin is not",
        );
        return Ok(password.clone());
    }
    let mut password = datacenter.password.clone();
    if password.is_none() || args.username.is_some() || !std::io::stdin().is_terminal() {
        let prompt = format!("password of {user} at {}: ", datacenter.name);
        password = secret_input::read(PASSWORD, &prompt, context)?.or(password);
    }
    password.ok_or_else(|| {
        let error = CliError::usage("no password was given");
        error.with_hint(format!("type it, pass it on stdin, or set {PASSWORD}"))
    })
}

/// The key of the configuration that makes a login unnecessary.
fn configured_credential(datacenter: &Datacenter) -> Option<&'static str> {
    match () {
        () if datacenter.usercert.is_some() => Some("usercert"),
        () if datacenter.token.is_some() => Some("token"),
        () => None,
    }
}

/// Checks a token or certificate of the configuration: commands use it, and no password is needed.
async fn try_configured(
    datacenter: &Datacenter,
    key: &str,
    context: &mut Context<'_>,
) -> Result<u8, CliError> {
    let name = &datacenter.name;
    let who = match session::remote(datacenter, &context.world.env).whoami_get().await {
        Err(error) if error.refusal() == Some(ErrorName::Unauthorized) => {
            let problem = format!("the server of `{name}` does not accept the `{key}` in the configuration");
            let hint = format!("set another one, or remove `{key}` and log in with a password");
            return Err(CliError::refused(problem).with_hint(hint));
        }
        who => who?,
    };
    let line = format!(
        "logged in to `{name}` as {}, with the `{key}` in the configuration",
        who.user
    );
    context.world.err.line(line);
    done()
}

/// Makes this user the one of the datacenter's entry.
fn set_user(datacenter: &Datacenter, user: &str, context: &mut Context<'_>) -> Result<u8, CliError> {
    let name = &datacenter.name;
    let Some(location) = config::location(&context.flags.overrides(), &context.world.env) else {
        return done();
    };
    let path = location.path;
    config::set(&path, Some(name), "username", user).map_err(|error| {
        CliError::refused(error.to_string()).with_hint(format!(
            "write `username: {user}` to `{name}`; the login is stored"
        ))
    })?;
    let line = format!("`username` of `{name}` in {} is now {user}", path.display());
    context.world.err.line(line);
    done()
}

/// Logs in with the server's login provider and returns the user's name. Without `--oidc`, a server without a provider
/// is not an error.
async fn provider_login(
    datacenter: &Datacenter,
    is_asked_for: bool,
    context: &mut Context<'_>,
) -> Result<Option<String>, CliError> {
    let plain = Datacenter {
        password: None,
        token: None,
        ..datacenter.clone()
    };
    let client = session::remote(&plain, &context.world.env);
    let login = match client.device_login().await {
        Err(ClientError::Refused(body)) if body.error == ErrorName::NotFound && !is_asked_for => {
            return Ok(None);
        }
        login => login?,
    };
    let err = &mut context.world.err;
    err.line(format!(
        "open {} in a browser and confirm the code {}",
        login
            .verification_uri_complete
            .as_ref()
            .unwrap_or(&login.verification_uri),
        login.user_code
    ));
    err.line(format!(
        "waiting for the login at {}, at most {}",
        login.issuer,
        minutes(login.expires_in)
    ));
    let mut last = USUAL.to_owned();
    loop {
        let state = client.device_login_poll(&login.id).await?;
        if state.token.is_some() {
            return Ok(Some(state.user.unwrap_or_default()));
        }
        let why = state.waiting.unwrap_or_default();
        if why != last {
            context.world.err.note(&why);
            last = why;
        }
    }
}

fn minutes(seconds: u64) -> String {
    match seconds.div_ceil(60) {
        1 => "1 minute".to_owned(),
        minutes => format!("{minutes} minutes"),
    }
}

/// A server whose CA is unknown is trusted only by its fingerprint, given or confirmed.
async fn trust_server(
    datacenter: &Datacenter,
    given: Option<&str>,
    context: &mut Context<'_>,
) -> Result<(), CliError> {
    if !datacenter.endpoint.is_tls() {
        return Ok(());
    }
    let options = session::tls_options(datacenter, &context.world.env);
    // Any other problem is reported by the login itself.
    if trust::is_trusted(&datacenter.endpoint, &options).await != Ok(false) {
        return Ok(());
    }
    let shown = trust::shown_authority(&datacenter.endpoint)
        .await
        .map_err(CliError::refused)?;
    let fingerprint = shown.fingerprint();
    let unknown = format!("the server's certificate is signed by an unknown CA, {fingerprint}");
    match given {
        Some(given) if shown.has_fingerprint(given) => {}
        Some(_) => {
            return Err(
                CliError::refused(format!("{unknown}, not by the one of `--fingerprint`"))
                    .with_hint("someone may be intercepting the connection: ask the server's administrator"),
            );
        }
        None if std::io::stdin().is_terminal() => {
            context.world.err.line(&unknown);
            context
                .world
                .err
                .line("is this the fingerprint that `paddlecloud-server init` printed? [y/N]");
            let mut answer = String::new();
            let read = std::io::stdin().read_line(&mut answer);
            if read.is_err() || !matches!(answer.trim(), "y" | "Y" | "yes") {
                return Err(CliError::refused("the server is not trusted: nothing was sent"));
            }
        }
        None => {
            return Err(CliError::refused(unknown).with_hint(
                "compare it with what `paddlecloud-server init` printed, or ask your administrator, then use \
                 `--fingerprint`; nothing was sent",
            ));
        }
    }
    session::accept_authority(datacenter, &context.world.env, &shown.pem())
        .map_err(|error| CliError::refused(format!("cannot store the CA certificate: {error}")))
}
