//! A full table in synchronous training: the rows that are dropped do not depend on who asks first.

use paddlecloud_pserver::client::Client;
use paddlecloud_pserver::message::{Limits, TableSpec};
use paddlecloud_pserver::optimizer::Pace;
use paddlecloud_pserver::placement::mix;
use paddlecloud_pserver::steps::Mode;

use crate::restarts::Fragile;
use crate::training::{gradient, table};

const LIMIT: u64 = 200;

fn limited() -> TableSpec {
    TableSpec {
        limits: Limits {
            rows: LIMIT,
            evict: true,
            ..Limits::default()
        },
        ..table("emb")
    }
}

/// One step of two trainers that look up 30 ids each; `order` decides who does what first.
fn step(clients: &mut [Client; 2], order: u64) {
    let step = clients[0].step();
    let ids = |trainer: u64| -> Vec<u64> {
        (0..30)
            .map(|i| mix(step * 64 + trainer * 32 + i) % 1000)
            .collect()
    };
    for turn in 0..2 {
        // Lookups of both trainers, then the pushes, each in an order of its own.
        for number in [0, 1] {
            let trainer = (number + (order >> turn)) % 2;
            let (client, ids) = (&mut clients[trainer as usize], ids(trainer));
            let mut rows = vec![0.0; ids.len() * 3];
            client.lookup("emb", &ids, true, &mut rows).unwrap();
            if turn == 1 {
                let gradients = gradient(&rows, trainer as u32, step);
                client
                    .push_rows("emb", &ids, &gradients, Pace::default())
                    .unwrap();
            }
        }
    }
    let [first, second] = clients;
    std::thread::scope(|scope| {
        scope.spawn(|| first.finish_step(&mut [], None).unwrap());
        second.finish_step(&mut [], None).unwrap();
    });
}

/// All rows by id, after 40 steps.
fn train(seed: u64) -> Vec<(u64, Vec<f32>)> {
    let job = Fragile::new(1, 2, Mode::Sync);
    let mut clients = [job.connect(0), job.connect(1)];
    for client in &mut clients {
        client.create_table(limited()).unwrap();
    }
    for at in 0..40 {
        step(&mut clients, mix(seed ^ mix(at)));
    }
    let mut found = Vec::new();
    let scanned = clients[0].scan("emb", 0, |ids, rows| {
        found.extend(ids.iter().copied().zip(rows.chunks(3).map(<[f32]>::to_vec)));
        Ok::<_, paddlecloud_pserver::client::ClientError>(())
    });
    scanned.unwrap();
    found.sort_by_key(|(id, _)| *id);
    found
}

#[test]
fn the_order_of_arrival_does_not_decide_which_rows_are_dropped() {
    let model = train(1);
    assert!(model.len() <= LIMIT as usize);
    assert!(model.len() > LIMIT as usize / 2, "{} rows", model.len());
    for seed in 2..6 {
        assert!(train(seed) == model, "seed {seed}");
    }
}
