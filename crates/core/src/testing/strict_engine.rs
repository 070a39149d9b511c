//! An engine that is given the expected orders in advance and panics on any other.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use jiff::SignedDuration;

use crate::conductor::{Addresses, Loopback};
use crate::job::{Boot, WorkerKey};
use crate::names::JobId;
use crate::ports::{Assignment, AttemptKey, Engine, EngineError, EngineEvent, EngineState, Report};

/// An order as a test writes it down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    Launch(AttemptKey),
    Go(AttemptKey),
    Stop(AttemptKey),
    Clean(AttemptKey),
    Discard(JobId),
}

impl Order {
    fn worker(&self) -> Option<(&JobId, WorkerKey)> {
        match self {
            Order::Launch(key) | Order::Go(key) | Order::Stop(key) | Order::Clean(key) => {
                Some((&key.job, key.worker))
            }
            Order::Discard(_) => None,
        }
    }
}

#[derive(Default)]
struct Inner {
    expected: VecDeque<Order>,
    reports: Vec<Report>,
    found: Vec<Report>,
    reader: Option<Waker>,
    done: Option<Waker>,
}

/// Orders for different workers may come in any order; orders for one worker must come as expected.
#[derive(Default)]
pub struct StrictEngine(Mutex<Inner>);

impl StrictEngine {
    /// Expects these orders before the engine is dropped.
    pub fn expect(&self, orders: impl IntoIterator<Item = Order>) {
        self.lock().expected.extend(orders);
    }

    /// Sets the result of [`Engine::state`].
    pub fn has(&self, attempts: Vec<Report>) {
        self.lock().found = attempts;
    }

    /// Sends a report to the server.
    pub fn report(&self, report: Report) {
        let mut inner = self.lock();
        inner.reports.push(report);
        if let Some(waker) = inner.reader.take() {
            waker.wake();
        }
    }

    /// Waits until every expected order has arrived.
    pub async fn all_received(&self) {
        poll_fn(|context| {
            let mut inner = self.lock();
            if inner.expected.is_empty() {
                return Poll::Ready(());
            }
            inner.done = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn take(&self, order: Order) {
        let mut inner = self.lock();
        let first = inner
            .expected
            .iter()
            .position(|other| other.worker() == order.worker());
        match first.filter(|at| inner.expected[*at] == order) {
            Some(at) => drop(inner.expected.remove(at)),
            None => {
                let expected = std::mem::take(&mut inner.expected);
                drop(inner);
                panic!("unexpected order {order:?}; expected {expected:?}");
            }
        }
        if let Some(waker) = inner.done.take().filter(|_| inner.expected.is_empty()) {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StrictEngine {
    fn drop(&mut self) {
        let missing = std::mem::take(&mut self.lock().expected);
        if !missing.is_empty() && !std::thread::panicking() {
            panic!("orders that never came: {missing:?}");
        }
    }
}

impl Engine for StrictEngine {
    async fn launch(&self, assignment: &Assignment) {
        self.take(Order::Launch(assignment.key()));
    }

    async fn go(&self, attempt: &AttemptKey) {
        self.take(Order::Go(attempt.clone()));
    }

    async fn stop(&self, attempt: &AttemptKey, _grace: SignedDuration) {
        self.take(Order::Stop(attempt.clone()));
    }

    async fn clean(&self, attempt: &AttemptKey) {
        self.take(Order::Clean(attempt.clone()));
    }

    async fn discard(&self, job: &JobId) {
        self.take(Order::Discard(job.clone()));
    }

    async fn state(&self) -> Result<EngineState, EngineError> {
        Ok(EngineState {
            attempts: self.lock().found.clone(),
            nodes: Vec::new(),
            boot: Boot::Same,
        })
    }

    async fn next_events(&self) -> Vec<EngineEvent> {
        poll_fn(|context| {
            let mut inner = self.lock();
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{block_on, samples};

    fn attempt(worker: WorkerKey) -> AttemptKey {
        AttemptKey {
            job: samples::id(1),
            worker,
            attempt: 1,
        }
    }

    #[test]
    fn expected_orders_pass_in_any_order_of_workers() {
        let engine = StrictEngine::default();
        let (zero, one) = (attempt(WorkerKey::trainer(0)), attempt(WorkerKey::trainer(1)));
        engine.expect([Order::Clean(zero.clone()), Order::Clean(one.clone())]);
        block_on(engine.clean(&one));
        block_on(engine.clean(&zero));
        block_on(engine.all_received());
    }

    #[test]
    #[should_panic(expected = "unexpected order")]
    fn an_order_too_early_for_its_worker_panics() {
        let engine = StrictEngine::default();
        let zero = attempt(WorkerKey::trainer(0));
        engine.expect([Order::Stop(zero.clone()), Order::Clean(zero.clone())]);
        block_on(engine.clean(&zero));
    }

    #[test]
    #[should_panic(expected = "never came")]
    fn a_missing_order_panics_at_the_end() {
        StrictEngine::default().expect([Order::Discard(samples::id(1))]);
    }
}
