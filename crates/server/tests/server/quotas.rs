//! Guarantees, and what administrators see of all users.

use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{Reply, Request};
use crate::stage::{Stage, basic};

const LIMIT: Duration = Duration::from_secs(60);

async fn send(stage: &Stage, user: &str, request: Request) -> Reply {
    request
        .header("authorization", &basic(user))
        .send(&stage.address)
        .await
}

async fn get(stage: &Stage, user: &str, path: &str) -> Reply {
    send(stage, user, Request::new("GET", path)).await
}

async fn submit(stage: &Stage, user: &str, name: &str, cores: u32, entry: &str) -> String {
    let body = json!({
        "name": name, "jobPackage": format!("/pfs/dc1/home/{user}/job_word_emb"), "entry": entry,
        "pservers": 0, "cpu": cores, "memory": "1Gi", "grace": "1s",
    });
    let reply = send(stage, user, Request::new("POST", "/api/v1/jobs").json(body)).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["id"].as_str().unwrap().to_owned()
}

async fn audit(stage: &Stage) -> Vec<Value> {
    let reply = stage.get("/api/v1/admin/audit").await.json();
    reply["msg"].as_array().unwrap().clone()
}

/// Asks until the reply is as expected.
async fn wait_until(stage: &Stage, user: &str, path: &str, is_expected: impl Fn(&Value) -> bool) -> Value {
    let asking = async {
        loop {
            let reply = get(stage, user, path).await.json();
            if is_expected(&reply["msg"]) {
                return reply["msg"].clone();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    match tokio::time::timeout(LIMIT, asking).await {
        Ok(found) => found,
        Err(_) => panic!("{path}: {}", get(stage, user, path).await.text()),
    }
}

#[tokio::test]
async fn an_administrator_sees_all_users_and_is_audited() {
    let stage = Stage::new().await;
    let own = stage.get("/api/v1/jobs").await.json();
    assert_eq!(own["msg"], json!([]));
    let all = stage.get("/api/v1/jobs?all_users=true").await;
    assert_eq!(all.json()["msg"][0]["user"], "you");
    let request = all.header("x-request-id").unwrap().to_owned();
    let rows = audit(&stage).await;
    assert_eq!(
        (&rows[0]["action"], &rows[0]["request"]),
        (&json!("jobs.list"), &json!(request))
    );
    let workers = stage.get("/api/v1/workers?all_users=true").await.json();
    assert_eq!(workers["msg"][0]["user"], "you");
    let quota = stage.get("/api/v1/quota?all_users=true").await.json();
    let users: Vec<&str> = quota["msg"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|row| row["user"].as_str())
        .collect();
    assert!(users.contains(&"me") && users.contains(&"you"), "{users:?}");
    for path in ["jobs", "workers", "quota"] {
        let refused = get(&stage, "you", &format!("/api/v1/{path}?all_users=true")).await;
        assert_eq!(refused.status, 403, "{path}: {}", refused.text());
    }
    let one = stage.get("/api/v1/jobs/you%2Fblocker").await;
    assert_eq!(
        (one.status, &one.json()["msg"]["job"]["user"]),
        (200, &json!("you"))
    );
    let logs = stage.get("/api/v1/logs?jobname=you%2Fblocker").await;
    assert_eq!(logs.status, 200, "{}", logs.text());
    let before = audit(&stage).await.len();
    let own = get(&stage, "you", "/api/v1/jobs/you%2Fblocker").await;
    assert_eq!(own.status, 200);
    assert_eq!(
        audit(&stage).await.len(),
        before,
        "their own things are nobody's business"
    );
    stage.submit("mine").await;
    let hidden = get(&stage, "you", "/api/v1/jobs/me%2Fmine").await;
    let absent = get(&stage, "you", "/api/v1/jobs/me%2Fnone").await;
    assert_eq!(hidden.status, 404);
    assert_eq!(hidden.text().replace("mine", "none"), absent.text());
    let killed = stage
        .send(Request::new("DELETE", "/api/v1/jobs/you%2Fblocker"))
        .await;
    assert_eq!(killed.status, 200, "{}", killed.text());
    let rows = audit(&stage).await;
    let seen: Vec<(&str, &str)> = rows
        .iter()
        .map(|row| (row["action"].as_str().unwrap(), row["subject"].as_str().unwrap()))
        .collect();
    for action in ["job.kill", "job.show", "job.logs"] {
        assert!(seen.contains(&(action, "you/blocker")), "{action}: {seen:?}");
    }
    let check = stage.get("/api/v1/admin/audit/verify").await.json();
    assert_eq!(check["msg"]["sound"], true);
    stage.finish().await;
}

#[tokio::test]
async fn all_guarantees_together_fit_the_machine() {
    let stage = Stage::new().await;
    let add =
        json!({"name": "ann", "password": "a long secret", "limits": {"guaranteed_cpu": "4", "cpu": "5"}});
    assert_eq!(stage.post("/api/v1/admin/users", add).await.status, 200);
    let group = json!({"limits": {"guaranteed_cpu": "3"}});
    let set = |body: Value| stage.send(Request::new("PUT", "/api/v1/admin/groups/g").json(body));
    assert_eq!(set(group).await.status, 200, "it has no members yet");
    let bob = json!({"name": "bob", "password": "a long secret", "groups": ["g"]});
    let refused = stage.post("/api/v1/admin/users", bob.clone()).await;
    assert_eq!(refused.status, 409);
    let text = refused.text();
    assert!(
        text.contains("the sum of all guarantees would be 7 cores, but the machines have 6 cores"),
        "{text}"
    );
    assert_eq!(set(json!({"limits": {"guaranteed_cpu": "2"}})).await.status, 200);
    assert_eq!(stage.post("/api/v1/admin/users", bob).await.status, 200);
    let raised = set(json!({"limits": {"guaranteed_cpu": "3"}})).await;
    assert_eq!(raised.status, 409, "bob is a member now");
    let lowered = json!({"limits": {"cpu": "1"}});
    let patch = Request::new("PATCH", "/api/v1/admin/users/ann").json(lowered);
    assert_eq!(stage.send(patch).await.status, 200);
    let quota = stage.get("/api/v1/quota?all_users=true").await.json();
    let rows = quota["msg"].as_array().unwrap();
    let of_ann = rows
        .iter()
        .find(|row| row["user"] == "ann" && row["resource"] == "cpu")
        .unwrap();
    assert_eq!(of_ann["guarantee"], "1", "no more than the limit");
    stage.finish().await;
}

const RECLAIM: &str = "reclaim: 1s\n\
     users:\n\
     - {name: me, password_file: word, admin: true, system_user: a}\n\
     - {name: you, password_file: word, system_user: b, quota: {guaranteed_cpu: 4, guaranteed_memory: 4Gi}}\n";

/// Runs a job of `me` that prints a line, and a guaranteed one of `you` that takes its room. Returns the paths of both.
async fn withdrawn_job(stage: &Stage) -> (String, String) {
    let long = submit(stage, "me", "long", 5, "echo a lap; sleep 300").await;
    let of_long = format!("/api/v1/jobs/{long}");
    wait_until(stage, "me", &log_of(&of_long), has_logged_a_lap).await;
    let short = submit(stage, "you", "short", 3, "sleep 300").await;
    let of_short = format!("/api/v1/jobs/{short}");
    wait_until(stage, "you", &of_short, |msg| msg["job"]["status"] == "Running").await;
    (of_long, of_short)
}

fn log_of(job: &str) -> String {
    job.replace("/api/v1/jobs/", "/api/v1/logs?jobname=")
}

fn has_logged_a_lap(log: &Value) -> bool {
    log.as_str().is_some_and(|text| text.contains("a lap\n"))
}

#[tokio::test]
async fn a_job_that_borrows_makes_room_for_a_guaranteed_one_and_runs_again() {
    let stage = Stage::with(RECLAIM).await;
    let (of_long, of_short) = withdrawn_job(&stage).await;
    let why = get(&stage, "me", &format!("{of_long}/why")).await.json();
    let reason = why["msg"]["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("queued again: the resources it borrowed"),
        "{reason}"
    );
    assert!(!why.to_string().contains("you"), "{why}");
    let detail = get(&stage, "me", &of_long).await.text();
    assert!(
        detail.contains("withdrawn: the resources it borrowed"),
        "{detail}"
    );
    let kill = Request::new("DELETE", &format!("{of_short}?now=true"));
    assert_eq!(send(&stage, "you", kill).await.status, 200);
    let again = wait_until(&stage, "me", &of_long, |msg| msg["job"]["status"] == "Running").await;
    assert_eq!(again["workers"][0]["attempt"], 2);
    let laps = |log: &Value| {
        log.as_str()
            .is_some_and(|text| text.matches("a lap\n").count() == 2)
    };
    wait_until(&stage, "me", &log_of(&of_long), laps).await;
    stage.finish().await;
}

#[tokio::test]
async fn the_log_of_a_withdrawn_job_remains_while_it_waits_and_after_it_is_killed() {
    let stage = Stage::with(RECLAIM).await;
    let (of_long, _) = withdrawn_job(&stage).await;
    let check = async |when: &str| {
        for rest in ["", "&n=1", "&w=trainer-0"] {
            let log = get(&stage, "me", &format!("{}{rest}", log_of(&of_long)))
                .await
                .json();
            assert!(has_logged_a_lap(&log["msg"]), "{when}, `{rest}`: {log}");
        }
        let other = get(&stage, "me", &format!("{}&w=trainer-1", log_of(&of_long))).await;
        assert_eq!(other.status, 404, "{when}: {}", other.text());
    };
    let waiting = wait_until(&stage, "me", &of_long, |msg| msg["job"]["status"] == "Pending").await;
    assert_eq!(waiting["workers"], json!([]));
    check("while it waits").await;
    let kill = Request::new("DELETE", &of_long);
    assert_eq!(send(&stage, "me", kill).await.status, 200);
    let killed = wait_until(&stage, "me", &of_long, |msg| msg["job"]["status"] == "Killed").await;
    check("after the kill").await;
    let listed = get(&stage, "me", &of_long.replace("/jobs/", "/workers?jobname="))
        .await
        .json();
    for workers in [&killed["workers"], &listed["msg"]] {
        let shown = (&workers[0]["status"], &workers[0]["attempt"], &workers[1]);
        assert_eq!(shown, (&json!("Killed"), &json!(1), &Value::Null));
    }
    stage.finish().await;
}
