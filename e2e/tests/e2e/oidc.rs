//! Logins with a real OpenID Connect provider, npm's `oidc-provider`: a person with a browser confirms, the server issues a token.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use e2e::{Background, PASSWORD, Ran, Shared, TestEnvironment, wait_until};

/// The folder of the provider's scripts.
fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("oidc")
}

/// The folder with the installed `oidc-provider`.
fn packages() -> &'static Path {
    static INSTALLED: OnceLock<PathBuf> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let install = Command::new("bash").arg(scripts().join("install.sh")).output();
        let install = install.expect("bash can be run");
        assert!(
            install.status.success(),
            "{}",
            String::from_utf8_lossy(&install.stderr)
        );
        String::from_utf8_lossy(&install.stdout).trim_end().into()
    })
}

/// A running provider; ended when dropped.
pub struct Provider {
    issuer: String,
    /// The file with this client's secret.
    secret: PathBuf,
    _process: Background,
}

impl Provider {
    pub fn start(env: &mut TestEnvironment, algorithm: &str) -> Provider {
        Provider::start_with_secret(env, algorithm, "provider-secret")
    }

    pub fn start_with_secret(env: &mut TestEnvironment, algorithm: &str, secret: &str) -> Provider {
        let packages = packages();
        let file = env.folder("secrets").join("client");
        std::fs::write(&file, format!("{secret}\n")).expect("a file in the test's own folder");
        env.set("OIDC_SECRET_FILE", file.to_str().expect("a plain name"));
        env.set("OIDC_PACKAGES", packages.to_str().expect("a plain name"));
        env.set("OIDC_ALG", algorithm);
        let script = scripts().join("provider.mjs");
        let mut process = env.start_program("node", &[script.to_str().expect("a plain name")]);
        let issuer = process.wait_for_line("http://127.0.0.1:");
        Provider {
            issuer,
            secret: file,
            _process: process,
        }
    }

    /// Lines of the server's configuration.
    pub fn settings(&self, more: &str) -> String {
        format!(
            "oidc:\n  issuer: {}\n  client_id: paddlecloud\n  client_secret_file: {}\n  \
             scopes: [openid, email, groups, offline_access]\n{more}",
            self.issuer,
            self.secret.display()
        )
    }

    /// The secrets that it has issued, by name.
    pub fn issued(&self) -> Vec<(String, String)> {
        let reply = self.control("{}");
        let (_, body) = reply.split_once("\r\n\r\n").expect("a reply has a head");
        let start = body.find('[').expect("the reply is a list");
        let end = body.rfind(']').expect("the reply is a list");
        serde_json::from_str(&body[start..=end]).expect("pairs of texts")
    }

    /// Changes the provider, see `provider.mjs`.
    fn control(&self, change: &str) -> String {
        let address = self
            .issuer
            .strip_prefix("http://")
            .expect("it is on this machine");
        let mut stream = TcpStream::connect(address).expect("the provider listens");
        let head = "POST /control HTTP/1.1\r\nhost: x\r\nconnection: close\r\n";
        write!(stream, "{head}content-length: {}\r\n\r\n{change}", change.len()).expect("it can be asked");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("it replies");
        assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
        reply
    }
}

/// Logs in as somebody in a browser; returns how `paddlectl login` ended and what it printed.
pub fn log_in(env: &TestEnvironment, name: &str, answer: &str) -> (bool, String) {
    let mut login = env.start(&["login"]);
    let shown = login.wait_for_line("open http");
    let words: Vec<&str> = shown.split(' ').collect();
    assert!(
        shown.ends_with(&format!("confirm the code {}", words[words.len() - 1])),
        "{shown}"
    );
    let script = scripts().join("approve.mjs");
    let browser = Command::new("node")
        .arg(script)
        .args([words[1], name, answer])
        .output();
    let browser = browser.expect("node runs");
    assert!(
        browser.status.success(),
        "{}",
        String::from_utf8_lossy(&browser.stderr)
    );
    let (status, lines) = login.end();
    (status.success(), lines.join("\n"))
}

/// A user's configuration that names no user: the provider does.
pub fn configure(env: &TestEnvironment, shared: &Shared) {
    env.configure(&format!(
        "datacenters:\n- name: cloud\n  endpoint: {}\ncurrent-datacenter: cloud\n",
        shared.endpoint
    ));
}

fn refused(ran: Ran) -> String {
    assert_ne!(ran.code, Some(0), "{}", ran.stdout);
    ran.stderr
}

