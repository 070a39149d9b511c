//! Who owns the homes in the storage: no account gets a number that owns another's files, and no home of another number.
//!
//! Needs root, as all that concerns other system users.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::PathBuf;

use paddlecloud_server::start::Server;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::client::{Reply, Request};
use crate::stage::{Stage, config, home};

const UIDS: &str = "system_uids: 30000-39999\nusers: [{name: me, password_file: word, admin: true}]\n";

async fn add(stage: &Stage, body: Value) -> Reply {
    let mut all = json!({"password": "secret it is"});
    all.as_object_mut()
        .unwrap()
        .extend(body.as_object().unwrap().clone());
    stage.post("/api/v1/admin/users", all).await
}

async fn set(stage: &Stage, name: &str, body: Value) -> Reply {
    let request = Request::new("PATCH", &format!("/api/v1/admin/users/{name}"));
    stage.send(request.json(body)).await
}

async fn delete(stage: &Stage, name: &str) -> Reply {
    let path = format!("/api/v1/admin/users/{name}?dispose=purge");
    stage.send(Request::new("DELETE", &path)).await
}

fn login(user: &str) -> String {
    use base64::Engine as _;
    let word = base64::engine::general_purpose::STANDARD.encode(format!("{user}:secret it is"));
    format!("Basic {word}")
}

async fn list_home(stage: &Stage, user: &str) -> Reply {
    let path = format!("/api/v1/pfs/list?path=/pfs/dc1/home/{user}");
    let request = Request::new("GET", &path).header("authorization", &login(user));
    request.send(&stage.address).await
}

/// Adds a user and lets them use their home. Returns the number that owns it.
async fn add_with_home(stage: &Stage, user: &str) -> u32 {
    let reply = add(stage, json!({"name": user})).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let listed = list_home(stage, user).await;
    assert_eq!(listed.status, 200, "{}", listed.text());
    let made = home(stage.folder.path(), user);
    fs::write(made.join("f"), "x").unwrap();
    let number = fs::metadata(&made).unwrap().uid();
    chown(made.join("f"), Some(number), Some(number)).unwrap();
    number
}

/// A folder with a file that root put into the storage.
fn copied_by_hand(stage: &Stage, user: &str) -> PathBuf {
    let folder = home(stage.folder.path(), user);
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("f"), "x").unwrap();
    folder
}

/// Asserts that an administrator gets the number that owns the home and the command that changes it.
fn assert_refused(reply: &Reply, home: &std::path::Path, found: u32, expected: u32) {
    assert_eq!(reply.status, 409, "{}", reply.text());
    let text = reply.text();
    let problem = format!("belongs to system user number {found}, not to number {expected}");
    assert!(text.contains(&problem), "{text}");
    let command = format!(
        "chown -R --no-dereference {expected}:{expected} {}",
        home.canonicalize().unwrap().display()
    );
    assert!(text.contains(&command), "{text}");
}

#[tokio::test]
#[ignore = "needs root"]
async fn a_number_that_owns_a_home_is_not_given_to_a_new_account() {
    let stage = Stage::with(UIDS).await;
    let ann = add_with_home(&stage, "ann").await;
    let database = stage.app.config.database.clone();
    let backup = stage.folder.path().join("backup");
    paddlecloud_store::back_up(&database, &backup).await.unwrap();
    let carol = add_with_home(&stage, "carol").await;
    assert_ne!(carol, ann);
    let kept = add_with_home(&stage, "zed").await;
    let path = "/api/v1/admin/users/zed?dispose=keep";
    assert_eq!(stage.send(Request::new("DELETE", path)).await.status, 200);
    let folder = stage.finish().await;
    let data = folder.path().join("data");
    for name in ["server.db", "server.db-wal", "server.db-shm"] {
        let _ = fs::remove_file(data.join(name));
    }
    paddlecloud_store::restore(&database, &backup, &|_| true)
        .await
        .unwrap();
    let stage = Stage::on(folder, UIDS).await;
    let dave = add_with_home(&stage, "dave").await;
    assert!(![ann, carol, kept].contains(&dave), "{dave}");
    let again = add(&stage, json!({"name": "carol"})).await;
    let lost = home(stage.folder.path(), "carol");
    assert_refused(&again, &lost, carol, dave + 1);
    chown(&lost, Some(dave + 1), Some(dave + 1)).unwrap();
    chown(lost.join("f"), Some(dave + 1), Some(dave + 1)).unwrap();
    let again = add(&stage, json!({"name": "carol"})).await;
    assert_eq!(again.status, 200, "the command is enough: {}", again.text());
    assert_eq!(list_home(&stage, "carol").await.status, 200);
    stage.finish().await;
}

