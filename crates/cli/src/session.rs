//! Opening the way to a server: the configured one, or this machine's own, started when it does not run.

use paddlecloud_api::client::{Client, Credentials, TlsOptions};

use crate::args::GlobalFlags;
use crate::config::{self, Choice, Datacenter};
use crate::error::CliError;
use crate::tokens::TokenFile;
use crate::world::World;

/// A server to talk to.
pub struct Session {
    pub client: Client,
    /// The configuration's name for it; `local` for the embedded one.
    pub datacenter: String,
    pub is_embedded: bool,
}

impl Session {
    /// Opens what the configuration chooses; the embedded server runs when this returns.
    pub async fn open(flags: &GlobalFlags, world: &mut World) -> Result<Session, CliError> {
        match config::choice(flags, world)? {
            Choice::Remote(datacenter) => Ok(Session {
                client: remote(&datacenter, world),
                datacenter: datacenter.name,
                is_embedded: false,
            }),
            Choice::Embedded => Ok(Session {
                client: embedded(world).await?,
                datacenter: config::EMBEDDED.to_owned(),
                is_embedded: true,
            }),
        }
    }
}

/// A client for a configured datacenter, with the token that is kept for it.
pub fn remote(datacenter: &Datacenter, world: &World) -> Client {
    let file = world.paddle_home().map(|home| TokenFile::of(&home, datacenter));
    let kept = file.as_ref().and_then(TokenFile::read);
    let login = datacenter.username.clone().zip(datacenter.password.clone());
    let client = Client::new(datacenter.endpoint.clone())
        .with_tls(TlsOptions {
            identity: datacenter.usercert.clone().zip(datacenter.userkey.clone()),
            authorities: datacenter.cacert.clone(),
        })
        .with_credentials(Credentials {
            login,
            token: datacenter.token.clone().or(kept),
        });
    match file {
        // A token that cannot be kept costs a login next time, nothing more.
        Some(file) => client.on_new_token(Box::new(move |token| drop(file.write(token)))),
        None => client,
    }
}

#[cfg(target_os = "linux")]
async fn embedded(world: &mut World) -> Result<Client, CliError> {
    crate::embedded::open(world).await
}

#[cfg(not(target_os = "linux"))]
async fn embedded(_: &mut World) -> Result<Client, CliError> {
    Err(no_embedded())
}

/// What is said where the embedded server cannot run.
#[cfg(not(target_os = "linux"))]
pub fn no_embedded() -> CliError {
    CliError::NoServer {
        message: "no server is configured, and the embedded one needs Linux".to_owned(),
        hints: vec![
            "describe a server in `~/.paddle/config`: name, username, password and endpoint".to_owned(),
        ],
    }
}
