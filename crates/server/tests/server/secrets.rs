//! Secrets and registries: stored sealed, shown never, given to the workers of their owner alone.

use serde_json::json;

use crate::client::Request;
use crate::stage::{Stage, basic, home};

const CANARY: &str = "canary-5f1c7d";

/// All files below a folder that contain the canary.
fn leaks(folder: &std::path::Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(path);
            } else if let Ok(bytes) = std::fs::read(&path)
                && bytes
                    .windows(CANARY.len())
                    .any(|window| window == CANARY.as_bytes())
            {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

#[tokio::test]
async fn a_worker_has_the_secret_and_nothing_else_shows_it() {
    let stage = Stage::new().await;
    let set = Request::new("PUT", "/api/v1/secrets/api-key").json(json!({"value": CANARY}));
    let set = set
        .header("authorization", &basic("you"))
        .send(&stage.address)
        .await;
    assert_eq!(set.status, 200, "{}", set.text());
    let package = home(stage.folder.path(), "you").join("job_word_emb");
    // The program proves that it has the secret without writing it.
    let entry = format!("test \"$API_KEY\" = {CANARY} -a \"$OTHER\" = {CANARY} && sleep 1 && touch done");
    let body = json!({
        "name": "with-secret",
        "job_package": "/pfs/dc1/home/you/job_word_emb",
        "entry": entry.replace(CANARY, "$(printf 'canary-%s' 5f1c7d)"),
        "pservers": 0, "cpu": "10m", "memory": "16Mi",
        "secrets": ["api-key", "api-key=OTHER"],
    });
    let submit = Request::new("POST", "/api/v1/jobs").json(body.clone());
    let reply = submit
        .header("authorization", &basic("you"))
        .send(&stage.address)
        .await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let wait = Request::new("GET", "/api/v1/jobs/with-secret/wait?timeout=300");
    let wait = wait
        .header("authorization", &basic("you"))
        .send(&stage.address)
        .await;
    assert_eq!(
        wait.json()["msg"]["job"]["status"],
        "Succeeded",
        "{}",
        wait.text()
    );
    assert!(package.join("done").exists());
    assert!(!wait.text().contains(CANARY));
    let usage = stage.get("/api/v1/admin/usage").await.json();
    assert!(usage["msg"].to_string().contains("\"you\""), "{usage}");
    let listed = Request::new("GET", "/api/v1/secrets").header("authorization", &basic("you"));
    let listed = listed.send(&stage.address).await;
    assert_eq!(listed.json()["msg"][0]["name"], "api-key");
    assert!(!listed.text().contains(CANARY));
    assert_eq!(leaks(stage.folder.path()), Vec::<String>::new());
    std::fs::write(stage.folder.path().join("data/planted"), CANARY).unwrap();
    assert_eq!(
        leaks(stage.folder.path()).len(),
        1,
        "the search finds a planted leak"
    );
    // Another user has no such secret.
    let mut body = body;
    body["job_package"] = json!("/pfs/dc1/home/me/job_word_emb");
    let reply = stage.post("/api/v1/jobs", body).await;
    assert_eq!(reply.status, 404, "{}", reply.text());
    assert!(
        reply.text().contains("there is no secret `api-key`"),
        "{}",
        reply.text()
    );
    let body = json!({"name": "r", "jobPackage": "/pfs/dc1/home/me/job_word_emb", "registry": "nope"});
    let reply = stage.post("/api/v1/jobs", body).await;
    assert_eq!(reply.status, 404, "{}", reply.text());
    assert!(
        reply.text().contains("there is no registry `nope`"),
        "{}",
        reply.text()
    );
    stage.finish().await;
}

#[tokio::test]
async fn registries_are_listed_without_passwords_and_the_only_one_needs_no_name() {
    let stage = Stage::new().await;
    let add = |name: &str| json!({"name": name, "server": "registry.example.org", "username": "u", "password": CANARY});
    assert_eq!(stage.post("/api/v1/registry", add("one")).await.status, 200);
    assert_eq!(stage.post("/api/v1/registry", add("two")).await.status, 200);
    let listed = stage.get("/api/v1/registry").await;
    assert_eq!(
        listed.json()["msg"][0],
        json!({"name": "one", "server": "registry.example.org", "username": "u"})
    );
    assert!(!listed.text().contains(CANARY));
    let unnamed = stage.send(Request::new("DELETE", "/api/v1/registry")).await;
    assert_eq!(unnamed.status, 400, "{}", unnamed.text());
    let other = Request::new("DELETE", "/api/v1/registry?name=one").header("authorization", &basic("you"));
    assert_eq!(other.send(&stage.address).await.status, 404, "another user's");
    let unknown = Request::new("DELETE", "/api/v1/registry").json(json!({"name": "three"}));
    assert_eq!(stage.send(unknown).await.status, 404, "the body names it too");
    let named = stage
        .send(Request::new("DELETE", "/api/v1/registry?name=one"))
        .await;
    assert_eq!(named.json()["msg"], "one");
    let last = stage.send(Request::new("DELETE", "/api/v1/registry")).await;
    assert_eq!(last.json()["msg"], "two");
    assert_eq!(
        stage
            .send(Request::new("DELETE", "/api/v1/registry"))
            .await
            .status,
        404
    );
    assert_eq!(leaks(stage.folder.path()), Vec::<String>::new());
    for wrong in [
        json!({}),
        json!({"name": "a b", "server": "s", "username": "u", "password": "p"}),
    ] {
        assert_eq!(stage.post("/api/v1/registry", wrong).await.status, 400);
    }
    stage.finish().await;
}

#[tokio::test]
async fn limits_of_the_queue_are_kept_at_the_submit() {
    let stage = Stage::with("default_quota: {queued_jobs: 1, priority: 5}\n").await;
    let mut urgent = crate::stage::request("urgent");
    urgent["priority"] = json!(6);
    let reply = stage.post("/api/v1/jobs", urgent).await;
    assert_eq!(
        (reply.status, reply.json()["error"].as_str()),
        (403, Some("quota-exceeded"))
    );
    assert_eq!(reply.json()["hints"][0], "use `-priority 5` or less");
    stage.submit("first").await;
    let reply = stage.post("/api/v1/jobs", crate::stage::request("second")).await;
    assert_eq!(reply.status, 403, "{}", reply.text());
    let quota = stage.get("/api/v1/quota").await.json();
    let rows = quota["msg"].as_array().unwrap();
    let queued = rows.iter().find(|row| row["resource"] == "queued jobs").unwrap();
    assert_eq!(
        (queued["limit"].as_str(), queued["used"].as_str()),
        (Some("1"), Some("1"))
    );
    stage.finish().await;
}
