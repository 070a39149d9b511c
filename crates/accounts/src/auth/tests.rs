//! Logins against a real store.

use std::time::Duration;

use base64::Engine as _;
use jiff::Timestamp;
use paddlecloud_core::access::Scopes;
use paddlecloud_store::{DatabaseUrl, Limits, ProviderUser, Store, TokenRow};

use super::{
    AuthError, Authenticator, Caller, ClientCertificate, OldToken, Peer, RequestedToken, Secret, TokenLimits,
    digest, hash_password,
};
use crate::users::{Account, AccountTable, Credential, SystemUsers, User, Users};

struct Stage {
    folder: tempfile::TempDir,
    store: Store,
}

impl Stage {
    async fn new() -> Stage {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&DatabaseUrl::sqlite_file(&folder.path().join("a.db")))
            .await
            .unwrap();
        Stage { folder, store }
    }

    fn authenticator(&self, password: &str) -> Authenticator {
        let secret = Secret::open(self.folder.path()).unwrap();
        authenticator(&users(password), self.store.clone(), secret)
    }
}

impl Authenticator {
    async fn identify(&self, peer: &Peer, authorization: Option<&[u8]>) -> Result<Caller, AuthError> {
        Ok(self.log_in(peer, authorization).await?.caller)
    }
}

/// An administrator with a hashed password, a user whose password is in a file, and one without a password.
fn users(password: &str) -> Vec<User> {
    let user = |name: &str, credential| User {
        name: name.parse().unwrap(),
        credential,
        admin: name == "me",
        limits: Limits::default(),
        system_user: None,
    };
    let hash = Credential::from_hash(&hash_password(password).unwrap());
    vec![
        user("me", Some(hash.unwrap())),
        user("filed", Some(Credential::Plain("open sesame".to_owned()))),
        user("locked", None),
    ]
}

fn authenticator(users: &[User], store: Store, secret: Secret) -> Authenticator {
    let users = Users::configured(users, &SystemUsers::default());
    Authenticator::new(users, None, store, secret)
}

fn basic(user: &str, password: &str) -> String {
    format!(
        "Basic {}",
        base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"))
    )
}

async fn identify(auth: &Authenticator, header: &str) -> Result<Caller, AuthError> {
    auth.identify(&Peer::default(), Some(header.as_bytes())).await
}

fn me() -> Caller {
    Caller {
        user: "me".parse().unwrap(),
        scopes: Scopes::all(),
    }
}

#[tokio::test]
async fn a_password_logs_in_by_basic_auth_and_costs_one_hash() {
    let stage = Stage::new().await;
    let auth = stage.authenticator("secret");
    for _ in 0..5 {
        assert_eq!(identify(&auth, &basic("me", "secret")).await.unwrap(), me());
    }
    assert_eq!(auth.hashes(), 1);
}

#[tokio::test]
async fn a_wrong_login_is_refused_and_an_unknown_user_costs_the_same() {
    let stage = Stage::new().await;
    let auth = stage.authenticator("secret");
    for (user, password) in [
        ("me", "wrong"),
        ("me", ""),
        ("nobody", "secret"),
        ("locked", ""),
        ("a/b", "x"),
        ("filed", "wrong"),
    ] {
        let refused = identify(&auth, &basic(user, password)).await;
        assert!(matches!(refused, Err(AuthError::WrongPassword)), "{user}");
    }
    assert_eq!(auth.hashes(), 6);
}

#[tokio::test]
async fn a_password_from_a_file_logs_in() {
    let stage = Stage::new().await;
    let auth = stage.authenticator("secret");
    let caller = identify(&auth, &basic("filed", "open sesame")).await.unwrap();
    assert_eq!(caller.scopes, Scopes::user());
    assert!(identify(&auth, &basic("filed", "open sesame ")).await.is_err());
}

#[tokio::test]
async fn a_token_logs_in_by_both_schemes_and_survives_a_restart() {
    let stage = Stage::new().await;
    let users = users("secret");
    let restarted = || {
        authenticator(
            &users,
            stage.store.clone(),
            Secret::open(stage.folder.path()).unwrap(),
        )
    };
    let token = restarted()
        .token_create(&Peer::default(), "me", "secret", Scopes::all())
        .await
        .unwrap();
    assert!(token.starts_with("pct_"), "{token}");
    let auth = restarted();
    for word in ["Token", "Bearer", "Token"] {
        assert_eq!(identify(&auth, &format!("{word} {token}")).await.unwrap(), me());
    }
    assert_eq!(auth.hashes(), 0);
    assert!(matches!(
        identify(&auth, &format!("Token {token}x")).await,
        Err(AuthError::WrongToken)
    ));
}

