//! Accounts that change while the server runs.

use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use paddlecloud_core::job::AfterKill;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

use crate::client::{Reply, Request};
use crate::stage::{Stage, home, request};

/// Workers of accounts of the database get system users of their own.
const UIDS: &str = "system_uids: 30000-39999\n";

fn basic(user: &str, password: &str) -> String {
    use base64::Engine as _;
    let text = format!("{user}:{password}");
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(text))
}

async fn add(stage: &Stage, name: &str, more: Value) -> Value {
    let mut body = json!({"name": name, "password": "a long secret"});
    body.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    let reply = stage.post("/api/v1/admin/users", body).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["msg"].clone()
}

async fn set(stage: &Stage, name: &str, body: Value) -> Reply {
    stage
        .send(Request::new("PATCH", &format!("/api/v1/admin/users/{name}")).json(body))
        .await
}

async fn delete(stage: &Stage, name: &str, query: &str) -> Reply {
    let path = format!("/api/v1/admin/users/{name}?{query}");
    stage.send(Request::new("DELETE", &path)).await
}

async fn get(stage: &Stage, path: &str, login: &str) -> Reply {
    let request = Request::new("GET", path).header("authorization", login);
    request.send(&stage.address).await
}

async fn token(stage: &Stage, user: &str) -> String {
    let body = json!({"username": user, "password": "a long secret"});
    let reply = Request::new("POST", "/api-token-auth").json(body);
    let reply = reply.send(&stage.address).await.json();
    format!("Token {}", reply["token"].as_str().unwrap())
}

/// Whether the machine lets tests run workers as other system users.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[tokio::test]
async fn an_account_is_added_changed_and_found_in_any_letter_case() {
    let stage = Stage::new().await;
    let added = add(&stage, "Ann@Example.com", json!({"limits": {"cpu": "4"}})).await;
    assert_eq!(added["effective"], json!({"cpu": "4"}));
    for name in ["Ann@Example.com", "ann@example.COM"] {
        let who = get(&stage, "/api/v1/whoami", &basic(name, "a long secret")).await;
        assert_eq!(who.json()["msg"]["user"], "Ann@Example.com");
    }
    let again = stage
        .post("/api/v1/admin/users", json!({"name": "ANN@example.com"}))
        .await;
    assert_eq!(
        (again.status, again.json()["error"].as_str()),
        (409, Some("conflict"))
    );
    assert_eq!(again.json()["msg"], "user `Ann@Example.com` already exists");
    let quota = get(
        &stage,
        "/api/v1/quota",
        &basic("ann@example.com", "a long secret"),
    )
    .await;
    assert_eq!(quota.json()["msg"][0]["limit"], "4");
    let changed = set(
        &stage,
        "ann@example.com",
        json!({"limits": {"cpu": "none"}, "password": "another secret"}),
    );
    assert_eq!(changed.await.json()["msg"]["effective"], json!({}));
    let old = get(
        &stage,
        "/api/v1/whoami",
        &basic("ann@example.com", "a long secret"),
    )
    .await;
    assert_eq!(old.status, 401);
    let new = get(
        &stage,
        "/api/v1/whoami",
        &basic("ann@example.com", "another secret"),
    )
    .await;
    assert_eq!(new.status, 200);
    stage.finish().await;
}

#[tokio::test]
async fn accounts_survive_a_restart_and_configured_users_cannot_be_changed() {
    let stage = Stage::new().await;
    add(&stage, "ann", json!({})).await;
    for (method, path) in [
        ("PATCH", "/api/v1/admin/users/YOU"),
        ("DELETE", "/api/v1/admin/users/you?dispose=keep"),
    ] {
        let reply = stage.send(Request::new(method, path).json(json!({}))).await;
        assert_eq!(reply.status, 409, "{}", reply.text());
        assert!(reply.text().contains("configuration"), "{}", reply.text());
    }
    let taken = stage.post("/api/v1/admin/users", json!({"name": "You"})).await;
    assert_eq!(taken.status, 409);
    let folder = stage.finish().await;
    let stage = Stage::on(folder, "").await;
    let who = get(&stage, "/api/v1/whoami", &basic("ann", "a long secret")).await;
    assert_eq!(who.json()["msg"]["user"], "ann");
    stage.finish().await;
}

