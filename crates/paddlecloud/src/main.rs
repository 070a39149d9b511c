//! The single executable: runs the client, the server, the supervisor or the runtime.
//!
//! It chooses by the name it was called by, and does nothing else.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    let called = args.next().unwrap_or_default();
    let name = Path::new(&called)
        .file_stem()
        .map(|stem| stem.to_string_lossy().into_owned())
        .unwrap_or_default();
    let args: Vec<OsString> = args.collect();
    match name.as_str() {
        #[cfg(target_os = "linux")]
        "paddle" => paddlecloud_runtime::main(args),
        #[cfg(target_os = "linux")]
        "paddle-data" => paddlecloud_runtime::data_main(args),
        #[cfg(target_os = "linux")]
        "paddle_k8s" => paddlecloud_runtime::k8s_main(args),
        #[cfg(target_os = "linux")]
        "start_paddle" => paddlecloud_runtime::start_paddle_main(args),
        #[cfg(target_os = "linux")]
        "paddlecloud-server" => paddlecloud_server::main(args),
        #[cfg(target_os = "linux")]
        "paddlecloud-supervise" => supervise(&args),
        #[cfg(not(target_os = "linux"))]
        "paddle"
        | "paddle-data"
        | "paddle_k8s"
        | "start_paddle"
        | "paddlecloud-server"
        | "paddlecloud-supervise" => {
            eprintln!("error: `{name}` needs Linux");
            eprintln!("hint: on this system only the client is available: call it `paddlectl`");
            ExitCode::FAILURE
        }
        "paddlecloud" => paddlecloud_cli::main("paddlecloud", args, PSERVER),
        _ => paddlecloud_cli::main("paddlectl", args, PSERVER),
    }
}

#[cfg(not(target_os = "linux"))]
const PSERVER: Option<paddlecloud_cli::PserverTool> = None;

#[cfg(target_os = "linux")]
const PSERVER: Option<paddlecloud_cli::PserverTool> = Some(|args| {
    let report = paddlecloud_runtime::pserver_tool(args);
    paddlecloud_cli::PserverReport {
        lines: report.lines,
        errors: report.errors,
        code: report.code,
    }
});

#[cfg(target_os = "linux")]
fn supervise(args: &[OsString]) -> ExitCode {
    match args {
        [folder] => paddlecloud_supervisor::run(Path::new(folder)),
        _ => {
            eprintln!("error: this program is started by paddlecloud-server, with the folder of one attempt");
            ExitCode::from(2)
        }
    }
}
