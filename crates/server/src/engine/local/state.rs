//! What is there: adopting supervisors after a restart, telling how an attempt ended, cleaning up after it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::{StreamExt, stream};
use paddlecloud_core::job::{Boot, News};
use paddlecloud_core::names::JobId;
use paddlecloud_core::ports::{AttemptKey, EngineError, EngineState, Report};
use paddlecloud_supervisor::protocol::{Command, Exit, WorkerPlan, files};

use super::Inner;
use super::folders::{self, AttemptFolder};
use super::link::{self, ConnectError};

/// Supervisors that are adopted at the same time.
const LOOKS_AT_ONCE: usize = 32;

/// Everything launched and not cleaned, connected again where it lives.
pub async fn read(inner: &Arc<Inner>) -> Result<EngineState, EngineError> {
    let boxed = |error: std::io::Error| EngineError(Box::new(error));
    let changed = inner
        .settings
        .boot
        .differs_from(&inner.boot_file())
        .map_err(boxed)?;
    inner.boot_is_news.store(true, Ordering::Relaxed);
    let found = list(&inner.settings.data.join(folders::ATTEMPTS)).map_err(boxed)?;
    let looks = found.into_iter().map(async |attempt| {
        let news = look(inner, &attempt).await?;
        Some(Report { attempt, news })
    });
    let looked: Vec<Option<Report>> = stream::iter(looks)
        .buffer_unordered(LOOKS_AT_ONCE)
        .collect()
        .await;
    let attempts = looked.into_iter().flatten().collect();
    let boot = if changed { Boot::Changed } else { Boot::Same };
    Ok(EngineState { attempts, boot })
}

/// Attempts whose plan is still there.
fn list(root: &Path) -> std::io::Result<Vec<AttemptKey>> {
    let mut found = Vec::new();
    for job in std::fs::read_dir(root)? {
        let job = job?;
        let Some(id) = job
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<JobId>().ok())
        else {
            continue;
        };
        for attempt in std::fs::read_dir(job.path())? {
            let attempt = attempt?;
            let key = attempt
                .file_name()
                .to_str()
                .and_then(|name| folders::parse_attempt(id.clone(), name));
            if let Some(key) = key.filter(|_| attempt.path().join(files::PLAN).exists()) {
                found.push(key);
            }
        }
    }
    Ok(found)
}

/// `None`: the server stopped before the supervisor was started, so it may be launched as if never tried.
async fn look(inner: &Arc<Inner>, attempt: &AttemptKey) -> Option<News> {
    if let Some(link) = inner.links().get(attempt) {
        return Some(link.news());
    }
    let folder = inner.folder(attempt);
    let of_this_boot =
        WorkerPlan::load(&folder.path).is_ok_and(|plan| plan.boot_id == inner.settings.boot.as_str());
    if of_this_boot && paddlecloud_supervisor::is_alive(&folder.path) {
        match link::connect(inner, attempt, folder.path.clone()).await {
            Ok(state) => return Some(link::news_of_state(&state)),
            Err(ConnectError::Silent) => {
                link::connect_later(inner, attempt, folder.path.clone());
                return Some(News::Launched);
            }
            Err(error) => tracing::debug!(?attempt, %error, "a supervisor left while it was being adopted"),
        }
    }
    let began = folder.path.join(files::PID).exists() || folder.path.join(files::EXIT).exists();
    if !began {
        remove_folder(&folder.path).await;
        return None;
    }
    Some(end_of(inner, attempt, &folder.path).await)
}

/// How an attempt whose supervisor is gone ended. Nothing of it runs when this returns.
pub async fn end_of(inner: &Inner, attempt: &AttemptKey, folder: &Path) -> News {
    match Exit::load(folder) {
        Ok(Some(exit)) => return link::news_of_exit(exit),
        Ok(None) => {}
        Err(error) => tracing::error!(?attempt, %error, "a recorded end cannot be read"),
    }
    sweep(inner.folder(attempt).marker).await;
    News::Lost("its supervisor is gone; what it had captured is kept".into())
}

/// Ends whatever is left of an attempt.
async fn sweep(marker: String) {
    let swept = tokio::task::spawn_blocking(move || paddlecloud_supervisor::sweep(&marker)).await;
    match swept {
        Ok(Ok(swept)) if swept.processes > 0 => {
            tracing::info!(swept.processes, "ended what a lost supervisor left")
        }
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::error!(%error, "leftovers of an attempt"),
        Err(error) => tracing::error!(%error, "cleaning up failed"),
    }
}

/// Leaves nothing of an attempt but its log.
pub async fn clean(inner: &Arc<Inner>, attempt: &AttemptKey) {
    let running = inner.links().get(attempt).map(|link| {
        link.tell(Command::Stop { grace_ms: Some(0) });
        link.until_complete()
    });
    if let Some(mut log) = running {
        // An error means that the link has ended, which is what is waited for.
        let _ = log.wait_for(|mark| mark.complete).await;
    }
    let AttemptFolder { path, marker } = inner.folder(attempt);
    if !path.join(files::PLAN).exists() {
        return;
    }
    if !path.join(files::EXIT).exists() {
        sweep(marker).await;
    }
    // The plan goes last: an attempt with a plan is cleaned again after a crash.
    for name in [files::SOCKET, files::PID, files::EXIT, files::PLAN] {
        if let Err(error) = tokio::fs::remove_file(path.join(name))
            .await
            .or_else(folders::absent_is_fine)
        {
            tracing::warn!(?attempt, name, %error, "cannot clean up");
        }
    }
    drop_if_empty(path.join(files::TROUBLES)).await;
}

async fn drop_if_empty(file: PathBuf) {
    if tokio::fs::metadata(&file).await.is_ok_and(|meta| meta.len() == 0) {
        let _ = tokio::fs::remove_file(&file).await;
    }
}

async fn remove_folder(folder: &Path) {
    if let Err(error) = tokio::fs::remove_dir_all(folder)
        .await
        .or_else(folders::absent_is_fine)
    {
        tracing::warn!(folder = %folder.display(), %error, "cannot remove");
    }
}
