//! The engine's state: adopts supervisors after a restart, determines how attempts ended, and cleans up after them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use paddlecloud_core::job::{Boot, News};
use paddlecloud_core::names::JobId;
use paddlecloud_core::ports::{AttemptKey, EngineError, EngineState, Report};
use paddlecloud_worker::protocol::{Command, Exit, WorkerPlan, files};
use paddlecloud_worker::{attempts, news};

use super::Inner;
use super::folders::AttemptFolder;
use super::link;

/// Supervisors adopted concurrently.
const CONCURRENT_ADOPTIONS: usize = 32;

/// How long a supervisor may take to exit when asked, before its worker is killed without it.
const EXIT_LIMIT: Duration = Duration::from_secs(30);

/// Pause before rereading a recorded exit that could not be read because of a shortage.
const REREAD_PAUSE: Duration = Duration::from_secs(1);

/// All attempts that were launched and not cleaned. Reconnects to those that are alive.
pub async fn read(inner: &Arc<Inner>) -> Result<EngineState, EngineError> {
    // Read this list first: an attempt that leaves it afterwards is on disk.
    let under_way: Vec<AttemptKey> = inner.launching().iter().cloned().collect();
    let (listing, boot_file) = (Arc::clone(inner), inner.boot_file());
    let found = tokio::task::spawn_blocking(move || {
        let differs = listing.settings.boot.differs_from(&boot_file)?;
        Ok((differs, list(&listing)?))
    });
    let (differs, found) = found
        .await
        .unwrap_or_else(|panic| Err(std::io::Error::other(panic)))
        .map_err(|error| EngineError(Box::new(error)))?;
    inner.boot_is_unrecorded.store(true, Ordering::Relaxed);
    // Attempts being launched may have no plan yet.
    let mut all = found.keys;
    all.extend(under_way);
    let looks = all.into_iter().map(async |attempt| {
        let news = look(inner, &attempt).await?;
        Some(Report { attempt, news })
    });
    let looked: Vec<Option<Report>> = stream::iter(looks)
        .buffer_unordered(CONCURRENT_ADOPTIONS)
        .collect()
        .await;
    let attempts = looked.into_iter().flatten().collect();
    // A plan made in this boot means that the exits caused by the reboot were already stored.
    let boot = match differs && !found.planned_in_this_boot {
        true => Boot::Changed,
        false => Boot::Same,
    };
    Ok(EngineState {
        attempts,
        nodes: inner.settings.nodes.clone(),
        boot,
    })
}

/// Attempts whose plan still exists.
struct Found {
    keys: BTreeSet<AttemptKey>,
    planned_in_this_boot: bool,
}

fn list(inner: &Inner) -> std::io::Result<Found> {
    let mut found = Found {
        keys: BTreeSet::new(),
        planned_in_this_boot: false,
    };
    for job in std::fs::read_dir(inner.settings.data.join(attempts::ATTEMPTS))? {
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
                .and_then(|name| AttemptKey::of_job(&id, name).ok());
            if let Some(key) = key.filter(|_| attempt.path().join(files::PLAN).exists()) {
                found.planned_in_this_boot |= is_of_this_boot(inner, &attempt.path());
                found.keys.insert(key);
            }
        }
    }
    Ok(found)
}

fn is_of_this_boot(inner: &Inner, folder: &Path) -> bool {
    match WorkerPlan::load(folder) {
        Ok(plan) => plan.boot_id == inner.settings.boot.as_str(),
        // An attempt must not be declared lost because the server lacks file descriptors.
        Err(error) => paddlecloud_supervisor::is_shortage(&error),
    }
}

/// The news of one attempt. `None`: the server stopped before it started the supervisor, so the attempt can be launched as if for
/// the first time.
async fn look(inner: &Arc<Inner>, attempt: &AttemptKey) -> Option<News> {
    // A launch ends with a link: an attempt that is no longer being launched has a link, or will never have one.
    if inner.launching().contains(attempt) {
        return Some(News::Launched);
    }
    if let Some(link) = inner.links().get(attempt) {
        return Some(link.news());
    }
    let folder = inner.folder(attempt).path;
    let (judging, judged) = (Arc::clone(inner), folder.clone());
    let life = tokio::task::spawn_blocking(move || judge(&judging, &judged)).await;
    match life.unwrap_or(Life::Over) {
        Life::Lives => match link::connect(inner, attempt, folder.clone()).await {
            Ok(state) => Some(news::of_state(&state)),
            // The supervisor may just be exiting, or we may lack file descriptors: the link finds out.
            Err(error) => {
                link::connect_later(inner, attempt, folder, &error);
                Some(News::Launched)
            }
        },
        Life::NeverBegan => None,
        Life::Over => Some(end_of(inner, attempt, &folder).await),
    }
}

/// What an attempt's folder shows about its supervisor.
enum Life {
    Lives,
    Over,
    /// Nothing was ever started. The folder has been removed.
    NeverBegan,
}

