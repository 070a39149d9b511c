//! Files that are written to on the cluster while they are downloaded.

use std::sync::Mutex;

use paddlecloud_pfs::Digest;
use paddlecloud_pfs::content::CHUNK;
use paddlecloud_transfer::{Download, FileService, TransferError, TransferOptions};

use crate::files::{client, lines, names_in, remote, replaced_meanwhile};
use crate::scripted::{Reply, json, serve};

/// Fetches a file whose digest nobody knows. A job rewrites it in its place while it is sent, `changes` times: the server
/// notices when it has read all, and breaks off before the last name. Gives what is here then, and how often the server read it.
async fn fetch_rewritten(changes: usize) -> (Result<Vec<u8>, TransferError>, usize) {
    let states = Mutex::new(0);
    let (endpoint, log) = serve(move |_, seen| {
        let mut state = states.lock().unwrap();
        let half = |state: usize| vec![state as u8; CHUNK as usize];
        if seen.line.contains("/pfs/stat?") {
            let meta = serde_json::json!({
                "kind": "file", "size": 2 * CHUNK, "mtime": 1, "version": format!("v{state}"),
            });
            let body = serde_json::json!({"code": 200, "msg": meta});
            return Reply::Keep(json(200, &body.to_string()));
        }
        let asked = seen.header("if-match").unwrap_or_default();
        if !asked.contains(&format!("v{state}")) {
            let body = r#"{"code":409,"msg":"it changed","error":"conflict"}"#;
            return Reply::Keep(json(409, body));
        }
        let first = half(*state);
        let is_last = *state == changes;
        *state += usize::from(!is_last);
        match replaced_meanwhile(seen, 0, &[first, half(*state)].concat()) {
            Reply::Keep(mut reply) if !is_last => {
                reply.truncate(reply.len() - Digest::LEN);
                Reply::Cut(reply)
            }
            whole => whole,
        }
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let local = folder.path().join("large");
    let download = Download::File {
        remote: remote("large"),
        local: local.clone(),
    };
    let client = client(&endpoint);
    let options = TransferOptions::default();
    let mut summary = client.files().download(vec![download], &options, &()).await;
    let fetched = match summary.failures.pop() {
        Some(failure) => {
            assert_eq!(names_in(folder.path()), Vec::<String>::new());
            Err(failure.error)
        }
        None => Ok(std::fs::read(&local).unwrap()),
    };
    let lines = lines(&log);
    let read = lines.iter().filter(|line| line.contains("first=0")).count();
    (fetched, read)
}

#[tokio::test]
async fn a_file_that_is_rewritten_in_its_place_while_it_comes_is_begun_again_three_times() {
    for (changes, tries) in [(0, 1), (1, 2), (2, 3)] {
        let (fetched, read) = fetch_rewritten(changes).await;
        let whole = vec![changes as u8; 2 * CHUNK as usize];
        assert!(fetched.unwrap() == whole, "a mixture, after {changes} changes");
        assert_eq!(read, tries);
    }
    let (fetched, read) = fetch_rewritten(9).await;
    assert!(matches!(fetched, Err(TransferError::ChangedThere)), "{fetched:?}");
    assert_eq!(read, 3);
}
