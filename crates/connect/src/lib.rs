//! How a client reaches a server, shared by the command line and Python: reads the configuration, starts this machine's
//! own server if necessary, uploads a folder.
//!
//! It prints nothing and makes no decisions about jobs: its callers do the first, the server the second.

pub mod config;
#[cfg(target_os = "linux")]
pub mod embedded;
mod environment;
mod error;
#[cfg(target_os = "linux")]
mod holder;
mod known_files;
mod left_out;
pub mod package;
mod private_file;
mod program;
mod program_check;
mod python_note;
pub mod session;
mod tokens;

pub use self::environment::Environment;
pub use self::error::{ConnectError, chain, client_hints};
pub use self::program::Program;
pub use self::program_check::check_programs;
pub use self::python_note::python_note;
pub use self::session::Session;
