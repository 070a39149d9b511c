//! The contents of replies: the progress of a trainer, and what it waits for.

use super::super::checkpoints::Rollback;
use super::super::{State, refused};
use crate::hello::OBSERVER;
use crate::message::{Code, Field, Refused, Session};
use crate::steps::{Standing, Verdict};
use crate::wire::Writer;

/// `has_state`: the server has the trainer's state at the start of `standing.next`.
pub(super) fn encode_standing(standing: &Standing, state: &State, has_state: bool) -> Writer {
    let mut head = Writer::new();
    head.u64(standing.epoch)
        .u64(standing.step)
        .u64(standing.next)
        .u32(standing.parts)
        .u8(u8::from(standing.left))
        .u64(state.start_epoch)
        .u8(u8::from(has_state))
        .u64(state.resumed.unwrap_or(0));
    head
}

pub(super) fn encode_rollback(rollback: Rollback) -> Writer {
    let mut head = Writer::new();
    head.u64(rollback.epoch).u64(rollback.step);
    rollback.origin.encode(&mut head);
    head
}

pub(super) fn describe(session: &Session) -> String {
    let reduce = if session.mean { "mean" } else { "sum" };
    let resume = match session.resume.as_str() {
        "" => String::new(),
        folder => format!(", to resume from `{folder}`"),
    };
    format!(
        "mode {}, {reduce}, checkpoints every {} steps in `{}`{resume}",
        session.mode, session.checkpoint_every, session.checkpoints
    )
}

pub(super) fn waits_for(trainers: Vec<u32>, step: u64) -> String {
    format!("step {step} waits for {}", names(&trainers))
}

/// What a trainer does that needs a tensor without values: it waits for trainer 0, unless that one has ended without
/// declaring the tensor, or cannot continue without this trainer.
pub(super) fn needs_values(state: &State, trainer: u32, step: u64, tensor: &str) -> Result<Verdict, Refused> {
    match trainer > 0 && trainer != OBSERVER && state.steps.has_ended(0, step) {
        false => Ok(Verdict::Wait),
        true => {
            let message = format!(
                "trainer {trainer} declares `{tensor}`, but trainer 0 ended step {step} without it: all trainers must \
                 declare the same tensors"
            );
            Err(refused(Code::Other, message))
        }
    }
}

pub(super) fn no_values(tensor: &str) -> String {
    format!("trainer 0 has not given `{tensor}` its initial values")
}

pub(super) fn names(trainers: &[u32]) -> String {
    let numbers: Vec<String> = trainers.iter().map(u32::to_string).collect();
    match numbers.len() {
        0 => "the server".to_owned(),
        1 => format!("trainer {}", numbers[0]),
        _ => format!("trainers {}", numbers.join(", ")),
    }
}
