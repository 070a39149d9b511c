//! Uploading a package, and a job that uses it.

use std::time::Duration;

use futures_util::FutureExt;
use jiff::SignedDuration;
use paddlecloud_accounts::auth::Caller;
use paddlecloud_core::names::JobId;
use paddlecloud_files::queue::Class;
use paddlecloud_pfs::pack::{PackWriter, write_pack};
use paddlecloud_pfs::package::{Manifest, ScanOptions, scan};
use paddlecloud_pfs::{Digest, Entry, Mtime, Node, Root};
use serde_json::json;

use crate::client::{Reply, Request};
use crate::package_turns::photo;
use crate::stage::{Stage, basic, home};

/// Far longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(60);

/// A folder with two files: its list and all its files as a pack.
pub fn package() -> (Manifest, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("train.py"), "print('hello')\n").unwrap();
    std::fs::create_dir(folder.path().join("modules")).unwrap();
    std::fs::write(folder.path().join("modules/net.py"), "x = 1\n").unwrap();
    let found = scan(folder.path(), &ScanOptions::default()).unwrap();
    let root = Root::open(folder.path()).unwrap();
    let mut stream = Vec::new();
    write_pack(&root, &found.entries, &mut stream).unwrap();
    (Manifest::new(found.entries).unwrap(), stream)
}

pub async fn announce(stage: &Stage, manifest: &Manifest) -> serde_json::Value {
    let request = Request::new("POST", "/api/v1/packages").body(manifest.to_json());
    stage.send(request).await.json()
}

/// The path and query of a pack for a package.
pub fn pack_path(manifest: &Manifest, bytes: usize) -> String {
    let folder = format!("/pfs/dc1/home/me/.paddlecloud/packages/{}", manifest.id());
    format!("/api/v1/pfs/pack?path={folder}&bytes={bytes}&entries=100000")
}

/// Uploads a pack into a package.
async fn fill(stage: &Stage, manifest: &Manifest, pack: &[u8]) -> Reply {
    let path = pack_path(manifest, 1 << 20);
    stage.send(Request::new("PUT", &path).body(pack)).await
}

#[tokio::test]
async fn an_uploaded_package_is_stored_and_used_by_a_job() {
    let stage = Stage::new().await;
    let (manifest, pack) = package();
    let early = fill(&stage, &manifest, &pack).await;
    assert_eq!(
        (early.status, early.json()["error"].as_str()),
        (404, Some("not-found")),
        "{}",
        early.text()
    );
    let announced = announce(&stage, &manifest).await;
    assert_eq!(announced["msg"]["missing"].as_array().unwrap().len(), 2);
    assert_eq!(announced["msg"]["stored"], false);
    let folder = announced["msg"]["folder"].as_str().unwrap();
    assert!(pack_path(&manifest, 0).contains(folder), "{folder}");
    let filled = fill(&stage, &manifest, &pack).await;
    assert_eq!(filled.status, 200, "{}", filled.text());
    let home = home(stage.folder.path(), "me").join(".paddlecloud/packages");
    assert_eq!(
        std::fs::read_dir(&home).unwrap().count(),
        0,
        "nothing is there before all is"
    );
    assert_eq!(announce(&stage, &manifest).await["msg"]["stored"], true);
    let theirs = Request::new("POST", "/api/v1/packages").body(manifest.to_json());
    let theirs = theirs
        .header("authorization", &basic("you"))
        .send(&stage.address)
        .await;
    assert_eq!(theirs.json()["msg"]["stored"], false, "packages are private");
    let body = json!({"package_id": manifest.id().to_string(), "package_name": "my_pkg", "pservers": 0, "parallelism": 6});
    let job = stage.post("/api/v1/jobs", body).await;
    assert_eq!(
        job.json()["job"]["job_package"],
        "/pfs/dc1/home/me/my_pkg",
        "{}",
        job.text()
    );
    assert_eq!(job.json()["job"]["name"], "my-pkg");
    stage.finish().await;
}

