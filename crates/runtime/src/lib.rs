//! The programs `paddle` and `paddle-data` inside a worker: parameter server, trainer, data preparation, and the
//! hand-over to PaddlePaddle's own `paddle`.
//!
//! They know nothing about the server or the engine: everything they need is in their flags and environment.

#[cfg(feature = "data")]
mod data;
mod flags;
mod handover;
#[cfg(target_os = "linux")]
mod launch;
mod model;
mod options;
mod pserver;
mod tools;

use std::ffi::OsString;
use std::process::ExitCode;

use options::Options;
pub use tools::{Report, pserver_tool};

const HELP: &str = "\
paddle: the program inside a PaddleCloud worker

Usage: paddle <command> [--name=value …]

Commands:
  data      divide files among SPLIT_COUNT nodes below OUT_DIR; also called `paddle-data`
  launch    the first process of a pod: runs its worker, connected to a server or only to its peers
            (`paddle launch --help`); also called `paddle_k8s` and `start_paddle`, as in 2017
  pserver   a parameter server; listens on --port and the following ports (default: PADDLE_INIT_PORT, else 7164)
            `pserver stat [HOST:PORT …]` shows the state of running ones (default: those of this job)
            `pserver export|import` converts saved models to and from numpy, safetensors and text
            `pserver checkpoints FOLDER` lists and verifies checkpoints
            outside a job: `paddlectl pserver stat|export|import|checkpoints`
  train     train a v1 configuration (--config, default: trainer_config.py); needs the Python package `paddlecloud`
  version   print the version

Every other command is passed to the next `paddle` in PATH, which is PaddlePaddle's own.
";

const PSERVER_HELP: &str = "\
paddle pserver: a parameter server of a job

Usage: paddle pserver [--name=value …]
       paddle pserver stat [HOST:PORT …]
       paddle pserver export|import --help
       paddle pserver checkpoints FOLDER

Options, each with the variable that is read if it is not given:
  --port                   first port, PADDLE_INIT_PORT [default: 7164]
  --ports_num              dense ports, PADDLE_INIT_PORTS_NUM [default: 1]
  --ports_num_for_sparse   sparse ports, PADDLE_INIT_PORTS_NUM_FOR_SPARSE [default: 1]
  --pserver_id             this server's number, PADDLE_PSERVER_ID
  --pservers               all servers, address:port separated by commas, PADDLE_PSERVERS_IP_PORT_LIST
  --num_gradient_servers   number of trainers, PADDLE_INIT_NUM_GRADIENT_SERVERS [default: 1]
  --cores                  threads, OMP_NUM_THREADS [default: 1]
  --memory                 bytes this worker may use, PADDLE_PS_MEMORY
  --patience               seconds until slow trainers that others wait for are named, PADDLE_PS_PATIENCE [default: 30]
  --metrics_port           serve Prometheus' /metrics on this port, PADDLE_PS_METRICS_PORT [default: off]
  --until_trainers_leave   end when every trainer has left and closed its connection

Other options of 2017 have no effect; an unknown one is an error. It listens on POD_IP, or on all addresses.
";

/// Runs `paddle <args>` and returns its exit code.
pub fn main(args: Vec<OsString>) -> ExitCode {
    let command = args.first().and_then(|word| word.to_str()).unwrap_or("help");
    match command {
        #[cfg(feature = "data")]
        "data" => data::main(&args[1..]),
        #[cfg(target_os = "linux")]
        "launch" => launch::main(&args[1..]),
        "pserver" => pserver_main(&args[1..]),
        "train" => handover::to_v1_trainer(&args[1..]),
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

/// Runs `paddle_k8s <args>`.
#[cfg(target_os = "linux")]
pub fn k8s_main(args: Vec<OsString>) -> ExitCode {
    launch::k8s_main(&args)
}

/// Runs `start_paddle <args>`.
#[cfg(target_os = "linux")]
pub fn start_paddle_main(args: Vec<OsString>) -> ExitCode {
    launch::start_paddle_main(&args)
}

/// Runs `paddle-data <args>`.
#[cfg(feature = "data")]
pub fn data_main(args: Vec<OsString>) -> ExitCode {
    data::main(&args)
}

fn pserver_main(args: &[OsString]) -> ExitCode {
    let wants_help = args.iter().any(|word| word == "--help" || word == "-h");
    match args.first().and_then(|word| word.to_str()) {
        Some("export" | "import") if wants_help => print!("{}", model::HELP),
        _ if wants_help => print!("{PSERVER_HELP}"),
        Some(command) if tools::COMMANDS.contains(&command) => return show(&pserver_tool(args)),
        _ => return serve_main(args),
    }
    ExitCode::SUCCESS
}

fn show(report: &Report) -> ExitCode {
    report.lines.iter().for_each(|line| println!("{line}"));
    report.errors.iter().for_each(|error| eprintln!("error: {error}"));
    ExitCode::from(report.code)
}

fn serve_main(args: &[OsString]) -> ExitCode {
    let result = Options::parse(args, |name| std::env::var(name).ok()).and_then(pserver::serve);
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
