//! Client certificates that the TLS layer has already verified.

use paddlecloud_api::certificate::common_name;

/// A certificate whose key the client has proved to hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The common name of its subject.
    pub name: String,
    /// The digest of the whole certificate.
    pub digest: String,
    /// Whether an authority of the configuration signed it: then the name alone identifies the user. A certificate of the
    /// server's own authority must also be in the account's list.
    pub configured: bool,
}

impl ClientCertificate {
    /// Returns `None` unless the certificate has exactly one common name.
    pub fn read(certificate: &[u8], configured: bool) -> Option<ClientCertificate> {
        Some(ClientCertificate {
            name: common_name(certificate)?,
            digest: ClientCertificate::digest_of(certificate),
            configured,
        })
    }

    pub fn digest_of(certificate: &[u8]) -> String {
        blake3::hash(certificate).to_hex().to_string()
    }
}
