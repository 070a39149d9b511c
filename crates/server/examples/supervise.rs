//! The supervisor alone, for the tests of this crate: they have no program that answers to its name.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let folder = std::env::args_os().nth(1).expect("the folder of one attempt");
    paddlecloud_supervisor::run(Path::new(&folder))
}
