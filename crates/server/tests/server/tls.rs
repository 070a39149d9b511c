//! TLS, and certificates as logins.

use std::path::Path;
use std::sync::Arc;

use paddlecloud_accounts::auth::Caller;
use paddlecloud_api::admin::{CertificateIssued, CertificateRequest, UserRequest};
use paddlecloud_api::error::ErrorBody;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::client::{Reply, Request};
use crate::stage::{Stage, basic};

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Writes `<name>.pem` and `<name>.key`.
    fn issue(&self, folder: &Path, name: &str, common_name: &str) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, common_name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        std::fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

/// Asks `whoami` over TLS, with a certificate of this name if there is one.
async fn whoami(stage: &Stage, certificate: Option<&str>, login: Option<&str>) -> Reply {
    let folder = stage.folder.path();
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(folder.join("ca.pem")).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = builder.with_root_certificates(roots);
    let config = match certificate {
        None => builder.with_no_client_auth(),
        Some(name) => {
            let chain = vec![CertificateDer::from_pem_file(folder.join(format!("{name}.pem"))).unwrap()];
            let key = PrivateKeyDer::from_pem_file(folder.join(format!("{name}.key"))).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    let stream = TcpStream::connect(&stage.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .unwrap();
    let request = Request::new("GET", "/api/v1/whoami");
    let request = match login {
        Some(user) => request.header("authorization", &basic(user)),
        None => request,
    };
    request.exchange(stream).await
}

#[tokio::test]
async fn a_certificate_of_our_authority_is_a_login() {
    let folder = tempfile::tempdir().unwrap();
    let ours = Authority::new("ours");
    std::fs::write(folder.path().join("word"), "secret\n").unwrap();
    std::fs::write(folder.path().join("ca.pem"), ours.0.pem()).unwrap();
    ours.issue(folder.path(), "server", "server");
    ours.issue(folder.path(), "you", "you");
    ours.issue(folder.path(), "stranger", "stranger");
    let stage = Stage::on(
        folder,
        "tls: {cert: server.pem, key: server.key, client_ca: ca.pem}\n",
    )
    .await;
    assert_eq!(
        whoami(&stage, Some("you"), None).await.json()["msg"]["user"],
        "you"
    );
    assert_eq!(
        whoami(&stage, Some("you"), Some("me")).await.json()["msg"]["user"],
        "me"
    );
    assert_eq!(whoami(&stage, None, Some("me")).await.json()["msg"]["user"], "me");
    assert_eq!(whoami(&stage, None, None).await.status, 401);
    let stranger = whoami(&stage, Some("stranger"), None).await;
    assert_eq!(stranger.status, 401);
    assert!(
        stranger.json()["msg"].as_str().unwrap().contains("`stranger`"),
        "{}",
        stranger.text()
    );
    stage.finish().await;
}

/// The common name of the certificate that the server shows.
async fn shown(stage: &Stage) -> String {
    let folder = stage.folder.path();
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(folder.join("ca.pem")).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(&stage.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .unwrap();
    let certificates = stream.get_ref().1.peer_certificates().unwrap();
    let shown = paddlecloud_accounts::auth::ClientCertificate::read(&certificates[0], true);
    shown.unwrap().name
}

async fn wait_until_shown(stage: &Stage, name: &str) {
    for _ in 0..1200 {
        if shown(stage).await == name {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("the certificate of {name} is not shown");
}

#[tokio::test]
async fn a_replaced_certificate_is_used_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let ours = Authority::new("ours");
    std::fs::write(folder.path().join("word"), "secret\n").unwrap();
    std::fs::write(folder.path().join("ca.pem"), ours.0.pem()).unwrap();
    ours.issue(folder.path(), "server", "first");
    let stage = Stage::on(folder, "tls: {cert: server.pem, key: server.key}\n").await;
    assert_eq!(shown(&stage).await, "first");
    ours.issue(stage.folder.path(), "server", "second");
    wait_until_shown(&stage, "second").await;
    stage.finish().await;
}

#[tokio::test]
async fn plain_http_beyond_this_machine_needs_a_setting() {
    let start = async |lines: &str| {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("word"), "secret\n").unwrap();
        let config = crate::stage::config(folder.path(), lines);
        let stop = tokio_util::sync::CancellationToken::new();
        let server =
            paddlecloud_server::start::Server::start(config, paddlecloud_supervisor::probe(), stop).await;
        server.map(|_| ()).map_err(|error| error.to_string())
    };
    let refused = start("listen: 0.0.0.0:0\n").await.unwrap_err();
    assert!(refused.contains("plain text"), "{refused}");
    start("listen: 0.0.0.0:0\nplain_http: true\n").await.unwrap();
}

#[tokio::test]
async fn the_servers_own_authority_is_recognised_by_its_fingerprint() {
    use paddlecloud_api::client::{Endpoint, TlsOptions, trust};
    let stage = Stage::with("tls: {names: [localhost]}\n").await;
    let port = stage.address.rsplit(':').next().unwrap();
    let endpoint: Endpoint = format!("https://localhost:{port}").parse().unwrap();
    let strangers = TlsOptions {
        authorities: Some(stage.folder.path().join("other.pem")),
        ..TlsOptions::default()
    };
    std::fs::write(
        stage.folder.path().join("other.pem"),
        Authority::new("other").0.pem(),
    )
    .unwrap();
    assert_eq!(trust::is_trusted(&endpoint, &strangers).await, Ok(false));
    let shown = trust::shown_authority(&endpoint).await.unwrap();
    let data = stage.folder.path().join("data");
    let own = paddlecloud_accounts::authority::Authority::open(&data).unwrap();
    assert!(shown.has_fingerprint(&own.fingerprint().unwrap()));
    std::fs::write(stage.folder.path().join("kept.pem"), shown.pem()).unwrap();
    let kept = TlsOptions {
        authorities: Some(stage.folder.path().join("kept.pem")),
        ..TlsOptions::default()
    };
    assert_eq!(trust::is_trusted(&endpoint, &kept).await, Ok(true));
    stage.finish().await;
}

/// What `paddlectl cert request` does: the key stays, the request is signed for the user.
async fn issue(stage: &Stage, user: &str) -> CertificateIssued {
    let key = KeyPair::generate().unwrap();
    let request = CertificateParams::default().serialize_request(&key).unwrap();
    let request = CertificateRequest {
        user: user.to_owned(),
        request: request.pem().unwrap(),
        lifetime_seconds: None,
    };
    let issued = stage.app.certificate_issue(&admin(), request).await.unwrap();
    let folder = stage.folder.path();
    std::fs::write(folder.join(format!("{user}.pem")), &issued.certificate).unwrap();
    std::fs::write(folder.join(format!("{user}.key")), key.serialize_pem()).unwrap();
    issued
}

fn admin() -> Caller {
    Caller {
        user: "me".parse().unwrap(),
        scopes: paddlecloud_core::access::Scopes::all(),
    }
}

async fn add(stage: &Stage, name: &str) {
    let request = UserRequest {
        name: Some(name.to_owned()),
        ..UserRequest::default()
    };
    stage.app.user_add(&admin(), request).await.unwrap();
}

#[tokio::test]
async fn a_certificate_of_the_servers_own_authority_is_a_login_until_it_is_revoked() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("word"), "secret\n").unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    paddlecloud_accounts::authority::Authority::open(&data).unwrap();
    // Even if the configuration names it: its certificates count only as long as they are listed.
    std::fs::copy(data.join("ca.crt"), folder.path().join("ca.pem")).unwrap();
    let lines = "tls: {names: [localhost], client_ca: ca.pem}\nsystem_uids: 30000-39999\n";
    let stage = Stage::on(folder, lines).await;
    add(&stage, "ann").await;
    let first = issue(&stage, "ann").await;
    let me = whoami(&stage, Some("ann"), None).await;
    assert_eq!(me.json()["msg"]["user"], "ann", "{}", me.text());
    let listed = stage.app.certificate_list().await;
    assert_eq!(listed, std::slice::from_ref(&first.view));
    stage
        .app
        .certificate_revoke(&admin(), &first.view.id)
        .await
        .unwrap();
    let revoked = whoami(&stage, Some("ann"), None).await;
    assert_eq!(revoked.status, 401, "{}", revoked.text());
    let gone = stage.app.certificate_revoke(&admin(), &first.view.id).await;
    assert_eq!(ErrorBody::from(gone.unwrap_err()).code, 404);
    stage.finish().await;
}

#[tokio::test]
async fn a_reused_name_inherits_no_certificate() {
    let stage = with_own_authority(Stage::with(
        "tls: {names: [localhost]}\nsystem_uids: 30000-39999\n",
    ))
    .await;
    add(&stage, "ann").await;
    issue(&stage, "ann").await;
    assert_eq!(whoami(&stage, Some("ann"), None).await.status, 200);
    let keep = paddlecloud_api::admin::Dispose::Keep;
    stage.app.user_delete(&admin(), "ann", keep, None).await.unwrap();
    assert_eq!(whoami(&stage, Some("ann"), None).await.status, 401);
    add(&stage, "ann").await;
    assert_eq!(whoami(&stage, Some("ann"), None).await.status, 401);
    issue(&stage, "ann").await;
    assert_eq!(whoami(&stage, Some("ann"), None).await.status, 200);
    stage.finish().await;
}

/// `whoami` trusts `ca.pem`.
async fn with_own_authority(stage: impl Future<Output = Stage>) -> Stage {
    let stage = stage.await;
    let data = stage.folder.path().join("data");
    std::fs::copy(data.join("ca.crt"), stage.folder.path().join("ca.pem")).unwrap();
    stage
}

#[tokio::test]
async fn invalid_certificate_requests_are_refused() {
    let stage = with_own_authority(Stage::with(
        "tls: {names: [localhost]}\nsystem_uids: 30000-39999\n",
    ))
    .await;
    add(&stage, "ann").await;
    let refused = async |user: &str, text: &str| {
        let request = CertificateRequest {
            user: user.to_owned(),
            request: text.to_owned(),
            lifetime_seconds: None,
        };
        let issued = stage.app.certificate_issue(&admin(), request).await;
        ErrorBody::from(issued.unwrap_err()).code
    };
    let key = KeyPair::generate().unwrap();
    let request = CertificateParams::default().serialize_request(&key).unwrap();
    let request = request.pem().unwrap();
    assert_eq!(refused("ann", "hello").await, 400);
    assert_eq!(refused("nobody", &request).await, 404);
    assert_eq!(refused("you", &request).await, 409, "a user of the configuration");
    stage.finish().await;
}
