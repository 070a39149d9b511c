//! Every request decodes to itself, and truncated requests are refused.

use super::*;
use crate::optimizer::{Progress, Rule};

#[test]
fn every_request_reads_back() {
    let optimizer = Optimizer::new(Rule::Sgd, 0.5);
    let place = Some(TensorId { id: 3, first: 1 });
    let table = TableSpec {
        name: "emb".into(),
        row: 8,
        optimizer: optimizer.clone(),
        init: Init::Uniform { low: -1.0, high: 1.0 },
        seed: 9,
        limits: Limits {
            admit_after: 2,
            rows: 10,
            evict: true,
            idle_steps: 5,
        },
    };
    let dense = DenseSpec {
        name: "user/w".into(),
        shape: vec![2, 5],
        optimizer: optimizer.clone(),
    };
    let entries = vec![
        Entry {
            tensor: 1,
            rate: Some(0.5),
            optimizer: Some(optimizer.clone().into()),
            samples: 32,
            kind: EntryKind::Dense(Encoding::Sparse { count: 4 }),
        },
        Entry {
            tensor: 2,
            rate: None,
            optimizer: None,
            samples: 0,
            kind: EntryKind::Rows {
                count: 7,
                encoding: Encoding::Bf16,
            },
        },
    ];
    let (epoch, step) = (1, 2);
    let session = Session {
        mode: Mode::Bounded(3),
        mean: true,
        checkpoints: "/c".into(),
        checkpoint_every: 100,
        resume: "/c/another".into(),
    };
    let requests = [
        Request::Join { session },
        Request::CreateDense {
            spec: dense,
            place: None,
        },
        Request::CreateTable { spec: table, place },
        Request::Assign {
            tensor: 1,
            replace: true,
        },
        Request::AssignRows { tensor: 1, count: 2 },
        Request::Push {
            epoch,
            step,
            part: 3,
            entries,
        },
        Request::Ready {
            epoch,
            step,
            pull: vec![1, 2],
        },
        Request::Pull {
            epoch,
            step,
            averaged: true,
            tensors: vec![],
        },
        Request::Leave { epoch, step },
        Request::Barrier {
            epoch,
            step,
            number: 1,
        },
        Request::Lookup {
            epoch,
            step,
            tensor: 1,
            count: 2,
            train: true,
        },
        Request::Scan {
            tensor: 1,
            from: 2,
            limit: 3,
            changed_since: 4,
        },
        Request::Tensors,
        Request::Recover {
            above: 4,
            seen: 3,
            incarnations: vec![7, 8],
            is_new: true,
        },
        Request::RollBack {
            epoch,
            step,
            seen: 1,
            origin: Origin::OtherRun,
        },
        Request::Stat,
        Request::Finish { epoch },
        Request::Kept { step },
        Request::Discard { epoch, step },
        Request::State {
            epoch,
            step,
            tensor: 1,
        },
        Request::SetState {
            tensor: 1,
            progress: Progress::default(),
        },
        Request::Reject {
            epoch,
            step,
            reason: "different rates".into(),
        },
    ];
    for (at, request) in requests.into_iter().enumerate() {
        assert_eq!(usize::from(request.kind()), at + 1);
        let head = request.encode();
        assert_eq!(Request::decode(request.kind(), &head).as_ref(), Ok(&request));
        for cut in 0..head.len() {
            assert!(
                Request::decode(request.kind(), &head[..cut]).is_err(),
                "{request:?} cut at {cut}"
            );
        }
    }
}
