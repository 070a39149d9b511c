//! Tokens: never broader than the login that made them, renewed by exchange, revoked immediately.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

use crate::client::{Reply, Request};
use crate::stage::{Stage, basic};

async fn call(stage: &Stage, method: &'static str, path: &str, login: &str, body: Value) -> Reply {
    let request = Request::new(method, path)
        .header("authorization", login)
        .json(body);
    request.send(&stage.address).await
}

async fn create(stage: &Stage, login: &str, body: Value) -> (String, String) {
    let reply = call(stage, "POST", "/api/v1/tokens", login, body).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let made = reply.json()["msg"].clone();
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    (text("id"), format!("Token {}", text("token")))
}

#[tokio::test]
async fn a_token_never_exceeds_its_maker() {
    let stage = Stage::new().await;
    let (_, reader) = create(&stage, &basic("me"), json!({"name": "ci", "scopes": "read"})).await;
    let wider = json!({"name": "more", "scopes": "read,submit"});
    let reply = call(&stage, "POST", "/api/v1/tokens", &reader, wider).await;
    assert_eq!(reply.status, 403, "{}", reply.text());
    let (_, same) = create(&stage, &reader, json!({"name": "copy"})).await;
    let jobs = call(&stage, "POST", "/api/v1/jobs", &same, json!({})).await;
    assert_eq!(jobs.status, 403);
    assert_eq!(
        call(&stage, "GET", "/api/v1/jobs", &same, json!({})).await.status,
        200
    );
    let admin = json!({"name": "admin", "scopes": "admin"});
    let reply = call(&stage, "POST", "/api/v1/tokens", &basic("you"), admin).await;
    assert_eq!(reply.status, 403, "an ordinary user");
    let others = json!({"name": "x", "user": "me"});
    let reply = call(&stage, "POST", "/api/v1/tokens", &basic("you"), others).await;
    assert_eq!(reply.status, 403, "of another user");
    for wrong in [
        json!({}),
        json!({"name": "x", "scopes": "root"}),
        json!({"name": "x", "lifetime_seconds": 0}),
    ] {
        let reply = call(&stage, "POST", "/api/v1/tokens", &basic("me"), wrong).await;
        assert_eq!(reply.status, 400, "{}", reply.text());
    }
    stage.finish().await;
}

#[tokio::test]
async fn the_number_of_tokens_per_user_is_limited_and_a_login_ends_the_oldest_login() {
    let stage = Stage::with("tokens: {per_user: 2}\n").await;
    let (id, _) = create(&stage, &basic("you"), json!({"name": "one"})).await;
    create(&stage, &basic("you"), json!({"name": "two"})).await;
    let three = json!({"name": "three"});
    let refused = call(&stage, "POST", "/api/v1/tokens", &basic("you"), three.clone()).await;
    assert_eq!(
        (refused.status, refused.json()["msg"].as_str()),
        (403, Some("`you` already has 2 tokens"))
    );
    let text = stage.app.metrics_text();
    assert!(
        text.contains("paddlecloud_limit_refusals_total{limit=\"tokens\"} 1\n"),
        "{text}"
    );
    create(&stage, &basic("me"), three.clone()).await;
    let mut logins = Vec::new();
    for _ in 0..3 {
        let password = json!({"username": "you", "password": "secret"});
        let reply = Request::new("POST", "/api-token-auth")
            .json(password)
            .send(&stage.address)
            .await;
        logins.push(format!("Token {}", reply.json()["token"].as_str().unwrap()));
    }
    let listed = call(&stage, "GET", "/api/v1/tokens", &basic("you"), json!({}))
        .await
        .json();
    assert_eq!(listed["msg"].as_array().unwrap().len(), 4, "{listed}");
    let mut works = Vec::new();
    for login in &logins {
        works.push(
            call(&stage, "GET", "/api/v1/whoami", login, json!({}))
                .await
                .status,
        );
    }
    works.sort_unstable();
    // Those of one second are equally old.
    assert_eq!(works, [200, 200, 401]);
    let login = json!({"name": "login"});
    assert_eq!(
        call(&stage, "POST", "/api/v1/tokens", &basic("you"), login)
            .await
            .status,
        400
    );
    call(
        &stage,
        "DELETE",
        &format!("/api/v1/tokens/{id}"),
        &basic("you"),
        json!({}),
    )
    .await;
    create(&stage, &basic("you"), three).await;
    stage.finish().await;
}

