//! Opens a session with a server: the configured one, or this machine's own, started if it is not running.

use paddlecloud_api::client::{Client, Credentials, TlsOptions, certificate_user};

use crate::config::{self, Choice, ConfigOverrides, Datacenter};
use crate::environment::Environment;
use crate::error::ConnectError;
use crate::private_file::{create_private_folder, replace_private_file};
use crate::program::Program;
use crate::tokens::{AuthorityFile, TokenFile};

/// A server to talk to.
pub struct Session {
    pub client: Client,
    /// The datacenter's name in the configuration; `local` for the embedded server.
    pub datacenter: String,
    pub is_embedded: bool,
}

/// What an embedded server needs in addition to the configuration.
pub struct Host<'a, N: FnMut(&str)> {
    /// Started as the server if none is running; `None` if there is no such program.
    pub program: Option<&'a Program>,
    /// Receives progress messages for people.
    pub note: N,
}

impl Session {
    /// Opens the server that the configuration selects; the embedded server is running when this returns.
    pub async fn open<N: FnMut(&str)>(
        overrides: &ConfigOverrides,
        environment: &Environment,
        mut host: Host<'_, N>,
    ) -> Result<Session, ConnectError> {
        match config::choice(overrides, environment)? {
            Choice::Remote(datacenter) => {
                for warning in warnings(&datacenter, environment) {
                    (host.note)(&warning);
                }
                Ok(Session {
                    client: remote(&datacenter, environment),
                    datacenter: datacenter.name,
                    is_embedded: false,
                })
            }
            Choice::Embedded => Ok(Session {
                client: embedded(environment, host).await?,
                datacenter: config::EMBEDDED.to_owned(),
                is_embedded: true,
            }),
        }
    }
}

/// What the user should know about the datacenter before it is used.
pub fn warnings(datacenter: &Datacenter, environment: &Environment) -> Vec<String> {
    let parts = [exposure(datacenter), another_user(datacenter, environment)];
    let parts = parts.into_iter().flatten();
    datacenter.remarks.iter().cloned().chain(parts).collect()
}

/// A warning if the datacenter is reached without TLS through a network.
fn exposure(datacenter: &Datacenter) -> Option<String> {
    let endpoint = &datacenter.endpoint;
    let warning =
        || format!("the connection to {endpoint} is not encrypted: others can read passwords and tokens");
    endpoint.is_exposed().then(warning)
}

/// A warning if the certificate logs in another user than the configuration names.
fn another_user(datacenter: &Datacenter, environment: &Environment) -> Option<String> {
    let named = datacenter.username.as_ref()?;
    let has_login = datacenter.password.is_some() || datacenter.token.is_some();
    // A password or a token goes before the certificate.
    if has_login || keeps_token(datacenter, environment) {
        return None;
    }
    let certificate = datacenter.usercert.as_ref()?;
    let user = certificate_user(certificate).filter(|user| user != named)?;
    Some(format!(
        "`username` is `{named}`, but the certificate in `usercert` is of `{user}`, who is logged in with it"
    ))
}

/// A client for a configured datacenter, with the token that was saved for it.
pub fn remote(datacenter: &Datacenter, environment: &Environment) -> Client {
    let file = environment
        .paddle_home()
        .map(|home| TokenFile::of(&home, datacenter));
    let kept = file.as_ref().and_then(TokenFile::read);
    let is_configured = datacenter.token.is_some();
    let login = datacenter.username.clone().zip(datacenter.password.clone());
    let client = Client::new(datacenter.endpoint.clone())
        .with_tls(tls_options(datacenter, environment))
        .with_credentials(Credentials {
            login,
            token: datacenter.token.clone().or(kept),
        });
    match file {
        // A token that cannot be saved costs a login next time, nothing more.
        Some(file) => {
            let saved = file.clone();
            let client = client.on_new_token(Box::new(move |token| drop(file.write(token))));
            match is_configured {
                // Its owner would not find the new token in the configuration.
                true => client,
                false => client.with_saved_token(Box::new(move || saved.read())),
            }
        }
        None => client,
    }
}

/// The certificate authority that a datacenter's server is trusted by: the configured one, or one accepted at a login.
pub fn tls_options(datacenter: &Datacenter, environment: &Environment) -> TlsOptions {
    let home = environment.paddle_home();
    let accepted = home.and_then(|home| AuthorityFile::of(&home, datacenter).path());
    TlsOptions {
        identity: datacenter.usercert.clone().zip(datacenter.userkey.clone()),
        authorities: datacenter.cacert.clone().or(accepted),
    }
}

