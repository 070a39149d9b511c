//! The server's end of the links: launchers connect, authenticate as an attempt, and send its log and its exit.

mod session;

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::engine::Inner;

/// Pause after a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(200);

/// How pods reach this server, and how both sides authenticate.
pub struct LinkSettings {
    pub listener: TcpListener,
    pub tls: Arc<rustls::ServerConfig>,
    /// The certificate for pods, as PEM.
    pub certificate: String,
    /// Attempts' secrets are derived from this.
    pub key: [u8; 32],
}

/// The secret of one attempt.
pub fn secret(key: &[u8; 32], marker: &str) -> String {
    blake3::keyed_hash(key, marker.as_bytes()).to_hex().to_string()
}

/// Compares in constant time.
fn is_secret(key: &[u8; 32], marker: &str, told: &str) -> bool {
    blake3::Hash::from_hex(told).is_ok_and(|told| told == blake3::keyed_hash(key, marker.as_bytes()))
}

/// Accepts connections. Dropping the future closes them.
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
                // For example out of descriptors: some may be free a moment later.
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
