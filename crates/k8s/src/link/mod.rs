//! The server's end of the links: launchers connect, prove which attempt they are, and bring its log and its end.

mod session;

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::engine::Inner;

/// Before the next connection is accepted after one could not be.
const PAUSE: Duration = Duration::from_millis(200);

/// How pods reach this server, and why each can believe the other.
pub struct LinkSettings {
    pub listener: TcpListener,
    pub tls: Arc<rustls::ServerConfig>,
    /// The certificate that pods are given, as PEM.
    pub certificate: String,
    /// Attempts' secrets are derived from this.
    pub key: [u8; 32],
}

/// The secret of one attempt.
pub fn secret(key: &[u8; 32], marker: &str) -> String {
    blake3::keyed_hash(key, marker.as_bytes()).to_hex().to_string()
}

/// Compared in constant time.
fn is_secret(key: &[u8; 32], marker: &str, told: &str) -> bool {
    blake3::Hash::from_hex(told).is_ok_and(|told| told == blake3::keyed_hash(key, marker.as_bytes()))
}

/// Takes connections. When this is dropped, they end too.
pub(crate) async fn listen(listener: TcpListener, tls: Arc<rustls::ServerConfig>, inner: Arc<Inner>) {
    let acceptor = TlsAcceptor::from(tls);
    let mut sessions = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let _ = stream.set_nodelay(true);
                    sessions.spawn(session::serve(stream, acceptor.clone(), Arc::clone(&inner)));
                }
                // Out of descriptors, for example; a moment later there may be some.
                Err(error) => {
                    tracing::warn!(%error, "a link cannot be accepted");
                    tokio::time::sleep(PAUSE).await;
                }
            },
            Some(_) = sessions.join_next() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_opens_one_attempt_only() {
        let key = [7; 32];
        let secret = secret(&key, "j_1.trainer-0.1");
        assert!(is_secret(&key, "j_1.trainer-0.1", &secret));
        assert!(!is_secret(&key, "j_1.trainer-0.2", &secret));
        assert!(!is_secret(&[8; 32], "j_1.trainer-0.1", &secret));
        assert!(!is_secret(&key, "j_1.trainer-0.1", "nonsense"));
    }
}
