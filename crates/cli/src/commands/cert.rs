//! `cert request`: a new key for a certificate, and the request that an administrator signs.

use std::path::{Path, PathBuf};

use rcgen::{CertificateParams, DistinguishedName, KeyPair};

use super::{Context, done};
use crate::error::CliError;
use crate::session;

/// Log in with a certificate instead of a password
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Create a private key and print a certificate request
    ///
    /// The key stays on this machine. An administrator signs the request with `admin cert issue`.
    Request {
        /// Where to store the key; default: `user.key` in `~/.paddle`
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
    },
}

pub fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let Action::Request { key } = &args.action;
    let default = || context.world.env.paddle_home().map(|home| home.join("user.key"));
    let path = key.clone().or_else(default).ok_or_else(|| {
        CliError::usage("there is no home folder to store the key in").with_hint("name a file with `--key`")
    })?;
    let request = request(&path)?;
    context.world.out.bytes(request.as_bytes())?;
    let err = &mut context.world.err;
    err.line(format!(
        "the private key is in {}; do not share it",
        path.display()
    ));
    err.line("give the request to an administrator: `paddlectl admin cert issue USER FILE`");
    err.line(format!(
        "then set `usercert` to the certificate and `userkey` to {} in the configuration",
        path.display()
    ));
    done()
}

/// Stores a new key and returns the request for its certificate.
fn request(path: &Path) -> Result<String, CliError> {
    if path.exists() {
        let problem = format!("`{}` exists and may be the key of a certificate", path.display());
        return Err(CliError::usage(problem).with_hint("name another file with `--key`"));
    }
    let failed = |error: rcgen::Error| CliError::refused(format!("cannot create a key: {error}"));
    let key = KeyPair::generate().map_err(failed)?;
    let mut params = CertificateParams::default();
    // The administrator decides whose certificate it becomes.
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key).and_then(|request| request.pem());
    let request = request.map_err(failed)?;
    session::keep_key(path, &key.serialize_pem())
        .map_err(|error| CliError::refused(format!("cannot write `{}`: {error}", path.display())))?;
    Ok(request)
}
