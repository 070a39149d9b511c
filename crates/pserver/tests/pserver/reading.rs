//! What a trainer reads after the end of its step has the gradients of all trainers, however it reads it.

use std::sync::mpsc;
use std::thread;

use paddlecloud_pserver::client::{Client, ClientError};
use paddlecloud_pserver::optimizer::Pace;
use paddlecloud_pserver::steps::Mode;

use crate::training::{Job, table};

const IDS: [u64; 4] = [1, 2, 3, 4];

fn trainer(job: &Job, number: u32) -> Client {
    let mut client = job.connect(number, 1);
    client.create_table(table("emb")).unwrap();
    client
}

/// Pushes the same gradient for every row and ends the step, without asking for a value.
fn end_step(client: &mut Client) {
    let mut rows = [0.0; IDS.len() * 3];
    client.lookup("emb", &IDS, true, &mut rows).unwrap();
    client
        .push_rows("emb", &IDS, &[1.0; IDS.len() * 3], Pace::default())
        .unwrap();
    client.finish_step(&mut [], None).unwrap();
}

fn looked_up(client: &mut Client) -> Vec<f32> {
    let mut rows = vec![0.0; IDS.len() * 3];
    client.lookup("emb", &IDS, false, &mut rows).unwrap();
    rows
}

fn scanned(client: &mut Client) -> Vec<f32> {
    let mut found = Vec::new();
    let take = |ids: &[u64], rows: &[f32]| {
        found.extend(ids.iter().copied().zip(rows.chunks_exact(3).map(<[f32]>::to_vec)));
        Ok::<_, ClientError>(())
    };
    client.scan("emb", 0, take).unwrap();
    found.sort_by_key(|(id, _)| *id);
    found.into_iter().flat_map(|(_, row)| row).collect()
}

#[test]
fn evaluation_and_saving_wait_for_the_gradients_of_the_other_trainers() {
    let job = Job::new(2, 2, Mode::Sync);
    let (mut fast, mut slow) = (trainer(&job, 0), trainer(&job, 1));
    for step in 0..20 {
        let read = [looked_up as fn(&mut Client) -> Vec<f32>, scanned][step % 2];
        let seen = thread::scope(|scope| {
            let (ended, has_ended) = mpsc::channel();
            let fast = &mut fast;
            let reading = scope.spawn(move || {
                end_step(fast);
                ended.send(()).unwrap();
                read(fast)
            });
            has_ended.recv().unwrap();
            end_step(&mut slow);
            reading.join().unwrap()
        });
        assert_eq!(seen, looked_up(&mut slow), "step {step}");
    }
}
