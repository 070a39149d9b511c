//! The merged stream of a job's logs, as wire frames.

use std::sync::Arc;
use std::time::Duration;

use paddlecloud_api::logs::{Frame, LogEnd, LogQuery, LogWorker, encode_data};
use paddlecloud_core::job::{Job, Worker, worker_name};
use paddlecloud_core::ports::{AttemptKey, LogError, Piece};
use tokio::sync::watch;

use super::cursor::LogSelection;
use super::source::{LogSource, wire_stream};
use super::{Logs, LogsError};
use crate::job_status::job_status;

/// How often an idle stream sends a heartbeat.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Bytes collected before they are passed on.
const PORTION: usize = 64 << 10;

/// One reader of a job's logs.
pub struct LogStream {
    logs: Logs,
    job: Arc<Job>,
    selection: LogSelection,
    follow: bool,
    /// Changes of the job; `None` once it is final.
    changes: Option<watch::Receiver<Arc<Job>>>,
    /// The job may not be final, but no notifications arrive.
    is_unwatched: bool,
    sources: Vec<LogSource>,
    announced: usize,
    out: Vec<u8>,
    ended: bool,
}

impl LogStream {
    pub(super) async fn open(logs: Logs, job: Arc<Job>, query: &LogQuery) -> Result<LogStream, LogsError> {
        let selection = LogSelection::parse(query, &job)?;
        let mut stream = LogStream {
            logs,
            job,
            selection,
            follow: query.follow,
            changes: None,
            is_unwatched: query.follow,
            sources: Vec::new(),
            announced: 0,
            out: Vec::new(),
            ended: false,
        };
        stream.find_watch().await?;
        let opened = tokio::task::spawn_blocking(move || stream.begin()).await;
        opened.map_err(|_| LogsError::Thread)?
    }

    /// Reads what exists now. Blocks on the disk.
    fn begin(mut self) -> Result<LogStream, LogsError> {
        self.add_sources();
        self.selection.take_all_of_new_attempts();
        if !self.follow {
            for source in &mut self.sources {
                source.stop_at_present_end().map_err(unreadable)?;
            }
        }
        Ok(self)
    }

    /// Subscribes to the job, or reads its final state from the store: the earlier lookup may be stale.
    async fn find_watch(&mut self) -> Result<(), LogsError> {
        if !std::mem::take(&mut self.is_unwatched) {
            return Ok(());
        }
        // Subscribe first, read afterwards, so that no change in between is missed.
        self.changes = self.logs.jobs.watch(&self.job.id);
        if self.changes.is_none() {
            match self.logs.jobs.get_any(&self.job.id).await? {
                Some(job) if job.phase.is_final() => self.job = job,
                // The loop is just restarting. The client retries after the disconnect.
                Some(_) => return Err(LogsError::StartingOver),
                // The job was removed: there is no end to report.
                None => {}
            }
        }
        self.refresh_job();
        Ok(())
    }

    /// The next bytes of the reply, or `None` when it is complete. An error aborts the reply.
    pub async fn next(&mut self) -> Option<Result<Vec<u8>, LogsError>> {
        while !self.ended {
            if let Err(error) = self.gather().await {
                self.ended = true;
                return Some(Err(error));
            }
            if !self.out.is_empty() {
                return Some(Ok(std::mem::take(&mut self.out)));
            }
            if !self.follow || self.is_complete() {
                self.finish();
                return Some(Ok(std::mem::take(&mut self.out)));
            }
            self.wait().await;
        }
        None
    }

    /// Merges existing data, oldest first, until a block is full or everything is read.
    async fn gather(&mut self) -> Result<(), LogsError> {
        if self.is_unwatched {
            self.find_watch().await?;
            self.wake_sources();
        }
        loop {
            self.read_where_needed().await?;
            self.announce();
            let oldest = self
                .sources
                .iter()
                .enumerate()
                .filter_map(|(at, source)| Some((source.stamp()?, at)))
                .min();
            let Some((_, at)) = oldest else { return Ok(()) };
            self.emit(at);
            if self.out.len() >= PORTION {
                return Ok(());
            }
        }
    }

    async fn read_where_needed(&mut self) -> Result<(), LogsError> {
        // A thread for the disk would delay every line of a follower by two switches.
        let mut fresh = self
            .sources
            .iter_mut()
            .filter(|source| source.needs_reading() && source.is_fresh());
        fresh.try_for_each(LogSource::read).map_err(unreadable)?;
        if !self.sources.iter().any(LogSource::needs_reading) {
            return Ok(());
        }
        let _turn = self.logs.reads.acquire().await.map_err(|_| LogsError::Thread)?;
        let mut sources = std::mem::take(&mut self.sources);
        let read = tokio::task::spawn_blocking(move || {
            let result = sources
                .iter_mut()
                .filter(|source| source.needs_reading())
                .try_for_each(LogSource::read);
            (sources, result)
        });
        let (sources, result) = read.await.map_err(|_| LogsError::Thread)?;
        self.sources = sources;
        result.map_err(unreadable)
    }