/// Trusts this CA for the datacenter's server from now on.
pub fn accept_authority(
    datacenter: &Datacenter,
    environment: &Environment,
    pem: &str,
) -> std::io::Result<()> {
    match environment.paddle_home() {
        Some(home) => AuthorityFile::of(&home, datacenter).write(pem),
        None => Err(std::io::Error::other("there is no home folder to store it in")),
    }
}

/// Whether a login is kept for a datacenter.
pub fn keeps_token(datacenter: &Datacenter, environment: &Environment) -> bool {
    let home = environment.paddle_home();
    home.is_some_and(|home| TokenFile::of(&home, datacenter).read().is_some())
}

/// The user of the stored login, if the configuration names none and the login was with a password.
pub fn stored_user(datacenter: &Datacenter, environment: &Environment) -> Option<String> {
    TokenFile::of(&environment.paddle_home()?, datacenter).user()
}

/// Stores the user next to the token, for the next login; `None` for a login without a password.
pub fn store_user(datacenter: &Datacenter, environment: &Environment, user: Option<&str>) {
    // A user that cannot be stored has to be named at the next login, nothing more.
    if let Some(home) = environment.paddle_home() {
        let _ = TokenFile::of(&home, datacenter).write_user(user);
    }
}

/// Keeps a private key in a file that only the user can read.
pub fn keep_key(path: &std::path::Path, pem: &str) -> std::io::Result<()> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        create_private_folder(folder)?;
    }
    replace_private_file(path, pem)
}

/// Forgets the token that is kept for a datacenter.
pub fn forget_token(datacenter: &Datacenter, environment: &Environment) -> std::io::Result<()> {
    match environment.paddle_home() {
        Some(home) => TokenFile::of(&home, datacenter).remove(),
        None => Ok(()),
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
async fn embedded<N: FnMut(&str)>(environment: &Environment, _: Host<'_, N>) -> Result<Client, ConnectError> {
    Err(no_embedded(environment))
}

/// The error on systems without an embedded server.
#[cfg(any(not(target_os = "linux"), test))]
pub fn no_embedded(environment: &Environment) -> ConnectError {
    let file = environment.paddle_home().map(|home| home.join("config"));
    let file = file.map_or("~/.paddle/config".to_owned(), |file| file.display().to_string());
    ConnectError::Refused {
        message: "no server is configured, and the embedded one needs Linux".to_owned(),
        hints: vec![format!(
            "describe a server in `{file}`: name, username, password and endpoint"
        )],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_of_another_user_than_the_configured_one_is_pointed_out() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ann.crt");
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, "ann");
        let key = rcgen::KeyPair::generate().unwrap();
        std::fs::write(&file, params.self_signed(&key).unwrap().pem()).unwrap();
        let warned = |username: Option<&str>, token: Option<&str>| {
            let datacenter = Datacenter {
                username: username.map(str::to_owned),
                token: token.map(str::to_owned),
                usercert: Some(file.clone()),
                userkey: Some(file.clone()),
                ..Datacenter::at("dc1", "https://h".parse().unwrap())
            };
            warnings(&datacenter, &Environment::from(std::collections::BTreeMap::new()))
        };
        assert_eq!(
            warned(Some("bob"), None),
            ["`username` is `bob`, but the certificate in `usercert` is of `ann`, who is logged in with it"]
        );
        for (username, token) in [(Some("ann"), None), (None, None), (Some("bob"), Some("t"))] {
            assert!(warned(username, token).is_empty(), "{username:?}");
        }
    }

    #[test]
    fn without_an_embedded_server_the_error_says_how_to_use_another() {
        let home = [("PADDLECLOUD_HOME".to_owned(), "/p".to_owned())];
        let error = no_embedded(&Environment::from(std::collections::BTreeMap::from(home)));
        assert_eq!(
            error.to_string(),
            "no server is configured, and the embedded one needs Linux"
        );
        let file = std::path::absolute("/p").unwrap().join("config");
        let hint = format!(
            "describe a server in `{}`: name, username, password and endpoint",
            file.display()
        );
        assert_eq!(error.hints("paddlectl"), [hint]);
    }
}