#[tokio::test]
async fn a_cut_or_damaged_upload_publishes_nothing_and_its_whole_files_stay() {
    let stage = Stage::new().await;
    let (manifest, pack) = package();
    announce(&stage, &manifest).await;
    let mut damaged = pack.clone();
    let content = b"print('hello')";
    let at = damaged.windows(content.len()).position(|bytes| bytes == content);
    damaged[at.unwrap()] ^= 0xff;
    for wrong in [&pack[..pack.len() / 2], &damaged, b"nonsense"] {
        let reply = fill(&stage, &manifest, wrong).await;
        assert_eq!(
            (reply.status, reply.json()["error"].as_str()),
            (400, Some("damaged")),
            "{}",
            reply.text()
        );
    }
    let announced = announce(&stage, &manifest).await;
    let missing = announced["msg"]["missing"].as_array().unwrap();
    assert_eq!(missing.len(), 1, "one file came whole: {announced}");
    assert_eq!(fill(&stage, &manifest, &pack).await.status, 200);
    assert_eq!(announce(&stage, &manifest).await["msg"]["stored"], true);
    let folder = stage.finish().await;
    let home = home(folder.path(), "me");
    assert!(!home.join("train.py").exists());
    assert!(!home.join(".pfs-staging").exists(), "nothing unfinished stays");
}

#[tokio::test]
async fn a_large_file_of_a_package_is_an_upload_like_any_other() {
    let stage = Stage::new().await;
    let content = vec![b'x'; 5 << 20];
    let entry = Entry {
        path: "data/model".parse().unwrap(),
        node: Node::File {
            size: content.len() as u64,
            executable: false,
            digest: Some(Digest::of(&content)),
        },
        mtime: Mtime::default(),
    };
    let folder = Entry {
        path: "data".parse().unwrap(),
        node: Node::Dir,
        mtime: Mtime::default(),
    };
    let manifest = Manifest::new(vec![folder, entry]).unwrap();
    let announced = announce(&stage, &manifest).await;
    let path = format!("{}/data/model", announced["msg"]["folder"].as_str().unwrap());
    let body = json!({"path": path, "size": content.len(), "executable": false, "mtime": 0, "key": "k"});
    let started = stage.post("/api/v1/pfs/uploads", body).await;
    assert_eq!(started.status, 200, "{}", started.text());
    let upload = format!(
        "/api/v1/pfs/uploads/{}",
        started.json()["msg"]["id"].as_str().unwrap()
    );
    let ranges = format!("{upload}/ranges?offset=0&len={}", content.len());
    let sent = stage
        .send(Request::new("PUT", &ranges).body(content.clone()))
        .await;
    assert_eq!(sent.status, 200, "{}", sent.text());
    let listed = stage
        .send(Request::new("GET", "/api/v1/pfs/uploads"))
        .await
        .json();
    let paths: Vec<_> = listed["msg"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row["path"])
        .collect();
    assert!(paths.contains(&&json!(path)), "{listed}");
    let digest = Digest::of(&content).to_string();
    let commit = stage
        .post(&format!("{upload}/commit"), json!({"digest": digest}))
        .await;
    assert_eq!(commit.status, 200, "{}", commit.text());
    assert_eq!(announce(&stage, &manifest).await["msg"]["stored"], true);
    let late = stage.post(
        "/api/v1/pfs/uploads",
        json!({"path": path, "size": 1, "executable": false, "mtime": 0, "key": "l"}),
    );
    assert_eq!(late.await.status, 404, "a stored package is not changed");
    let stored = home(stage.folder.path(), "me").join(".paddlecloud/packages");
    let stored = stored.join(manifest.id().to_string()).join("data/model");
    assert_eq!(std::fs::read(stored).unwrap(), content);
    stage.finish().await;
}

