//! The requests of clients. A body follows the head where the comment says so.

use crate::optimizer::Progress;
use crate::wire::{Reader, WireError, Writer};

use super::field::Field;
use super::{DenseSpec, Entry, Origin, Session, TableSpec, TensorId};

/// A client's request.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    Join {
        session: Session,
    },
    /// `place` is absent when server 0 has to choose it.
    CreateDense {
        spec: DenseSpec,
        place: Option<TensorId>,
    },
    CreateTable {
        spec: TableSpec,
        place: Option<TensorId>,
    },
    /// Body: the server's portion of the values. Ignored if the tensor has values, unless `replace`.
    Assign {
        tensor: u32,
        replace: bool,
    },
    /// Body: ids, then rows.
    AssignRows {
        tensor: u32,
        count: u32,
    },
    /// Body: the gradients of the entries, concatenated.
    Push {
        epoch: u64,
        step: u64,
        part: u32,
        entries: Vec<Entry>,
    },
    /// Body: this trainer's state at the start of the next step, if it has one. The reply's body: the values of `pull`
    /// after the step.
    Ready {
        epoch: u64,
        step: u64,
        pull: Vec<u32>,
    },
    /// The reply's body: the server's portions of the values.
    Pull {
        epoch: u64,
        step: u64,
        averaged: bool,
        tensors: Vec<u32>,
    },
    Leave {
        epoch: u64,
        step: u64,
    },
    Barrier {
        epoch: u64,
        step: u64,
        number: u32,
    },
    /// Body: ids. The reply's body: rows.
    Lookup {
        epoch: u64,
        step: u64,
        tensor: u32,
        count: u32,
        train: bool,
    },
    /// Rows from a position on. The reply's body: ids, then rows.
    Scan {
        tensor: u32,
        from: u64,
        limit: u32,
        changed_since: u64,
    },
    /// Server 0 chooses the checkpoint to roll back to.
    Recover {
        above: u64,
        /// The epoch of server 0 when the client joined: a stale request is refused.
        seen: u64,
        incarnations: Vec<u64>,
        /// The client knows no tensors: without a checkpoint, training may begin again at step 0.
        is_new: bool,
    },
    /// `seen`: the epoch this server had when the client joined.
    RollBack {
        epoch: u64,
        step: u64,
        seen: u64,
        origin: Origin,
    },
    /// The reply's body: JSON.
    Stat,
    /// Waits until all trainers have left.
    Finish {
        epoch: u64,
    },
    /// The reply's body: this trainer's state at the start of `step`; empty if the server has none.
    Kept {
        step: u64,
    },
    /// The reply's body: the names of all tensors, each followed by a 0 byte.
    Tensors,
    /// Discards the parts of an earlier attempt for `step`.
    Discard {
        epoch: u64,
        step: u64,
    },
    /// Refuses `step` to all trainers, because another server found that their pushes contradict each other.
    Reject {
        epoch: u64,
        step: u64,
        reason: String,
    },
    /// The optimizer state of a dense tensor at a trainer's step. The reply: its progress; body: the state of the server's
    /// portion, slot after slot.
    State {
        epoch: u64,
        step: u64,
        tensor: u32,
    },
    /// Replaces what `State` returns. Body: as its.
    SetState {
        tensor: u32,
        progress: Progress,
    },
}

/// Numbers the requests and encodes their fields in the order given here.
macro_rules! requests {
    ($($kind:literal $name:ident { $($field:ident),* })*) => {
        impl Request {
            pub fn kind(&self) -> u8 {
                match self {
                    $(Request::$name { .. } => $kind,)*
                }
            }

            pub fn encode(&self) -> Vec<u8> {
                let mut head = Writer::new();
                match self {
                    $(Request::$name { $($field),* } => {
                        $($field.encode(&mut head);)*
                    })*
                }
                head.finish()
            }

            pub fn decode(kind: u8, head: &[u8]) -> Result<Request, WireError> {
                let mut from = Reader::new(head);
                let request = match kind {
                    $($kind => Request::$name { $($field: Field::decode(&mut from)?),* },)*
                    found => {
                        return Err(WireError::Unknown {
                            what: "a request",
                            found: u64::from(found),
                        });
                    }
                };
                from.end()?;
                Ok(request)
            }
        }
    };
}

requests! {
    1 Join { session }
    2 CreateDense { spec, place }
    3 CreateTable { spec, place }
    4 Assign { tensor, replace }
    5 AssignRows { tensor, count }
    6 Push { epoch, step, part, entries }
    7 Ready { epoch, step, pull }
    8 Pull { epoch, step, averaged, tensors }
    9 Leave { epoch, step }
    10 Barrier { epoch, step, number }
    11 Lookup { epoch, step, tensor, count, train }
    12 Scan { tensor, from, limit, changed_since }
    13 Tensors {}
    14 Recover { above, seen, incarnations, is_new }
    15 RollBack { epoch, step, seen, origin }
    16 Stat {}
    17 Finish { epoch }
    18 Kept { step }
    19 Discard { epoch, step }
    20 State { epoch, step, tensor }
    21 SetState { tensor, progress }
    22 Reject { epoch, step, reason }
}
