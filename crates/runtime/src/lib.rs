//! The programs `paddle` and `paddle-data` inside a worker: parameter server, trainer, data preparation, and the
//! way on to PaddlePaddle's own `paddle`.
//!
//! It knows nothing of the server or the engine: what it needs stands in its flags and its environment.

mod data;
mod handover;
mod options;
mod pserver;

use std::ffi::OsString;
use std::process::ExitCode;

use options::Options;

const HELP: &str = "\
paddle: what runs inside a worker of PaddleCloud

Usage: paddle <command> [--name=value …]

Commands:
  data      divide files among SPLIT_COUNT nodes below OUT_DIR; also called `paddle-data`
  pserver   a parameter server; listens from --port on (default: PADDLE_INIT_PORT, else 7164)
  train     a trainer of the v1 configuration files; comes with a later version
  version   print the version

Every other command is handed on to the next `paddle` in PATH (the one PaddlePaddle brings).
";

/// Runs `paddle <args>` and says how it ended.
pub fn main(args: Vec<OsString>) -> ExitCode {
    let command = args.first().and_then(|word| word.to_str()).unwrap_or("help");
    match command {
        "data" => data::main(&args[1..]),
        "pserver" => pserver_main(&args[1..]),
        "train" => {
            eprintln!("error: `paddle train` comes with a later version of PaddleCloud");
            eprintln!(
                "hint: give the trainer's command yourself, for example `paddlectl submit -entry \"python train.py\" …`"
            );
            ExitCode::FAILURE
        }
        "version" | "--version" => {
            println!("paddle (PaddleCloud) {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        _ => handover::to_next_paddle(&args),
    }
}

/// Runs `paddle-data <args>`.
pub fn data_main(args: Vec<OsString>) -> ExitCode {
    data::main(&args)
}

fn pserver_main(args: &[OsString]) -> ExitCode {
    let result = Options::parse(args, |name| std::env::var(name).ok()).and_then(pserver::serve);
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
