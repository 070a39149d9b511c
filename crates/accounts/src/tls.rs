//! TLS from the files that the configuration names. A replaced certificate is used from the next connection on.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{Accept, TlsAcceptor};

use crate::auth::ClientCertificate;

/// Minimum time between two checks for changed files.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The paths of certificates. With `client_ca`, clients may authenticate with a certificate whose common name is their user name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
    pub client_ca: Option<PathBuf>,
}

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
    #[error("cannot use this certificate with this key")]
    Pair(#[source] rustls::Error),
    #[error("the certificates in `client_ca` cannot be used")]
    ClientCa(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Everything a connection needs for the TLS handshake.
#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
    /// Verifies only certificates of the configured authority.
    configured: Option<Arc<dyn ClientCertVerifier>>,
}

impl Tls {
    /// Client certificates of the server's own authority (`own`, in PEM) and of a configured one are requested, but not required.
    pub fn new(files: &TlsFiles, own: &str) -> Result<Tls, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Pair)?;
        let own = CertificateDer::from_pem_slice(own.as_bytes())
            .map_err(|error| TlsError::ClientCa(error.into()))?;
        let mut all = files
            .client_ca
            .as_deref()
            .map(certificates)
            .transpose()?
            .unwrap_or_default();
        // The server's own certificates are revoked by its own list, which must apply even if the same authority is configured.
        all.retain(|authority| *authority != own);
        let configured = match all.is_empty() {
            true => None,
            false => Some(verifier(&all, &provider)?),
        };
        all.push(own);
        let config = builder
            .with_client_cert_verifier(verifier(&all, &provider)?)
            .with_cert_resolver(Arc::new(Reloading::new(files.clone())?));
        Ok(Tls {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            configured,
        })
    }

    pub fn accept<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> Accept<S> {
        self.acceptor.accept(stream)
    }

    /// The client certificate of a connection.
    pub fn certificate(&self, connection: &ServerConnection) -> Option<ClientCertificate> {
        let (first, rest) = connection.peer_certificates()?.split_first()?;
        let verified = |verifier: &Arc<dyn ClientCertVerifier>| {
            verifier.verify_client_cert(first, rest, UnixTime::now()).is_ok()
        };
        ClientCertificate::read(first, self.configured.as_ref().is_some_and(verified))
    }
}

fn verifier(
    authorities: &[CertificateDer<'static>],
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        let added = roots.add(authority.clone());
        added.map_err(|error| TlsError::ClientCa(error.into()))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .allow_unauthenticated()
        .build()
        .map_err(|error| TlsError::ClientCa(error.into()))
}

/// The server's certificate, reloaded when its files change.
#[derive(Debug)]
struct Reloading {
    files: TlsFiles,
    current: Mutex<Current>,
}

#[derive(Debug)]
struct Current {
    pair: Arc<CertifiedKey>,
    /// The modification times of the files when they were read.
    changed: [Option<SystemTime>; 2],
    looked: Instant,
}

impl Reloading {
    fn new(files: TlsFiles) -> Result<Reloading, TlsError> {
        let current = Current {
            changed: changed(&files),
            pair: load(&files)?,
            looked: Instant::now(),
        };
        Ok(Reloading {
            files,
            current: Mutex::new(current),
        })
    }

    /// The current pair. If the new files cannot be read, for example because they are half written, the old pair stays.
    fn pair(&self) -> Arc<CertifiedKey> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.looked.elapsed() < LOOK_EVERY {
            return Arc::clone(&current.pair);
        }
        current.looked = Instant::now();
        let now = changed(&self.files);
        if now != current.changed {
            match load(&self.files) {
                Ok(pair) => {
                    tracing::info!(certificate = %self.files.cert.display(), "using the new certificate");
                    (current.pair, current.changed) = (pair, now);
                }
                Err(error) => {
                    let error = paddlecloud_core::error_chain::chain_of(&error);
                    tracing::warn!(
                        error,
                        "the new certificate cannot be used; still using the old one"
                    );
                }
            }
        }
        Arc::clone(&current.pair)
    }
}

impl ResolvesServerCert for Reloading {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.pair())
    }
}

fn changed(files: &TlsFiles) -> [Option<SystemTime>; 2] {
    let time = |path: &PathBuf| std::fs::metadata(path).and_then(|meta| meta.modified()).ok();
    [time(&files.cert), time(&files.key)]
}

fn load(files: &TlsFiles) -> Result<Arc<CertifiedKey>, TlsError> {
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|source| pem(&files.key, source))?;
    let provider = rustls::crypto::ring::default_provider();
    let pair = CertifiedKey::from_der(certificates(&files.cert)?, key, &provider);
    let pair = pair.map_err(TlsError::Pair)?;
    Ok(Arc::new(pair))
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

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    fn write_pair(files: &TlsFiles) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        std::fs::write(&files.cert, params.self_signed(&key).unwrap().pem()).unwrap();
        std::fs::write(&files.key, key.serialize_pem()).unwrap();
    }

    /// Makes the next call check the files and find them changed.
    fn age(reloading: &Reloading) {
        let mut current = reloading.current.lock().unwrap();
        current.looked = Instant::now().checked_sub(LOOK_EVERY).unwrap();
        current.changed = [None, None];
    }

    #[test]
    fn a_new_pair_is_used_and_a_broken_one_leaves_the_old() {
        let folder = tempfile::tempdir().unwrap();
        let files = TlsFiles {
            cert: folder.path().join("cert.pem"),
            key: folder.path().join("key.pem"),
            client_ca: None,
        };
        write_pair(&files);
        let reloading = Reloading::new(files.clone()).unwrap();
        let first = reloading.pair();
        std::fs::write(&files.cert, "half a certificate").unwrap();
        age(&reloading);
        assert!(Arc::ptr_eq(&reloading.pair(), &first));
        write_pair(&files);
        age(&reloading);
        let second = reloading.pair();
        assert_ne!(second.cert, first.cert);
    }
}
