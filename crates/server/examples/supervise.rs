//! The supervisor alone, for the tests of this crate, which do not build the single executable.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let folder = std::env::args_os().nth(1).expect("the folder of one attempt");
    paddlecloud_supervisor::run(Path::new(&folder))
}
