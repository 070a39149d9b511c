//! Unix sockets with paths of any length, and TLS with certificates on both sides.

use std::sync::Arc;

use paddlecloud_api::client::{Client, ClientError, Endpoint, TlsOptions};
use rustls::pki_types::PrivateKeyDer;

use crate::scripted::{Log, Reply, connection, json};

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_socket_is_reached_however_long_its_path_is() {
    let home = tempfile::tempdir().unwrap();
    let deep = home.path().join("d".repeat(90)).join("e".repeat(90));
    std::fs::create_dir_all(&deep).unwrap();
    // Bound through a short name: the kernel would not take the long one.
    let short = tempfile::tempdir().unwrap();
    let link = short.path().join("l");
    std::os::unix::fs::symlink(&deep, &link).unwrap();
    let listener = tokio::net::UnixListener::bind(link.join("s.sock")).unwrap();
    tokio::spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        connection(
            socket,
            Arc::new(|_, _: &_| Reply::Keep(json(200, "{}"))),
            Log::default(),
        )
        .await;
    });
    Client::new(Endpoint::unix(deep.join("s.sock")))
        .ping()
        .await
        .unwrap();
}

#[tokio::test]
async fn a_missing_socket_is_unreachable() {
    let error = Client::new(Endpoint::unix("/nonexistent/s.sock"))
        .ping()
        .await
        .unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
}

/// An authority, and files with a certificate it signed for a client.
struct Authority {
    folder: tempfile::TempDir,
    issuer: rcgen::CertifiedIssuer<'static, rcgen::KeyPair>,
}

impl Authority {
    fn new() -> Authority {
        let mut params = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        let issuer = rcgen::CertifiedIssuer::self_signed(params, key).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Authority { folder, issuer }
    }

    fn sign(&self, name: &str) -> (rcgen::Certificate, rcgen::KeyPair) {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    fn server(&self) -> Arc<rustls::ServerConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let clients =
            rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
                .build()
                .unwrap();
        let (certificate, key) = self.sign("localhost");
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients)
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        Arc::new(config)
    }

    fn client_options(&self) -> TlsOptions {
        let (certificate, key) = self.sign("user");
        let (cert_file, key_file) = (
            self.folder.path().join("user.pem"),
            self.folder.path().join("key.pem"),
        );
        std::fs::write(&cert_file, certificate.pem()).unwrap();
        std::fs::write(&key_file, key.serialize_pem()).unwrap();
        TlsOptions {
            identity: Some((cert_file, key_file)),
            authorities: Some(self.folder.path().join("ca.pem")),
        }
    }
}

async fn serve_tls(config: Arc<rustls::ServerConfig>) -> Endpoint {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            if let Ok(stream) = tokio_rustls::TlsAcceptor::from(config.clone())
                .accept(socket)
                .await
            {
                let script = Arc::new(|_, _: &_| Reply::Keep(json(200, "{}")));
                connection(stream, script, Log::default()).await;
            }
        }
    });
    format!("https://localhost:{port}").parse().unwrap()
}

#[tokio::test]
async fn mutual_tls_works_with_the_files_of_the_configuration() {
    let authority = Authority::new();
    let endpoint = serve_tls(authority.server()).await;
    let options = authority.client_options();
    Client::new(endpoint.clone())
        .with_tls(options.clone())
        .ping()
        .await
        .unwrap();
    let stranger = TlsOptions {
        identity: None,
        ..options
    };
    let error = Client::new(endpoint).with_tls(stranger).ping().await.unwrap_err();
    assert!(error.to_string().contains("TLS failed"), "{error}");
}

#[tokio::test]
async fn a_server_of_an_unknown_authority_is_not_trusted() {
    let endpoint = serve_tls(Authority::new().server()).await;
    let other = Authority::new();
    let error = Client::new(endpoint)
        .with_tls(other.client_options())
        .ping()
        .await
        .unwrap_err();
    assert!(error.to_string().contains("TLS failed"), "{error}");
}

#[tokio::test]
async fn unusable_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    let options = TlsOptions {
        identity: None,
        authorities: Some(empty.clone()),
    };
    let endpoint = serve_tls(Authority::new().server()).await;
    let error = Client::new(endpoint).with_tls(options).ping().await.unwrap_err();
    let expected = format!(
        "cannot read the authorities `{}`: it contains no PEM certificate",
        empty.display()
    );
    assert_eq!(error.to_string(), expected);
}
