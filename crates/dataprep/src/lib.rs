//! Data sets as files: reads, writes and converts the formats people bring, and divides files among nodes.
//!
//! | to do | use |
//! | --- | --- |
//! | read the records of a file, whatever its format | [`Dataset`] |
//! | write a file in another format | [`convert`] |
//! | divide files among the nodes of a job | [`split`] |
//!
//! A record is always bytes; [`Format`] documents how each format converts its rows to bytes. This crate knows
//! nothing of jobs, servers or terminals: progress is reported to a callback, in bytes of input.

mod convert;
mod csv_row;
mod decimal;
mod error;
mod format;
mod input;
mod json_row;
mod line;
mod origin;
mod packed;
mod pickle;
mod read;
mod sample;
pub mod split;
mod staged_file;
mod surrogates;
mod write;

pub use convert::{Converted, convert};
pub use error::DataError;
pub use format::{Format, UnknownFormat};
pub use origin::Origin;
pub use read::{Dataset, ReadOptions, Seen, Visit};
pub use write::{IfExists, WriteOptions};