fn judge(inner: &Inner, folder: &Path) -> Life {
    if is_of_this_boot(inner, folder) && paddlecloud_supervisor::is_alive(folder) {
        return Life::Lives;
    }
    // A cleanup interrupted by a crash leaves the log.
    let began = || {
        [files::EXIT, files::LOG]
            .iter()
            .any(|name| folder.join(name).exists())
    };
    if began() {
        return Life::Over;
    }
    // A supervisor may be about to start. While we hold its lock none can, and one that starts later finds no plan.
    let place = match paddlecloud_supervisor::take_place(folder) {
        Ok(None) => return Life::Lives,
        Ok(place) => place,
        Err(error) if paddlecloud_supervisor::is_shortage(&error) => return Life::Lives,
        Err(error) => {
            tracing::warn!(folder = %folder.display(), %error, "cannot lock the attempt's folder");
            None
        }
    };
    if began() {
        return Life::Over;
    }
    remove_folder(folder);
    drop(place);
    Life::NeverBegan
}

/// How an attempt exited whose supervisor is gone. None of its processes run when this returns.
pub async fn end_of(inner: &Inner, attempt: &AttemptKey, folder: &Path) -> News {
    loop {
        match Exit::load(folder) {
            Ok(Some(exit)) => return news::of_exit(exit),
            Ok(None) => break,
            // The exit is on disk and can be read once the server has file descriptors again.
            Err(error) if paddlecloud_supervisor::is_shortage(&error) => {
                tracing::warn!(?attempt, %error, "a recorded end cannot be read now");
                tokio::time::sleep(REREAD_PAUSE).await;
            }
            Err(error) => {
                tracing::error!(?attempt, %error, "a recorded end cannot be read");
                break;
            }
        }
    }
    sweep(inner.folder(attempt).marker).await;
    News::Lost(loss_reason(inner, attempt, folder).into())
}

fn loss_reason(inner: &Inner, attempt: &AttemptKey, folder: &Path) -> &'static str {
    let is_of_another_boot =
        || WorkerPlan::load(folder).is_ok_and(|plan| plan.boot_id != inner.settings.boot.as_str());
    if inner.forced().remove(attempt) {
        "its supervisor did not answer and was killed with its worker; captured output is kept"
    } else if matches!(folder.try_exists(), Ok(false)) {
        "its folder was removed together with its log, so it was killed"
    } else if is_of_another_boot() {
        "the machine was restarted; captured output is kept"
    } else {
        "its supervisor is gone; captured output is kept"
    }
}

/// Kills a supervisor that was asked to stop its worker and does not react, and with it the worker.
pub async fn force(inner: &Arc<Inner>, attempt: &AttemptKey) {
    let AttemptFolder { path, marker } = inner.folder(attempt);
    let is_first = inner.forced().insert(attempt.clone());
    let ended = tokio::task::spawn_blocking(move || paddlecloud_supervisor::end_hung(&path, &marker)).await;
    match ended {
        Ok(true) => tracing::warn!(
            ?attempt,
            "a supervisor did not stop its worker in time and was killed"
        ),
        // A concurrent first caller may just have succeeded.
        _ if is_first => drop(inner.forced().remove(attempt)),
        _ => {}
    }
}

/// Kills all remaining processes of an attempt.
async fn sweep(marker: String) {
    let swept = tokio::task::spawn_blocking(move || paddlecloud_supervisor::sweep(&marker)).await;
    match swept {
        Ok(Ok(swept)) if swept.processes > 0 => {
            tracing::info!(
                swept.processes,
                "killed processes that a lost supervisor left behind"
            )
        }
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::error!(%error, "leftovers of an attempt"),
        Err(error) => tracing::error!(%error, "cleaning up failed"),
    }
}

/// Removes all files of an attempt except its log.
pub async fn clean(inner: &Arc<Inner>, attempt: &AttemptKey) {
    let running = inner.links().get(attempt).map(|link| {
        link.send_command(Command::Stop { grace_ms: Some(0) });
        link.ended()
    });
    if let Some(ended) = running
        && tokio::time::timeout(EXIT_LIMIT, ended).await.is_err()
    {
        tracing::warn!(
            ?attempt,
            "a supervisor does not exit; its worker is killed without it"
        );
    }
    let AttemptFolder { path, marker } = inner.folder(attempt);
    if !path.join(files::PLAN).exists() {
        return;
    }
    if !path.join(files::EXIT).exists() {
        sweep(marker).await;
    }
    // The plan is removed last, because an attempt with a plan is cleaned again after a crash.
    for name in [
        files::SOCKET,
        files::PID,
        files::EXIT_DRAFT,
        files::EXIT,
        files::PLAN,
    ] {
        if let Err(error) = tokio::fs::remove_file(path.join(name))
            .await
            .or_else(attempts::ignore_not_found)
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

/// Removes an attempt's folder, the plan first: without a plan, the rest is not taken for an attempt.
pub fn remove_folder(folder: &Path) {
    let removed = std::fs::remove_file(folder.join(files::PLAN))
        .or_else(attempts::ignore_not_found)
        .and_then(|()| std::fs::remove_dir_all(folder).or_else(attempts::ignore_not_found));
    if let Err(error) = removed {
        tracing::warn!(folder = %folder.display(), %error, "cannot remove");
    }
}