#[tokio::test]
async fn bad_accounts_are_refused_with_what_is_wrong() {
    let stage = Stage::new().await;
    let refusals = [
        json!({"name": ""}),
        json!({"name": "a/b"}),
        json!({"name": "a~7"}),
        json!({"name": "ok", "password": "short"}),
        json!({"name": "ok", "limits": {"cores": "1"}}),
        json!({"name": "ok", "limits": {"memory": "much"}}),
        json!({"name": "ok", "groups": ["nobody"]}),
    ];
    for body in refusals {
        let reply = stage.post("/api/v1/admin/users", body.clone()).await;
        assert!((400..=404).contains(&reply.status), "{body}: {}", reply.text());
    }
    let unknown_user = set(&stage, "nobody", json!({"admin": true})).await;
    assert_eq!(unknown_user.status, 404);
    let without_dispose = delete(&stage, "nobody", "").await;
    assert_eq!(without_dispose.status, 400);
    stage.finish().await;
}

#[tokio::test]
async fn groups_give_limits_to_members_who_have_none() {
    let stage = Stage::with("default_quota: {gpu: 1, cpu: 9}\n").await;
    let group = Request::new("PUT", "/api/v1/admin/groups/vision")
        .json(json!({"limits": {"cpu": "8", "memory": "16Gi"}}));
    assert_eq!(stage.send(group).await.status, 200);
    let ann = add(
        &stage,
        "ann",
        json!({"groups": ["vision"], "limits": {"memory": "4Gi"}}),
    )
    .await;
    assert_eq!(ann["effective"], json!({"cpu": "8", "memory": "4Gi", "gpu": "1"}));
    let groups = stage.get("/api/v1/admin/groups").await.json();
    assert_eq!(groups["msg"][0]["members"], json!(["ann"]));
    let gone = stage
        .send(Request::new("DELETE", "/api/v1/admin/groups/vision"))
        .await;
    assert_eq!(gone.status, 200);
    let ann = stage.get("/api/v1/admin/users/ann").await.json();
    assert_eq!(
        ann["msg"]["effective"],
        json!({"cpu": "9", "memory": "4Gi", "gpu": "1"})
    );
    stage.finish().await;
}

#[tokio::test]
#[ignore = "needs root"]
async fn members_of_a_group_share_its_total_and_learn_nothing_else_of_each_other() {
    let stage = Stage::with(UIDS).await;
    let group = |body: Value| stage.send(Request::new("PUT", "/api/v1/admin/groups/vision").json(body));
    assert_eq!(
        group(json!({"total": {"cpu": "2", "running_jobs": "5"}}))
            .await
            .status,
        200
    );
    let storage = group(json!({"total": {"storage": "1Gi"}})).await;
    assert_eq!(storage.status, 400, "{}", storage.text());
    for user in ["ann", "bob"] {
        add(&stage, user, json!({"groups": ["vision"]})).await;
        stage.app.storage.home(&user.parse().unwrap()).map(drop).unwrap();
        give_package(&stage, user);
    }
    let submit = async |user: &str, cores: u32| {
        let body = json!({
            "name": "own", "jobPackage": format!("/pfs/dc1/home/{user}/job_word_emb"), "entry": "sleep 100",
            "pservers": 0, "cpu": cores, "memory": "16Mi", "grace": "1s",
        });
        let request = Request::new("POST", "/api/v1/jobs").json(body);
        let request = request.header("authorization", &basic(user, "a long secret"));
        request.send(&stage.address).await
    };
    assert_eq!(submit("ann", 2).await.status, 200);
    let refused = submit("bob", 3).await;
    let problem = "3 cores requested, the total of your group `vision` is 2 cores";
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains(problem), "{}", refused.text());
    assert_eq!(submit("bob", 1).await.status, 200);
    let login = basic("bob", "a long secret");
    let why = get(&stage, "/api/v1/jobs/own/why", &login).await.text();
    let reason = "the total of 2 cores of your group `vision`: 2 in use, 1 requested";
    assert!(why.contains(reason) && !why.contains("ann"), "{why}");
    let theirs = "the total of 2 cores of the user's group `vision`: 2 in use, 1 requested";
    let why = stage.get("/api/v1/jobs/bob%2Fown/why").await.json();
    assert_eq!(why["msg"]["reason"], theirs);
    let all = stage.get("/api/v1/jobs?all_users=true&reasons=true").await.json();
    assert_eq!(all["msg"][0]["message"], theirs, "{all}");
    let rows = get(&stage, "/api/v1/quota", &login).await.json();
    let is_shared = |row: &&Value| row["group"] == "vision";
    let shared: Vec<&Value> = rows["msg"].as_array().unwrap().iter().filter(is_shared).collect();
    assert_eq!(
        shared,
        [
            &json!({"group": "vision", "resource": "cpu", "limit": "2", "used": "2"}),
            &json!({"group": "vision", "resource": "running jobs", "limit": "5", "used": "1"}),
        ]
    );
    let all = stage.get("/api/v1/quota?all_users=true").await.json();
    let shared = all["msg"].as_array().unwrap().iter().filter(is_shared).count();
    assert_eq!(shared, 2, "once for all members: {all}");
    assert_eq!(group(json!({"total": {"cpu": "none"}})).await.status, 200);
    wait_until_it_runs(&stage, &login).await;
    stage.finish().await;
}

