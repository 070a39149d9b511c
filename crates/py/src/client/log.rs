//! `_native.LogStream`: a job's log, read ahead a little by a separate task.

use std::sync::{Arc, Mutex, PoisonError};

use paddlecloud_api::client::LogEvent;
use paddlecloud_api::logs::LogQuery;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::failure::Failure;
use super::lines::{Line, Lines};
use super::{Started, Way, runtime};

/// Batches that wait to be read: a slow reader slows down the log instead of filling the memory.
const AHEAD: usize = 16;
/// Lines are collected up to this many bytes while more are available.
const BATCH: usize = 256 << 10;

type Batch = Result<Vec<Line>, Failure>;
/// Worker, role, index, attempt, stream, time in nanoseconds, bytes.
type Row = (String, String, u32, u32, &'static str, u64, Py<PyBytes>);
/// How the job ended, as JSON, once that is known.
type End = Arc<Mutex<Option<String>>>;

/// A log that is being read.
#[pyclass(module = "paddlecloud._native", frozen)]
pub struct LogStream {
    batches: Arc<tokio::sync::Mutex<mpsc::Receiver<Batch>>>,
    end: End,
    task: AbortHandle,
    process: u32,
}

#[pymethods]
impl LogStream {
    /// The next lines; `None` after the last.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Vec<Row>>> {
        self.check_process()?;
        let batch = runtime::wait(py, taken(self.batches.clone()))?;
        rows(py, batch).map_err(|failure| failure.into_error(py))
    }

    /// Begins to wait for the next lines; `done(lines, error)` is called when they are there.
    fn start_next(&self, done: Py<PyAny>) -> PyResult<Started> {
        self.check_process()?;
        Started::begin(taken(self.batches.clone()), done, rows)
    }

    /// How the job ended, as JSON: known after the last line, if the job is final.
    #[getter]
    fn end(&self) -> Option<String> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stops reading.
    fn close(&self) {
        self.task.abort();
    }
}

impl Drop for LogStream {
    fn drop(&mut self) {
        // In a fork's child there is no such task, and its runtime must not be touched.
        if self.process == std::process::id() {
            self.task.abort();
        }
    }
}

impl LogStream {
    pub fn open(_: Python<'_>, way: Way, job: String, query: LogQuery) -> PyResult<LogStream> {
        let (sender, receiver) = mpsc::channel(AHEAD);
        let end = End::default();
        let task = runtime::handle()?.spawn(read(way, job, query, sender, end.clone()));
        Ok(LogStream {
            batches: Arc::new(tokio::sync::Mutex::new(receiver)),
            end,
            task: task.abort_handle(),
            process: std::process::id(),
        })
    }

    fn check_process(&self) -> PyResult<()> {
        if self.process == std::process::id() {
            return Ok(());
        }
        Err(PyRuntimeError::new_err(
            "a log is read by the process that opened it; open it again in this one",
        ))
    }
}

async fn taken(batches: Arc<tokio::sync::Mutex<mpsc::Receiver<Batch>>>) -> Option<Batch> {
    batches.lock().await.recv().await
}

fn rows(py: Python<'_>, batch: Option<Batch>) -> Result<Option<Vec<Row>>, Failure> {
    let Some(batch) = batch else {
        return Ok(None);
    };
    let row = |line: Line| {
        let worker = &line.worker;
        (
            worker.name.clone(),
            worker.role.clone(),
            worker.index,
            worker.attempt,
            line.stream,
            line.unix_nanos,
            PyBytes::new(py, &line.bytes).unbind(),
        )
    };
    Ok(Some(batch?.into_iter().map(row).collect()))
}

/// Reads to the end and passes on what it finds; stops early if the receiver is gone.
async fn read(way: Way, job: String, query: LogQuery, sender: mpsc::Sender<Batch>, end: End) {
    if let Err(failure) = follow(&way, &job, query, &sender, &end).await {
        drop(sender.send(Err(failure)).await);
    }
}

async fn follow(
    way: &Way,
    job: &str,
    query: LogQuery,
    sender: &mpsc::Sender<Batch>,
    end: &End,
) -> Result<(), Failure> {
    let session = way.session().await?;
    let mut log = session.client.job_logs(job, query);
    let mut lines = Lines::default();
    let mut batch = Vec::new();
    let mut size = 0;
    while let Some(event) = log.next().await? {
        match &event {
            LogEvent::Lost(_) => way.revive(&session).await,
            LogEvent::Data { bytes, .. } => size += bytes.len(),
            LogEvent::End(Some(how)) => {
                let how = serde_json::to_string(how).expect("wire types always serialize");
                *end.lock().unwrap_or_else(PoisonError::into_inner) = Some(how);
            }
            _ => {}
        }
        lines.take(event, &mut batch);
        let flush = !log.has_more() || size >= BATCH;
        if flush && !batch.is_empty() {
            size = 0;
            if sender.send(Ok(std::mem::take(&mut batch))).await.is_err() {
                return Ok(());
            }
        }
    }
    if !batch.is_empty() {
        drop(sender.send(Ok(batch)).await);
    }
    Ok(())
}
