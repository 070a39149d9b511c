//! Checkpoints of a server without connections: locks and failures that a client cannot provoke at will.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::super::{Config, Server};
use crate::message::Session;
use crate::steps::Mode;

/// A server of a job that saves every step.
fn server(folder: &tempfile::TempDir) -> Arc<Server> {
    let server = Server::new(Config::default());
    server.state().session = Some(Session {
        mode: Mode::Async,
        mean: false,
        checkpoints: folder.path().to_str().unwrap().to_owned(),
        checkpoint_every: 1,
    });
    server
}

fn wait_until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "it takes too long");
        thread::yield_now();
    }
}

/// A push takes the gate before the state; a checkpoint that waits at the gate with the state would wait forever.
#[test]
fn a_checkpoint_waits_for_pushes_without_holding_the_state() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(&folder);
    thread::scope(|scope| {
        let push = server.gate.read().unwrap();
        scope.spawn(|| server.end_asynchronous_step(1));
        // A writer that waits keeps further readers out.
        wait_until(|| server.gate.try_read().is_err());
        let is_free = server.state.try_lock().is_ok();
        drop(push);
        assert!(is_free);
    });
}