#[tokio::test]
async fn a_token_ends_with_the_password_it_was_made_with() {
    let stage = Stage::new().await;
    let token = stage
        .authenticator("old")
        .token_create(&Peer::default(), "me", "old", Scopes::all())
        .await
        .unwrap();
    let auth = stage.authenticator("new");
    assert!(matches!(
        identify(&auth, &format!("Token {token}")).await,
        Err(AuthError::WrongToken)
    ));
}

#[tokio::test]
async fn no_token_is_made_for_a_wrong_password_and_none_is_stored_in_plain() {
    let stage = Stage::new().await;
    let auth = stage.authenticator("secret");
    assert!(matches!(
        auth.token_create(&Peer::default(), "me", "wrong", Scopes::all())
            .await,
        Err(AuthError::WrongPassword)
    ));
    let token = auth
        .token_create(&Peer::default(), "me", "secret", Scopes::all())
        .await
        .unwrap();
    stage.store.close().await;
    let bytes = std::fs::read(stage.folder.path().join("a.db")).unwrap();
    let secret = token.as_bytes();
    assert!(!bytes.windows(secret.len()).any(|window| window == secret));
}

/// A certificate of a configured authority.
fn certificate(name: &str) -> ClientCertificate {
    ClientCertificate {
        name: name.to_owned(),
        digest: String::new(),
        configured: true,
    }
}

#[tokio::test]
async fn only_the_users_own_credentials_count() {
    let stage = Stage::new().await;
    let auth = stage.authenticator("secret");
    let root = Peer {
        uid: Some(rustix::process::geteuid().as_raw()),
        ..Peer::default()
    };
    assert!(matches!(
        auth.identify(&root, None).await,
        Err(AuthError::Missing)
    ));
    let unknown_peer = Peer {
        certificate: Some(certificate("stranger")),
        ..Peer::default()
    };
    assert!(matches!(
        auth.identify(&unknown_peer, None).await,
        Err(AuthError::UnknownCertificate(_))
    ));
    let own = Peer {
        certificate: Some(certificate("me")),
        ..Peer::default()
    };
    assert_eq!(auth.identify(&own, None).await.unwrap(), me());
    assert!(matches!(
        auth.identify(&own, Some(b"Token wrong")).await,
        Err(AuthError::WrongToken)
    ));
}

#[tokio::test]
async fn the_socket_identifies_only_the_embedded_user() {
    let stage = Stage::new().await;
    let auth = Authenticator::new(
        Users::configured(&users("secret"), &SystemUsers::default()),
        Some(me().user),
        stage.store.clone(),
        Secret::open(stage.folder.path()).unwrap(),
    );
    let peer = |uid| Peer {
        uid: Some(uid),
        ..Peer::default()
    };
    let own = rustix::process::geteuid().as_raw();
    assert_eq!(auth.identify(&peer(own), None).await.unwrap(), me());
    assert!(matches!(
        auth.identify(&peer(own + 1), None).await,
        Err(AuthError::Missing)
    ));
    assert!(matches!(
        auth.identify(&Peer::default(), None).await,
        Err(AuthError::Missing)
    ));
}