#[test]
#[ignore = "needs oidc-provider"]
fn a_user_logs_in_with_a_provider_until_the_provider_removes_them() {
    let (mut env, admin) = (TestEnvironment::new(), TestEnvironment::new());
    let provider = Provider::start(&mut env, "RS256");
    let more = "  groups_claim: groups\n  create_accounts: true\n";
    let shared = Shared::start(&env, &provider.settings(more), "  admin: true\n");
    shared.configure(&admin, PASSWORD);
    admin
        .paddlectl(&["admin", "group", "set", "vision", "--quota", "cpu=1"])
        .ok();
    configure(&env, &shared);

    let (done, said) = log_in(&env, "ann", "");
    assert!(done, "{said}");
    assert!(said.contains("logged in to `cloud` as ann@example.org"), "{said}");
    env.paddlectl(&["whoami"])
        .ok()
        .prints("/pfs/cloud/home/ann@example.org");
    let account = admin
        .paddlectl(&["admin", "user", "show", "ann@example.org", "-o", "json"])
        .ok()
        .json();
    assert_eq!(account["oidc_subject"], "ann");
    assert_eq!(account["oidc_issuer"], provider.issuer.as_str());
    assert_eq!(
        account["groups"],
        serde_json::json!(["vision"]),
        "`everyone` is no group here"
    );

    provider.control(r#"{"groups": {"ann": []}}"#);
    env.paddlectl(&["token", "renew"]).ok();
    let account = admin
        .paddlectl(&["admin", "user", "show", "ann@example.org", "-o", "json"])
        .ok()
        .json();
    assert_eq!(account["groups"], serde_json::json!([]));

    provider.control(r#"{"down": true}"#);
    let error = refused(env.paddlectl(&["token", "renew"]));
    assert!(error.contains("the login provider cannot be reached"), "{error}");
    env.paddlectl(&["whoami"]).ok();
    provider.control(r#"{"down": false}"#);
    env.paddlectl(&["token", "renew"]).ok();

    provider.control(r#"{"remove": "ann"}"#);
    env.paddlectl(&["whoami"]).ok();
    let error = refused(env.paddlectl(&["token", "renew"]));
    assert!(
        error.contains("the login provider has ended this login"),
        "{error}"
    );
    let error = refused(env.paddlectl(&["whoami"]));
    assert!(error.contains("the token is invalid"), "{error}");

    // Eve claims ann's address, which her provider has not verified.
    let (done, said) = log_in(&env, "eve", "");
    assert!(
        !done && said.contains("has not verified the claim `email`"),
        "{said}"
    );
    let (done, said) = log_in(&env, "bob", "abort");
    assert!(!done && said.contains("denied"), "{said}");
    let log = admin.paddlectl(&["admin", "audit"]).ok().stdout;
    for action in ["login.provider", "login.renew", "login.end", "login.refuse"] {
        assert!(log.contains(action), "{action} in\n{log}");
    }
    admin.paddlectl(&["admin", "audit", "--verify"]).ok();
}

/// The token that `paddlectl login` has saved.
fn saved_token(env: &TestEnvironment) -> String {
    let folder = env.home().join(".paddle/tokens");
    let mut files = std::fs::read_dir(folder).expect("a login saves a token");
    let file = files
        .next()
        .expect("a login saves a token")
        .expect("it can be read");
    std::fs::read_to_string(file.path()).expect("it can be read")
}

#[test]
#[ignore = "needs oidc-provider"]
fn a_login_that_is_used_renews_itself_until_the_provider_ends_it() {
    let (mut env, admin) = (TestEnvironment::new(), TestEnvironment::new());
    let provider = Provider::start(&mut env, "ES256");
    let more = "  create_accounts: true\n  token_lifetime: 30s\n";
    let shared = Shared::start(&env, &provider.settings(more), "  admin: true\n");
    shared.configure(&admin, PASSWORD);
    configure(&env, &shared);
    let (done, said) = log_in(&env, "ann", "");
    assert!(done, "{said}");
    let first = saved_token(&env);
    wait_until("the token is past half of its life", || {
        env.paddlectl(&["whoami"]).ok();
        (saved_token(&env) != first).then_some(())
    });
    env.paddlectl(&["whoami"]).ok();
    let audit = admin.paddlectl(&["admin", "audit"]).ok().stdout;
    assert!(audit.contains("token.renew"), "{audit}");

    provider.control(r#"{"remove": "ann"}"#);
    let error = wait_until("the next renewal asks the provider", || {
        let ran = env.paddlectl(&["whoami"]);
        (ran.code != Some(0)).then_some(ran.stderr)
    });
    assert!(error.contains("the token is invalid"), "{error}");
    assert!(error.contains("paddlectl login"), "{error}");
    let audit = admin.paddlectl(&["admin", "audit"]).ok().stdout;
    assert!(audit.contains("login.end"), "{audit}");
}

#[test]
#[ignore = "needs oidc-provider"]
fn an_account_belongs_to_a_subject_and_never_to_an_address() {
    let (mut env, admin) = (TestEnvironment::new(), TestEnvironment::new());
    let provider = Provider::start(&mut env, "ES256");
    let shared = Shared::start(&env, &provider.settings(""), "  admin: true\n");
    shared.configure(&admin, PASSWORD);
    configure(&env, &shared);
    admin
        .paddlectl(&["admin", "user", "add", "ann@example.org", "--no-password"])
        .ok();
    let (done, said) = log_in(&env, "ann", "");
    assert!(!done && said.contains("has no account here"), "{said}");
    assert!(said.contains("--oidc-subject ann"), "{said}");

    admin
        .paddlectl(&["admin", "user", "set", "ann@example.org", "--oidc-subject", "ann"])
        .ok();
    let taken = refused(admin.paddlectl(&["admin", "user", "add", "other", "--oidc-subject", "ann"]));
    assert!(taken.contains("already has that subject"), "{taken}");
    let (done, said) = log_in(&env, "ann", "");
    assert!(done && said.contains("as ann@example.org"), "{said}");
    env.paddlectl(&["whoami"]).ok();

    // Another person gets the account: the tokens of the first one end.
    admin
        .paddlectl(&["admin", "user", "set", "ann@example.org", "--oidc-subject", "bob"])
        .ok();
    refused(env.paddlectl(&["whoami"]));
    let (done, said) = log_in(&env, "bob", "");
    assert!(done && said.contains("as ann@example.org"), "{said}");
    admin
        .paddlectl(&["admin", "user", "disable", "ann@example.org"])
        .ok();
    let (done, said) = log_in(&env, "bob", "");
    assert!(!done && said.contains("this account is disabled"), "{said}");
}