async fn wait_until_it_runs(stage: &Stage, login: &str) {
    let runs = async {
        while get(stage, "/api/v1/jobs/own", login).await.json()["msg"]["job"]["status"] != "Running" {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let runs = tokio::time::timeout(Duration::from_secs(60), runs).await;
    runs.expect("without the limit the job starts");
}

/// Puts a package into a user's home.
fn give_package(stage: &Stage, user: &str) {
    let folder = home(stage.folder.path(), user).join("job_word_emb");
    std::fs::create_dir_all(&folder).unwrap();
    let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(folder.parent().unwrap()).unwrap());
    std::os::unix::fs::chown(&folder, Some(owner), Some(owner)).unwrap();
}

/// A job of the user's own that waits.
async fn queue_job(stage: &Stage, user: &str, login: &str) -> String {
    give_package(stage, user);
    let mut body = request("waits");
    body["job_package"] = json!(format!("/pfs/dc1/home/{user}/job_word_emb"));
    let request = Request::new("POST", "/api/v1/jobs").json(body);
    let reply = request.header("authorization", login).send(&stage.address).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
#[ignore = "needs root"]
async fn a_disabled_user_loses_streams_and_queued_jobs_within_a_second() {
    let stage = Stage::with(UIDS).await;
    add(&stage, "ann", json!({})).await;
    let login = token(&stage, "ann").await;
    stage.app.storage.home(&"ann".parse().unwrap()).map(drop).unwrap();
    let id = queue_job(&stage, "ann", &login).await;
    let follow = Request::new("GET", &format!("/api/v1/jobs/{id}/logs?follow=true"));
    let mut stream = follow.header("authorization", &login).begin(&stage.address).await;
    let wait = Request::new("GET", &format!("/api/v1/jobs/{id}/wait?timeout=600"));
    let wait = wait.header("authorization", &login);
    let address = stage.address.clone();
    let waiting = tokio::spawn(async move { wait.send(&address).await });
    let disabled = set(&stage, "ann", json!({"disabled": true})).await.json();
    assert_eq!(disabled["msg"]["killed_jobs"], 1, "{disabled}");
    assert_eq!(disabled["msg"]["running_jobs"], 0, "{disabled}");
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut rest)).await;
    ended.expect("the stream ends").ok();
    let reply = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    let reply = reply.expect("the request ends").unwrap();
    assert!(matches!(reply.status, 200 | 401), "{}", reply.text());
    assert_eq!(get(&stage, "/api/v1/whoami", &login).await.status, 401);
    let job = stage.get(&format!("/api/v1/jobs/{id}")).await.json();
    assert_eq!(job["msg"]["job"]["status"], "Killed", "{job}");
    let reason = "killed because the account of its owner was disabled";
    assert_eq!(job["msg"]["job"]["message"], reason, "{job}");
    assert_eq!(set(&stage, "ann", json!({"disabled": false})).await.status, 200);
    assert_eq!(get(&stage, "/api/v1/whoami", &login).await.status, 200);
    let id = queue_job(&stage, "ann", &login).await;
    assert_eq!(delete(&stage, "ann", "dispose=keep").await.status, 200);
    let job = stage.get(&format!("/api/v1/jobs/{id}")).await.json();
    let reason = "killed because the account of its owner was deleted";
    assert_eq!(job["msg"]["job"]["message"], reason, "{job}");
    stage.finish().await;
}

