//! The programs `paddlectl` and `paddlecloud`: parse the command line, talk to a server, show its replies.
//!
//! The server makes all decisions about jobs. Only `printer` writes to stdout, and only data.

mod args;
mod commands;
mod compat;
mod complete;
mod console;
mod controls;
mod doctor;
mod error;
mod help;
mod job_table;
mod log_screen;
mod log_view;
mod machine_notes;
mod messages;
mod nearest;
mod one_line;
mod package;
mod printer;
mod question;
mod secret_input;
mod submission;
mod time_text;
mod transfer;
mod world;

use std::ffi::OsString;
use std::process::ExitCode;

#[cfg(target_os = "linux")]
use paddlecloud_connect::embedded;
use paddlecloud_connect::{config, session};

pub use self::commands::pserver::{Report as PserverReport, Tool as PserverTool};
pub use self::world::World;

/// Runs the client as `program_name` with the arguments after it. `pserver` is what the system has for that command.
pub fn main(program_name: &str, args: Vec<OsString>, pserver: Option<PserverTool>) -> ExitCode {
    console::prepare();
    let mut world = World::of_this_process();
    world.pserver = pserver;
    ExitCode::from(run(program_name, args, &mut world))
}

/// Runs one command line in `world` and returns its exit code: 0 done, 1 refused or failed, 2 usage, 3 never reached, 130
/// interrupted.
pub fn run(program_name: &str, args: Vec<OsString>, world: &mut World) -> u8 {
    let result = match args::parse(program_name, args) {
        Ok(cli) => {
            world.err.repeat(program_name, &cli.global.selection());
            commands::run(program_name, cli, world)
        }
        Err(error) => Err(error),
    };
    let flushed = world.out.flush();
    match result.and_then(|code| flushed.map(|()| code)) {
        Ok(code) => code,
        Err(error) => error::report(program_name, &error, world),
    }
}
