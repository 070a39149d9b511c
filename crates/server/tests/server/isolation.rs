//! Every method of every route the router really has, called with every kind of credential; and what one user learns
//! about another user's jobs and files: nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{Reply, Request};
use crate::stage::{Stage, basic};

/// What a login needs for a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// No login: for machines, for people who log in, or the route carries its own secret.
    Nothing,
    Login,
    Read,
    Submit,
    Files,
    Admin,
}

use Needs::{Admin, Files, Login, Nothing, Read, Submit};

const METHODS: [&str; 5] = ["GET", "POST", "PUT", "DELETE", "PATCH"];

/// Every route. One that is missing here fails the test.
const ROUTES: &[(&str, &str, Needs)] = &[
    ("POST", "/api-token-auth", Nothing),
    ("POST", "/api/v1/login/device", Nothing),
    ("POST", "/api/v1/login/device/token", Nothing),
    ("GET", "/healthz", Nothing),
    ("GET", "/readyz", Nothing),
    ("GET", "/metrics", Nothing),
    ("GET", "/openapi.json", Nothing),
    ("GET", "/api/v1/pfs/shared/{token}", Nothing),
    ("GET", "/api/v1/whoami", Login),
    ("GET", "/api/v1/server", Login),
    ("POST", "/api/v1/logout", Login),
    ("POST", "/api/v1/password", Login),
    ("GET", "/api/v1/tokens", Login),
    ("POST", "/api/v1/tokens", Login),
    ("DELETE", "/api/v1/tokens/{id}", Login),
    ("POST", "/api/v1/tokens/renew", Login),
    ("GET", "/api/v1/jobs", Read),
    ("POST", "/api/v1/jobs", Submit),
    ("DELETE", "/api/v1/jobs", Submit),
    ("GET", "/api/v1/jobs/{job}", Read),
    ("DELETE", "/api/v1/jobs/{job}", Submit),
    ("GET", "/api/v1/jobs/{job}/why", Read),
    ("GET", "/api/v1/jobs/{job}/wait", Read),
    ("GET", "/api/v1/jobs/{job}/logs", Read),
    ("POST", "/api/v1/jobs/{job}/rerun", Submit),
    ("POST", "/api/v1/prune", Submit),
    ("GET", "/api/v1/logs", Read),
    ("GET", "/api/v1/workers", Read),
    ("GET", "/api/v1/quota", Read),
    ("GET", "/api/v1/registry", Read),
    ("POST", "/api/v1/registry", Submit),
    ("DELETE", "/api/v1/registry", Submit),
    ("GET", "/api/v1/secrets", Read),
    ("PUT", "/api/v1/secrets/{name}", Submit),
    ("DELETE", "/api/v1/secrets/{name}", Submit),
    ("POST", "/api/v1/admin/secrets/rotate", Admin),
    ("POST", "/api/v1/packages", Submit),
    ("POST", "/api/v1/server/stop", Admin),
    ("GET", "/api/v1/admin/users", Admin),
    ("POST", "/api/v1/admin/users", Admin),
    ("GET", "/api/v1/admin/users/{name}", Admin),
    ("PATCH", "/api/v1/admin/users/{name}", Admin),
    ("DELETE", "/api/v1/admin/users/{name}", Admin),
    ("GET", "/api/v1/admin/certificates", Admin),
    ("POST", "/api/v1/admin/certificates", Admin),
    ("DELETE", "/api/v1/admin/certificates/{id}", Admin),
    ("GET", "/api/v1/admin/groups", Admin),
    ("PUT", "/api/v1/admin/groups/{name}", Admin),
    ("DELETE", "/api/v1/admin/groups/{name}", Admin),
    ("GET", "/api/v1/admin/usage", Admin),
    ("GET", "/api/v1/admin/audit", Admin),
    ("GET", "/api/v1/admin/audit/verify", Admin),
    ("GET", "/api/v1/pfs/content", Files),
    ("POST", "/api/v1/pfs/copy", Files),
    ("POST", "/api/v1/pfs/fsck", Admin),
    ("GET", "/api/v1/pfs/glob", Files),
    ("GET", "/api/v1/pfs/list", Files),
    ("POST", "/api/v1/pfs/mkdir", Files),
    ("POST", "/api/v1/pfs/pack", Files),
    ("PUT", "/api/v1/pfs/pack", Files),
    ("GET", "/api/v1/pfs/quota", Files),
    ("POST", "/api/v1/pfs/remove", Files),
    ("POST", "/api/v1/pfs/rename", Files),
    ("GET", "/api/v1/pfs/shares", Files),
    ("POST", "/api/v1/pfs/shares", Files),
    ("DELETE", "/api/v1/pfs/shares/{id}", Files),
    ("GET", "/api/v1/pfs/signature", Files),
    ("GET", "/api/v1/pfs/stat", Files),
    ("POST", "/api/v1/pfs/stats", Files),
    ("GET", "/api/v1/pfs/uploads", Files),
    ("POST", "/api/v1/pfs/uploads", Files),
    ("GET", "/api/v1/pfs/uploads/{id}", Files),
    ("DELETE", "/api/v1/pfs/uploads/{id}", Files),
    ("PUT", "/api/v1/pfs/uploads/{id}/chunks/{index}", Files),
    ("POST", "/api/v1/pfs/uploads/{id}/commit", Files),
    ("PUT", "/api/v1/pfs/uploads/{id}/ranges", Files),
    ("POST", "/api/v1/pfs/uploads/{id}/reuse", Files),
    ("GET", "/api/v1/pfs/usage", Files),
    // Names of the documents, which `openapi.json` does not list.
    ("POST", "/v1/submit", Submit),
    ("POST", "/v2/submit", Submit),
    ("GET", "/api/v2/jobs", Read),
    ("POST", "/api/v2/jobs", Submit),
    ("DELETE", "/api/v2/jobs", Submit),
    ("GET", "/api/v2/jobs/{job}", Read),
    ("DELETE", "/api/v2/jobs/{job}", Submit),
    ("GET", "/api/v1/pfs/files", Files),
    ("POST", "/api/v1/pfs/files", Files),
    ("DELETE", "/api/v1/pfs/files", Files),
    ("GET", "/api/v1/pfs/chunks", Files),
    ("GET", "/api/v1/pfs/storage/chunks", Files),
    ("POST", "/api/v1/pfs/storage/chunks", Files),
];