#[tokio::test]
#[ignore = "needs root"]
async fn a_home_belongs_to_its_user_after_any_first_use() {
    let stage = Stage::with(UIDS).await;
    add(&stage, "ann", json!({})).await;
    let login = token(&stage, "ann").await;
    let listed = get(&stage, "/api/v1/pfs/list?path=/pfs/dc1/home/ann", &login).await;
    assert_eq!(listed.status, 200, "{}", listed.text());
    let made = std::fs::metadata(home(stage.folder.path(), "ann")).unwrap();
    assert!((30000..40000).contains(&made.uid()), "{}", made.uid());
    assert_eq!(made.mode() & 0o777, 0o700);
    add(&stage, "carl", json!({})).await;
    let reply = delete(&stage, "carl", "dispose=purge").await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    stage.finish().await;
}

#[tokio::test]
async fn workers_of_two_users_never_share_a_system_user() {
    let stage = Stage::new().await;
    add(&stage, "ann", json!({})).await;
    let login = basic("ann", "a long secret");
    let mut body = request("x");
    body["job_package"] = json!("/pfs/dc1/home/ann/job_word_emb");
    let request = Request::new("POST", "/api/v1/jobs").json(body);
    let reply = request.header("authorization", &login).send(&stage.address).await;
    assert_eq!(reply.status, 403, "{}", reply.text());
    assert!(reply.text().contains("system_uids"), "{}", reply.text());
    stage.finish().await;
}

#[tokio::test]
async fn a_user_of_the_configuration_without_a_system_user_submits_only_while_alone() {
    for lines in ["", UIDS] {
        let stage = Stage::with(lines).await;
        stage.submit("before").await;
        add(&stage, "robot", json!({"service": true, "password": null})).await;
        let refused = stage.post("/api/v1/jobs", request("after")).await;
        assert_eq!(refused.status, 403, "{}", refused.text());
        let problem = refused.json()["msg"].clone();
        assert_eq!(
            problem,
            "the workers of `me` would run as the server's own system user and could read other users' files"
        );
        assert!(refused.text().contains("`system_user`"), "{}", refused.text());
        assert_eq!(delete(&stage, "robot", "dispose=purge").await.status, 200);
        stage.submit("after").await;
        stage.finish().await;
    }
}

#[tokio::test]
async fn a_job_queued_before_the_second_account_does_not_start_as_the_server() {
    let stage = Stage::new().await;
    let id = stage.submit("queued").await;
    add(&stage, "ann", json!({})).await;
    let killed = Request::new("DELETE", "/api/v1/jobs/you%2Fblocker");
    assert_eq!(stage.send(killed).await.status, 200);
    stage.app.jobs.wait_final(&id.parse().unwrap()).await;
    let job = stage.get(&format!("/api/v1/jobs/{id}")).await.json();
    assert_eq!(job["msg"]["job"]["status"], "Failed", "{job}");
    let why = stage.get(&format!("/api/v1/jobs/{id}/why")).await.text();
    assert!(why.contains("`me` has no system user"), "{why}");
    stage.finish().await;
}

