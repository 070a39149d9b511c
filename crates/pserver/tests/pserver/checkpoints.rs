//! What a job gets back from its checkpoints.

use paddlecloud_pserver::client::{Client, ClientError};
use paddlecloud_pserver::message::Limits;
use paddlecloud_pserver::optimizer::Rule;
use paddlecloud_pserver::server::CheckpointState;
use paddlecloud_pserver::steps::Mode;

use crate::restarts::Fragile;
use crate::training::{dense, rate};

/// Ids of rows on both servers.
const IDS: [u64; 6] = [1, 2, 3, 4, 5, 6];

fn fragile(servers: u32, mode: Mode, checkpoint_every: u64) -> Fragile {
    let mut job = Fragile::new(servers, 1, mode);
    job.checkpoint_every = checkpoint_every;
    job
}

fn rows(client: &mut Client, train: bool) -> Result<Vec<f32>, ClientError> {
    let mut rows = vec![0.0; IDS.len() * 3];
    client.lookup("emb", &IDS, train, &mut rows)?;
    Ok(rows)
}

/// Ends steps up to `step`; the first of them changes all rows.
fn train_to(client: &mut Client, step: u64) {
    rows(client, true).unwrap();
    client
        .push_rows("emb", &IDS, &[1.0; IDS.len() * 3], rate(1.0))
        .unwrap();
    while client.step() < step {
        client.finish_step(&mut [], None).unwrap();
    }
}

/// A server that is lost at any moment after the first step finds it.
#[test]
fn the_state_before_the_first_step_is_on_disk_when_that_step_has_ended() {
    let job = fragile(2, Mode::Sync, 5);
    let mut client = job.connect(0);
    let elements = 4 << 20;
    client
        .create_dense(dense("w", elements, Rule::Sgd), &vec![1.0; elements as usize])
        .unwrap();
    client.finish_step(&mut [], None).unwrap();
    let written = paddlecloud_pserver::server::list_checkpoints(job.folder.path()).unwrap();
    let found: Vec<_> = written.iter().map(|found| (found.step, &found.state)).collect();
    assert!(
        matches!(found[..], [(0, CheckpointState::Intact { servers: 2, .. })]),
        "{found:?}"
    );
}

/// The step to which training goes back when the server is lost.
fn rolled_back(job: &Fragile, client: &mut Client, index: u32) -> Option<u64> {
    job.crash(index);
    loop {
        // Through shared memory, the stopped server may answer once more.
        if let Err(error) = rows(client, false) {
            return error.rolled_back_to();
        }
    }
}

fn wait_for_stat(client: &mut Client, shown: &str) {
    while !client.stat().unwrap()[0].contains(shown) {
        std::thread::yield_now();
    }
}

/// `/dev/full` refuses every write, as a full disk does.
#[test]
fn a_full_disk_does_not_stop_training_and_stat_shows_it() {
    let job = fragile(1, Mode::Sync, 2);
    let mut client = job.connect(0);
    client.create_table(job.table()).unwrap();
    let draft = job.folder.path().join("step-000000000002/.server-0-of-1");
    std::fs::create_dir(draft.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("/dev/full", &draft).unwrap();
    train_to(&mut client, 2);
    wait_for_stat(&mut client, "No space left on device");
    wait_for_stat(&mut client, r#""checkpoint":{"step":0,"#);
    train_to_without_change(&mut client, 4);
    wait_for_stat(&mut client, r#""checkpoint":{"step":4,"error":null}"#);
    assert!(!draft.exists());
}

/// Without room for a complete checkpoint, the next one is complete: changes since one that is missing are useless.
#[test]
fn a_failed_checkpoint_is_not_a_base() {
    let job = fragile(1, Mode::Sync, 1);
    let mut client = job.connect(0);
    client.create_table(job.table()).unwrap();
    // Step 0 and every ninth step after it are complete. This file is in the way of a folder.
    std::fs::write(job.folder.path().join("step-000000000009"), b"").unwrap();
    train_to(&mut client, 14);
    job.wait_for_checkpoint(13);
    let before = rows(&mut client, false).unwrap();
    assert!(rolled_back(&job, &mut client, 0) >= Some(13));
    assert_eq!(rows(&mut client, false).unwrap(), before);
}

/// The server that was replaced writes a complete checkpoint, the other one its changes.
#[test]
fn servers_may_have_different_bases() {
    for replaced in [0, 1] {
        let job = fragile(2, Mode::Async, 1);
        let mut client = job.connect(0);
        client.create_table(job.table()).unwrap();
        train_to(&mut client, 3);
        let trained = rows(&mut client, false).unwrap();
        job.wait_for_checkpoint(3);
        job.crash(replaced);
        train_to_without_change(&mut client, 6);
        job.wait_for_checkpoint(6);
        job.crash(1 - replaced);
        train_to_without_change(&mut client, 7);
        assert_eq!(rows(&mut client, false).unwrap(), trained);
    }
}

fn train_to_without_change(client: &mut Client, step: u64) {
    while client.step() < step {
        client.finish_step(&mut [], None).unwrap();
    }
}

#[test]
fn a_row_that_was_dropped_after_the_base_stays_dropped() {
    let mut job = fragile(1, Mode::Sync, 1);
    job.limits = Limits {
        idle_steps: 2,
        ..Limits::default()
    };
    let mut client = job.connect(0);
    client.create_table(job.table()).unwrap();
    let initial = rows(&mut client, false).unwrap();
    train_to_without_change(&mut client, 8);
    // The checkpoint of step 9 is complete and has the rows; that of step 13 has changes.
    train_to(&mut client, 13);
    assert_eq!(rows(&mut client, false).unwrap(), initial);
    job.wait_for_checkpoint(13);
    assert_eq!(rolled_back(&job, &mut client, 0), Some(13));
    assert_eq!(rows(&mut client, false).unwrap(), initial);
}

/// The checkpoint of step 0 is written when the step ends; a trainer may have left by then.
#[test]
fn a_trainer_that_left_after_the_first_step_repeats_it() {
    let job = Fragile::new(1, 2, Mode::Sync);
    let (mut first, mut second) = (job.connect(0), job.connect(1));
    first.create_table(job.table()).unwrap();
    second.create_table(job.table()).unwrap();
    second.finish_step(&mut [], None).unwrap();
    second.leave().unwrap();
    first.finish_step(&mut [], None).unwrap();
    job.wait_for_checkpoint(0);
    assert_eq!(rolled_back(&job, &mut first, 0), Some(0));
    let error = second.wait_for_end().unwrap_err();
    assert_eq!(error.rolled_back_to(), Some(0));
    train_to(&mut second, 1);
    train_to(&mut first, 1);
}