#[tokio::test]
#[ignore = "needs root"]
async fn no_command_gives_an_account_a_home_of_another_number() {
    let stage = Stage::with(UIDS).await;
    let bob = add_with_home(&stage, "bob").await;
    let daemon = paddlecloud_supervisor::find_account("daemon").unwrap().unwrap();
    let refused = set(&stage, "bob", json!({"system_user": "daemon"})).await;
    assert_refused(&refused, &home(stage.folder.path(), "bob"), bob, daemon.uid);
    let shown = stage.get("/api/v1/admin/users/bob").await.json();
    assert_eq!(
        shown["msg"]["system_user"],
        bob.to_string(),
        "the number from `system_uids` is shown"
    );
    let carol = copied_by_hand(&stage, "carol");
    let refused = add(&stage, json!({"name": "carol"})).await;
    assert_refused(&refused, &carol, 0, bob + 1);
    assert_eq!(stage.get("/api/v1/admin/users/carol").await.status, 404);
    fs::create_dir_all(home(stage.folder.path(), "empty").join(".paddlecloud/runs")).unwrap();
    let empty = add(&stage, json!({"name": "empty"})).await;
    assert_eq!(empty.status, 200, "{}", empty.text());
    assert_eq!(list_home(&stage, "empty").await.status, 200);
    let other = set(&stage, "bob", json!({"admin": true})).await;
    assert_eq!(other.status, 200, "{}", other.text());
    let folder = stage.finish().await;
    Stage::on(folder, UIDS).await.finish().await;
}

#[tokio::test]
#[ignore = "needs root"]
async fn a_stored_account_with_a_foreign_home_is_refused_alone_and_can_be_purged() {
    let stage = Stage::with(UIDS).await;
    add_with_home(&stage, "ann").await;
    let added = add(&stage, json!({"name": "zoe"})).await;
    assert_eq!(added.status, 200, "{}", added.text());
    copied_by_hand(&stage, "zoe");
    let folder = stage.finish().await;
    let stage = Stage::on(folder, UIDS).await;
    assert_eq!(list_home(&stage, "ann").await.status, 200);
    let body = json!({"job_package": "/pfs/dc1/home/zoe/job", "entry": "true", "cpu": 1, "memory": "1Gi"});
    let submit = Request::new("POST", "/api/v1/jobs")
        .json(body)
        .header("authorization", &login("zoe"));
    let path = stage.folder.path().display().to_string();
    for refused in [list_home(&stage, "zoe").await, submit.send(&stage.address).await] {
        assert_eq!(refused.status, 403, "{}", refused.text());
        let text = refused.text();
        assert!(
            text.contains("the home of `zoe` belongs to another system user"),
            "{text}"
        );
        assert!(!text.contains(&path), "{text}");
    }
    let quotas = stage.get("/api/v1/quota?all_users=true").await;
    assert_eq!(quotas.status, 200, "{}", quotas.text());
    let purged = delete(&stage, "zoe").await;
    assert_eq!(purged.status, 200, "{}", purged.text());
    assert!(!home(stage.folder.path(), "zoe").exists());
    stage.finish().await;
}

#[tokio::test]
#[ignore = "needs root"]
async fn a_home_that_its_user_locked_does_not_stop_the_server() {
    let stage = Stage::with(UIDS).await;
    add_with_home(&stage, "ann").await;
    let folder = stage.finish().await;
    let locked = fs::Permissions::from_mode(0o000);
    fs::set_permissions(home(folder.path(), "ann"), locked).unwrap();
    let config = config(folder.path(), UIDS);
    let started = Server::start(config, paddlecloud_supervisor::probe(), CancellationToken::new()).await;
    assert!(started.is_ok(), "{:?}", started.err());
}

#[tokio::test]
#[ignore = "needs root"]
async fn root_and_unknown_system_users_are_refused_at_the_command() {
    let stage = Stage::with(UIDS).await;
    let root = "the workers of user `x` would run as root";
    let unknown = "there is no system user `nobody-here` on this machine";
    for (system_user, problem) in [("root", root), ("nobody-here", unknown)] {
        let refused = add(&stage, json!({"name": "x", "system_user": system_user})).await;
        assert_eq!(refused.status, 409, "{}", refused.text());
        assert!(refused.text().contains(problem), "{}", refused.text());
    }
    assert_eq!(add(&stage, json!({"name": "x"})).await.status, 200);
    let refused = set(&stage, "x", json!({"system_user": "root"})).await;
    assert_eq!(refused.status, 409, "{}", refused.text());
    stage.finish().await;
}