#[tokio::test]
async fn a_token_uploads_what_its_scope_allows() {
    let stage = Stage::new().await;
    let (manifest, pack) = package();
    announce(&stage, &manifest).await;
    let elsewhere = format!(
        "/api/v1/pfs/pack?path=/pfs/dc1/home/me/d&bytes={}&entries=9",
        pack.len()
    );
    let into_package = pack_path(&manifest, pack.len());
    for (scope, allowed, refused) in [
        ("submit", &into_package, &elsewhere),
        ("files", &elsewhere, &into_package),
    ] {
        let made = stage
            .post("/api/v1/tokens", json!({"name": scope, "scopes": scope}))
            .await
            .json();
        let token = format!("Token {}", made["msg"]["token"].as_str().unwrap());
        for (path, status) in [(allowed, 200), (refused, 403)] {
            let request = Request::new("PUT", path).body(pack.clone());
            let reply = request.header("authorization", &token).send(&stage.address).await;
            assert_eq!(reply.status, status, "{scope} {path}: {}", reply.text());
        }
    }
    stage.finish().await;
}

#[tokio::test]
async fn links_and_other_homes_are_no_way_out_of_a_package() {
    let stage = Stage::new().await;
    let (manifest, pack) = package();
    announce(&stage, &manifest).await;
    let link = Entry {
        path: "way".parse().unwrap(),
        node: Node::Symlink {
            target: "modules".parse().unwrap(),
        },
        mtime: Mtime::default(),
    };
    let mut writer = PackWriter::new(Vec::new()).unwrap();
    writer
        .add_node(&Entry {
            path: "modules".parse().unwrap(),
            node: Node::Dir,
            mtime: Mtime::default(),
        })
        .unwrap();
    writer.add_node(&link).unwrap();
    let refused = fill(&stage, &manifest, &writer.finish().unwrap().0).await;
    assert_eq!(refused.status, 400, "{}", refused.text());
    let theirs = Request::new("PUT", &pack_path(&manifest, pack.len())).body(pack.clone());
    let theirs = theirs
        .header("authorization", &basic("you"))
        .send(&stage.address)
        .await;
    assert_eq!(theirs.status, 404, "{}", theirs.text());
    let inside = pack_path(&manifest, pack.len()).replace("&bytes", "/modules&bytes");
    assert_eq!(
        stage.send(Request::new("PUT", &inside).body(pack)).await.status,
        400
    );
    stage.finish().await;
}

/// A package that is already here is submitted without copies or checks of its own.
#[tokio::test]
async fn a_stored_package_needs_no_turn_for_long_work() {
    let stage = Stage::new().await;
    let (manifest, stream) = package();
    announce(&stage, &manifest).await;
    fill(&stage, &manifest, &stream).await;
    announce(&stage, &manifest).await;
    let me = "me".parse().unwrap();
    let turns: Vec<_> =
        std::iter::from_fn(|| stage.app.queue.turn(Class::Long, &me).now_or_never()).collect();
    assert!(!turns.is_empty());
    let announced = tokio::time::timeout(LIMIT, announce(&stage, &manifest)).await;
    let announced = announced.expect("it waits for nothing");
    assert_eq!(announced["msg"]["stored"], true, "{announced}");
    drop(turns);
    stage.finish().await;
}

