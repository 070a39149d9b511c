//! Start, stop and start again.

use std::os::unix::fs::PermissionsExt;

use paddlecloud_server::start::Server;
use tokio::io::AsyncReadExt;
use tokio_util::sync::CancellationToken;

use crate::client::Request;
use crate::stage::{Stage, basic, config};

#[tokio::test]
async fn accepted_jobs_survive_a_restart() {
    let stage = Stage::new().await;
    let waiting = stage.submit("waiting").await;
    stage.submit("killed").await;
    stage.send(Request::new("DELETE", "/api/v1/jobs/killed")).await;
    let folder = stage.pause().await;
    let again = Stage::on(folder, "").await;
    let list = again.get("/api/v1/jobs?all=1").await.json();
    let shown: Vec<_> = list["msg"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| (&job["name"], &job["status"]))
        .collect();
    assert_eq!(
        shown,
        [
            (&"killed".into(), &"Killed".into()),
            (&"waiting".into(), &"Pending".into())
        ]
    );
    assert_eq!(
        again.get("/api/v1/jobs").await.json()["msg"][0]["id"],
        waiting.as_str()
    );
    again.finish().await;
}

#[tokio::test]
async fn two_servers_cannot_share_a_data_folder() {
    let stage = Stage::new().await;
    let second = Server::start(
        config(stage.folder.path(), ""),
        paddlecloud_supervisor::probe(),
        CancellationToken::new(),
    )
    .await;
    let problem = second.err().unwrap().to_string();
    assert!(
        problem.contains(&format!("(process {})", std::process::id())),
        "{problem}"
    );
    stage.finish().await;
}

#[tokio::test]
async fn two_servers_cannot_share_a_storage_folder() {
    let shared = tempfile::tempdir().unwrap();
    let lines = format!("storage: {}\n", shared.path().join("storage").display());
    let start = async |folder: &std::path::Path| {
        std::fs::write(folder.join("word"), "secret\n").unwrap();
        let config = config(folder, &lines);
        Server::start(config, paddlecloud_supervisor::probe(), CancellationToken::new()).await
    };
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = start(one.path()).await.unwrap();
    let problem = start(other.path()).await.err().unwrap().to_string();
    let by = format!("another server (process {} on ", std::process::id());
    assert!(problem.starts_with(&by), "{problem}");
    first.stop_token().cancel();
    first.run().await;
    let again = start(other.path()).await.unwrap();
    again.stop_token().cancel();
    again.run().await;
}

#[tokio::test]
async fn a_stop_is_answered_and_ends_waiting_requests() {
    let stage = Stage::new().await;
    stage.submit("a").await;
    let follow = Request::new("GET", "/api/v1/jobs/a/logs?follow=true").header("authorization", &basic("me"));
    let mut following = follow.begin(&stage.address).await;
    let waiting = stage.get("/api/v1/jobs/a/wait");
    let stop = async {
        // The wait must have reached the server, or it would find the door closed.
        while stage.app.metrics.in_flight() == 0 {
            tokio::task::yield_now().await;
        }
        stage.send(Request::new("POST", "/api/v1/server/stop")).await
    };
    let (waited, stopped) = tokio::join!(waiting, stop);
    assert_eq!(stopped.json()["msg"], "stopping");
    assert_eq!(
        (waited.status, waited.json()["error"].as_str()),
        (503, Some("unavailable"))
    );
    following.read_to_end(&mut Vec::new()).await.unwrap();
    let again = Stage::on(stage.ended().await, "").await;
    assert_eq!(
        again.get("/api/v1/jobs/a").await.json()["msg"]["job"]["status"],
        "Pending"
    );
    again.finish().await;
}

#[tokio::test]
async fn a_unix_socket_is_private_and_a_stale_one_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    // Longer than the kernel takes.
    let deep = folder.path().join("d".repeat(60)).join("e".repeat(60));
    std::fs::create_dir_all(&deep).unwrap();
    let socket = deep.join("server.sock");
    let address = format!("unix:{}", socket.display());
    std::fs::write(folder.path().join("word"), "secret\n").unwrap();
    let stage = Stage::on(folder, &format!("listen: '{address}'\n")).await;
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let folder = stage.finish().await;
    assert!(!socket.exists());
    let short = folder.path().join("s");
    drop(std::os::unix::net::UnixListener::bind(&short).unwrap());
    let lines = format!("listen: 'unix:{}'\n", short.display());
    let stage = Stage::on(folder, &lines).await;
    assert_eq!(stage.get("/api/v1/whoami").await.status, 200);
    let anonymous = Request::new("GET", "/api/v1/whoami").send(&stage.address).await;
    assert_eq!(
        anonymous.status, 401,
        "only the embedded server trusts its socket"
    );
    stage.finish().await;
}

#[tokio::test]
async fn the_embedded_server_identifies_its_user_by_the_socket() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("local");
    let config = paddlecloud_server::config::embedded(&data);
    let user = config.socket_user.clone().unwrap();
    let server = Server::start(config, paddlecloud_supervisor::probe(), CancellationToken::new())
        .await
        .unwrap();
    let (address, stop) = (server.addresses()[0].clone(), server.stop_token());
    let running = tokio::spawn(server.run());
    let me = Request::new("GET", "/api/v1/whoami").send(&address).await.json();
    assert_eq!(
        (me["msg"]["user"].as_str(), me["msg"]["admin"].as_bool()),
        (Some(user.as_str()), Some(true))
    );
    let mode = std::fs::metadata(&data).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn a_port_in_use_is_reported() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("word"), "secret\n").unwrap();
    let lines = format!("listen: '{}'\n", taken.local_addr().unwrap());
    let error = Server::start(
        config(folder.path(), &lines),
        paddlecloud_supervisor::probe(),
        CancellationToken::new(),
    )
    .await
    .err()
    .unwrap();
    assert_eq!(
        error.to_string(),
        format!("cannot listen on `{}`", taken.local_addr().unwrap())
    );
}