#[tokio::test]
async fn a_password_guesser_waits_even_with_the_right_password_and_others_do_not() {
    let stage = Stage::new().await;
    let auth = stage.authenticator("secret");
    let guesser = Peer {
        address: Some([192, 0, 2, 1].into()),
        ..Peer::default()
    };
    let mut refusals = Vec::new();
    for _ in 0..8 {
        refusals.push(
            auth.token_create(&guesser, "me", "wrong", Scopes::all())
                .await
                .unwrap_err(),
        );
    }
    let waits = refusals
        .iter()
        .map(|error| matches!(error, AuthError::TooManyGuesses(_)));
    assert_eq!(
        waits.collect::<Vec<_>>(),
        [false, false, false, false, false, true, true, true]
    );
    assert_eq!(
        refusals[5].to_string(),
        "too many wrong passwords: try again in 1 second"
    );
    assert!(matches!(
        auth.token_create(&guesser, "me", "secret", Scopes::all()).await,
        Err(AuthError::TooManyGuesses(_))
    ));
    assert!(
        auth.token_create(&Peer::default(), "me", "secret", Scopes::all())
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn a_token_grants_no_more_than_its_scopes_and_its_owner_have() {
    let stage = Stage::new().await;
    let auth = stage.authenticator("secret");
    let scopes_of = async |user: &str, password: &str, scopes: &str| {
        let scopes = scopes.parse().unwrap();
        let token = auth.token_create(&Peer::default(), user, password, scopes).await;
        let caller = identify(&auth, &format!("Token {}", token.unwrap())).await;
        caller.unwrap().scopes.to_string()
    };
    assert_eq!(scopes_of("me", "secret", "read").await, "read");
    assert_eq!(scopes_of("me", "secret", "admin,read").await, "read,admin");
    assert_eq!(scopes_of("filed", "open sesame", "admin,read").await, "read");
    assert_eq!(scopes_of("me", "secret", "").await, "");
}

#[tokio::test]
async fn a_change_of_an_account_takes_effect_at_the_next_request() {
    let stage = Stage::new().await;
    let table = AccountTable::configured(&users("secret"), &SystemUsers::default());
    let table = std::sync::Arc::new(table);
    let users = Users::new(std::sync::Arc::clone(&table));
    let secret = Secret::open(stage.folder.path()).unwrap();
    let auth = Authenticator::new(users.clone(), None, stage.store.clone(), secret);
    let token = auth
        .token_create(&Peer::default(), "me", "secret", Scopes::all())
        .await;
    let logins = [format!("Token {}", token.unwrap()), basic("me", "secret")];
    for login in &logins {
        assert_eq!(identify(&auth, login).await.unwrap(), me());
    }
    let mut account = (*users.find(&me().user).unwrap()).clone();
    account.scopes = Scopes::user();
    table.put(account.clone());
    for login in &logins {
        assert_eq!(identify(&auth, login).await.unwrap().scopes, Scopes::user());
    }
    account.disabled = true;
    table.put(account);
    for login in &logins {
        assert!(identify(&auth, login).await.is_err(), "the account is disabled");
    }
}

#[tokio::test]
async fn a_token_made_with_a_token_does_not_outlive_the_first_login() {
    let stage = Stage::new().await;
    let auth = stage.authenticator("secret").with_token_limits(TokenLimits {
        lifetime: Duration::from_secs(500),
        max_age: Duration::from_secs(1000),
        ..TokenLimits::default()
    });
    let now = Timestamp::now().as_second();
    let account = auth.users().find(&me().user).unwrap();
    let old = TokenRow {
        digest: digest("pct_old"),
        id: "old".into(),
        name: "ci".into(),
        owner: "me".into(),
        credential: auth.fingerprint(&account),
        scopes: Scopes::all().to_string(),
        created: now - 900,
        since: now - 900,
        expires: now + 100,
        ..TokenRow::default()
    };
    let save = stage.store.token_save(old, now, Vec::new(), Default::default());
    save.await.unwrap();
    let login = auth
        .log_in(&Peer::default(), Some(b"Token pct_old"))
        .await
        .unwrap();
    let requested = RequestedToken {
        name: "child".into(),
        scopes: Scopes::all(),
        lifetime: Some(100_000),
        address: None,
    };
    let child = auth
        .token_issue(&account, &login, "token.create", requested)
        .await
        .unwrap();
    assert_eq!(child.row.since, now - 900);
    assert!(child.row.expires <= now + 100, "{:?}", child.row);
    let child = format!("Token {}", child.secret);
    let child = auth
        .log_in(&Peer::default(), Some(child.as_bytes()))
        .await
        .unwrap();
    let renewed = auth
        .token_renew(&child, OldToken::Revoked)
        .await
        .unwrap()
        .unwrap();
    assert!(renewed.row.expires <= now + 100, "{:?}", renewed.row);
}

#[tokio::test]
async fn a_token_is_due_for_renewal_after_half_of_its_life_if_that_extends_it() {
    let stage = Stage::new().await;
    let auth = stage.authenticator("secret").with_token_limits(TokenLimits {
        max_age: Duration::from_secs(1000),
        ..TokenLimits::default()
    });
    let now = Timestamp::now().as_second();
    let account = auth.users().find(&me().user).unwrap();
    for (age, life, chain, is_due) in [
        (10, 200, 0, false),
        (110, 200, 0, true),
        // It expires when the chain of renewals ends.
        (110, 200, 800, false),
    ] {
        let token = format!("pct_{age}_{chain}");
        let row = TokenRow {
            digest: digest(&token),
            id: token.clone(),
            name: "login".into(),
            owner: "me".into(),
            credential: auth.fingerprint(&account),
            scopes: Scopes::all().to_string(),
            created: now - age,
            since: now - age - chain,
            expires: now - age + life,
            ..TokenRow::default()
        };
        let save = stage.store.token_save(row, now, Vec::new(), Default::default());
        save.await.unwrap();
        let old = format!("Token {token}");
        let login = auth.log_in(&Peer::default(), Some(old.as_bytes())).await.unwrap();
        assert_eq!(login.session.is_due_for_renewal(), is_due, "{age} of {life}");
        if is_due {
            let kept = auth.token_renew(&login, OldToken::Kept).await.unwrap().unwrap();
            let new = format!("Token {}", kept.secret);
            for token in [&old, &new] {
                auth.log_in(&Peer::default(), Some(token.as_bytes()))
                    .await
                    .unwrap();
            }
        }
    }
}

/// A logout because of a leaked token also revokes the tokens that it was exchanged for.
#[tokio::test]
async fn an_exchanged_login_ends_soon_and_with_its_chain() {
    let stage = Stage::new().await;
    let auth = stage.authenticator("secret").with_token_limits(TokenLimits {
        per_user: 2,
        ..TokenLimits::default()
    });
    let now = Timestamp::now().as_second();
    let day = 24 * 60 * 60;
    let account = auth.users().find(&me().user).unwrap();
    let row = |token: &str, age| TokenRow {
        digest: digest(token),
        id: token.into(),
        name: "login".into(),
        owner: "me".into(),
        credential: auth.fingerprint(&account),
        scopes: Scopes::all().to_string(),
        created: now - age,
        since: now - age,
        expires: now - age + 30 * day,
        ..TokenRow::default()
    };
    for (token, age) in [("pct_first", 20 * day), ("pct_other", 19 * day)] {
        let row = row(token, age);
        let save = stage.store.token_save(row, now, Vec::new(), Default::default());
        save.await.unwrap();
    }
    let log_in = async |token: &str| {
        let token = format!("Token {token}");
        auth.log_in(&Peer::default(), Some(token.as_bytes())).await
    };
    let first = log_in("pct_first").await.unwrap();
    let second = auth.token_renew(&first, OldToken::Kept).await.unwrap().unwrap();
    let kept = stage.store.token_find(&digest("pct_first")).await.unwrap();
    let kept = kept.expect("neither the exchange nor the limit of two logins ends it");
    assert!((now + day..now + 2 * day).contains(&kept.expires), "{kept:?}");
    assert!(second.row.expires >= now + 30 * day, "{:?}", second.row);
    let second = second.secret;
    assert!(
        auth.token_revoke_own(&log_in(&second).await.unwrap())
            .await
            .unwrap()
    );
    assert!(log_in("pct_first").await.is_err() && log_in(&second).await.is_err());
    assert!(log_in("pct_other").await.is_ok(), "another login");
    let late = auth.token_renew(&first, OldToken::Kept).await;
    assert!(matches!(late, Err(AuthError::WrongToken)), "{late:?}");
}

/// Renewals ask the login provider; making one token with another must not get around that.
#[tokio::test]
async fn a_token_of_a_providers_user_gives_no_token_that_outlives_it() {
    let stage = Stage::new().await;
    let auth = stage.authenticator("secret");
    let now = Timestamp::now().as_second();
    let account = auth.users().find(&me().user).unwrap();
    let own = TokenRow {
        digest: digest("pct_own"),
        id: "own".into(),
        name: "login".into(),
        owner: "me".into(),
        credential: auth.fingerprint(&account),
        scopes: Scopes::all().to_string(),
        created: now,
        since: now,
        expires: now + 100,
        ..TokenRow::default()
    };
    let save = stage.store.token_save(own, now, Vec::new(), Default::default());
    save.await.unwrap();
    let login = auth
        .log_in(&Peer::default(), Some(b"Token pct_own"))
        .await
        .unwrap();
    let bound = Account {
        provider: Some(ProviderUser::new("https://login.example.org", "1001")),
        ..(*account).clone()
    };
    let requested = RequestedToken {
        name: "child".into(),
        scopes: Scopes::all(),
        lifetime: Some(100_000),
        address: None,
    };
    let child = auth
        .token_issue(&bound, &login, "token.create", requested)
        .await
        .unwrap();
    assert!(child.row.expires <= now + 101, "{:?}", child.row);
}

#[tokio::test]
async fn tokens_from_before_the_accounts_have_an_id_and_can_be_revoked() {
    let stage = Stage::new().await;
    let auth = stage.authenticator("secret");
    let now = Timestamp::now().as_second();
    let account = auth.users().find(&me().user).unwrap();
    let old = TokenRow {
        digest: digest("old"),
        owner: "me".into(),
        credential: auth.fingerprint(&account),
        scopes: Scopes::all().to_string(),
        expires: now + 100,
        ..TokenRow::default()
    };
    let save = stage.store.token_save(old, now, Vec::new(), Default::default());
    save.await.unwrap();
    let listed = auth.token_list(&account).await.unwrap();
    let id = listed[0].id.clone();
    assert_eq!(id.len(), 12);
    assert_eq!(identify(&auth, "Token old").await.unwrap(), me());
    assert!(auth.token_revoke(&account, &account.name, &id).await.unwrap());
    assert!(identify(&auth, "Token old").await.is_err());
}
