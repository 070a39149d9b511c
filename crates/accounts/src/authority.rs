//! The server's own certificate authority, created once and kept in the data folder.
//!
//! Its certificates are trusted only by programs that have the authority's certificate. Its key never leaves the folder.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SerialNumber,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::certificate_request::RequestedKey;
use crate::tls::TlsFiles;

const CERTIFICATE: &str = "ca.crt";
const KEY: &str = "ca.key";
const NAME: &str = "PaddleCloud server";

/// Why the authority cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    #[error("cannot use the certificate authority in `{path}`", path = .path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot create a certificate")]
    Certificate(#[from] rcgen::Error),
    #[error("cannot use the server's own certificate")]
    Tls(#[from] rustls::Error),
    #[error("it is not a PEM certificate request for a P-256 or Ed25519 key, signed with that key")]
    Request,
}

/// A signed user certificate.
#[derive(Debug)]
pub struct Signed {
    pub pem: String,
    pub der: Vec<u8>,
    /// The serial number in hexadecimal.
    pub serial: String,
}

/// Signs certificates for clients that trust this server.
pub struct Authority {
    certificate: String,
    key: KeyPair,
}

impl Authority {
    /// Reads the authority of a data folder, or creates one.
    pub fn open(data: &Path) -> Result<Authority, AuthorityError> {
        let (certificate, key) = (data.join(CERTIFICATE), data.join(KEY));
        match fs::read_to_string(&key) {
            Ok(pem) => Ok(Authority {
                key: KeyPair::from_pem(&pem)?,
                certificate: fs::read_to_string(&certificate).map_err(|source| AuthorityError::File {
                    path: certificate,
                    source,
                })?,
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Authority::make(data),
            Err(source) => Err(AuthorityError::File { path: key, source }),
        }
    }

    fn make(data: &Path) -> Result<Authority, AuthorityError> {
        let key = KeyPair::generate()?;
        let certificate = authority_params().self_signed(&key)?.pem();
        // The key is written last: a folder with a key has both files.
        for (name, text) in [(CERTIFICATE, &certificate), (KEY, &key.serialize_pem())] {
            store(data, name, text).map_err(|source| AuthorityError::File {
                path: data.join(name),
                source,
            })?;
        }
        Ok(Authority { certificate, key })
    }

    /// The certificate that clients need, as PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// `SHA256:` and the digest of the certificate, for comparison by users.
    pub fn fingerprint(&self) -> Result<String, AuthorityError> {
        let der = CertificateDer::from_pem_slice(self.certificate.as_bytes())
            .map_err(|error| AuthorityError::Tls(rustls::Error::General(error.to_string())))?;
        let digest = ring::digest::digest(&ring::digest::SHA256, &der);
        let words: Vec<String> = digest.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
        Ok(format!("SHA256:{}", words.join(":")))
    }

    /// Issues a certificate and a key for a server with these names and stores both. The file includes the authority's
    /// certificate, so that clients can be shown what to trust.
    pub fn issue(&self, names: &[String], files: &TlsFiles) -> Result<(), AuthorityError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(names.to_vec())?;
        never_expires(&mut params);
        let authority = authority_params();
        let issuer = Issuer::from_params(&authority, &self.key);
        let chain = format!("{}{}", params.signed_by(&key, &issuer)?.pem(), self.certificate);
        for (path, text) in [(&files.cert, &chain), (&files.key, &key.serialize_pem())] {
            let (folder, name) = (path.parent(), path.file_name().and_then(|name| name.to_str()));
            let stored = match folder.zip(name) {
                Some((folder, name)) => store(folder, name, text),
                None => Err(io::Error::other("it is not a file")),
            };
            stored.map_err(|source| AuthorityError::File {
                path: path.clone(),
                source,
            })?;
        }
        Ok(())
    }

    /// Signs a certificate for a user, valid between two Unix times. Only the request's key is used; the caller sets the name.
    pub fn sign(&self, request: &str, user: &str, validity: (i64, i64)) -> Result<Signed, AuthorityError> {
        let time =
            |seconds: i64| rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds.unsigned_abs());
        let key = RequestedKey::from_pem(request).ok_or(AuthorityError::Request)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, user);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.not_before = time(validity.0);
        params.not_after = time(validity.1);
        // A serial number is positive, so the first bit is 0.
        let mut serial = crate::auth::random_bytes()[..8].to_vec();
        serial[0] = serial[0] & 0x7f | 0x40;
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        let authority = authority_params();
        let issuer = Issuer::from_params(&authority, &self.key);
        let signed = params.signed_by(&key, &issuer)?;
        Ok(Signed {
            pem: signed.pem(),
            der: signed.der().to_vec(),
            serial: serial.iter().map(|byte| format!("{byte:02x}")).collect(),
        })
    }

    /// A TLS configuration for this name. Its key is generated now and never stored.
    pub fn server_config(&self, name: &str) -> Result<Arc<rustls::ServerConfig>, AuthorityError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new([name.to_owned()])?;
        never_expires(&mut params);
        let authority = authority_params();
        let issuer = Issuer::from_params(&authority, &self.key);
        let certificate = params.signed_by(&key, &issuer)?;
        let private = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)?;
        Ok(Arc::new(config))
    }
}

fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, NAME);
    never_expires(&mut params);
    params
}

/// A certificate inside a running pod cannot be renewed, and clocks of nodes may be wrong. The holder of the key can revoke it by
/// removing the key.
fn never_expires(params: &mut CertificateParams) {
    params.not_before = rcgen::date_time_ymd(2000, 1, 1);
    params.not_after = rcgen::date_time_ymd(2999, 1, 1);
}

fn store(folder: &Path, name: &str, text: &str) -> io::Result<()> {
    let fresh = folder.join(format!(".{name}.new"));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&fresh)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&fresh, folder.join(name))?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::ServerName;

    use super::*;

    /// Whether a client that trusts `certificate` accepts a server with `config`.
    fn is_trusted(certificate: &str, config: Arc<rustls::ServerConfig>, name: &str) -> bool {
        let mut roots = rustls::RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut client = rustls::ClientConnection::new(Arc::new(client), name).unwrap();
        let mut server = rustls::ServerConnection::new(config).unwrap();
        while client.is_handshaking() || server.is_handshaking() {
            let mut bytes = Vec::new();
            client.write_tls(&mut bytes).unwrap();
            server.read_tls(&mut bytes.as_slice()).unwrap();
            server.process_new_packets().unwrap();
            let mut bytes = Vec::new();
            server.write_tls(&mut bytes).unwrap();
            client.read_tls(&mut bytes.as_slice()).unwrap();
            if client.process_new_packets().is_err() {
                return false;
            }
        }
        true
    }

    #[test]
    fn the_certificate_authority_survives_a_restart() {
        let data = tempfile::tempdir().unwrap();
        let given = Authority::open(data.path()).unwrap().certificate().to_owned();
        let later = Authority::open(data.path()).unwrap();
        assert_eq!(later.certificate(), given);
        assert!(is_trusted(&given, later.server_config("link").unwrap(), "link"));
    }

    #[test]
    fn another_name_and_another_authority_are_not_trusted() {
        let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let ours = Authority::open(ours.path()).unwrap();
        let theirs = Authority::open(theirs.path()).unwrap();
        let config = |authority: &Authority| authority.server_config("link").unwrap();
        assert!(!is_trusted(ours.certificate(), config(&ours), "other"));
        assert!(!is_trusted(ours.certificate(), config(&theirs), "link"));
    }

    #[test]
    fn only_the_server_may_read_its_key() {
        use std::os::unix::fs::PermissionsExt as _;
        let data = tempfile::tempdir().unwrap();
        Authority::open(data.path()).unwrap();
        let mode = fs::metadata(data.path().join(KEY)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
