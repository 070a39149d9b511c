//! A server with TLS whose users present certificates, in every shape of the client's configuration.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use e2e::{PASSWORD, Shared, TestEnvironment};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// Signs certificates into a folder.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: PathBuf,
}

impl Authority {
    pub fn new(env: &TestEnvironment, name: &str) -> Authority {
        let folder = env.folder(name);
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key can be made");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("it signs itself");
        fs::write(folder.join("ca.pem"), issuer.pem()).expect("a file in the test's own folder");
        Authority { issuer, folder }
    }

    /// Writes `<name>.pem` and `<name>.key`.
    fn issue(&self, name: &str) {
        let hosts = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(hosts).expect("plain names");
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key can be made");
        let certificate = params.signed_by(&key, &self.issuer).expect("it can be signed");
        let file = |end: &str| self.folder.join(format!("{name}.{end}"));
        fs::write(file("pem"), certificate.pem()).expect("a file in the test's own folder");
        fs::write(file("key"), key.serialize_pem()).expect("a file in the test's own folder");
        fs::set_permissions(file("key"), fs::Permissions::from_mode(0o600)).expect("it is ours");
    }

    pub fn path(&self, file: &str) -> String {
        self.folder.join(file).display().to_string()
    }

    /// The lines of a datacenter's entry that show this user's certificate, indented by two.
    fn shown_by(&self, user: &str) -> String {
        format!(
            "usercert: {}\n  userkey: {}\n  cacert: {}",
            self.path(&format!("{user}.pem")),
            self.path(&format!("{user}.key")),
            self.path("ca.pem"),
        )
    }
}

pub fn start_with_tls(env: &TestEnvironment, authority: &Authority) -> Shared {
    authority.issue("server");
    let settings = format!(
        "tls: {{cert: {}, key: {}, client_ca: {}}}\n",
        authority.path("server.pem"),
        authority.path("server.key"),
        authority.path("ca.pem"),
    );
    Shared::start(env, &settings, "")
}

#[test]
fn a_certificate_is_a_login_in_every_shape_of_the_configuration() {
    let env = TestEnvironment::new();
    let authority = Authority::new(&env, "ours");
    let shared = start_with_tls(&env, &authority);
    authority.issue("ada");
    let entry = format!(
        "endpoint: https://{}\n  {}",
        shared.endpoint,
        authority.shown_by("ada")
    );
    let shapes = [
        format!("datacenters:\n- name: cloud\n  username: ada\n  {entry}\ncurrent-datacenter: cloud\n"),
        format!("datacenters:\n- active: true\n  name: cloud\n  username: ada\n  {entry}\n"),
        format!("cloud:\n  username: ada\n  {entry}\n"),
    ];
    for shape in shapes {
        env.configure(&shape);
        let whoami = env.paddlectl(&["whoami"]).ok();
        assert_eq!(whoami.stderr, "");
        whoami.prints("/pfs/cloud/home/ada");
    }
    env.configure(&format!("cloud:\n  username: bob\n  cacrt: ca.pem\n  {entry}\n"));
    env.paddlectl(&["whoami"])
        .ok()
        .says("an unknown key `cacrt`: did you mean `cacert`?")
        .says("`username` is `bob`, but the certificate in `usercert` is of `ada`")
        .prints("/pfs/cloud/home/ada");
    env.configure(&format!("cloud:\n  username: ada\n  {entry}\n"));
    let package = env.package("job").file("train.sh", "echo over TLS\n");
    env.submit("sealed", &package, &["-entry", "sh train.sh", "-f"]);
    env.paddlectl(&["logs", "--raw", "sealed"])
        .ok()
        .prints("over TLS\n");
    assert!(tokens(env.home()).is_empty(), "a certificate needs no token");
}

fn tokens(home: &Path) -> Vec<PathBuf> {
    let kept = fs::read_dir(home.join(".paddle/tokens"));
    kept.into_iter()
        .flatten()
        .flatten()
        .map(|file| file.path())
        .collect()
}

#[test]
fn a_password_goes_over_tls_too_and_its_token_is_kept() {
    let env = TestEnvironment::new();
    let authority = Authority::new(&env, "ours");
    let shared = start_with_tls(&env, &authority);
    let ca = authority.path("ca.pem");
    env.configure(&format!(
        "cloud:\n  username: ada\n  password: {PASSWORD}\n  endpoint: https://{}\n  cacert: {ca}\n",
        shared.endpoint
    ));
    env.paddlectl(&["whoami"]).ok().prints("/pfs/cloud/home/ada");
    let kept = tokens(env.home());
    assert_eq!(kept.len(), 1, "{kept:?}");
    let mode = fs::metadata(&kept[0]).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "a token is nobody else's");
}

#[test]
fn a_server_that_cannot_be_trusted_is_reported_and_gets_no_password() {
    let env = TestEnvironment::new();
    let authority = Authority::new(&env, "ours");
    let shared = start_with_tls(&env, &authority);
    let other = Authority::new(&env, "theirs");
    env.configure(&format!(
        "cloud:\n  username: ada\n  password: {PASSWORD}\n  endpoint: https://{}\n  cacert: {}\n",
        shared.endpoint,
        other.path("ca.pem"),
    ));
    let ran = env.paddlectl(&["whoami"]).refused(3).says("certificate");
    assert!(!ran.stderr.contains(PASSWORD), "{ran}");

    other.issue("ada");
    let own_ca = format!("cacert: {}", authority.path("ca.pem"));
    let foreign = other
        .shown_by("ada")
        .replace(&format!("cacert: {}", other.path("ca.pem")), &own_ca);
    env.configure(&format!(
        "cloud:\n  username: ada\n  endpoint: https://{}\n  {foreign}\n",
        shared.endpoint
    ));
    let refused = env.paddlectl(&["whoami"]);
    assert!(matches!(refused.code, Some(1 | 3)), "{refused}");
    assert!(refused.stderr.contains("certificate"), "{refused}");
}

#[test]
fn a_script_with_a_token_trusts_the_server_by_its_fingerprint() {
    let mut env = TestEnvironment::new();
    let shared = Shared::start(&env, "tls: {names: [localhost]}\n", "");
    let endpoint = shared.endpoint.replace("127.0.0.1", "localhost");
    let entry = |name: &str, login: &str| format!("{name}:\n  endpoint: https://{endpoint}\n  {login}\n");
    env.set("PADDLECLOUD_PASSWORD", PASSWORD);
    env.configure(&entry("cloud", "username: ada"));
    let refused = env.paddlectl(&["login"]).refused(1);
    let (_, fingerprint) = refused
        .stderr
        .split_once("CA, ")
        .expect("it shows the fingerprint");
    let fingerprint = fingerprint.lines().next().expect("it is on one line");
    let login = ["login", "--fingerprint", fingerprint];
    drop(env.paddlectl(&login).ok());
    let token = env.paddlectl(&["token", "create", "nightly"]).ok().stdout;

    env.set("PADDLECLOUD_PASSWORD", "not needed");
    env.configure(&entry("script", &format!("token: {}", token.trim())));
    let unknown = env.paddlectl(&["whoami"]).refused(3);
    drop(unknown.says("`paddlectl login --fingerprint SHA256:…`"));
    drop(env.paddlectl(&["login"]).refused(1));
    let login = env.paddlectl(&login).ok();
    drop(login.says("logged in to `script` as ada, with the `token` in the configuration"));
    env.paddlectl(&["whoami"]).ok().prints("/pfs/cloud/home/ada");
}
