//! A server that is gone and can be restarted: calls continue with the next one, or say why there is none.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use paddlecloud_api::client::{Client, ClientError, Endpoint, JobFilter, LogEvent, Reviver};
use paddlecloud_api::jobs::{JobStatus, KillOptions};
use paddlecloud_api::logs::{Frame, LogEnd, LogQuery};
use tokio::net::UnixListener;

use crate::scripted::{Log, Reply, Seen, connection, json};

const PAGE: &str = r#"{"code":200,"msg":[]}"#;

type Script = fn(usize, &Seen) -> Reply;

/// Serves one connection and is gone then, as a server that was killed: its socket stays behind.
fn serve_once(socket: &Path, script: Script, log: Log) {
    let _ = std::fs::remove_file(socket);
    let listener = UnixListener::bind(socket).unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        drop(listener);
        connection(stream, Arc::new(script), log).await;
    });
}

/// A place for servers, the requests they saw, and how often one was started.
struct RevivedServers {
    folder: tempfile::TempDir,
    log: Log,
    starts: Arc<AtomicUsize>,
}

impl RevivedServers {
    fn new() -> RevivedServers {
        RevivedServers {
            folder: tempfile::tempdir().unwrap(),
            log: Log::default(),
            starts: Arc::default(),
        }
    }

    fn client(&self, script: Script) -> Client {
        let socket = self.folder.path().join("s.sock");
        let (log, starts) = (self.log.clone(), self.starts.clone());
        let path = socket.clone();
        let reviver: Reviver = Box::new(move || {
            starts.fetch_add(1, Ordering::Relaxed);
            serve_once(&path, script, log.clone());
            Box::pin(std::future::ready(Ok(())))
        });
        Client::new(Endpoint::unix(socket)).with_reviver(reviver)
    }

    fn starts(&self) -> usize {
        self.starts.load(Ordering::Relaxed)
    }
}

#[tokio::test]
async fn a_call_whose_server_dies_is_repeated_with_the_next_one() {
    let place = RevivedServers::new();
    let client = place.client(|number, _| match number {
        0 => Reply::Cut(Vec::new()),
        _ => Reply::Keep(json(200, PAGE)),
    });
    client.jobs_list(&JobFilter::default()).await.unwrap();
    assert_eq!(place.starts(), 2, "one was never there, one died");
    assert_eq!(place.log.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_removal_whose_server_dies_is_not_repeated() {
    let place = RevivedServers::new();
    let client = place.client(|_, _| Reply::Cut(Vec::new()));
    let removal = KillOptions {
        remove: true,
        ..KillOptions::default()
    };
    let error = client.job_kill("j", removal).await.unwrap_err();
    assert!(matches!(error, ClientError::Broken { .. }), "{error}");
    assert_eq!(place.log.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_log_continues_with_the_next_server() {
    let place = RevivedServers::new();
    let client = place.client(|number, _| {
        let mut bytes = b"HTTP/1.1 200 X\r\n\r\n".to_vec();
        if number == 0 {
            Frame::Alive.encode(&mut bytes);
        } else {
            let end = LogEnd {
                id: "j_1".to_owned(),
                status: JobStatus::Succeeded,
                message: None,
            };
            Frame::End(Some(end)).encode(&mut bytes);
        }
        Reply::Cut(bytes)
    });
    let query = LogQuery {
        follow: true,
        ..LogQuery::default()
    };
    let mut log = client.job_logs("j_1", query);
    assert!(matches!(log.next().await.unwrap(), Some(LogEvent::Lost(_))));
    assert!(matches!(log.next().await.unwrap(), Some(LogEvent::End(Some(_)))));
    assert_eq!(place.starts(), 2);
}

#[tokio::test]
async fn a_server_that_cannot_be_restarted_is_reported_immediately() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s.sock");
    serve_once(&socket, |_, _| Reply::Cut(json(200, PAGE)), Log::default());
    let reviver: Reviver = Box::new(|| Box::pin(std::future::ready(Err("the disk is full".to_owned()))));
    let client = Client::new(Endpoint::unix(socket)).with_reviver(reviver);
    client.jobs_list(&JobFilter::default()).await.unwrap();
    let error = client.jobs_list(&JobFilter::default()).await.unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("has stopped and cannot be restarted: the disk is full"),
        "{error}"
    );
}

#[tokio::test]
async fn a_server_that_has_answered_is_lost_and_not_unreachable() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s.sock");
    serve_once(&socket, |_, _| Reply::Cut(json(200, PAGE)), Log::default());
    let client = Client::new(Endpoint::unix(socket));
    client.jobs_list(&JobFilter::default()).await.unwrap();
    let error = client.jobs_list(&JobFilter::default()).await.unwrap_err();
    assert!(matches!(error, ClientError::Broken { .. }), "{error}");
}
