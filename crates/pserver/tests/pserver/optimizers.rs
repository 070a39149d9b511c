//! Constants that a push brings, and optimizer state that programs read and replace.

use paddlecloud_pserver::client::{Client, ClientError};
use paddlecloud_pserver::optimizer::{Optimizer, Pace, Progress, Rule};
use paddlecloud_pserver::steps::Mode;

use crate::training::{ADAM, Job, dense, rate, table};

fn momentum(momentum: f64) -> Rule {
    Rule::Momentum {
        momentum,
        dampening: 0.0,
        nesterov: false,
    }
}

fn pulled(client: &mut Client, name: &str) -> f32 {
    let mut value = [0.0];
    client.pull(&mut [(name, &mut value)], false).unwrap();
    value[0]
}

#[test]
fn a_push_brings_the_constants_of_its_own_update() {
    for mode in [Mode::Sync, Mode::Async] {
        let job = Job::new(2, 1, mode);
        let mut client = job.connect(0, 1);
        client.create_dense(dense("w", 1, momentum(0.5)), &[0.0]).unwrap();
        let mut push = |optimizer: Option<Optimizer>| {
            let optimizer = optimizer.map(Into::into);
            client
                .push_with(&[("w", &[1.0])], Pace::default(), optimizer)
                .unwrap();
            client.finish_step(&mut [], None).unwrap();
            pulled(&mut client, "w")
        };
        assert_eq!(push(Some(Optimizer::new(momentum(0.5), 1.0))), -1.0);
        // v = 0 * 1 + 1
        assert_eq!(push(Some(Optimizer::new(momentum(0.0), 2.0))), -3.0);
        // v = 0.5 * 1 + 1, with the declared rate
        assert!((push(None) - -3.15).abs() < 1e-6);
    }
}

#[test]
fn rows_take_the_constants_of_a_push_on_every_server() {
    let job = Job::new(3, 1, Mode::Sync);
    let mut client = job.connect(0, 1);
    let mut spec = table("emb");
    (spec.optimizer, spec.init) = (
        Optimizer::new(Rule::Sgd, 0.0),
        paddlecloud_pserver::message::Init::Zero,
    );
    client.create_table(spec).unwrap();
    let ids: Vec<u64> = (0..20).collect();
    let mut rows = vec![0.0; 60];
    client.lookup("emb", &ids, true, &mut rows).unwrap();
    let mut decaying = Optimizer::new(Rule::Sgd, 0.5);
    decaying.l1 = 0.25;
    client
        .push_rows_with(
            "emb",
            &ids,
            &[1.0; 60],
            Pace::default(),
            Some(decaying.clone().into()),
        )
        .unwrap();
    client.finish_step(&mut [], None).unwrap();
    client
        .push_rows_with("emb", &ids, &[0.0; 60], Pace::default(), Some(decaying.into()))
        .unwrap();
    client.finish_step(&mut [], None).unwrap();
    client.lookup("emb", &ids, false, &mut rows).unwrap();
    assert_eq!(rows, [-0.5 + 0.5 * 0.25; 60]);
}

/// The elements are on three servers.
#[test]
fn optimizer_state_is_read_and_replaced_as_a_whole() {
    let job = Job::new(3, 1, Mode::Sync);
    let mut client = job.connect(0, 1);
    let elements = 4 * 65_536 + 7;
    let mut spec = dense("w", elements, ADAM);
    spec.optimizer.average = 2;
    let gradient: Vec<f32> = (0..elements).map(|at| (at as f32).sin()).collect();
    let start = vec![1.0; elements as usize];
    client.create_dense(spec, &start).unwrap();
    let train = |client: &mut Client| {
        for _ in 0..3 {
            client.push(&[("w", &gradient)], rate(0.01)).unwrap();
            client.finish_step(&mut [], None).unwrap();
        }
        let (mut values, mut averages) = (start.clone(), start.clone());
        client.pull(&mut [("w", &mut values)], false).unwrap();
        client.pull(&mut [("w", &mut averages)], true).unwrap();
        (values, averages)
    };
    let (values, averages) = train(&mut client);
    let mut state = vec![0.0; 3 * elements as usize];
    let progress = client.optimizer_state("w", &mut state).unwrap();
    assert_eq!(progress.updates, 3);
    assert_eq!(state[2 * elements as usize..], averages);
    assert!(
        (f64::from(state[1]) - 0.271 * 1f64.sin()).abs() < 1e-6,
        "{}",
        state[1]
    );
    let after = train(&mut client);
    // Back to what it was, the same updates give the same bits.
    client.assign("w", &values, true).unwrap();
    let Progress { updates, samples, .. } = progress;
    client
        .set_optimizer_state("w", (updates, samples), None, &state)
        .unwrap();
    assert_eq!(
        client.optimizer_state("w", &mut vec![0.0; state.len()]).unwrap(),
        progress
    );
    assert!(train(&mut client) == after);
}

#[test]
fn wrong_optimizer_state_is_refused() {
    let job = Job::new(2, 1, Mode::Sync);
    let mut client = job.connect(0, 1);
    client.create_dense(dense("w", 2, ADAM), &[0.0; 2]).unwrap();
    client.create_table(table("emb")).unwrap();
    let mut set = |name, state: &[f32]| {
        client
            .set_optimizer_state(name, (1, 0), None, state)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(set("w", &[0.0; 3]), "`w` has 4 floats of optimizer state, not 3");
    assert_eq!(
        set("w", &[0.0, 0.0, f32::NAN, 0.0]),
        "trainer 0 sent NaN or infinite values for `w`"
    );
    assert_eq!(set("emb", &[]), "`emb` is a sparse table, not a dense tensor");
}

#[test]
fn constants_out_of_range_are_refused_before_they_are_sent() {
    let job = Job::new(1, 1, Mode::Async);
    let mut client = job.connect(0, 1);
    let told = client.create_dense(dense("w", 1, momentum(-1.0)), &[0.0]);
    assert!(matches!(told, Err(ClientError::Constant(_))));
    client.create_dense(dense("w", 1, Rule::Sgd), &[0.0]).unwrap();
    for bad in [f32::NAN, -1.0, f32::INFINITY] {
        let told = client.push(&[("w", &[1.0])], rate(bad)).unwrap_err();
        assert_eq!(
            told.to_string(),
            format!("`lr` must be a finite number of at least 0, not {bad}")
        );
    }
    client.create_table(table("emb")).unwrap();
    assert!(client.push_rows("emb", &[1], &[1.0; 3], rate(-1.0)).is_err());
}