#[tokio::test]
async fn a_revoked_token_ends_its_streams_within_a_second() {
    let stage = Stage::new().await;
    let (id, login) = create(&stage, &basic("you"), json!({"name": "follow"})).await;
    let follow = Request::new("GET", "/api/v1/jobs/last/logs?follow=true");
    let mut stream = follow.header("authorization", &login).begin(&stage.address).await;
    let path = format!("/api/v1/tokens/{id}");
    let other_user = call(&stage, "DELETE", &path, &basic("me"), json!({})).await;
    assert_eq!(other_user.status, 404, "another user has no such token");
    assert_eq!(
        call(&stage, "DELETE", &path, &basic("you"), json!({}))
            .await
            .status,
        200
    );
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut rest)).await;
    ended.expect("the stream ends").ok();
    assert!(
        !rest.ends_with(b"0\r\n\r\n"),
        "it does not look like the log's end"
    );
    assert_eq!(
        call(&stage, "GET", "/api/v1/whoami", &login, json!({}))
            .await
            .status,
        401
    );
    let again = call(&stage, "DELETE", &path, &basic("you"), json!({})).await;
    assert_eq!(again.status, 404);
    stage.finish().await;
}

#[tokio::test]
async fn an_administrator_makes_and_revokes_tokens_of_a_service() {
    let stage = Stage::new().await;
    let body = json!({"name": "robot", "service": true});
    assert_eq!(stage.post("/api/v1/admin/users", body).await.status, 200);
    let (id, login) = create(&stage, &basic("me"), json!({"name": "nightly", "user": "robot"})).await;
    let who = call(&stage, "GET", "/api/v1/whoami", &login, json!({})).await;
    assert_eq!(who.json()["msg"]["user"], "robot");
    let listed = stage.get("/api/v1/tokens?user=robot").await;
    assert_eq!(listed.json()["msg"][0]["id"], json!(id));
    assert_eq!(listed.json()["msg"][0]["scopes"], "read,submit,files");
    let secret = login.strip_prefix("Token ").unwrap();
    assert!(!listed.text().contains(secret), "a secret is shown once");
    let gone = stage
        .send(Request::new("DELETE", &format!("/api/v1/tokens/{id}?user=robot")))
        .await;
    assert_eq!(gone.status, 200);
    assert_eq!(
        call(&stage, "GET", "/api/v1/whoami", &login, json!({}))
            .await
            .status,
        401
    );
    stage.finish().await;
}

#[tokio::test]
async fn a_token_is_renewed_by_exchange_up_to_the_configured_age() {
    let stage = Stage::with("tokens: {lifetime: 2h, max_age: 2h}\n").await;
    let (_, first) = create(
        &stage,
        &basic("you"),
        json!({"name": "a", "scopes": "read", "lifetime_seconds": 3600}),
    )
    .await;
    let reply = call(&stage, "POST", "/api/v1/tokens/renew", &first, json!({}))
        .await
        .json();
    let second = format!("Token {}", reply["msg"]["token"].as_str().unwrap());
    assert_eq!(
        (reply["msg"]["name"].as_str(), reply["msg"]["scopes"].as_str()),
        (Some("a"), Some("read"))
    );
    assert_eq!(
        call(&stage, "GET", "/api/v1/whoami", &first, json!({}))
            .await
            .status,
        401
    );
    assert_eq!(
        call(&stage, "GET", "/api/v1/whoami", &second, json!({}))
            .await
            .status,
        200
    );
    let basic_has_none = call(&stage, "POST", "/api/v1/tokens/renew", &basic("you"), json!({})).await;
    assert_eq!(basic_has_none.status, 400);
    let long = json!({"name": "long", "lifetime_seconds": 1_000_000});
    let reply = call(&stage, "POST", "/api/v1/tokens", &basic("you"), long)
        .await
        .json();
    let time = |name: &str| {
        reply["msg"][name]
            .as_str()
            .unwrap()
            .parse::<jiff::Timestamp>()
            .unwrap()
    };
    assert_eq!(
        time("expires").duration_since(time("created")).as_secs(),
        7200,
        "no longer than `max_age`"
    );
    stage.finish().await;
}

