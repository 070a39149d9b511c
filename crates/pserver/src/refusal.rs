//! Replies other than data: the kinds of replies, and why a request was refused.

use crate::wire::{Reader, WireError, Writer};

/// The kinds of reply frames.
pub mod reply {
    pub const DONE: u8 = 128;
    pub const REFUSED: u8 = 129;
    /// The reply is delayed; the head says what it waits for.
    pub const WAITING: u8 = 130;
}

/// Why a request was refused, for programs to match on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    Other,
    /// `step` is where training resumes.
    RolledBack,
    Fenced,
    Memory,
    NotFinite,
    NoCheckpoint,
    Credentials,
    /// Trainers contradict each other about `step`.
    Conflict,
}

impl Code {
    const ALL: [Code; 8] = [
        Code::Other,
        Code::RolledBack,
        Code::Fenced,
        Code::Memory,
        Code::NotFinite,
        Code::NoCheckpoint,
        Code::Credentials,
        Code::Conflict,
    ];

    /// An unknown code, from a newer server, becomes `Other`.
    fn from_u8(value: u8) -> Code {
        Code::ALL.get(usize::from(value)).copied().unwrap_or(Code::Other)
    }
}

/// A refusal as it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    pub code: Code,
    pub step: u64,
    pub message: String,
}

impl Refused {
    pub fn encode(&self) -> Vec<u8> {
        Writer::new()
            .u8(self.code as u8)
            .u64(self.step)
            .text(&self.message)
            .finish()
    }

    pub fn decode(head: &[u8]) -> Result<Refused, WireError> {
        let mut from = Reader::new(head);
        Ok(Refused {
            code: Code::from_u8(from.u8()?),
            step: from.u64()?,
            message: from.text("an error message")?,
        })
    }
}