#[tokio::test]
async fn a_reused_name_inherits_nothing() {
    let stage = Stage::with(UIDS).await;
    let first = add(&stage, "ann", json!({})).await;
    let login = token(&stage, "ann").await;
    let name = "ann".parse().unwrap();
    stage.app.storage.home(&name).map(drop).unwrap();
    std::fs::write(home(stage.folder.path(), "ann").join("mine"), "secret").unwrap();
    let mut jobs = 0;
    if is_root() {
        queue_job(&stage, "ann", &login).await;
        jobs = 1;
    }
    let reply = delete(&stage, "ann", "dispose=keep").await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.json()["msg"]["stopped"], jobs);
    let kept = home(stage.folder.path(), &format!("ann~{}", first["id"]));
    assert_eq!(std::fs::read(kept.join("mine")).unwrap(), b"secret");
    assert_eq!(get(&stage, "/api/v1/whoami", &login).await.status, 401);
    let second = add(&stage, "Ann", json!({})).await;
    assert_ne!(first["id"], second["id"]);
    assert_eq!(get(&stage, "/api/v1/whoami", &login).await.status, 401);
    let fresh = token(&stage, "Ann").await;
    let listed = get(&stage, "/api/v1/jobs?all=true", &fresh).await.json();
    assert_eq!(listed["msg"], json!([]));
    let file = get(&stage, "/api/v1/pfs/stat?path=/pfs/dc1/home/Ann/mine", &fresh).await;
    assert_eq!(file.status, 404, "{}", file.text());
    stage.finish().await;
}

#[tokio::test]
async fn a_deleted_users_files_and_jobs_are_given_away_or_removed() {
    let stage = Stage::with(UIDS).await;
    for name in ["ann", "bob"] {
        add(&stage, name, json!({})).await;
        stage.app.storage.home(&name.parse().unwrap()).map(drop).unwrap();
        std::fs::write(home(stage.folder.path(), name).join("mine"), name).unwrap();
    }
    let id = queue_job(&stage, "ann", &basic("ann", "a long secret")).await;
    assert_eq!(delete(&stage, "ann", "dispose=give-to").await.status, 400);
    assert_eq!(delete(&stage, "ann", "dispose=give-to&to=ann").await.status, 400);
    let given = delete(&stage, "ann", "dispose=give-to&to=bob").await.json();
    assert_eq!(given["msg"]["jobs"], "bob", "{given}");
    let folder = std::fs::read_dir(home(stage.folder.path(), "bob")).unwrap();
    let mut from = folder.filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    let from = from.find(|name| name.starts_with("from-ann~")).unwrap();
    let login = basic("bob", "a long secret");
    let path = format!("/api/v1/pfs/content?path=/pfs/dc1/home/bob/{from}/mine");
    assert_eq!(get(&stage, &path, &login).await.text(), "ann");
    let job = get(&stage, &format!("/api/v1/jobs/{id}"), &login).await.json();
    let place = format!("/pfs/dc1/home/bob/{from}");
    let (job, output) = (
        &job["msg"]["job"],
        format!("{place}/.paddlecloud/runs/{id}/output"),
    );
    assert_eq!(job["output"], output, "{job}");
    assert_eq!(job["job_package"], format!("{place}/job_word_emb"), "{job}");
    let rerun = Request::new("POST", &format!("/api/v1/jobs/{id}/rerun")).header("authorization", &login);
    let rerun = rerun.send(&stage.address).await;
    assert_eq!(rerun.status, 409, "{}", rerun.text());
    let moved = format!("waits ran in the home of a deleted user, whose files were moved to `{place}`");
    assert_eq!(rerun.json()["msg"], moved);
    let purged = delete(&stage, "bob", "dispose=purge").await.json();
    assert_eq!(purged["msg"]["home"], Value::Null, "{purged}");
    assert!(!home(stage.folder.path(), "bob").exists());
    stage.finish().await;
}

#[tokio::test]
async fn the_last_administrator_and_the_caller_stay() {
    let stage = Stage::with("users: []\n").await;
    assert_eq!(stage.get("/api/v1/whoami").await.status, 401);
    let accounts = &stage.app.accounts;
    for name in ["root", "second"] {
        let fill = |record: &mut paddlecloud_store::Record| {
            record.admin = true;
            record.password_hash = Some(paddlecloud_accounts::auth::hash_password("a long secret").unwrap());
            Ok(())
        };
        let entry = paddlecloud_store::AuditEntry::default();
        accounts.add(name.parse().unwrap(), fill, entry).await.unwrap();
    }
    let as_root = async |method, path: &str, body: Value| {
        let request = Request::new(method, path).json(body);
        let request = request.header("authorization", &basic("root", "a long secret"));
        request.send(&stage.address).await
    };
    let own = as_root("DELETE", "/api/v1/admin/users/root?dispose=keep", json!({})).await;
    assert_eq!(own.status, 409, "{}", own.text());
    let path = "/api/v1/admin/users/second";
    assert_eq!(as_root("PATCH", path, json!({"admin": false})).await.status, 200);
    let last = as_root("PATCH", "/api/v1/admin/users/root", json!({"disabled": true})).await;
    assert_eq!(last.status, 409, "{}", last.text());
    assert!(last.text().contains("only administrator"), "{}", last.text());
    stage.pause().await;
}

