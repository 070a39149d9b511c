//! Who is authenticated, and the errors for the others.

use paddlecloud_accounts::auth::Peer;
use serde_json::json;

use crate::client::Request;
use crate::stage::{Stage, basic};

#[tokio::test]
async fn every_request_without_a_login_is_refused_with_a_hint() {
    let stage = Stage::new().await;
    let paths = [
        "/api/v1/jobs",
        "/api/v1/whoami",
        "/api/v1/server",
        "/api/v1/quota",
        "/api/v1/registry",
        "/api/v1/logs",
    ];
    for path in paths {
        let reply = Request::new("GET", path).send(&stage.address).await;
        assert_eq!(
            (reply.status, reply.json()["error"].as_str()),
            (401, Some("unauthorized")),
            "{path}"
        );
        assert!(
            reply.json()["hints"][0]
                .as_str()
                .unwrap()
                .contains("/api-token-auth")
        );
        assert!(reply.header("www-authenticate").is_some());
    }
    for header in ["Token nonsense", "Basic !!!", "Basic bWU6d3Jvbmc=", "Magic"] {
        let reply = Request::new("GET", "/api/v1/whoami")
            .header("authorization", header)
            .send(&stage.address)
            .await;
        assert_eq!(reply.status, 401, "{header}");
        assert!(!reply.text().contains("nonsense"), "a secret is not repeated");
    }
    stage.finish().await;
}

#[tokio::test]
async fn a_password_can_be_exchanged_for_a_token() {
    let stage = Stage::new().await;
    let login = |password: &str| {
        let body = json!({"username": "you", "password": password});
        Request::new("POST", "/api-token-auth/").json(body)
    };
    assert_eq!(login("wrong").send(&stage.address).await.status, 401);
    let reply = login("secret").send(&stage.address).await.json();
    let token = reply["token"].as_str().unwrap();
    for header in [format!("Token {token}"), format!("Bearer {token}"), basic("you")] {
        let me = Request::new("GET", "/api/v1/whoami")
            .header("authorization", &header)
            .send(&stage.address)
            .await;
        assert_eq!(
            me.json()["msg"],
            json!({"user": "you", "namespace": "you", "datacenter": "dc1", "home": "/pfs/dc1/home/you", "admin": false})
        );
    }
    stage.finish().await;
}

#[tokio::test]
async fn only_an_administrator_may_stop_the_server_or_see_its_folders() {
    let stage = Stage::new().await;
    let as_you = |method, path| Request::new(method, path).header("authorization", &basic("you"));
    assert_eq!(
        as_you("POST", "/api/v1/server/stop")
            .send(&stage.address)
            .await
            .status,
        403
    );
    assert_eq!(
        as_you("GET", "/api/v1/server").send(&stage.address).await.json()["msg"]["data"],
        ""
    );
    assert_ne!(stage.get("/api/v1/server").await.json()["msg"]["data"], "");
    stage.finish().await;
}

#[tokio::test]
async fn machines_need_no_login() {
    let stage = Stage::new().await;
    for path in ["/healthz", "/readyz", "/metrics", "/openapi.json", "/healthz/"] {
        let reply = Request::new("GET", path).send(&stage.address).await;
        assert_eq!(reply.status, 200, "{path}");
    }
    let metrics = Request::new("GET", "/metrics").send(&stage.address).await.text();
    assert!(
        metrics.contains("paddlecloud_jobs{status=\"Pending\"} 0\n"),
        "{metrics}"
    );
    assert!(
        metrics.contains("paddlecloud_http_requests_total{code=\"2xx\"} 5\n"),
        "{metrics}"
    );
    stage.finish().await;
}

#[tokio::test]
async fn metrics_need_a_login_if_the_configuration_says_so() {
    let stage = Stage::with("metrics_login: true\n").await;
    let get = |login: Option<String>| {
        let request = Request::new("GET", "/metrics");
        let request = match login {
            Some(login) => request.header("authorization", &login),
            None => request,
        };
        let address = &stage.address;
        async move { request.send(address).await }
    };
    assert_eq!(get(None).await.status, 401);
    assert_eq!(get(Some("Bearer wrong".to_owned())).await.status, 401);
    let metrics = get(Some(basic("you"))).await;
    assert_eq!(metrics.status, 200);
    assert!(metrics.text().contains("paddlecloud_jobs"), "{}", metrics.text());
    for (scopes, expected) in [("read", 200), ("files", 403)] {
        let scopes = scopes.parse().unwrap();
        let token = stage
            .app
            .auth
            .token_create(&Peer::default(), "you", "secret", scopes)
            .await
            .unwrap();
        // As Prometheus sends it.
        assert_eq!(
            get(Some(format!("Bearer {token}"))).await.status,
            expected,
            "{scopes:?}"
        );
    }
    assert_eq!(stage.get("/healthz").await.status, 200);
    stage.finish().await;
}

#[tokio::test]
async fn guessing_passwords_is_delayed_for_the_guesser_only() {
    let stage = Stage::new().await;
    let login = |user: &str, password: &str| {
        let body = json!({"username": user, "password": password});
        Request::new("POST", "/api-token-auth").json(body)
    };
    for _ in 0..5 {
        assert_eq!(login("you", "wrong").send(&stage.address).await.status, 401);
    }
    let reply = login("you", "wrong").send(&stage.address).await;
    assert_eq!(
        (reply.status, reply.json()["error"].as_str()),
        (429, Some("too-many-requests"))
    );
    assert!(reply.text().contains("try again in"), "{}", reply.text());
    assert_eq!(
        login("me", "secret").send(&stage.address).await.status,
        200,
        "another user"
    );
    stage.finish().await;
}

#[tokio::test]
async fn behind_a_trusted_proxy_every_client_has_its_own_delay() {
    let stage = Stage::with("trusted_proxies: [127.0.0.1]\n").await;
    let login = |client: &str, password: &str| {
        let body = json!({"username": "you", "password": password});
        let request = Request::new("POST", "/api-token-auth").json(body);
        // The first address is the client's own word.
        request.header("x-forwarded-for", &format!("198.51.100.1, {client}"))
    };
    for _ in 0..5 {
        let reply = login("192.0.2.1", "wrong").send(&stage.address).await;
        assert_eq!(reply.status, 401);
    }
    let reply = login("192.0.2.1", "secret").send(&stage.address).await;
    assert_eq!(reply.status, 429, "{}", reply.text());
    let reply = login("192.0.2.2", "secret").send(&stage.address).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let log = stage.get("/api/v1/admin/audit").await.text();
    assert!(
        log.contains("from 192.0.2.1") && log.contains("from 192.0.2.2"),
        "{log}"
    );
    assert!(
        !log.contains("198.51.100.1") && !log.contains("127.0.0.1"),
        "{log}"
    );
    stage.finish().await;
}

#[tokio::test]
async fn forwarded_headers_of_untrusted_peers_are_ignored() {
    let stage = Stage::with("trusted_proxies: [192.0.2.0/24]\n").await;
    for last in 0..5 {
        let body = json!({"username": "you", "password": "wrong"});
        let request = Request::new("POST", "/api-token-auth").json(body);
        let request = request.header("x-forwarded-for", &format!("198.51.100.{last}"));
        assert_eq!(request.send(&stage.address).await.status, 401);
    }
    let body = json!({"username": "you", "password": "wrong"});
    let request = Request::new("POST", "/api-token-auth").json(body);
    let request = request.header("x-forwarded-for", "198.51.100.9");
    assert_eq!(request.send(&stage.address).await.status, 429);
    stage.finish().await;
}
