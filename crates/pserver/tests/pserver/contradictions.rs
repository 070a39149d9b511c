//! Trainers that contradict each other are refused by name, and no part of their step takes effect.

use std::thread;

use paddlecloud_pserver::client::{Client, ClientError, Link, LinkConfig, Sink};
use paddlecloud_pserver::hello::Identity;
use paddlecloud_pserver::message::{Code, DenseSpec, Request};
use paddlecloud_pserver::optimizer::{Optimizer, Pace, Rule};
use paddlecloud_pserver::steps::Mode;

use crate::training::{ADAM, Job, dense, rate, table};

/// Two trainers of a job with two servers. `small` is on the first server alone, `w` on both.
fn pair(job: &Job) -> [Client; 2] {
    [0, 1].map(|trainer| {
        let mut client = job.connect(trainer, 1);
        client.create_dense(dense("small", 1, ADAM), &[0.0]).unwrap();
        client
            .create_dense(dense("w", 70_000, Rule::Sgd), &[0.0; 70_000])
            .unwrap();
        client.create_table(table("emb")).unwrap();
        client
    })
}

fn refused(error: ClientError) -> String {
    match error {
        ClientError::Refused(refused) => {
            assert_eq!(refused.code, Code::Conflict);
            refused.message
        }
        other => panic!("{other}"),
    }
}

/// What both trainers learn when trainer 0 waits for the end of its step and trainer 1 contradicts it.
fn both(
    job: &Job,
    first: impl FnOnce(&mut Client) -> Result<(), ClientError>,
    second: impl FnOnce(&mut Client) -> Result<(), ClientError>,
) -> String {
    let [mut zero, mut one] = pair(job);
    first(&mut zero).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            let ended = zero.finish_step(&mut [], None);
            // A call that does not wait for a step returns at once, so the next one learns it.
            ended.and_then(|()| zero.finish_step(&mut [], None)).unwrap_err()
        });
        let told = refused(second(&mut one).unwrap_err());
        assert_eq!(refused(waiting.join().unwrap()), told);
        assert_eq!(refused(one.finish_step(&mut [], None).unwrap_err()), told);
        told
    })
}

#[test]
fn different_rates_for_one_tensor_are_refused_to_both_trainers() {
    let told = both(
        &Job::new(2, 2, Mode::Sync),
        |client| client.push(&[("w", &[1.0; 70_000]), ("small", &[1.0])], rate(0.1)),
        |client| client.push(&[("small", &[1.0])], rate(0.2)),
    );
    assert_eq!(
        told,
        "step 0 is refused: `small` is pushed with different rates or constants, by trainer 0 with lr=0.1 and by trainer \
         1 with lr=0.2"
    );
}

#[test]
fn different_constants_for_one_table_are_refused_to_both_trainers() {
    let adagrad = |epsilon| {
        let rule = Rule::Adagrad {
            epsilon,
            lr_decay: 0.0,
            initial: 0.0,
        };
        Some(Optimizer::new(rule, 0.5).into())
    };
    let push = |client: &mut Client, epsilon| {
        client.lookup("emb", &[7], true, &mut [0.0; 3])?;
        client.push_rows_with("emb", &[7], &[1.0; 3], Pace::default(), adagrad(epsilon))
    };
    let told = both(
        &Job::new(2, 2, Mode::Sync),
        |client| push(client, 0.25),
        |client| push(client, 0.5),
    );
    assert_eq!(
        told,
        "step 0 is refused: `emb` is pushed with different rates or constants, by trainer 0 with adagrad(lr=0.5, \
         epsilon=0.25) and by trainer 1 with adagrad(lr=0.5, epsilon=0.5)"
    );
}