#[tokio::test]
async fn every_change_is_in_the_audit_log_with_its_request() {
    let stage = Stage::new().await;
    let added = stage
        .post(
            "/api/v1/admin/users",
            json!({"name": "ann", "password": "a long secret"}),
        )
        .await;
    let id = added.header("x-request-id").unwrap().to_owned();
    set(&stage, "ann", json!({"disabled": true})).await;
    let log = stage.get("/api/v1/admin/audit").await;
    assert!(!log.text().contains("a long secret"), "no password is noted");
    let log = log.json();
    let actions: Vec<&str> = log["msg"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["action"].as_str().unwrap())
        .collect();
    assert_eq!(actions, ["user.disable", "user.add"]);
    let row = &log["msg"][1];
    assert_eq!(
        (row["actor"].as_str(), row["subject"].as_str()),
        (Some("me"), Some("ann"))
    );
    assert_eq!(row["request"], json!(id));
    let check = stage.get("/api/v1/admin/audit/verify").await.json();
    assert_eq!(check["msg"]["sound"], true);
    stage.finish().await;
}

async fn wait_until_disabled(stage: &Stage, user: &str) {
    let user = user.parse().unwrap();
    for _ in 0..1200 {
        if stage.app.auth.users().enabled(&user).is_none() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{user} is not disabled");
}

#[tokio::test]
async fn a_change_completes_even_if_the_request_is_cut_off() {
    use futures_util::FutureExt as _;
    let stage = Stage::with(UIDS).await;
    add(&stage, "ann", json!({})).await;
    let disable = |record: &mut paddlecloud_store::Record| {
        record.disabled = true;
        Ok(())
    };
    let name = "ann".parse().unwrap();
    let change = stage.app.accounts.change(&name, disable, Default::default());
    assert!(
        change.now_or_never().is_none(),
        "it begins, and nobody waits for its end"
    );
    wait_until_disabled(&stage, "ann").await;
    stage.finish().await;
}

#[tokio::test]
#[ignore = "needs root"]
async fn a_submit_in_flight_queues_nothing_for_a_user_who_is_disabled_meanwhile() {
    let stage = Stage::with(UIDS).await;
    add(&stage, "ann", json!({})).await;
    let ann: paddlecloud_core::names::UserName = "ann".parse().unwrap();
    stage.app.storage.home(&ann).map(drop).unwrap();
    let login = token(&stage, "ann").await;
    let id = queue_job(&stage, "ann", &login).await;
    stage
        .app
        .jobs
        .kill(&ann, id.parse().unwrap(), AfterKill::KeepInHistory)
        .await
        .unwrap();
    let held = stage.app.submitting.write().await;
    let caller = paddlecloud_accounts::auth::Caller {
        user: ann.clone(),
        scopes: paddlecloud_core::access::Scopes::user(),
    };
    let mut body = request("late");
    body["job_package"] = json!("/pfs/dc1/home/ann/job_word_emb");
    let body = serde_json::from_value(body).unwrap();
    let app = std::sync::Arc::clone(&stage.app);
    let submit = tokio::spawn(async move { app.job_submit(&caller, body, None).await });
    let disabling = set(&stage, "ann", json!({"disabled": true}));
    let release = async {
        wait_until_disabled(&stage, "ann").await;
        drop(held);
    };
    let (disabled, ()) = tokio::join!(disabling, release);
    assert_eq!(disabled.status, 200, "{}", disabled.text());
    let refused = paddlecloud_api::error::ErrorBody::from(submit.await.unwrap().unwrap_err());
    assert_eq!(refused.code, 401, "{refused}");
    assert!(!stage.app.jobs.active().iter().any(|job| job.user == ann));
    stage.finish().await;
}
