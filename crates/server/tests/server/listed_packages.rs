//! Submits that have the list of their package in them: what they stage, publish and refuse.

use std::path::{Path, PathBuf};

use paddlecloud_pfs::package::{Manifest, ScanOptions, scan};
use serde_json::{Value, json};

use crate::client::{Reply, Request};
use crate::packages::{pack_path, package, upload};
use crate::stage::{Stage, home};

/// A job of the package, with the list in it.
fn listed(manifest: &Manifest) -> Value {
    json!({
        "package_id": manifest.id().to_string(), "package_name": "my_pkg", "package_list": manifest,
        "pservers": 0, "parallelism": 6,
    })
}

async fn submit(stage: &Stage, body: &Value) -> Reply {
    stage.post("/api/v1/jobs", body.clone()).await
}

/// What is in a folder of the server's storage, however deep.
fn below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        found.push(entry.path());
        if entry.path().is_dir() {
            found.extend(below(&entry.path()));
        }
    }
    found
}

fn staged(stage: &Stage) -> Vec<PathBuf> {
    below(&home(stage.folder.path(), "me").join(".pfs-staging"))
}

fn stored(stage: &Stage) -> Vec<PathBuf> {
    below(&home(stage.folder.path(), "me").join(".paddlecloud/packages"))
}

#[tokio::test]
async fn a_new_package_takes_three_requests() {
    let stage = Stage::new().await;
    let (manifest, pack) = package();
    let asked = submit(&stage, &listed(&manifest)).await;
    let refused = asked.json();
    assert_eq!(
        (asked.status, &refused["error"]),
        (409, &json!("package-missing"))
    );
    let lacking = &refused["package"];
    assert_eq!(lacking["missing"].as_array().unwrap().len(), 2, "{lacking}");
    assert_eq!(lacking["stored"], false);
    let path = pack_path(&manifest, 1 << 20);
    assert!(path.contains(lacking["folder"].as_str().unwrap()), "{lacking}");

    let filled = stage.send(Request::new("PUT", &path).body(pack)).await;
    assert_eq!(filled.status, 200, "{}", filled.text());
    assert_eq!(stored(&stage), Vec::<PathBuf>::new());

    let accepted = submit(&stage, &listed(&manifest)).await;
    assert_eq!(accepted.status, 200, "{}", accepted.text());
    assert_eq!(accepted.json()["job"]["job_package"], "/pfs/dc1/home/me/my_pkg");
    assert_eq!(staged(&stage), Vec::<PathBuf>::new());
    assert!(!stored(&stage).is_empty());
    stage.finish().await;
}

#[tokio::test]
async fn a_package_of_known_files_takes_one_request() {
    let stage = Stage::new().await;
    let known = upload(&stage).await;
    let kept = known
        .entries()
        .iter()
        .filter(|entry| entry.path.to_string() == "train.py");
    let part = Manifest::new(kept.cloned().collect()).unwrap();
    for manifest in [&known, &part] {
        let accepted = submit(&stage, &listed(manifest)).await;
        assert_eq!(accepted.status, 200, "{}", accepted.text());
    }
    assert_eq!(staged(&stage), Vec::<PathBuf>::new());
    stage.finish().await;
}

#[tokio::test]
async fn a_list_of_another_package_is_refused_by_name() {
    let stage = Stage::new().await;
    let (manifest, _) = package();
    let with = |id: Value| {
        let mut body = listed(&manifest);
        body["package_id"] = id;
        body
    };
    for body in [with("0".repeat(64).into()), with("x".into()), with(Value::Null)] {
        let refused = submit(&stage, &body).await;
        assert_eq!(refused.status, 400, "{}", refused.text());
        let message = refused.json()["msg"].as_str().unwrap().to_owned();
        assert!(message.starts_with("`package_list` must"), "{message}");
    }
    assert_eq!(staged(&stage), Vec::<PathBuf>::new());
    stage.finish().await;
}

/// The list of a folder with one file.
fn list_of(name: &str, content: &[u8]) -> Manifest {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(name), content).unwrap();
    scan(folder.path(), &ScanOptions::default())
        .unwrap()
        .manifest()
        .unwrap()
}

#[tokio::test]
async fn a_dry_run_and_a_submit_refused_for_another_reason_stage_nothing() {
    let users = "users:\n- {name: me, password_file: word, system_user: a, quota: {storage: 1Mi, queued_jobs: 1}}\n\
                 - {name: you, password_file: word, system_user: b}\n";
    let stage = Stage::with(users).await;
    let (manifest, _) = package();
    let dry_run = {
        let mut body = listed(&manifest);
        body["dry_run"] = true.into();
        submit(&stage, &body).await
    };
    assert_eq!(dry_run.status, 200, "{}", dry_run.text());
    let errors = async |changes: Vec<(&str, Value)>| {
        let mut body = listed(&manifest);
        for (field, value) in changes {
            body[field] = value;
        }
        submit(&stage, &body).await.json()["error"].clone()
    };
    let of = |list: &Manifest| {
        let id = list.id().to_string();
        vec![("package_list", json!(list)), ("package_id", json!(id))]
    };
    let (blocking, large) = (list_of("output", b""), list_of("model", &vec![7; 2 << 20]));
    for (changes, error) in [
        (vec![("gpu", json!(1000))], "too-big"),
        (vec![("memory", json!("1X"))], "bad-request"),
        (vec![("package_name", json!("../p"))], "bad-request"),
        (of(&blocking), "bad-request"),
        (of(&large), "quota-exceeded"),
    ] {
        assert_eq!(errors(changes.clone()).await, error, "{changes:?}");
    }
    stage.submit("waits").await;
    assert_eq!(errors(Vec::new()).await, "quota-exceeded", "too many wait");
    assert_eq!(staged(&stage), Vec::<PathBuf>::new());
    stage.finish().await;
}

#[tokio::test]
async fn what_has_arrived_stays_when_the_repeated_submit_is_refused() {
    let stage = Stage::new().await;
    let (manifest, pack) = package();
    assert_eq!(submit(&stage, &listed(&manifest)).await.status, 409);
    let path = pack_path(&manifest, 1 << 20);
    assert_eq!(
        stage.send(Request::new("PUT", &path).body(pack)).await.status,
        200
    );
    let before = staged(&stage);
    let mut named = listed(&manifest);
    named["name"] = "a_b".into();
    assert_eq!(submit(&stage, &named).await.status, 400);
    assert_eq!(staged(&stage), before);
    assert_eq!(submit(&stage, &listed(&manifest)).await.status, 200);
    stage.finish().await;
}
