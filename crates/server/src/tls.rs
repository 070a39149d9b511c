//! TLS from the files the configuration names.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use crate::config::TlsFiles;

/// Why TLS cannot be offered.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read `{path}` as PEM", path = .path.display())]
    Pem {
        path: PathBuf,
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    #[error("there is no certificate in `{path}`", path = .path.display())]
    Empty { path: PathBuf },
    #[error("the certificate and the key do not work together")]
    Pair(#[source] rustls::Error),
    #[error("the certificates in `client_ca` cannot be used")]
    ClientCa(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Everything a connection needs to shake hands. Client certificates are asked for, not required.
pub fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Pair)?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(roots(path)?, provider)
                .allow_unauthenticated()
                .build()
                .map_err(|error| TlsError::ClientCa(error.into()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|source| pem(&files.key, source))?;
    let config = builder
        .with_single_cert(certificates(&files.cert)?, key)
        .map_err(TlsError::Pair)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn roots(path: &Path) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots
            .add(certificate)
            .map_err(|error| TlsError::ClientCa(error.into()))?;
    }
    Ok(Arc::new(roots))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|source| pem(path, source))?;
    match chain.is_empty() {
        true => Err(TlsError::Empty {
            path: path.to_owned(),
        }),
        false => Ok(chain),
    }
}

fn pem(path: &Path, source: rustls::pki_types::pem::Error) -> TlsError {
    TlsError::Pem {
        path: path.to_owned(),
        source,
    }
}
