//! Files that are written to on the cluster while they are downloaded.

use std::sync::Mutex;

use paddlecloud_pfs::content::CHUNK;
use paddlecloud_transfer::{Download, FileService, TransferError, TransferOptions};

use crate::files::{bytes_of, client, lines, names_in, remote, stat_of};
use crate::scripted::{Reply, json, serve};

/// Fetches a file whose digest the server does not know. A job rewrites it in its place while it is sent, `changes` times. Gives
/// what is here then, and how often the server sent it.
async fn fetch_rewritten(changes: usize) -> (Result<Vec<u8>, TransferError>, usize) {
    let states = Mutex::new(0);
    let (endpoint, log) = serve(move |_, seen| {
        let mut state = states.lock().unwrap();
        let half = |state: usize| vec![state as u8; CHUNK as usize];
        let whole = [half(*state), half(*state)].concat();
        let version = format!("v{state}");
        if seen.line.contains("/pfs/stat?") {
            return stat_of(&whole, &version, None);
        }
        let asked = seen.header("if-match").unwrap_or_default();
        if !asked.contains(&version) {
            let body = r#"{"code":409,"msg":"it changed","error":"conflict"}"#;
            return Reply::Keep(json(409, body));
        }
        let first = half(*state);
        *state += usize::from(*state < changes);
        Reply::Keep(bytes_of(seen, &[first, half(*state)].concat(), &version, None))
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let local = folder.path().join("large");
    let client = client(&endpoint);
    let download = Download::File {
        remote: remote("large"),
        local: local.clone(),
        meta: client.files().stat(&remote("large")).await.unwrap(),
    };
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
    let read = lines.iter().filter(|line| line.contains("/pfs/content?")).count();
    (fetched, read)
}

#[tokio::test]
async fn a_file_rewritten_during_its_download_is_fetched_at_most_three_times() {
    for (changes, tries) in [(0, 1), (1, 2), (2, 3)] {
        let (fetched, read) = fetch_rewritten(changes).await;
        let whole = vec![changes as u8; 2 * CHUNK as usize];
        assert!(fetched.unwrap() == whole, "a mixture, after {changes} changes");
        assert_eq!(read, tries);
    }
    let (fetched, read) = fetch_rewritten(9).await;
    assert!(
        matches!(fetched, Err(TransferError::ChangedOnServer)),
        "{fetched:?}"
    );
    assert_eq!(read, 3);
}
