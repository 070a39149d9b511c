//! Jobs that continue the training of an ended run: which run is meant, what is refused, and what a clean-up keeps.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use paddlecloud_core::conductor::Write;
use paddlecloud_core::job::{Job, Outcome, Phase};
use paddlecloud_core::names::JobId;
use paddlecloud_core::ports::JobStore;
use paddlecloud_core::resumed::ResumedRun;
use paddlecloud_core::spec::JobSpec;
use serde_json::{Value, json};

use crate::client::Request;
use crate::engine::wait_until;
use crate::stage::{Stage, home, request};

/// Records a run of `me` that was killed after its trainers had started. It ended `number` seconds after the epoch.
async fn ended(stage: &Stage, number: u32, name: &str, change: impl FnOnce(&mut Job)) -> String {
    let mut spec = JobSpec::new(name.parse().unwrap());
    spec.package = Some("/pfs/dc1/home/me/job_word_emb".into());
    let then = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(number.into());
    let id = JobId::new(number.into(), 0);
    let mut job = Job::new(
        id,
        "me".parse().unwrap(),
        Arc::new(spec),
        None,
        number.into(),
        then,
    );
    job.phase = Phase::Final(Outcome::Killed);
    job.started_at = Some(then);
    job.finished_at = Some(then);
    change(&mut job);
    let id = job.id.to_string();
    stage.app.store.save(&[Write::Save(Arc::new(job))]).await.unwrap();
    id
}

fn output(stage: &Stage, id: &str) -> PathBuf {
    home(stage.folder.path(), "me").join(format!(".paddlecloud/runs/{id}/output"))
}

/// The same, with a checkpoint at the default place.
async fn trained(stage: &Stage, number: u32, name: &str) -> String {
    let id = ended(stage, number, name, |_| {}).await;
    let folder = output(stage, &id).join("checkpoints").join(&id);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("10-0"), "checkpoint").unwrap();
    id
}

fn resuming(name: &str, run: &str) -> Value {
    let mut body = request(name);
    body["resume"] = json!(run);
    body
}

/// The name of the error, its sentence and its hint.
async fn refused(stage: &Stage, run: &str) -> String {
    let reply = stage.post("/api/v1/jobs", resuming("new", run)).await.json();
    format!(
        "{} {}: {} ({})",
        reply["code"], reply["error"], reply["msg"], reply["hints"][0]
    )
}

#[tokio::test]
async fn a_run_is_resumed_by_id_by_name_or_as_the_one_that_ended_last() {
    let stage = Stage::new().await;
    let old = trained(&stage, 1, "emb").await;
    let latest = trained(&stage, 2, "emb").await;
    let other = trained(&stage, 3, "other").await;
    for (number, (run, expected)) in [
        (&*old, &old),
        ("emb", &latest),
        ("last", &other),
        ("me/emb", &latest),
    ]
    .into_iter()
    .enumerate()
    {
        let mut body = resuming(&format!("new-{number}"), run);
        body["pservers"] = json!(1);
        let reply = stage.post("/api/v1/jobs", body).await.json();
        assert_eq!(reply["job"]["resumed_from"], expected.as_str(), "{run}: {reply}");
        let notes = reply["notes"].to_string();
        assert!(
            notes.contains(&format!("({expected}), which was killed\"")),
            "{notes}"
        );
    }
    let list = stage.get("/api/v1/jobs").await.json();
    assert_eq!(list["msg"][1]["resumed_from"], other.as_str());
    stage.finish().await;
}

#[tokio::test]
async fn a_dry_run_names_the_run_and_makes_nothing() {
    let stage = Stage::new().await;
    let id = trained(&stage, 1, "emb").await;
    let mut body = resuming("new", "last");
    body["dry_run"] = json!(true);
    let reply = stage.post("/api/v1/jobs", body).await.json();
    assert_eq!(reply["job"]["resumed_from"], id.as_str());
    assert!(
        reply["notes"]
            .to_string()
            .contains(&format!("continues the training of emb ({id})"))
    );
    assert_eq!(stage.get("/api/v1/jobs").await.json()["msg"], json!([]));
    stage.finish().await;
}

