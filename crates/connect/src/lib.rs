//! The way to a server, the same for every face that people use: the configuration is read, this machine's own
//! server is started when it must be, a folder is brought up.
//!
//! Shows nothing and decides nothing about jobs: the command line and the Python client do the first, the server
//! the second.

pub mod config;
#[cfg(target_os = "linux")]
pub mod embedded;
mod environment;
mod error;
#[cfg(target_os = "linux")]
mod holder;
mod known_files;
pub mod package;
mod private_file;
mod program;
mod program_check;
pub mod session;
mod tokens;

pub use self::environment::Environment;
pub use self::error::{ConnectError, chain, client_hints};
pub use self::program::Program;
pub use self::program_check::check_programs;
pub use self::session::Session;
