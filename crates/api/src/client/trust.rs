//! Trust in a server whose CA this system does not know: its certificate is inspected before anything is sent.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::net::TcpStream;

use super::{Endpoint, TlsOptions};

/// How long a server may take to present its certificates.
const PATIENCE: Duration = Duration::from_secs(10);

/// A certificate as a server presented it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown(CertificateDer<'static>);

impl Shown {
    /// `SHA256:` and the digest in hexadecimal, by which people compare certificates.
    pub fn fingerprint(&self) -> String {
        fingerprint(&self.0)
    }

    /// Whether people mean this one: letters' case, colons and the prefix do not count.
    pub fn has_fingerprint(&self, text: &str) -> bool {
        plain(text) == plain(&self.fingerprint())
    }

    pub fn pem(&self) -> String {
        use base64::Engine as _;
        let text = base64::engine::general_purpose::STANDARD.encode(&self.0);
        let lines: Vec<&str> = text
            .as_bytes()
            .chunks(64)
            .map(|line| std::str::from_utf8(line).expect("base64 is ASCII"))
            .collect();
        format!(
            "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
            lines.join("\n")
        )
    }
}

/// The fingerprint of a certificate in DER form.
pub fn fingerprint(der: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, der);
    let words: Vec<String> = digest.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
    format!("SHA256:{}", words.join(":"))
}

fn plain(text: &str) -> String {
    let upper = text.trim().to_ascii_uppercase();
    let digits = upper.strip_prefix("SHA256:").unwrap_or(&upper);
    digits
        .chars()
        .filter(|c| *c != ':' && !c.is_whitespace())
        .collect()
}

/// Whether the server's certificate is signed by a CA that these options trust. An error says why it cannot be reached.
pub async fn is_trusted(endpoint: &Endpoint, options: &TlsOptions) -> Result<bool, String> {
    let config = options.load().map_err(|error| error.to_string())?;
    match connect(endpoint, config).await {
        Ok(_) => Ok(true),
        Err(Failure::Handshake(error)) if says_unknown(&error) => Ok(false),
        Err(Failure::Handshake(error)) => Err(error.to_string()),
        Err(Failure::Other(problem)) => Err(problem),
    }
}

/// The CA certificate: the last one of the chain that the server sends. It is not trusted yet, and nothing is sent.
pub async fn shown_authority(endpoint: &Endpoint) -> Result<Shown, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
        .with_no_client_auth();
    let chain = connect(endpoint, Arc::new(config))
        .await
        .map_err(|failure| match failure {
            Failure::Handshake(error) => error.to_string(),
            Failure::Other(problem) => problem,
        })?;
    let last = chain.last().cloned();
    last.map(Shown)
        .ok_or_else(|| "the server presents no certificate".to_owned())
}

enum Failure {
    Handshake(std::io::Error),
    Other(String),
}

async fn connect(
    endpoint: &Endpoint,
    config: Arc<ClientConfig>,
) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let Endpoint::Tcp { host, port, .. } = endpoint else {
        return Err(Failure::Other("there is no TLS on this endpoint".to_owned()));
    };
    let name = ServerName::try_from(host.clone())
        .map_err(|_| Failure::Other(format!("`{host}` cannot be the name of a TLS server")))?;
    let work = async {
        let stream = TcpStream::connect((host.as_str(), *port))
            .await
            .map_err(|error| Failure::Other(error.to_string()))?;
        let stream = tokio_rustls::TlsConnector::from(config)
            .connect(name, stream)
            .await
            .map_err(Failure::Handshake)?;
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        Ok(chain.iter().map(|one| one.clone().into_owned()).collect())
    };
    let done = tokio::time::timeout(PATIENCE, work).await;
    done.unwrap_or_else(|_| Err(Failure::Other("the server does not answer".to_owned())))
}

fn says_unknown(error: &std::io::Error) -> bool {
    let inner = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(
        inner,
        Some(rustls::Error::InvalidCertificate(
            rustls::CertificateError::UnknownIssuer
        ))
    )
}

/// Accepts every certificate, for a connection over which nothing is sent.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_compared_as_people_write_them() {
        let shown = Shown(CertificateDer::from(b"abc".to_vec()));
        let text = shown.fingerprint();
        assert!(text.starts_with("SHA256:BA:78:16:BF:"), "{text}");
        assert!(shown.has_fingerprint(&text.to_lowercase()));
        assert!(shown.has_fingerprint(&text.replace(':', "").replace("SHA256", "")));
        assert!(!shown.has_fingerprint("SHA256:BA:78"));
        assert!(shown.pem().starts_with("-----BEGIN CERTIFICATE-----\nYWJj\n"));
    }
}
