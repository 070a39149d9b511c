//! What the domain needs from outside: an engine that runs workers, the logs they write, the folders of runs, and a
//! store for jobs. `docs/design/0011-engine-ports.md` is for authors of engines.
//!
//! Every implementation passes the suite of its port in [`crate::testing`]. This module contains no implementation and
//! no async runtime: a method that waits returns a plain future.

mod attempt;
mod engine;
mod logs;
mod runs;
mod secrets;
mod store;

pub use attempt::{AttemptKey, NoAttempt};
pub use engine::{Assignment, Engine, EngineCommand, EngineError, EngineEvent, EngineState, Report};
pub use logs::{Chunk, Follower, Gap, LogError, LogMark, LogReader, LogStore, Piece, Stream};
pub use runs::{PrepareError, PreparedRun, RunPreparer, WorkDir};
pub use secrets::{ImageAccess, NoSecrets, RegistryLogin, SecretEnv, SecretSource};
pub use store::{JobStore, Page, PageRequest, StoreError};
