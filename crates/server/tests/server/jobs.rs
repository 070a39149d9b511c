//! Jobs from submit to removal.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use paddlecloud_accounts::auth::Caller;
use paddlecloud_api::ALIVE_HEADER;
use paddlecloud_api::jobs::JobStatus;
use paddlecloud_api::logs::{Frame, LogQuery};
use paddlecloud_core::names::JobId;
use paddlecloud_files::queue::Class;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::client::Request;
use crate::stage::{Stage, basic, request};

#[tokio::test]
async fn the_example_of_the_documents_is_accepted_and_listed_with_its_fields() {
    let stage = Stage::new().await;
    let reply = stage.post("/api/v1/jobs/", request("paddle-job")).await;
    let submitted = reply.json();
    assert_eq!(
        (submitted["code"].as_u64(), submitted["msg"].as_str()),
        (Some(200), Some("OK"))
    );
    let list = stage.get("/api/v1/jobs").await.json();
    assert_eq!(list["code"], 200);
    let job = list["msg"][0].as_object().unwrap();
    let sent = request("paddle-job");
    for (field, value) in sent.as_object().unwrap() {
        assert_eq!(&job[field], value, "{field}");
    }
    assert_eq!(job["id"], submitted["id"]);
    assert_eq!(
        (job["status"].as_str(), job["user"].as_str()),
        (Some("Pending"), Some("me"))
    );
    stage.finish().await;
}

#[tokio::test]
async fn old_names_of_the_paths_reach_the_same_jobs() {
    let stage = Stage::new().await;
    for (number, path) in ["/v1/submit", "/v2/submit/", "/api/v2/jobs", "/api/v1/jobs"]
        .iter()
        .enumerate()
    {
        let mut body = request(&format!("job-{number}"));
        let package = body.as_object_mut().unwrap().remove("job_package").unwrap();
        body["jobPackage"] = package;
        assert_eq!(stage.post(path, body).await.status, 200, "{path}");
    }
    for path in ["/api/v1/jobs", "/api/v2/jobs/"] {
        assert_eq!(stage.get(path).await.json()["msg"].as_array().unwrap().len(), 4);
    }
    assert_eq!(
        stage.get("/api/v2/jobs/job-2").await.json()["msg"]["job"]["name"],
        "job-2"
    );
    stage.finish().await;
}

