//! Logins against a real store.

use std::path::Path;

use base64::Engine as _;

use super::{AuthError, Authenticator, Caller, Peer, Secret, hash_password};
use crate::config::{Config, DatabaseUrl};
use crate::store::Store;

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

    fn config(&self, password: &str) -> Config {
        let hash = hash_password(password).unwrap();
        std::fs::write(self.folder.path().join("word"), "open sesame\n").unwrap();
        let text = format!(
            "data: .\ndatacenter: dc\nusers:\n\
             - {{name: me, password_hash: '{hash}', admin: true, system_user: a}}\n\
             - {{name: filed, password_file: word, system_user: b}}\n\
             - {{name: locked, system_user: c}}\n"
        );
        Config::parse(&text, &self.folder.path().join("server.yaml")).unwrap()
    }

    fn authenticator(&self, password: &str) -> Authenticator {
        let secret = Secret::open(self.folder.path()).unwrap();
        Authenticator::new(&self.config(password), self.store.clone(), secret)
    }
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
        admin: true,
    }
}

#[tokio::test]
async fn a_password_opens_by_basic_and_costs_one_hash() {
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
    ] {
        let refused = identify(&auth, &basic(user, password)).await;
        assert!(matches!(refused, Err(AuthError::WrongPassword)), "{user}");
    }
    assert_eq!(auth.hashes(), 5);
}

#[tokio::test]
async fn a_password_from_a_file_opens_too() {
    let stage = Stage::new().await;
    let auth = stage.authenticator("secret");
    let caller = identify(&auth, &basic("filed", "open sesame")).await.unwrap();
    assert!(!caller.admin);
    assert!(identify(&auth, &basic("filed", "open sesame ")).await.is_err());
}

#[tokio::test]
async fn a_token_opens_by_both_words_and_outlives_the_server() {
    let stage = Stage::new().await;
    let config = stage.config("secret");
    let restarted = || {
        Authenticator::new(
            &config,
            stage.store.clone(),
            Secret::open(stage.folder.path()).unwrap(),
        )
    };
    let token = restarted()
        .token_create(&Peer::default(), "me", "secret")
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
        .token_create(&Peer::default(), "me", "old")
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
        auth.token_create(&Peer::default(), "me", "wrong").await,
        Err(AuthError::WrongPassword)
    ));
    let token = auth.token_create(&Peer::default(), "me", "secret").await.unwrap();
    stage.store.close().await;
    let bytes = std::fs::read(stage.folder.path().join("a.db")).unwrap();
    let secret = token.as_bytes();
    assert!(!bytes.windows(secret.len()).any(|window| window == secret));
}

#[tokio::test]
async fn nothing_but_the_users_own_proof_counts() {
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
    let stranger = Peer {
        certificate: Some("stranger".into()),
        ..Peer::default()
    };
    assert!(matches!(
        auth.identify(&stranger, None).await,
        Err(AuthError::UnknownCertificate(_))
    ));
    let own = Peer {
        certificate: Some("me".into()),
        ..Peer::default()
    };
    assert_eq!(auth.identify(&own, None).await.unwrap(), me());
    assert!(matches!(
        auth.identify(&own, Some(b"Token wrong")).await,
        Err(AuthError::WrongToken)
    ));
}

#[tokio::test]
async fn the_embedded_user_is_known_by_the_socket_and_nobody_else_is() {
    let stage = Stage::new().await;
    let config = crate::config::embedded(Path::new("/nowhere"));
    let auth = Authenticator::new(
        &config,
        stage.store.clone(),
        Secret::open(stage.folder.path()).unwrap(),
    );
    let peer = |uid| Peer {
        uid: Some(uid),
        ..Peer::default()
    };
    let own = rustix::process::geteuid().as_raw();
    assert_eq!(
        Some(auth.identify(&peer(own), None).await.unwrap().user),
        config.socket_user
    );
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
async fn who_guesses_has_to_wait_also_with_the_right_password_and_others_do_not() {
    let stage = Stage::new().await;
    let auth = stage.authenticator("secret");
    let guesser = Peer {
        address: Some([192, 0, 2, 1].into()),
        ..Peer::default()
    };
    let mut refusals = Vec::new();
    for _ in 0..8 {
        refusals.push(auth.token_create(&guesser, "me", "wrong").await.unwrap_err());
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
        "too many wrong passwords: the next try is possible in 1 second"
    );
    assert!(matches!(
        auth.token_create(&guesser, "me", "secret").await,
        Err(AuthError::TooManyGuesses(_))
    ));
    assert!(auth.token_create(&Peer::default(), "me", "secret").await.is_ok());
}