#[tokio::test]
async fn a_long_file_list_is_accepted_and_one_over_the_limit_is_refused_with_a_hint() {
    let stage = Stage::new().await;
    let entry = |number| photo("images/", number);
    let folder = Entry {
        path: "images".parse().unwrap(),
        node: Node::Dir,
        mtime: Mtime::default(),
    };
    let entries = std::iter::once(folder).chain((0..30_000).map(entry));
    let manifest = Manifest::new(entries.collect()).unwrap();
    let list = manifest.to_json();
    assert!(list.len() > 4 << 20, "{}", list.len());
    let announced = stage
        .send(Request::new("POST", "/api/v1/packages").body(list))
        .await;
    assert_eq!(announced.status, 200, "{}", announced.text());
    assert_eq!(announced.json()["msg"]["missing"].as_array().unwrap().len(), 1);
    let mut writer = PackWriter::new(Vec::new()).unwrap();
    for entry in manifest.entries() {
        match entry.node {
            Node::Dir => writer.add_node(entry).unwrap(),
            _ => writer.add_file(entry, std::io::empty()).unwrap(),
        }
    }
    let filled = fill(&stage, &manifest, &writer.finish().unwrap().0).await;
    assert_eq!(filled.status, 200, "{}", filled.text());
    assert_eq!(announce(&stage, &manifest).await["msg"]["stored"], true);

    let too_long = vec![b' '; (64 << 20) + 1];
    let refused = stage
        .send(Request::new("POST", "/api/v1/packages").body(too_long))
        .await;
    assert_eq!(
        (refused.status, refused.json()["error"].as_str()),
        (413, Some("payload-too-large")),
        "{}",
        refused.text()
    );
    assert!(
        refused.text().contains("longer than 64 MiB"),
        "{}",
        refused.text()
    );
    assert!(refused.text().contains(".paddleignore"), "{}", refused.text());
    stage.finish().await;
}

#[tokio::test]
async fn a_job_cannot_use_a_missing_package() {
    let stage = Stage::new().await;
    let (manifest, _) = package();
    let body = json!({"package_id": manifest.id().to_string(), "package_name": "p", "pservers": 0, "parallelism": 6});
    let missing = stage.post("/api/v1/jobs", body).await;
    assert_eq!(
        (missing.status, missing.json()["error"].as_str()),
        (409, Some("package-missing")),
        "{}",
        missing.text()
    );
    for (id, name) in [("nonsense", "p"), (manifest.id().to_string().as_str(), "../p")] {
        let body = json!({"package_id": id, "package_name": name, "pservers": 0, "parallelism": 6});
        assert_eq!(stage.post("/api/v1/jobs", body).await.status, 400, "{id} {name}");
    }
    stage.finish().await;
}

#[tokio::test]
async fn other_errors_are_reported_before_a_missing_package() {
    let stage = Stage::new().await;
    stage.submit("taken").await;
    let id = package().0.id().to_string();
    for (field, value, error) in [
        ("name", json!("taken"), "name-taken"),
        ("gpu", json!(1000), "too-big"),
        ("parallelism", json!(51), "too-big"),
        ("memory", json!("1X"), "bad-request"),
    ] {
        let mut body = json!({"package_id": id, "package_name": "p", "pservers": 0, "parallelism": 6});
        body[field] = value;
        for dry_run in [false, true] {
            body["dry_run"] = dry_run.into();
            let reply = stage.post("/api/v1/jobs", body.clone()).await;
            assert_eq!(reply.json()["error"], error, "{field}: {}", reply.text());
        }
    }
    let whole =
        json!({"package_id": id, "package_name": "p", "pservers": 0, "parallelism": 6, "dry_run": true});
    assert_eq!(
        stage.post("/api/v1/jobs", whole).await.status,
        200,
        "a dry run sends nothing"
    );
    stage.finish().await;
}

/// Sends a package as `me`.
pub async fn upload(stage: &Stage) -> Manifest {
    let (manifest, pack) = package();
    announce(stage, &manifest).await;
    assert_eq!(fill(stage, &manifest, &pack).await.status, 200);
    assert_eq!(announce(stage, &manifest).await["msg"]["stored"], true);
    manifest
}