#[tokio::test]
async fn logout_and_a_new_password_end_tokens() {
    let stage = Stage::new().await;
    let body = json!({"name": "ann", "password": "a long secret"});
    stage.post("/api/v1/admin/users", body).await;
    let log_in = async |password: &str| {
        let body = json!({"username": "ann", "password": password});
        let reply = Request::new("POST", "/api-token-auth")
            .json(body)
            .send(&stage.address)
            .await;
        reply.json()["token"]
            .as_str()
            .map(|token| format!("Token {token}"))
    };
    let (first, second) = (
        log_in("a long secret").await.unwrap(),
        log_in("a long secret").await.unwrap(),
    );
    let whoami = async |login: &str| {
        call(&stage, "GET", "/api/v1/whoami", login, json!({}))
            .await
            .status
    };
    assert_eq!(
        call(&stage, "POST", "/api/v1/logout", &first, json!({}))
            .await
            .status,
        200
    );
    assert_eq!((whoami(&first).await, whoami(&second).await), (401, 200));
    let change = |old: &str| json!({"old": old, "new": "another secret"});
    let wrong = call(&stage, "POST", "/api/v1/password", &second, change("guess")).await;
    assert_eq!(wrong.status, 401);
    let right = call(
        &stage,
        "POST",
        "/api/v1/password",
        &second,
        change("a long secret"),
    )
    .await;
    assert_eq!(right.status, 200, "{}", right.text());
    assert_eq!(whoami(&second).await, 401);
    assert!(log_in("a long secret").await.is_none());
    assert!(log_in("another secret").await.is_some());
    let configured = json!({"old": "secret", "new": "another secret"});
    let refused = call(&stage, "POST", "/api/v1/password", &basic("you"), configured).await;
    assert_eq!(refused.status, 409, "{}", refused.text());
    stage.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_ends_its_own_login_gets_its_reply() {
    let stage = Stage::new().await;
    let me = basic("me");
    let word = |round: u32| format!("a long secret {round}");
    let eve = json!({"name": "eve", "password": word(0), "admin": true});
    let added = call(&stage, "POST", "/api/v1/admin/users", &me, eve).await;
    assert_eq!(added.status, 200, "{}", added.text());
    for round in 0..12 {
        let user = json!({"username": "eve", "password": word(round)});
        let login = call(&stage, "POST", "/api-token-auth", "", user).await;
        let token = format!("Token {}", login.json()["token"].as_str().unwrap());
        let change = match round % 2 {
            0 => json!({"old": word(round), "new": word(round + 1)}),
            _ => json!({"password": word(round + 1)}),
        };
        let (method, path) = match round % 2 {
            0 => ("POST", "/api/v1/password"),
            _ => ("PATCH", "/api/v1/admin/users/eve"),
        };
        let changed = call(&stage, method, path, &token, change).await;
        assert_eq!(changed.status, 200, "round {round}: {}", changed.text());
        let after = call(&stage, "GET", "/api/v1/whoami", &token, json!({})).await;
        assert_eq!(after.status, 401, "round {round}");
    }
    stage.finish().await;
}
