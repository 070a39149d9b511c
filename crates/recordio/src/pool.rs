//! Threads that work on jobs in parallel and return the results in order.

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// A bounded, ordered pipeline: the owner submits until it is full and takes results in the same order.
///
/// Dropping it ends the threads after their current jobs.
pub(crate) struct OrderedPool<J, R> {
    jobs: Option<Sender<Job<J, R>>>,
    results: VecDeque<Receiver<R>>,
    capacity: usize,
    threads: Vec<JoinHandle<()>>,
}

struct Job<J, R> {
    input: J,
    reply: SyncSender<R>,
}

impl<J: Send + 'static, R: Send + 'static> OrderedPool<J, R> {
    /// `worker` is called once per thread and makes that thread's function.
    pub(crate) fn start<F>(threads: usize, name: &str, worker: impl Fn() -> F) -> io::Result<Self>
    where
        F: FnMut(J) -> R + Send + 'static,
    {
        let (jobs, queue) = channel::<Job<J, R>>();
        let queue = Arc::new(Mutex::new(queue));
        let mut pool = Self {
            jobs: Some(jobs),
            results: VecDeque::new(),
            // One job in progress per thread and as many waiting keep all threads busy.
            capacity: 2 * threads,
            threads: Vec::new(),
        };
        for i in 0..threads {
            let (queue, work) = (Arc::clone(&queue), worker());
            let thread = thread::Builder::new().name(format!("{name}-{i}"));
            pool.threads.push(thread.spawn(move || serve(&queue, work))?);
        }
        Ok(pool)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.results.len() >= self.capacity
    }

    pub(crate) fn submit(&mut self, input: J) {
        let (reply, result) = sync_channel(1);
        self.results.push_back(result);
        let jobs = self
            .jobs
            .as_ref()
            .expect("the queue is open until the pool is dropped");
        // If every thread has panicked, nobody takes the job; `next` reports it.
        let _ = jobs.send(Job { input, reply });
    }

    /// The result of the oldest job, waiting for it; `None` if there is no job.
    ///
    /// Panics if the thread of the job did.
    pub(crate) fn next(&mut self) -> Option<R> {
        let result = self.results.pop_front()?;
        Some(
            result
                .recv()
                .expect("a thread answers every job unless it panics"),
        )
    }
}

fn serve<J, R>(queue: &Mutex<Receiver<Job<J, R>>>, mut work: impl FnMut(J) -> R) {
    loop {
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        // The owner may have lost interest.
        let _ = job.reply.send(work(job.input));
    }
}

impl<J, R> Drop for OrderedPool<J, R> {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // A panic has already been reported where its result was missed.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_jobs() {
        let mut pool = OrderedPool::start(3, "square", || |x: u64| x * x).unwrap();
        let mut squares = Vec::new();
        for x in 0..100 {
            if pool.is_full() {
                squares.extend(pool.next());
            }
            pool.submit(x);
        }
        squares.extend(std::iter::from_fn(|| pool.next()));
        assert_eq!(squares, (0..100).map(|x| x * x).collect::<Vec<_>>());
    }

    #[test]
    fn a_pool_dropped_with_jobs_left_ends() {
        let mut pool = OrderedPool::start(2, "idle", || |x: u64| x).unwrap();
        for x in 0..4 {
            pool.submit(x);
        }
        drop(pool);
    }
}
