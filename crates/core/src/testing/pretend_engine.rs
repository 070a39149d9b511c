//! An engine without processes: workers do at once what their command says, in words of [`Program`].
//!
//! [`Program`]: super::engine_suite::Program

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use jiff::SignedDuration;

use crate::exit::Exit;
use crate::job::{Boot, Job, News, Role, WorkerKey};
use crate::names::JobId;
use crate::ports::{AttemptKey, Engine, EngineError, EngineState, Report};

use super::engine_suite::Program;

#[derive(Default)]
struct Inner {
    attempts: BTreeMap<AttemptKey, (Program, News)>,
    reports: Vec<Report>,
    reader: Option<Waker>,
}

/// The machine: outlives the engine as processes outlive a server.
#[derive(Clone, Default)]
pub struct PretendMachine(Arc<Mutex<Inner>>);

impl PretendMachine {
    /// A server comes up and finds what runs. It hears everything once more.
    pub fn engine(&self) -> PretendEngine {
        let mut inner = self.lock();
        let known = inner.attempts.iter();
        inner.reports = known
            .map(|(key, (_, news))| Report {
                attempt: key.clone(),
                news: news.clone(),
            })
            .collect();
        drop(inner);
        PretendEngine(self.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See the module.
#[derive(Clone)]
pub struct PretendEngine(PretendMachine);

impl Inner {
    fn tell(&mut self, key: &AttemptKey, news: News) {
        if let Some((_, latest)) = self.attempts.get_mut(key) {
            *latest = news.clone();
        }
        self.reports.push(Report {
            attempt: key.clone(),
            news,
        });
        if let Some(waker) = self.reader.take() {
            waker.wake();
        }
    }

    fn begin(&mut self, key: &AttemptKey, program: Program) {
        self.tell(key, News::Started);
        match program {
            Program::EndsWith(code) => self.tell(key, News::Exited(Exit::with_code(code))),
            Program::Serves if key.worker.role == Role::Pserver => self.tell(key, News::Ready),
            _ => {}
        }
    }
}

impl Engine for PretendEngine {
    async fn launch(&self, job: &Arc<Job>, worker: WorkerKey, attempt: u32) {
        let mut inner = self.0.lock();
        let key = AttemptKey {
            job: job.id.clone(),
            worker,
            attempt,
        };
        if inner.attempts.contains_key(&key) {
            return;
        }
        let program = Program::of(job, worker.role);
        inner.attempts.insert(key.clone(), (program, News::Launched));
        if program == Program::CannotStart {
            let message = Some("no such folder".into());
            inner.tell(
                &key,
                News::Exited(Exit {
                    message,
                    ..Exit::with_code(127)
                }),
            );
            return;
        }
        inner.tell(&key, News::Up);
        if worker.role == Role::Pserver {
            inner.begin(&key, program);
        }
    }

    async fn go(&self, job: &Arc<Job>, worker: WorkerKey, attempt: u32) {
        let mut inner = self.0.lock();
        let key = AttemptKey {
            job: job.id.clone(),
            worker,
            attempt,
        };
        if let Some((program, News::Up)) = inner.attempts.get(&key).cloned() {
            inner.begin(&key, program);
        }
    }

    async fn stop(&self, attempt: &AttemptKey, _grace: SignedDuration) {
        let mut inner = self.0.lock();
        let Some((program, news)) = inner.attempts.get(attempt).cloned() else {
            return;
        };
        if news.is_end() {
            return;
        }
        let signal = if program == Program::IgnoresTerm { 9 } else { 15 };
        inner.tell(attempt, News::Exited(Exit::by_signal(signal)));
    }

    async fn clean(&self, attempt: &AttemptKey) {
        self.0.lock().attempts.remove(attempt);
    }

    async fn discard(&self, _job: &JobId) {}

    async fn state(&self) -> Result<EngineState, EngineError> {
        let inner = self.0.lock();
        let known = inner.attempts.iter();
        let attempts = known
            .map(|(key, (_, news))| Report {
                attempt: key.clone(),
                news: news.clone(),
            })
            .collect();
        Ok(EngineState {
            attempts,
            boot: Boot::Same,
        })
    }

    async fn next_reports(&self) -> Vec<Report> {
        poll_fn(|context| {
            let mut inner = self.0.lock();
            if inner.reports.is_empty() {
                inner.reader = Some(context.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(std::mem::take(&mut inner.reports))
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::block_on;
    use crate::testing::engine_suite::{Bench, engine_suite, pretend_job};

    struct Pretend(PretendMachine);

    impl Bench for Pretend {
        type Engine = PretendEngine;

        async fn engine(&self) -> PretendEngine {
            self.0.engine()
        }

        fn job(&self, number: u32, pserver: Option<Program>, trainer: Program) -> Arc<Job> {
            pretend_job(number, pserver, trainer)
        }
    }

    #[test]
    fn the_pretend_engine_passes_the_suite_of_its_port() {
        block_on(engine_suite(&Pretend(PretendMachine::default())));
    }
}
