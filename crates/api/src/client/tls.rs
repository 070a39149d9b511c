//! TLS for the client: the system's root certificates, loaded only when needed, and client certificates.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::certificate::common_name;

pub(super) type SharedConfig = Arc<ClientConfig>;

/// What a connection presents and which CAs it trusts.
#[derive(Debug, Clone, Default)]
pub struct TlsOptions {
    /// The caller's certificate chain and key (PEM), for mutual TLS.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Trust these CAs (PEM) instead of the system's.
    pub authorities: Option<PathBuf>,
}

/// Why TLS cannot be set up on this side.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {what} `{}`: {problem}", path.display())]
    File {
        what: &'static str,
        path: PathBuf,
        problem: String,
    },
    #[error("the certificate and the key do not match: {0}")]
    Identity(String),
    #[error("this system has no trusted certificates: {0}")]
    NoRoots(String),
}

impl TlsOptions {
    pub(super) fn load(&self) -> Result<SharedConfig, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring speaks the default versions")
            .with_root_certificates(self.roots()?);
        let config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => builder
                .with_client_auth_cert(certificates("the certificate", cert)?, private_key(key)?)
                .map_err(|error| TlsError::Identity(error.to_string()))?,
        };
        Ok(Arc::new(config))
    }

    fn roots(&self) -> Result<RootCertStore, TlsError> {
        let mut roots = RootCertStore::empty();
        if let Some(path) = &self.authorities {
            roots.add_parsable_certificates(certificates("the authorities", path)?);
            return Ok(roots);
        }
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            let reasons: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
            return Err(TlsError::NoRoots(reasons.join("; ")));
        }
        Ok(roots)
    }
}

/// The user of a client certificate's file; `None` if it cannot be read or names nobody.
pub fn certificate_user(path: &Path) -> Option<String> {
    let own = certificates("the certificate", path).ok()?.into_iter().next()?;
    common_name(&own)
}

fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |problem: String| unreadable(what, path, problem);
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path)
        .map_err(|error| wrong(error.to_string()))?
        .collect();
    let found = found.map_err(|error| wrong(error.to_string()))?;
    if found.is_empty() {
        return Err(wrong("it contains no PEM certificate".to_owned()));
    }
    Ok(found)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| unreadable("the key", path, error.to_string()))
}

/// Names the whole path: the user may not know the current folder.
fn unreadable(what: &'static str, path: &Path, problem: String) -> TlsError {
    TlsError::File {
        what,
        path: std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
        problem,
    }
}
