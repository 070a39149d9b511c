//! `cert request`: a new key for a certificate, and the request that an administrator signs.

use std::path::{Path, PathBuf};

use rcgen::{CertificateParams, DistinguishedName, KeyPair};

use super::{Context, done};
use crate::error::CliError;
use crate::session;

/// Log in with a certificate in place of a password
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Make a key and print the request for its certificate
    ///
    /// The key stays on this machine. An administrator signs the request with `admin cert issue`.
    Request {
        /// Where to keep the key; default: `user.key` in `~/.paddle`
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
    },
}

pub fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let Action::Request { key } = &args.action;
    let default = || context.world.env.paddle_home().map(|home| home.join("user.key"));
    let path = key.clone().or_else(default).ok_or_else(|| {
        CliError::usage("there is no home folder to keep the key in").with_hint("name a file with `--key`")
    })?;
    let request = request(&path)?;
    context.world.out.bytes(request.as_bytes())?;
    let err = &mut context.world.err;
    err.line(format!("the key is in {}; keep it to yourself", path.display()));
    err.line("give the request to an administrator: `paddlectl admin cert issue USER FILE`");
    err.line(format!(
        "then set `usercert` to the certificate and `userkey` to {} in the configuration",
        path.display()
    ));
    done()
}

/// Stores a new key and gives the request for its certificate.
fn request(path: &Path) -> Result<String, CliError> {
    if path.exists() {
        let problem = format!("`{}` exists and may be the key of a certificate", path.display());
        return Err(CliError::usage(problem).with_hint("name another file with `--key`"));
    }
    let failed = |error: rcgen::Error| CliError::refused(format!("cannot make a key: {error}"));
    let key = KeyPair::generate().map_err(failed)?;
    let mut params = CertificateParams::default();
    // Whose certificate it becomes is for the administrator to say.
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key).and_then(|request| request.pem());
    let request = request.map_err(failed)?;
    session::keep_key(path, &key.serialize_pem())
        .map_err(|error| CliError::refused(format!("cannot write `{}`: {error}", path.display())))?;
    Ok(request)
}