#[test]
fn a_restarted_trainer_with_another_rate_does_not_contradict_its_own_earlier_part() {
    let job = Job::new(2, 2, Mode::Sync);
    let [mut zero, mut one] = pair(&job);
    zero.push(&[("small", &[1.0])], rate(0.1)).unwrap();
    drop(zero);
    let mut zero = job.connect(0, 2);
    zero.create_dense(dense("small", 1, ADAM), &[0.0]).unwrap();
    zero.push(&[("small", &[1.0])], rate(0.2)).unwrap();
    one.push(&[("small", &[1.0])], rate(0.2)).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| zero.finish_step(&mut [], None).unwrap());
        one.finish_step(&mut [], None).unwrap();
    });
}

#[test]
fn a_refused_step_can_be_repeated_by_restarted_trainers() {
    let job = Job::new(2, 2, Mode::Sync);
    let [mut zero, mut one] = pair(&job);
    zero.push(&[("small", &[1.0]), ("w", &[1.0; 70_000])], rate(0.1))
        .unwrap();
    refused(one.push(&[("w", &[1.0; 70_000])], rate(0.2)).unwrap_err());
    drop((zero, one));
    let mut values = [0.0; 70_000];
    // Both are there before either pushes: what the other pushed before its restart would contradict the first push.
    let clients = [0, 1].map(|trainer| job.connect(trainer, 2));
    thread::scope(|scope| {
        let again = |mut client: Client| {
            client.create_dense(dense("small", 1, ADAM), &[0.0]).unwrap();
            client
                .create_dense(dense("w", 70_000, Rule::Sgd), &[0.0; 70_000])
                .unwrap();
            client.push(&[("w", &[1.0; 70_000])], rate(0.5)).unwrap();
            client
        };
        let [zero, one] = clients;
        scope.spawn(move || again(one).finish_step(&mut [], None).unwrap());
        again(zero).finish_step(&mut [("w", &mut values)], None).unwrap();
    });
    assert!(values.iter().all(|value| *value == -1.0));
}

#[test]
fn asynchronous_trainers_have_rates_of_their_own() {
    let job = Job::new(2, 2, Mode::Async);
    let [mut zero, mut one] = pair(&job);
    zero.push(&[("w", &[1.0; 70_000])], rate(0.5)).unwrap();
    one.push(&[("w", &[1.0; 70_000])], rate(0.25)).unwrap();
    let mut values = [0.0; 70_000];
    one.pull(&mut [("w", &mut values)], false).unwrap();
    assert!(values.iter().all(|value| *value == -0.75));
}

#[test]
fn a_second_declaration_must_agree_with_the_first() {
    let job = Job::new(1, 2, Mode::Sync);
    let [_zero, mut one] = pair(&job);
    let mut declare = |spec: DenseSpec| {
        let values = vec![0.0; spec.elements() as usize];
        one.create_dense(spec, &values).unwrap_err().to_string()
    };
    let mut shaped = dense("w", 70_000, Rule::Sgd);
    shaped.shape = vec![700, 100];
    assert_eq!(
        declare(shaped),
        "`w` is declared as shape [70000]; another declaration says shape [700, 100]"
    );
    assert_eq!(
        declare(dense("w", 70_000, ADAM)),
        "`w` is declared as sgd(lr=0.10000000149011612); another declaration says adam(lr=0.10000000149011612, beta1=0.9, \
         beta2=0.999, epsilon=0.00000001)"
    );
    assert_eq!(
        declare(dense("emb", 3, Rule::Sgd)),
        "`emb` is declared as a sparse table; another declaration says a dense tensor"
    );
    let mut other = table("emb");
    other.limits.rows = 10;
    let told = one.create_table(other).unwrap_err().to_string();
    assert!(told.starts_with("`emb` is declared as Limits {"), "{told}");
    one.create_table(table("emb")).unwrap();
}

/// Trainer 0 never gives the tensor its initial values.
#[test]
fn a_tensor_that_trainer_0_does_not_declare_is_refused() {
    let job = Job::new(2, 2, Mode::Sync);
    let [mut zero, mut one] = pair(&job);
    one.create_dense(dense("b", 1, Rule::Sgd), &[0.0]).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(move || one.pull(&mut [("b", &mut [0.0])], false).unwrap_err());
        scope.spawn(move || zero.finish_step(&mut [], None).unwrap());
        assert_eq!(
            waiting.join().unwrap().to_string(),
            "trainer 1 declares `b`, but trainer 0 ended step 0 without it: all trainers must declare the same tensors"
        );
        job.connect(1, 2).leave().unwrap();
    });
}