#[tokio::test]
async fn what_cannot_be_resumed_is_refused_in_one_sentence() {
    let stage = Stage::new().await;
    let mut texts = vec![refused(&stage, "last").await, refused(&stage, "emb").await];
    let waiting = stage.submit("waiting").await;
    texts.push(refused(&stage, "last").await);
    texts.push(refused(&stage, "waiting").await);

    ended(&stage, 1, "plain", |job| {
        Arc::make_mut(&mut job.spec).pservers = 0
    })
    .await;
    texts.push(refused(&stage, "plain").await);
    ended(&stage, 2, "early", |job| job.started_at = None).await;
    texts.push(refused(&stage, "early").await);
    let cleared = trained(&stage, 3, "cleared").await;
    fs::remove_dir_all(output(&stage, &cleared)).unwrap();
    texts.push(refused(&stage, "cleared").await);
    let empty = trained(&stage, 4, "empty").await;
    fs::remove_dir_all(output(&stage, &empty).join("checkpoints").join(&empty)).unwrap();
    texts.push(refused(&stage, "empty").await);
    let removed = trained(&stage, 5, "removed").await;
    stage
        .send(Request::new("DELETE", &format!("/api/v1/jobs/{removed}?rm=true")))
        .await;
    texts.push(refused(&stage, &removed).await);
    let yours = ended(&stage, 6, "yours", |job| job.user = "you".parse().unwrap()).await;
    texts.push(refused(&stage, &yours).await);
    texts.push(refused(&stage, "you/yours").await);
    let mut none = resuming("new", "last");
    none["pservers"] = json!(0);
    texts.push(stage.post("/api/v1/jobs", none).await.json()["msg"].to_string());

    let names = stage.get("/api/v1/jobs").await.json()["msg"]
        .as_array()
        .unwrap()
        .len();
    assert_eq!(names, 1, "nothing was queued");
    let text = texts.join("\n").replace(&waiting, "WAITING");
    insta::assert_snapshot!(text, @r#"
    404 "not-found": "there are no jobs yet" ("`paddlectl submit` starts one")
    404 "not-found": "there is no job `emb`" ("`paddlectl get jobs -a` lists all of them")
    409 "conflict": "none of your jobs has ended yet" ("`paddlectl get jobs` lists them")
    409 "conflict": "waiting (WAITING) has not ended, so it cannot be resumed yet" ("stop it with `paddlectl kill WAITING`, or wait for its end with `paddlectl wait WAITING`")
    409 "conflict": "plain (j_00000000100000) had no parameter servers, so there is nothing to resume" ("leave out `-resume`")
    409 "conflict": "early (j_00000000200000) ended before its trainers started, so it has no checkpoints" ("leave out `-resume`")
    409 "conflict": "cleared (j_00000000300000) has no output any more, and its checkpoints were in it" ("leave out `-resume`")
    409 "conflict": "empty (j_00000000400000) has no checkpoints in its output" ("`ps.connect(checkpoint_every=100)` writes them; leave out `-resume` to train from the start")
    404 "not-found": "there is no job `j_00000000500000`" ("`paddlectl get jobs -a` lists all of them")
    404 "not-found": "there is no job `j_00000000600000`" ("`paddlectl get jobs -a` lists all of them")
    404 "not-found": "there is no job `you/yours`" ("`paddlectl get jobs -a` lists all of them")
    "`resume` needs parameter servers, and this job has none"
    "#);
    stage.finish().await;
}

#[tokio::test]
async fn a_run_that_is_being_stopped_is_not_passed_over() {
    let stage = Stage::new().await;
    trained(&stage, 1, "older").await;
    let mut body = request("emb");
    let fields = body.as_object_mut().unwrap();
    fields.remove("topology");
    let more = [
        (
            "entry",
            json!("trap '' TERM; touch $PADDLE_CLOUD_HOME/up; sleep 600"),
        ),
        ("parallelism", json!(1)),
        ("pservers", json!(0)),
        ("cpu", json!("10m")),
        ("memory", json!("16Mi")),
    ];
    fields.extend(more.map(|(name, value)| (name.to_owned(), value)));
    let id = stage.post("/api/v1/jobs", body).await.json()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let up = home(stage.folder.path(), "me").join("up");
    wait_until("the trainer runs", || up.exists()).await;
    let running = refused(&stage, &id).await;
    assert!(
        running.contains("has not ended, so it cannot be resumed yet"),
        "{running}"
    );
    stage.send(Request::new("DELETE", "/api/v1/jobs/emb")).await;
    let stopping = refused(&stage, "last").await;
    let expected = format!(
        "409 \"conflict\": \"emb ({id}) is being stopped, so it cannot be resumed yet\" (\"`paddlectl wait {id}` waits for its end\")"
    );
    assert_eq!(stopping, expected);
    stage
        .send(Request::new("DELETE", "/api/v1/jobs/emb?now=true"))
        .await;
    stage.finish().await;
}

#[tokio::test]
async fn a_run_with_checkpoints_elsewhere_is_accepted_with_a_note() {
    let stage = Stage::new().await;
    let id = ended(&stage, 1, "emb", |_| {}).await;
    fs::create_dir_all(output(&stage, &id)).unwrap();
    let reply = stage.post("/api/v1/jobs", resuming("new", "last")).await.json();
    assert_eq!(reply["job"]["resumed_from"], id.as_str());
    let notes = reply["notes"].to_string();
    assert!(
        notes.contains("its output has no folder `checkpoints`"),
        "{notes}"
    );
    stage.finish().await;
}

#[tokio::test]
async fn a_repeated_submit_means_the_run_it_meant_at_first() {
    let stage = Stage::new().await;
    let first = trained(&stage, 1, "emb").await;
    let submit = |run: &str| {
        Request::new("POST", "/api/v1/jobs")
            .header("idempotency-key", "key-1")
            .json(resuming("new", run))
    };
    let made = stage.send(submit("last")).await.json();
    let later = trained(&stage, 2, "later").await;
    fs::remove_dir_all(output(&stage, &first)).unwrap();
    let again = stage.send(submit("last")).await.json();
    assert_eq!(
        (&again["id"], &again["job"]["resumed_from"]),
        (&made["id"], &json!(first))
    );
    let other = stage.send(submit(&later)).await.json();
    assert_eq!(other["error"], "conflict", "{other}");
    stage.finish().await;
}

#[tokio::test]
async fn a_rerun_continues_the_same_run_or_is_refused() {
    let stage = Stage::new().await;
    let first = trained(&stage, 1, "emb").await;
    stage.post("/api/v1/jobs", resuming("new", "last")).await;
    stage.send(Request::new("DELETE", "/api/v1/jobs/new")).await;
    let again = stage.post("/api/v1/jobs/new/rerun", json!({})).await.json();
    assert_eq!(again["job"]["resumed_from"], first.as_str(), "{again}");
    stage.send(Request::new("DELETE", "/api/v1/jobs/new")).await;
    fs::remove_dir_all(output(&stage, &first)).unwrap();
    let gone = stage.post("/api/v1/jobs/new/rerun", json!({})).await.json();
    assert!(
        gone["msg"].as_str().unwrap().contains("has no output any more"),
        "{gone}"
    );
    stage.finish().await;
}

#[tokio::test]
async fn a_run_that_came_to_nothing_points_to_the_one_before() {
    let stage = Stage::new().await;
    let first = trained(&stage, 1, "emb").await;
    let run = ResumedRun {
        id: first.parse().unwrap(),
        output: String::new(),
    };
    ended(&stage, 2, "failed", |job| {
        Arc::make_mut(&mut job.spec).resume = Some(run);
        job.started_at = None;
    })
    .await;
    let refused = refused(&stage, "last").await;
    let hint = format!("(\"it continued {first}: try `-resume {first}`\")");
    assert!(refused.ends_with(&hint), "{refused}");
    stage.finish().await;
}

#[tokio::test]
async fn no_clean_up_removes_checkpoints_that_a_job_needs() {
    let stage = Stage::new().await;
    let first = trained(&stage, 1, "emb").await;
    let other = trained(&stage, 2, "other").await;
    stage.post("/api/v1/jobs", resuming("new", &first)).await;
    let all = json!({"all": true, "outputs": true});
    let pruned = stage.post("/api/v1/prune", all.clone()).await.json();
    assert_eq!(pruned["msg"]["removed"], json!([other]));
    let note = pruned["msg"]["note"].as_str().unwrap();
    assert_eq!(
        note,
        format!("{first} stays with its output: a job that has not ended continues its training")
    );
    let checkpoint = output(&stage, &first)
        .join("checkpoints")
        .join(&first)
        .join("10-0");
    assert!(checkpoint.exists() && !output(&stage, &other).exists());

    // Also without its record.
    let path = format!("/api/v1/jobs/{first}?rm=true");
    assert_eq!(stage.send(Request::new("DELETE", &path)).await.status, 200);
    stage.post("/api/v1/prune", all.clone()).await;
    assert!(checkpoint.exists());

    stage.send(Request::new("DELETE", "/api/v1/jobs/new")).await;
    stage.post("/api/v1/prune", all).await;
    assert!(!checkpoint.exists());
    stage.finish().await;
}
