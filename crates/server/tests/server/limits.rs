//! Limits of a running server: rates of requests, and what a refusal says.

use std::time::{Duration, Instant};

use paddlecloud_accounts::refusals::Limit;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::{Reply, Request};
use crate::stage::{Stage, basic};

/// Ten requests at once, then one a second.
const STRICT: &str = "limits: {requests_per_user: 1, requests_before_login: 1}\n";

/// Sends the request until it is refused; returns how many passed before, and the refusal.
async fn until_refused(request: &Request, address: &str) -> (u64, Reply) {
    for passed in 0..100 {
        let reply = request.send(address).await;
        if reply.status == 429 {
            return (passed, reply);
        }
    }
    panic!("a hundred requests passed");
}

/// The requests that a bucket of ten allows since this moment, one more for each second.
fn allowed(since: Instant) -> u64 {
    10 + since.elapsed().as_secs() + 1
}

#[tokio::test]
async fn requests_without_a_login_have_a_rate_and_logged_in_users_do_not_notice() {
    let stage = Stage::with(STRICT).await;
    let began = Instant::now();
    assert_eq!(
        stage.get("/api/v1/whoami").await.status,
        200,
        "remembered from now on"
    );
    let (passed, refused) = until_refused(&Request::new("GET", "/openapi.json"), &stage.address).await;
    assert!(passed >= 9 && passed <= allowed(began), "{passed}");
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert_eq!(
        (wait, refused.json()["error"].as_str()),
        (1, Some("too-many-requests"))
    );
    let before_login = [
        ("POST", "/api-token-auth"),
        ("GET", "/metrics"),
        ("GET", "/api/v1/pfs/shared/1"),
        ("GET", "/nothing/there"),
        ("PATCH", "/metrics"),
        ("GET", "/api/v1/jobs"),
    ];
    for probe in ["/healthz", "/readyz"] {
        assert_eq!(
            Request::new("GET", probe).send(&stage.address).await.status,
            200,
            "probes are not counted"
        );
    }
    for (method, path) in before_login {
        let (passed, _) = until_refused(&Request::new(method, path), &stage.address).await;
        assert!(passed <= 1 + began.elapsed().as_secs(), "{path}: {passed}");
        let wrong = Request::new(method, path).header("authorization", "Token wrong");
        let (passed, _) = until_refused(&wrong, &stage.address).await;
        assert!(passed <= 1 + began.elapsed().as_secs(), "{path}: {passed}");
    }
    assert_eq!(stage.get("/api/v1/whoami").await.status, 200);
    let refusals = &stage.app.metrics.refusals;
    assert!(refusals.of(Limit::RequestsBeforeLogin) > 2 * before_login.len() as u64);
    assert_eq!(refusals.of(Limit::RequestsPerUser), 0);
    stage.finish().await;
}

#[tokio::test]
async fn one_users_rate_is_not_anothers() {
    let stage = Stage::with(STRICT).await;
    let as_user = |user| Request::new("GET", "/api/v1/whoami").header("authorization", &basic(user));
    let began = Instant::now();
    assert_eq!(as_user("you").send(&stage.address).await.status, 200);
    let (passed, refused) = until_refused(&as_user("me"), &stage.address).await;
    assert!(passed >= 10 && passed <= allowed(began), "{passed}");
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(as_user("you").send(&stage.address).await.status, 200);
    let text = stage.app.metrics_text();
    assert!(
        text.contains("paddlecloud_limit_refusals_total{limit=\"requests_per_user\"} 1\n"),
        "{text}"
    );
    stage.finish().await;
}

/// As the command line and Python send requests.
#[tokio::test]
async fn the_client_waits_as_long_as_the_server_asks() {
    let stage = Stage::with(STRICT).await;
    let token = json!({"username": "me", "password": "secret"});
    let token = Request::new("POST", "/api-token-auth")
        .json(token)
        .send(&stage.address)
        .await;
    let credentials = paddlecloud_api::client::Credentials {
        login: None,
        token: Some(token.json()["token"].as_str().unwrap().to_owned()),
    };
    let endpoint = format!("http://{}", stage.address).parse().unwrap();
    let client = paddlecloud_api::client::Client::new(endpoint).with_credentials(credentials);
    // Until one is refused: more than the bucket of ten holds, on a slow machine many more. None fails.
    let refusals = &stage.app.metrics.refusals;
    for _ in 0..1000 {
        client.whoami_get().await.unwrap();
        if refusals.of(Limit::RequestsPerUser) > 0 {
            break;
        }
    }
    assert!(refusals.of(Limit::RequestsPerUser) > 0);
    stage.finish().await;
}