    fn emit(&mut self, at: usize) {
        match self.sources[at].take() {
            Some(Piece::Chunk(chunk)) => encode_data(
                &mut self.out,
                at as u32,
                wire_stream(chunk.stream),
                chunk.offset,
                chunk.stamp,
                &chunk.bytes,
            ),
            Some(Piece::Gap(gap)) => {
                Frame::Gap {
                    worker: at as u32,
                    offset: gap.from,
                    to: gap.to,
                }
                .encode(&mut self.out);
            }
            None => {}
        }
    }

    /// Announces workers that are new to the reader.
    fn announce(&mut self) {
        if self.announced == self.sources.len() && self.announced > 0 {
            return;
        }
        self.announced = self.sources.len();
        let job = &self.job;
        let unlinked = self.logs.jobs.unlinked(&job.id);
        let workers = self.sources.iter().map(|source| {
            let AttemptKey { worker, attempt, .. } = source.attempt;
            LogWorker {
                name: worker_name(&job.spec.name, &job.id, worker),
                role: worker.role.to_string(),
                index: worker.index,
                attempt,
                from: source.first(),
                is_behind: unlinked.contains(&source.attempt),
            }
        });
        let workers: Vec<LogWorker> = workers.collect();
        if !workers.is_empty() {
            Frame::Workers(workers).encode(&mut self.out);
        }
    }

    /// One source for each new attempt.
    fn add_sources(&mut self) {
        let job = Arc::clone(&self.job);
        for worker in job.workers_with_logs().iter() {
            if !self.selection.takes(worker) {
                continue;
            }
            let known = self
                .sources
                .iter()
                .filter(|known| known.attempt.worker == worker.key);
            let first = known.map(|source| source.attempt.attempt).min();
            let first = first.unwrap_or_else(|| {
                let has_log = |attempt| self.has_log(worker, attempt);
                self.selection.first_attempt(worker, has_log)
            });
            for attempt in first..=worker.attempt {
                self.add_source(worker, attempt);
            }
        }
    }

    fn has_log(&self, worker: &Worker, attempt: u32) -> bool {
        let reader = self.logs.store.reader(&self.attempt_key(worker, attempt));
        reader.length().is_ok_and(|length| length > 0)
    }

    fn attempt_key(&self, worker: &Worker, attempt: u32) -> AttemptKey {
        AttemptKey {
            job: self.job.id.clone(),
            worker: worker.key,
            attempt,
        }
    }

    fn add_source(&mut self, worker: &Worker, attempt: u32) {
        let key = self.attempt_key(worker, attempt);
        let known = self.sources.iter().position(|source| source.attempt == key);
        let at = known.unwrap_or_else(|| {
            let begin = self.selection.begin(&worker.name, attempt);
            self.sources
                .push(LogSource::new(&*self.logs.store, key.clone(), begin));
            self.sources.len() - 1
        });
        if self.follow && self.sources[at].growth.is_none() {
            self.sources[at].growth = self.logs.store.follow(&key);
        }
    }

    fn refresh_job(&mut self) {
        if let Some(changes) = &mut self.changes {
            self.job = Arc::clone(&changes.borrow_and_update());
        }
        if self.job.phase.is_final() {
            self.changes = None;
        }
    }

    /// Whether everything was read. The final status is written after the last byte, so the logs of a final job are complete.
    fn is_complete(&self) -> bool {
        self.changes.is_none()
    }

    fn finish(&mut self) {
        self.ended = true;
        let end = self.job.phase.is_final().then(|| LogEnd {
            id: self.job.id.to_string(),
            status: job_status(self.job.phase),
            message: self.job.message_in_full(),
        });
        Frame::End(end).encode(&mut self.out);
    }

    /// Waits until a log grows or the job changes.
    async fn wait(&mut self) {
        let LogStream { changes, sources, .. } = self;
        let growth = sources.iter_mut().enumerate().filter_map(|(at, source)| {
            let growth = source.growth.as_mut()?;
            Some(Box::pin(async move { (at, growth.changed().await) }))
        });
        let growth: Vec<_> = growth.collect();
        let any_growth = async {
            match growth.is_empty() {
                true => std::future::pending().await,
                false => futures_util::future::select_all(growth).await.0,
            }
        };
        let change = async {
            match changes {
                Some(changes) => changes.changed().await.is_ok(),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            (at, mark) = any_growth => self.sources[at].grown(mark),
            lives = change => self.changed(lives),
            () = tokio::time::sleep(HEARTBEAT) => Frame::Alive.encode(&mut self.out),
        }
    }

    /// Handles a change of the job: it may have new attempts, or have ended.
    fn changed(&mut self, lives: bool) {
        self.refresh_job();
        // The last notification was not final: the store has the final state.
        self.is_unwatched = !lives && self.changes.take().is_some();
        self.wake_sources();
    }

    fn wake_sources(&mut self) {
        self.add_sources();
        for source in &mut self.sources {
            source.wake();
        }
    }
}

fn unreadable(error: LogError) -> LogsError {
    tracing::error!(%error, "a log cannot be read");
    LogsError::Unreadable(error)
}