#[tokio::test]
async fn a_package_that_a_submit_has_found_is_not_removed_before_the_job_is_stored() {
    let stage = Stage::new().await;
    let manifest = upload(&stage).await;
    let packages = home(stage.folder.path(), "me").join(".paddlecloud/packages");
    let list = packages.join(format!("{}.json", manifest.id()));
    // A later one, so that this is not the one the next submit is compared with.
    std::fs::write(packages.join(format!("{}.json", "f".repeat(64))), "{}").unwrap();
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(60);
    let file = std::fs::File::options().write(true).open(&list).unwrap();
    file.set_modified(long_ago).unwrap();
    let me = Caller {
        user: "me".parse().unwrap(),
        scopes: paddlecloud_core::access::Scopes::user(),
    };
    let locks = stage.app.storage.locks(&me.user);
    let submitting = locks.packages.read().await;
    let mut prune = Box::pin(stage.app.job_prune(&me, SignedDuration::ZERO, Default::default()));
    let soon = std::time::Duration::from_millis(300);
    let waits = tokio::time::timeout(soon, &mut prune).await.is_err();
    assert!(waits && list.exists(), "it waits for who needs the package");
    drop(submitting);
    prune.await.unwrap();
    assert!(!list.exists(), "nobody needs it");
    stage.finish().await;
}

#[tokio::test]
async fn leftovers_of_a_removed_run_are_swept_but_its_output_stays() {
    let stage = Stage::new().await;
    let ours = home(stage.folder.path(), "me").join(".paddlecloud");
    let [removed, latest] = [1, 2].map(|number| JobId::new(1, number));
    for run in [&removed, &latest] {
        let copy = ours.join("runs").join(run.as_str()).join("job");
        std::fs::create_dir_all(copy.join("output")).unwrap();
        std::fs::write(copy.join("train.py"), "copy").unwrap();
        std::fs::write(copy.join("output/model"), "precious").unwrap();
    }
    std::fs::create_dir_all(ours.join("latest")).unwrap();
    std::os::unix::fs::symlink(format!("../runs/{latest}/job"), ours.join("latest/job-1")).unwrap();
    let folder = stage.finish().await;
    // The sweep of the start is the one under test.
    let again = Stage::on(folder, "").await;
    let copy = |run: &JobId| ours.join("runs").join(run.as_str()).join("job");
    crate::engine::wait_until("the copy goes", || !copy(&removed).join("train.py").exists()).await;
    assert_eq!(
        std::fs::read(copy(&removed).join("output/model")).unwrap(),
        b"precious"
    );
    assert!(copy(&latest).join("train.py").exists());
    again.finish().await;
}

#[tokio::test]
async fn a_package_that_does_not_fit_the_quota_is_refused_before_it_is_sent() {
    let users = "users:\n- {name: me, password_file: word, system_user: a, quota: {storage: 1Mi}}\n\
                 - {name: you, password_file: word, system_user: b}\n";
    let stage = Stage::with(users).await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("model"), vec![7; 2 << 20]).unwrap();
    let found = scan(folder.path(), &ScanOptions::default()).unwrap();
    let manifest = Manifest::new(found.entries).unwrap();
    let announce = Request::new("POST", "/api/v1/packages").body(manifest.to_json());
    let refused = stage.send(announce).await;
    assert_eq!(refused.json()["error"], "quota-exceeded", "{}", refused.text());
    assert!(refused.text().contains("no room for 2 MiB"), "{}", refused.text());
    upload(&stage).await;
    stage.finish().await;
}

#[tokio::test]
async fn a_folder_of_the_users_own_with_the_packages_name_is_reported() {
    let stage = Stage::new().await;
    let id = upload(&stage).await.id().to_string();
    std::fs::create_dir(home(stage.folder.path(), "me").join("mine")).unwrap();
    let body = json!({"package_id": id, "package_name": "mine", "pservers": 0, "parallelism": 6});
    let reply = stage.post("/api/v1/jobs", body).await.json();
    let note = format!(
        "`/pfs/dc1/home/me/mine` already exists and its files are left unchanged: the job uses only the submitted files, and \
         its output is in /pfs/dc1/home/me/.paddlecloud/runs/{}/mine/output",
        reply["id"].as_str().unwrap()
    );
    let notes = reply["notes"].as_array().unwrap();
    assert!(notes.contains(&json!(note)), "{notes:?}");
    stage.finish().await;
}