#[tokio::test]
async fn sizes_and_wrong_passwords_are_counted() {
    let stage = Stage::new().await;
    let large = Request::new("POST", "/api-token-auth").body(vec![b' '; 20 << 10]);
    assert_eq!(large.send(&stage.address).await.status, 413);
    let mut stream = TcpStream::connect(&stage.address).await.unwrap();
    let head = format!("GET / HTTP/1.1\r\nhost: x\r\na: {}\r\n\r\n", "a".repeat(1 << 20));
    let _ = stream.write_all(head.as_bytes()).await;
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply).await;
    let wrong = json!({"username": "you", "password": "wrong"});
    let wrong = Request::new("POST", "/api-token-auth").json(wrong);
    let (passed, refused) = until_refused(&wrong, &stage.address).await;
    // Five at once; on a slow machine the first pause is over before the next attempt.
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!(passed >= 5 && wait >= 1, "{passed} passed, then {wait} s");
    let refusals = &stage.app.metrics.refusals;
    for limit in [Limit::BodySize, Limit::HeadSize, Limit::WrongPasswords] {
        wait_until_counted(refusals, limit).await;
        assert_eq!(refusals.of(limit), 1, "{limit:?}");
    }
    stage.finish().await;
}

async fn wait_until_counted(refusals: &paddlecloud_accounts::refusals::Refusals, limit: Limit) {
    for _ in 0..3000 {
        if refusals.of(limit) > 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{limit:?} was not counted within a minute");
}

#[tokio::test]
async fn a_head_has_at_most_32_kib() {
    let stage = Stage::new().await;
    let status = async |size: usize| {
        let long = Request::new("GET", "/healthz").header("a", &"a".repeat(size));
        long.send(&stage.address).await.status
    };
    assert_eq!(status(32_000).await, 200);
    assert_eq!(status(33_000).await, 431);
    stage.finish().await;
}

/// The file descriptors of this process and its server, of which an address gets an eighth, at most.
const DESCRIPTORS: u64 = 8192;
/// More than the share of an address.
const FLOOD: usize = 2500;

/// Every server raises its limit to the maximum, so that is what is lowered.
fn limit_descriptors() {
    let most = getrlimit(Resource::Nofile).maximum;
    let most = Some(most.map_or(DESCRIPTORS, |most| most.min(DESCRIPTORS)));
    let limit = Rlimit {
        current: most,
        maximum: most,
    };
    setrlimit(Resource::Nofile, limit).unwrap();
}

/// Opens connections without a login from this machine's address, and opens those again that are closed. Bounded like the files
/// of a process.
async fn flood(address: String) {
    let mut held = std::collections::VecDeque::new();
    // Slower than a busy machine reads a request, so that only what is old is closed.
    let mut turns = tokio::time::interval(Duration::from_millis(2));
    loop {
        turns.tick().await;
        held.extend(TcpStream::connect(&address).await);
        if held.len() > FLOOD {
            held.pop_front();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_without_a_login_keeps_out_nobody_at_its_address() {
    limit_descriptors();
    let stage = Stage::new().await;
    let flooding = tokio::spawn(flood(stage.address.clone()));
    let refusals = &stage.app.metrics.refusals;
    wait_until_counted(refusals, Limit::Connections).await;
    let before = refusals.of(Limit::Connections);
    let login = Request::new("POST", "/api-token-auth").json(json!({"username": "me", "password": "secret"}));
    for round in 0..40 {
        let reply = login.send(&stage.address).await;
        assert_eq!(reply.status, 200, "login {round}");
        let token = format!("Token {}", reply.json()["token"].as_str().unwrap());
        let as_me = Request::new("GET", "/api/v1/whoami").header("authorization", &token);
        assert_eq!(as_me.send(&stage.address).await.status, 200, "token {round}");
    }
    assert!(
        refusals.of(Limit::Connections) > before,
        "the flood went on all the time"
    );
    flooding.abort();
    stage.finish().await;
}
