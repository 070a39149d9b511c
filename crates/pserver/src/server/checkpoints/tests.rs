//! Checkpoints of a server without connections: locks and failures that a client cannot provoke at will.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode as Permissions, mknodat};

use super::super::{Config, Server};
use super::Rollback;
use crate::checkpoint::{file, folder_of};
use crate::message::{DenseSpec, Init, Limits, Origin, Session, TableSpec};
use crate::optimizer::{Optimizer, Rule};
use crate::placement::BLOCK;
use crate::sparse::{Purpose, Table};
use crate::steps::Mode;

/// A server of a job that saves every step.
fn server(folder: &tempfile::TempDir) -> Arc<Server> {
    // Its tables have more shards than the writer's queue has places.
    let server = Server::new(Config {
        cores: 8,
        ..Config::default()
    });
    server.state().session = Some(Session {
        mode: Mode::Async,
        mean: false,
        checkpoints: folder.path().to_str().unwrap().to_owned(),
        checkpoint_every: 1,
        resume: String::new(),
    });
    server
}

fn save(server: &Server, step: u64) {
    server.checkpoint_if_due(&server.state(), step);
}

fn table(server: &Server) -> Arc<Table> {
    let spec = TableSpec {
        name: "emb".into(),
        row: 4,
        optimizer: Optimizer::new(Rule::Sgd, 1.0),
        init: Init::Zero,
        seed: 0,
        limits: Limits::default(),
    };
    let place = server.create_table(spec, None).unwrap();
    server.table(place.id).unwrap()
}

fn create_rows(table: &Table, ids: &[u64]) {
    let purpose = Purpose::Train { once_per_step: false };
    table.lookup(ids, purpose, &mut vec![0.0; ids.len() * 4]).unwrap();
}

fn wait_until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
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

#[test]
fn a_rollback_waits_for_the_checkpoint_that_is_being_written() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(&folder);
    let table = table(&server);
    create_rows(&table, &[1, 2, 3]);
    save(&server, 1);
    wait_until(|| file(folder.path(), 1, 0, 1).exists());
    // In place of a draft: the writer cannot open it before somebody reads from it.
    let pipe = folder_of(folder.path(), 2).join(".server-0-of-1");
    std::fs::create_dir(pipe.parent().unwrap()).unwrap();
    mknodat(CWD, &pipe, FileType::Fifo, Permissions::RWXU, 0).unwrap();
    save(&server, 2);
    let rollback = Rollback {
        epoch: 2,
        step: 1,
        origin: Origin::ThisRun,
    };
    let rolled = {
        let server = Arc::clone(&server);
        thread::spawn(move || server.roll_back(rollback, 1))
    };
    // It waits for the writer, or is done with it.
    let is_past = || {
        let checkpoints = server.checkpoints.try_lock();
        checkpoints.map_or(true, |checkpoints| checkpoints.writer.is_none())
    };
    wait_until(is_past);
    let read = thread::spawn(move || std::fs::read(pipe));
    wait_until(|| read.is_finished() && rolled.is_finished());
    rolled.join().unwrap().unwrap();
    assert_eq!(table.rows(), 3);
}

/// Saves ten steps while another thread calls `change` again and again.
fn save_during(server: &Server, change: impl Fn() + Sync) {
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                change();
            }
        });
        for step in 1..=10 {
            save(server, step);
        }
        is_done.store(true, Ordering::Relaxed);
    });
}

/// The changing thread waits for the writer with a lock that the checkpoint must not need any more.
#[test]
fn a_checkpoint_can_begin_while_tensors_change() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(&folder);
    let rows = thread::spawn({
        let (server, table) = (Arc::clone(&server), table(&server));
        let ids = Vec::from_iter(0..1000);
        move || save_during(&server, || table.assign(&ids, &[1.0; 4000]).unwrap())
    });
    wait_until(|| rows.is_finished());
    rows.join().unwrap();
    let elements = 24 * BLOCK;
    let spec = DenseSpec {
        name: "w".into(),
        shape: vec![elements],
        optimizer: Optimizer::new(Rule::Sgd, 1.0),
    };
    let place = server.create_dense(spec, None).unwrap();
    let dense = server.dense(place.id).unwrap();
    let values = thread::spawn(move || {
        let values = vec![1.0; elements as usize];
        save_during(&server, || dense.assign(&values, true));
    });
    wait_until(|| values.is_finished());
    values.join().unwrap();
}
