//! Opening the way to a server: the configured one, or this machine's own, started when it does not run.

use paddlecloud_api::client::{Client, Credentials, TlsOptions};

use crate::config::{self, Choice, Datacenter, Wanted};
use crate::environment::Environment;
use crate::error::ConnectError;
use crate::program::Program;
use crate::tokens::TokenFile;

/// A server to talk to.
pub struct Session {
    pub client: Client,
    /// The configuration's name for it; `local` for the embedded one.
    pub datacenter: String,
    pub is_embedded: bool,
}

/// What an embedded server needs beyond the configuration.
pub struct Host<'a, N: FnMut(&str)> {
    /// Becomes the server when none runs; `None` where there is no such program.
    pub program: Option<&'a Program>,
    /// Hears what happens on the way, in words for people.
    pub note: N,
}

impl Session {
    /// Opens what the configuration chooses; the embedded server runs when this returns.
    pub async fn open<N: FnMut(&str)>(
        wanted: &Wanted,
        environment: &Environment,
        host: Host<'_, N>,
    ) -> Result<Session, ConnectError> {
        match config::choice(wanted, environment)? {
            Choice::Remote(datacenter) => Ok(Session {
                client: remote(&datacenter, environment),
                datacenter: datacenter.name,
                is_embedded: false,
            }),
            Choice::Embedded => Ok(Session {
                client: embedded(environment, host).await?,
                datacenter: config::EMBEDDED.to_owned(),
                is_embedded: true,
            }),
        }
    }
}

/// A client for a configured datacenter, with the token that is kept for it.
pub fn remote(datacenter: &Datacenter, environment: &Environment) -> Client {
    let file = environment
        .paddle_home()
        .map(|home| TokenFile::of(&home, datacenter));
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
async fn embedded<N: FnMut(&str)>(
    environment: &Environment,
    host: Host<'_, N>,
) -> Result<Client, ConnectError> {
    crate::embedded::open(environment, host).await
}

#[cfg(not(target_os = "linux"))]
async fn embedded<N: FnMut(&str)>(_: &Environment, _: Host<'_, N>) -> Result<Client, ConnectError> {
    Err(no_embedded())
}

/// What is said where the embedded server cannot run.
#[cfg(not(target_os = "linux"))]
pub fn no_embedded() -> ConnectError {
    ConnectError::NoServer {
        message: "no server is configured, and the embedded one needs Linux".to_owned(),
        hints: vec![
            "describe a server in `~/.paddle/config`: name, username, password and endpoint".to_owned(),
        ],
    }
}