#[tokio::test]
async fn a_repeated_submit_makes_one_job() {
    let stage = Stage::new().await;
    let submit = |name: &str| {
        let body = if name.is_empty() {
            request("x")
        } else {
            request(name)
        };
        let mut body = body;
        if name.is_empty() {
            body.as_object_mut().unwrap().remove("name");
        }
        Request::new("POST", "/api/v1/jobs")
            .header("idempotency-key", "key-1")
            .json(body)
    };
    let first = stage.send(submit("")).await.json();
    let second = stage.send(submit("")).await.json();
    assert_eq!(first["id"], second["id"]);
    assert_eq!(second["job"]["name"], "job-word-emb");
    assert_eq!(
        stage.get("/api/v1/jobs").await.json()["msg"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let bad = Request::new("POST", "/api/v1/jobs")
        .header("idempotency-key", "a b")
        .json(request("y"));
    assert_eq!(stage.send(bad).await.status, 400);
    stage.finish().await;
}

#[tokio::test]
async fn a_name_is_derived_from_the_package_and_reused_when_free() {
    let stage = Stage::new().await;
    let mut body = request("x");
    body.as_object_mut().unwrap().remove("name");
    let mut names = Vec::new();
    for _ in 0..3 {
        names.push(stage.post("/api/v1/jobs", body.clone()).await.json()["job"]["name"].clone());
    }
    assert_eq!(names, ["job-word-emb", "job-word-emb-2", "job-word-emb-3"]);
    stage
        .send(Request::new("DELETE", "/api/v1/jobs/job-word-emb"))
        .await;
    let again = stage.post("/api/v1/jobs", body).await;
    assert_eq!(again.json()["job"]["name"], "job-word-emb", "{}", again.text());
    stage.finish().await;
}

#[tokio::test]
async fn a_taken_name_is_refused_and_is_free_after_a_kill() {
    let stage = Stage::new().await;
    let first = stage.submit("a").await;
    let taken = stage.post("/api/v1/jobs", request("a")).await;
    assert_eq!(
        (taken.status, taken.json()["error"].as_str()),
        (409, Some("name-taken"))
    );
    assert!(
        taken.json()["hints"][0].as_str().unwrap().contains("a-2"),
        "{}",
        taken.text()
    );
    let kill = Request::new("DELETE", "/api/v1/jobs").json(json!({"jobname": "a"}));
    assert_eq!(stage.send(kill).await.json()["id"], first.as_str());
    let second = stage.submit("a").await;
    assert_eq!(
        stage.get("/api/v1/jobs/a").await.json()["msg"]["job"]["id"],
        second.as_str()
    );
    assert_eq!(
        stage.get(&format!("/api/v1/jobs/{first}")).await.json()["msg"]["job"]["status"],
        "Killed"
    );
    assert_eq!(
        stage.get("/api/v1/jobs/last").await.json()["msg"]["job"]["id"],
        second.as_str()
    );
    assert_eq!(
        stage.get("/api/v1/jobs?all=true").await.json()["msg"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    stage.finish().await;
}

#[tokio::test]
async fn a_removed_job_is_gone_from_the_history() {
    let stage = Stage::new().await;
    let id = stage.submit("a").await;
    let removed = stage
        .send(Request::new("DELETE", "/api/v1/jobs/a?rm=true"))
        .await
        .json();
    assert_eq!(removed["removed"], true);
    let gone = stage.get(&format!("/api/v1/jobs/{id}")).await;
    assert_eq!(
        (gone.status, gone.json()["error"].as_str()),
        (404, Some("not-found"))
    );
    assert_eq!(stage.get("/api/v1/jobs?all=1").await.json()["msg"], json!([]));
    stage.finish().await;
}

#[tokio::test]
async fn jobs_of_other_users_are_not_found() {
    let stage = Stage::new().await;
    let id = stage.submit("mine").await;
    let as_you = |method, path: &str| Request::new(method, path).header("authorization", &basic("you"));
    for path in [
        "/api/v1/jobs/mine",
        &format!("/api/v1/jobs/{id}"),
        &format!("/api/v1/jobs/{id}/why"),
    ] {
        assert_eq!(
            as_you("GET", path).send(&stage.address).await.status,
            404,
            "{path}"
        );
    }
    assert_eq!(
        as_you("DELETE", &format!("/api/v1/jobs/{id}"))
            .send(&stage.address)
            .await
            .status,
        404
    );
    let list = as_you("GET", "/api/v1/jobs?all=1")
        .send(&stage.address)
        .await
        .json();
    assert_eq!(
        list["msg"].as_array().unwrap().len(),
        1,
        "only the blocker is theirs"
    );
    let theirs = as_you("POST", "/api/v1/jobs")
        .json(request("x"))
        .send(&stage.address)
        .await;
    assert_eq!(theirs.status, 404, "{}", theirs.text());
    stage.finish().await;
}

#[tokio::test]
async fn a_wait_ends_when_the_job_does_and_not_before() {
    let stage = Stage::new().await;
    stage.submit("a").await;
    let now = stage.get("/api/v1/jobs/a/wait?timeout=0").await.json();
    assert_eq!(now["msg"]["job"]["status"], "Pending");
    let waiting = stage.get("/api/v1/jobs/a/wait");
    let kill = async {
        stage.send(Request::new("DELETE", "/api/v1/jobs/a")).await;
    };
    let (ended, ()) = tokio::join!(waiting, kill);
    assert_eq!(ended.json()["msg"]["job"]["status"], "Killed");
    stage.finish().await;
}

#[tokio::test]
async fn a_waiting_job_says_why() {
    let stage = Stage::new().await;
    stage.submit("a").await;
    let why = stage.get("/api/v1/jobs/a/why").await.json();
    assert!(why["msg"]["reason"].as_str().unwrap().contains("cores"), "{why}");
    stage.finish().await;
}

#[tokio::test]
async fn a_list_says_why_jobs_wait_only_on_request_and_then_on_every_page() {
    let stage = Stage::new().await;
    let (first, second) = (stage.submit("a").await, stage.submit("b").await);
    let plain = stage.get("/api/v1/jobs").await.json();
    let messages = |list: &Value| -> Vec<Value> {
        let jobs = list["msg"].as_array().unwrap().iter();
        jobs.map(|job| job["message"].clone()).collect()
    };
    assert_eq!(messages(&plain), ["waits for its turn", "waits for its turn"]);
    for (query, id) in [("", &second), (&*format!("&after={second}"), &first)] {
        let page = format!("/api/v1/jobs?limit=1&reasons=true{query}");
        let page = stage.get(&page).await.json();
        assert_eq!(page["msg"][0]["id"], id.as_str());
        let [message] = &messages(&page)[..] else {
            panic!("{page}")
        };
        let reason = message.as_str().unwrap();
        assert!(reason.starts_with("waits for 0.01 cores"), "{reason}");
        assert!(reason.ends_with("held by another user's job"), "{reason}");
    }
    stage.finish().await;
}

#[tokio::test]
async fn a_job_of_the_same_user_with_a_similar_name_is_suggested() {
    let stage = Stage::new().await;
    stage.submit("hello").await;
    let killed = stage
        .send(Request::new("DELETE", "/api/v1/jobs/hello"))
        .await
        .json();
    assert_eq!(killed["ending"], 0, "it had not started");
    for path in ["/api/v1/jobs/helo", "/api/v1/jobs/helo/why"] {
        let missing = stage.get(path).await.json();
        assert_eq!(missing["hints"], json!(["did you mean `hello`?"]), "{path}");
    }
    let request = Request::new("GET", "/api/v1/jobs/helo").header("authorization", &basic("you"));
    let others = request.send(&stage.address).await.text();
    assert!(!others.contains("hello"), "{others}");
    stage.finish().await;
}

#[tokio::test]
async fn a_dry_run_checks_everything_and_makes_nothing() {
    let stage = Stage::new().await;
    let mut body = request("a");
    body["dry_run"] = json!(true);
    let reply = stage.post("/api/v1/jobs", body.clone()).await.json();
    assert_eq!(
        (reply["id"].as_str(), reply["job"]["name"].as_str()),
        (Some(""), Some("a"))
    );
    body["cpu"] = json!(7);
    let too_big = stage.post("/api/v1/jobs", body).await;
    assert_eq!(too_big.json()["error"], "too-big", "{}", too_big.text());
    assert_eq!(
        too_big.json()["hints"],
        json!(["request less with `-cpu` or `-pscpu`"])
    );
    assert_eq!(stage.get("/api/v1/jobs?all=1").await.json()["msg"], json!([]));
    stage.finish().await;
}

#[tokio::test]
async fn pages_follow_each_other_until_the_end() {
    let stage = Stage::new().await;
    let mut ids = Vec::new();
    for number in 0..7 {
        ids.push(stage.submit(&format!("job-{number}")).await);
    }
    stage.send(Request::new("DELETE", "/api/v1/jobs/job-3")).await;
    for (query, expected) in [("all=true", 7), ("all=false", 6)] {
        let mut seen = Vec::new();
        let mut after = String::new();
        loop {
            let page = stage
                .get(&format!("/api/v1/jobs?{query}&limit=3{after}"))
                .await
                .json();
            let jobs = page["msg"].as_array().unwrap();
            seen.extend(jobs.iter().map(|job| job["id"].as_str().unwrap().to_owned()));
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => break,
            }
        }
        assert_eq!(seen.len(), expected, "{query}");
        assert!(seen.is_sorted_by(|left, right| left > right), "{seen:?}");
    }
    assert_eq!(stage.get("/api/v1/jobs?after=nonsense").await.status, 400);
    let refused = stage.get("/api/v1/jobs?limit=-1").await;
    assert_eq!(
        (refused.status, refused.json()["msg"].as_str()),
        (400, Some("`limit`: `-1` is not a whole number, 0 or more"))
    );
    let refused = stage.get("/api/v1/jobs?limt=1").await.json();
    assert_eq!(refused["hints"][0], "did you mean `limit`?");
    stage.finish().await;
}

#[tokio::test]
async fn the_name_suggested_for_a_rerun_can_be_used() {
    let stage = Stage::new().await;
    stage.submit("a").await;
    let taken = stage.post("/api/v1/jobs/a/rerun", json!({})).await.json();
    let hint = taken["hints"][0].as_str().unwrap();
    assert!(hint.contains("`-jobname a-2`"), "{hint}");
    let renamed = stage
        .post("/api/v1/jobs/a/rerun?name=a-2", json!({}))
        .await
        .json();
    assert_eq!(renamed["job"]["name"], "a-2");
    let refused = stage.post("/api/v1/jobs/a/rerun?name=a_2", json!({})).await;
    assert_eq!(refused.status, 400, "{}", refused.text());
    stage.finish().await;
}

#[tokio::test]
async fn a_job_can_be_run_again_and_the_past_pruned() {
    let stage = Stage::new().await;
    let first = stage.submit("a").await;
    stage.send(Request::new("DELETE", "/api/v1/jobs/a")).await;
    let again = stage
        .post(&format!("/api/v1/jobs/{first}/rerun"), json!({}))
        .await
        .json();
    assert_ne!(again["id"], first.as_str());
    assert_eq!(again["job"]["name"], "a");
    let body = json!({"older_than_seconds": 0, "dry_run": true});
    assert_eq!(
        stage.post("/api/v1/prune", body).await.json()["msg"]["removed"],
        json!([first])
    );
    let kept = stage
        .post("/api/v1/prune", json!({"older_than_seconds": 3600}))
        .await
        .json();
    assert_eq!(kept["msg"]["removed"], json!([]));
    for unclear in [json!({}), json!({"all": true, "older_than_seconds": 1})] {
        let refused = stage.post("/api/v1/prune", unclear).await;
        assert_eq!(refused.status, 400);
        assert!(
            refused.text().contains("older_than_seconds"),
            "{}",
            refused.text()
        );
    }
    assert_eq!(
        stage.post("/api/v1/prune", json!({"all": true})).await.json()["msg"]["removed"],
        json!([first])
    );
    assert_eq!(
        stage.get("/api/v1/jobs?all=1").await.json()["msg"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    stage.finish().await;
}

#[tokio::test]
async fn workers_logs_and_quota_of_a_waiting_job_are_empty() {
    let stage = Stage::new().await;
    stage.submit("a").await;
    assert_eq!(
        stage.get("/api/v1/workers?jobname=a").await.json(),
        json!({"code": 200, "msg": []})
    );
    assert_eq!(stage.get("/api/v1/workers").await.json()["msg"], json!([]));
    assert_eq!(
        stage.get("/api/v1/logs?jobname=a&n=10").await.json(),
        json!({"code": 200, "msg": ""})
    );
    assert_eq!(stage.get("/api/v1/logs?jobname=nope").await.status, 404);
    let quota = stage.get("/api/v1/quota").await.json();
    assert_eq!(
        quota["msg"][3],
        json!({"resource": "parallelism", "limit": "50", "used": "0", "reserved": "0"})
    );
    let stream = stage.get("/api/v1/jobs/a/logs").await;
    assert_eq!(
        stream.header("content-type"),
        Some("application/vnd.paddlecloud.log")
    );
    stage.finish().await;
}

#[tokio::test]
async fn following_a_job_that_just_ended_reports_its_end() {
    let stage = Stage::new().await;
    let id: JobId = stage.submit("short").await.parse().unwrap();
    let looked_up = stage.app.jobs.get(&id).unwrap();
    stage.send(Request::new("DELETE", "/api/v1/jobs/short")).await;
    stage.app.jobs.wait_final(&id).await;
    let query = LogQuery {
        follow: true,
        ..LogQuery::default()
    };
    let mut log = stage.app.logs.open(looked_up, &query).await.unwrap();
    let mut bytes = Vec::new();
    while let Some(portion) = log.next().await {
        bytes.extend(portion.unwrap());
    }
    let Ok(Some((Frame::End(Some(end)), _))) = Frame::decode(&bytes) else {
        panic!("the end is all there is: {bytes:?}");
    };
    assert_eq!(end.status, JobStatus::Killed);
    // It holds a handle to the jobs, and a server ends with the last one.
    drop(log);
    stage.finish().await;
}

#[tokio::test]
async fn a_paddle_train_job_is_accepted_without_a_note() {
    let stage = Stage::new().await;
    let topology = json!({"name": "v1", "image": "i", "topology": "conf.py", "dry_run": true});
    let own = json!({"name": "v2", "image": "i", "entry": "sh train.sh", "dry_run": true});
    for mut request in [topology, own] {
        let alone = stage.post("/api/v1/jobs", request.clone()).await;
        assert_eq!(
            alone.status,
            400,
            "an image alone means nothing here: {}",
            alone.text()
        );
        assert!(alone.text().contains("its own machine"), "{}", alone.text());
        request["package_id"] = "a".repeat(64).into();
        request["package_name"] = "pkg".into();
        let reply = stage.post("/api/v1/jobs", request).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let notes = reply.json()["notes"].to_string();
        assert!(!notes.contains("paddle train"), "{notes}");
    }
    stage.finish().await;
}

/// Far longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(60);

/// Sends a request of `me` that wants to hear that the server is still at it.
async fn post_lasting(stage: &Stage, path: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(&stage.address).await.unwrap();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\nauthorization: {}\r\n{ALIVE_HEADER}: 1\r\n\
         content-length: {}\r\n\r\n{body}",
        basic("me"),
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn a_submit_waiting_for_the_home_to_be_measured_sends_keep_alive_bytes() {
    let users = "users:\n- {name: me, password_file: word, system_user: a, quota: {storage: 1Mi}}\n\
                 - {name: you, password_file: word, system_user: b}\n";
    let stage = Stage::with(users).await;
    stage.submit("first").await;
    let me = Caller {
        user: "me".parse().unwrap(),
        scopes: paddlecloud_core::access::Scopes::user(),
    };
    stage.app.files.home_changed(&me);
    let turns: Vec<_> =
        std::iter::from_fn(|| stage.app.queue.turn(Class::End, &me.user).now_or_never()).collect();
    let mut streams = vec![
        post_lasting(&stage, "/api/v1/jobs", &request("second").to_string()).await,
        post_lasting(&stage, "/api/v1/jobs", &request("first").to_string()).await,
        post_lasting(&stage, "/api/v1/jobs/first/rerun?name=third", "{}").await,
    ];
    let first_bytes = join_all(streams.iter_mut().map(|stream| timeout(LIMIT, stream.read_u8()))).await;
    for first in first_bytes {
        assert_eq!(first.expect("it is said before it is measured").unwrap(), b'H');
    }
    assert_eq!(stage.app.jobs.active().len(), 2, "nothing was stored yet");
    drop(turns);
    let mut replies = Vec::new();
    for stream in &mut streams {
        let mut text = String::new();
        let read = timeout(LIMIT, stream.read_to_string(&mut text)).await;
        read.expect("it comes to an end").unwrap();
        assert!(text.starts_with("TTP/1.1 200 "), "{text}");
        replies.push(text);
    }
    assert!(replies[0].contains(r#""name":"second""#), "{}", replies[0]);
    assert!(replies[1].contains(r#""error":"name-taken""#), "{}", replies[1]);
    assert!(replies[2].contains(r#""name":"third""#), "{}", replies[2]);
    stage.finish().await;
}

#[tokio::test]
async fn a_quickly_refused_submit_has_an_error_status() {
    let stage = Stage::new().await;
    let refused = stage
        .send(
            Request::new("POST", "/api/v1/jobs")
                .header(ALIVE_HEADER, "1")
                .json(request("Not A Name")),
        )
        .await;
    assert_eq!(refused.status, 400, "{}", refused.text());
    stage.finish().await;
}