/// The paths of the router itself, as it prints them.
fn paths(stage: &Stage) -> BTreeSet<String> {
    let router = paddlecloud_server::http::router(std::sync::Arc::clone(&stage.app));
    let text = format!("{router:?}");
    let words = text.split('"').skip(1).step_by(2);
    words
        .filter(|word| word.len() > 1 && word.starts_with('/') && !word.contains("__private"))
        .map(str::to_owned)
        .collect()
}

fn filled(path: &str) -> String {
    let mut text = path.to_owned();
    while let Some((begin, end)) = text.find('{').zip(text.find('}')) {
        text.replace_range(begin..=end, "1");
    }
    text
}

async fn call(stage: &Stage, method: &'static str, path: &str, login: Option<&str>) -> Reply {
    let request = Request::new(method, &filled(path));
    let request = match login {
        Some(login) => request.header("authorization", login),
        None => request,
    };
    request.send(&stage.address).await
}

async fn token(stage: &Stage, login: &str, body: Value) -> (String, String) {
    let request = Request::new("POST", "/api/v1/tokens").header("authorization", login);
    let made = request.json(body).send(&stage.address).await.json()["msg"].clone();
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    (text("id"), format!("Token {}", text("token")))
}

async fn wait_until_refused(stage: &Stage, login: &str) {
    for _ in 0..1200 {
        if call(stage, "GET", "/api/v1/whoami", Some(login)).await.status == 401 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the login is still valid");
}

/// Logins that must open nothing.
async fn dead_logins(stage: &Stage) -> Vec<(&'static str, String)> {
    let (_, expired) = token(
        stage,
        &basic("me"),
        json!({"name": "short", "lifetime_seconds": 1}),
    )
    .await;
    let (id, revoked) = token(stage, &basic("me"), json!({"name": "revoked"})).await;
    let gone = Request::new("DELETE", &format!("/api/v1/tokens/{id}"));
    assert_eq!(stage.send(gone).await.status, 200);
    let body = json!({"name": "ann", "service": true, "admin": true});
    assert_eq!(stage.post("/api/v1/admin/users", body).await.status, 200);
    let (_, disabled) = token(stage, &basic("me"), json!({"name": "x", "user": "ann"})).await;
    let off = Request::new("PATCH", "/api/v1/admin/users/ann").json(json!({"disabled": true}));
    assert_eq!(stage.send(off).await.status, 200);
    wait_until_refused(stage, &expired).await;
    vec![
        ("an unknown token", "Token pct_0000".to_owned()),
        ("an expired token", expired),
        ("a revoked token", revoked),
        ("a disabled user", disabled),
    ]
}

#[tokio::test]
async fn every_route_refuses_missing_invalid_and_insufficient_logins() {
    let stage = Stage::with("limits: {requests_before_login: 0}\n").await;
    let paths = paths(&stage);
    let listed: BTreeSet<String> = ROUTES.iter().map(|(_, path, _)| (*path).to_owned()).collect();
    assert_eq!(
        paths, listed,
        "every path of the router has a row, and every row is a path"
    );
    let dead = dead_logins(&stage).await;
    let (_, narrow) = token(&stage, &basic("me"), json!({"name": "none", "scopes": ""})).await;
    let (_, user) = token(&stage, &basic("you"), json!({"name": "user"})).await;
    for path in &paths {
        for method in METHODS {
            let row = ROUTES
                .iter()
                .find(|(known, at, _)| (*known, *at) == (method, path.as_str()));
            let Some((_, _, needs)) = row else {
                let reply = call(&stage, method, path, Some(&narrow)).await;
                assert_eq!(reply.status, 405, "{method} {path} has no row: {}", reply.text());
                continue;
            };
            let status = async |login: Option<&str>| call(&stage, method, path, login).await.status;
            if *needs == Nothing {
                let open = status(None).await;
                assert!(!matches!(open, 403 | 405), "{method} {path}: {open}");
                continue;
            }
            assert_eq!(status(None).await, 401, "{method} {path} without a login");
            for (what, login) in &dead {
                assert_eq!(status(Some(login)).await, 401, "{method} {path} with {what}");
            }
            if *needs != Login {
                assert_eq!(
                    status(Some(&narrow)).await,
                    403,
                    "{method} {path} with too narrow a scope"
                );
            }
            if *needs == Admin {
                assert_eq!(
                    status(Some(&user)).await,
                    403,
                    "{method} {path} as an ordinary user"
                );
            }
        }
    }
    stage.finish().await;
}

/// A reply without what may differ: the name that was asked for, the id of the request and the time.
fn plain(reply: &Reply, name: &str) -> String {
    let headers: Vec<String> = reply
        .headers
        .iter()
        .filter(|(name, _)| !["x-request-id", "date", "content-length"].contains(&name.as_str()))
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    let body = String::from_utf8_lossy(&reply.body).replace(name, "NAME");
    format!("{}\n{}\n{body}", reply.status, headers.join("\n"))
}

#[tokio::test]
async fn resources_of_another_user_are_not_found() {
    let stage = Stage::new().await;
    let job = stage.submit("hidden").await;
    let home = crate::stage::home(stage.folder.path(), "me");
    std::fs::write(home.join("hidden-file"), "secret").unwrap();
    let share = json!({"path": "/pfs/dc1/home/me/hidden-file", "seconds": 60});
    let share = stage.post("/api/v1/pfs/shares", share).await.json();
    let share = share["msg"]["id"].as_str().unwrap().to_owned();
    let (token, _) = token(&stage, &basic("me"), json!({"name": "mine"})).await;
    let changed = |text: &str| {
        let last = text.chars().last().unwrap();
        let other = if last == '0' { '1' } else { '0' };
        format!("{}{other}", &text[..text.len() - 1])
    };
    let by_id: Vec<(&'static str, &str, String)> = vec![
        ("GET", "/api/v1/jobs/{}", job.clone()),
        ("DELETE", "/api/v1/jobs/{}?rm=true", job.clone()),
        ("GET", "/api/v1/jobs/{}/why", job.clone()),
        ("GET", "/api/v1/jobs/{}/wait?timeout=1", job.clone()),
        ("GET", "/api/v1/jobs/{}/logs", job.clone()),
        ("POST", "/api/v1/jobs/{}/rerun", job.clone()),
        ("GET", "/api/v2/jobs/{}", job.clone()),
        ("GET", "/api/v1/logs?jobname={}", job.clone()),
        ("GET", "/api/v1/workers?jobname={}", job.clone()),
        ("GET", "/api/v1/jobs/{}", "hidden".to_owned()),
        ("GET", "/api/v1/jobs?all=true&name={}", "hidden".to_owned()),
        ("DELETE", "/api/v1/pfs/shares/{}", share),
        ("DELETE", "/api/v1/tokens/{}", token),
        (
            "GET",
            "/api/v1/pfs/stat?path=/pfs/dc1/home/me/{}",
            "hidden-file".to_owned(),
        ),
        (
            "GET",
            "/api/v1/pfs/content?path=/pfs/dc1/home/me/{}",
            "hidden-file".to_owned(),
        ),
        ("GET", "/api/v1/pfs/list?path=/pfs/dc1/{}", "home/me".to_owned()),
    ];
    for (method, template, name) in by_id {
        let ask = async |name: &str| {
            let request = Request::new(method, &template.replace("{}", name));
            let reply = request
                .header("authorization", &basic("you"))
                .send(&stage.address)
                .await;
            plain(&reply, name)
        };
        let (real, invented) = (ask(&name).await, ask(&changed(&name)).await);
        assert_eq!(real, invented, "{method} {template}");
    }
    stage.finish().await;
}