#[test]
fn a_push_with_another_rule_or_other_state_is_refused() {
    let job = Job::new(1, 1, Mode::Async);
    let mut client = job.connect(0, 1);
    client.create_dense(dense("w", 1, ADAM), &[0.0]).unwrap();
    let mut push = |optimizer: Optimizer| {
        client
            .push_with(&[("w", &[1.0])], Pace::default(), Some(optimizer.into()))
            .map_err(|error| error.to_string())
    };
    let told = push(Optimizer::new(Rule::Sgd, 0.5)).unwrap_err();
    assert!(
        told.ends_with("a push cannot update it with sgd(lr=0.5)"),
        "{told}"
    );
    let mut averaged = Optimizer::new(ADAM, 0.5);
    averaged.average = 3;
    let told = push(averaged).unwrap_err();
    assert!(told.contains("average=3"), "{told}");
    let mut wild = Optimizer::new(ADAM, 0.5);
    wild.clip = -1.0;
    assert_eq!(
        push(wild).unwrap_err(),
        "`clip` must be a finite number of at least 0, not -1"
    );
    push(Optimizer::new(ADAM, 0.5)).unwrap();
}

/// A client that does not check what it sends.
fn link(job: &Job) -> Link {
    let config = job.config(0, 1);
    Link::new(LinkConfig {
        address: config.addresses[0].clone(),
        identity: Identity {
            trainer: 0,
            trainers: 1,
            attempt: 1,
            server: 0,
            servers: 1,
            lane: 0,
        },
        secret: config.secret,
        patience: config.patience,
        follows_restarts: false,
        shares_memory: false,
        listener: config.listener,
    })
}

#[test]
fn a_request_that_cannot_be_read_is_answered_with_the_reason() {
    let job = Job::new(1, 1, Mode::Sync);
    let mut link = link(&job);
    let mut ask = |spec: DenseSpec| {
        let request = Request::CreateDense { spec, place: None };
        link.ask(&request, &[], Sink::Nothing)
            .map_err(|error| error.to_string())
    };
    assert_eq!(ask(dense("", 1, Rule::Sgd)).unwrap_err(), "a tensor needs a name");
    let told = ask(dense("w", 1 << 41, Rule::Sgd)).unwrap_err();
    assert_eq!(
        told,
        format!(
            "the elements of a tensor is {}, more than {}",
            1u64 << 41,
            1u64 << 40
        )
    );
    let mut wild = dense("w", 1, Rule::Sgd);
    wild.optimizer.l2 = f32::NAN;
    let told = ask(wild).unwrap_err();
    assert_eq!(told, "`l2` must be a finite number of at least 0, not NaN");
    // The connection is still in order.
    ask(dense("w", 1, Rule::Sgd)).unwrap();
    let assign = Request::Assign {
        tensor: 0,
        replace: true,
    };
    let told = link
        .ask(&assign, &[&[0; 7]], Sink::Nothing)
        .unwrap_err()
        .to_string();
    assert_eq!(told, "a request has a body of 7 bytes instead of 4");
    link.ask(&assign, &[&[0; 4]], Sink::Nothing).unwrap();
}

/// A head has 1 MiB.
#[test]
fn a_request_with_too_many_tensors_is_refused_by_the_client() {
    let job = Job::new(1, 1, Mode::Async);
    let mut link = link(&job);
    let pull = Request::Pull {
        epoch: 1,
        step: 0,
        averaged: false,
        tensors: vec![0; 1 << 20],
    };
    let told = link.ask(&pull, &[], Sink::Nothing).unwrap_err();
    assert!(matches!(told, ClientError::Head { .. }), "{told}");
}
