//! An engine without processes: workers immediately do what their command says, as a [`Program`].
//!
//! [`Program`]: super::engine_suite::Program

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use jiff::SignedDuration;

use crate::conductor::{Addresses, Loopback};
use crate::exit::Exit;
use crate::job::{Boot, News, Role};
use crate::names::JobId;
use crate::ports::{
    Assignment, AttemptKey, Chunk, Engine, EngineError, EngineEvent, EngineState, LogStore, Report, Stream,
};
use crate::scheduler::Node;

use super::MemoryLogs;
use super::engine_suite::{Program, printed};

#[derive(Default)]
struct Inner {
    attempts: BTreeMap<AttemptKey, (Program, News)>,
    nodes: Vec<Node>,
    logs: MemoryLogs,
    is_full: bool,
    obstacle: Option<String>,
    reports: Vec<Report>,
    reader: Option<Waker>,
}

/// The machine: it outlives the engine as processes outlive a server.
#[derive(Clone, Default)]
pub struct PretendMachine(Arc<Mutex<Inner>>);

impl PretendMachine {
    /// Starts a server, which finds what is running and gets every report again.
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

    /// Sets the nodes of the machine.
    pub fn with_nodes(self, nodes: Vec<Node>) -> PretendMachine {
        self.lock().nodes = nodes;
        self
    }

    /// Sets whether all room is used up.
    pub fn crowd(&self, is_full: bool) {
        self.lock().is_full = is_full;
    }

    /// What its workers print.
    pub fn logs(&self) -> MemoryLogs {
        self.lock().logs.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See the module.
#[derive(Clone)]
pub struct PretendEngine(PretendMachine);

impl PretendEngine {
    /// Sets what hinders all workers.
    pub fn hinder(&self, obstacle: &str) {
        self.0.lock().obstacle = Some(obstacle.to_owned());
    }
}

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

    fn print(&self, key: &AttemptKey, text: &str) -> u64 {
        let chunk = Chunk {
            offset: 0,
            stamp: 0,
            stream: Stream::Output,
            bytes: text.as_bytes().to_vec(),
        };
        let stored = self.logs.append(key, &chunk);
        let end = stored.expect("memory does not fail");
        self.logs.close(key, end).expect("memory does not fail");
        end
    }

    fn begin(&mut self, key: &AttemptKey, program: Program) {
        self.tell(key, News::Started);
        match program {
            Program::Prints => {
                let log_end = self.print(key, &printed());
                self.tell(
                    key,
                    News::Exited(Exit {
                        log_end,
                        ..Exit::with_code(0)
                    }),
                );
            }
            Program::EndsWith(code) => self.tell(key, News::Exited(Exit::with_code(code))),
            Program::Serves if key.worker.role == Role::Pserver => self.tell(key, News::Ready),
            _ => {}
        }
    }
}

impl Engine for PretendEngine {
    async fn launch(&self, assignment: &Assignment) {
        let mut inner = self.0.lock();
        let key = assignment.key();
        if inner.attempts.contains_key(&key) {
            return;
        }
        let program = Program::of(&assignment.job, key.worker.role);
        inner.attempts.insert(key.clone(), (program, News::Launched));
        if inner.is_full {
            inner.tell(&key, News::NoRoom("others have all of it".into()));
            return;
        }
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
        if key.worker.role == Role::Pserver {
            inner.begin(&key, program);
        }
    }

    async fn go(&self, attempt: &AttemptKey) {
        let mut inner = self.0.lock();
        if let Some((program, News::Up)) = inner.attempts.get(attempt).cloned() {
            inner.begin(attempt, program);
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
            nodes: inner.nodes.clone(),
            boot: Boot::Same,
        })
    }

    async fn next_events(&self) -> Vec<EngineEvent> {
        poll_fn(|context| {
            let mut inner = self.0.lock();
            if inner.reports.is_empty() {
                inner.reader = Some(context.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(
                std::mem::take(&mut inner.reports)
                    .into_iter()
                    .map(EngineEvent::Worker)
                    .collect(),
            )
        })
        .await
    }

    fn addresses(&self) -> Box<dyn Addresses> {
        Box::new(Loopback::default())
    }

    fn obstacles(&self, _job: &JobId) -> Vec<String> {
        self.0.lock().obstacle.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Job;
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

        fn logs(&self) -> Arc<dyn LogStore> {
            Arc::new(self.0.logs())
        }

        fn crowd(&self, is_full: bool) {
            self.0.crowd(is_full);
        }
    }

    #[test]
    fn the_pretend_engine_passes_the_suite_of_its_port() {
        block_on(engine_suite(&Pretend(PretendMachine::default())));
    }
}
