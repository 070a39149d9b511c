//! The supervisor as a separate program for its tests; the single executable also runs it under this name.

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    match std::env::args_os().nth(1) {
        Some(flag) if flag == "--probe" => {
            let isolation = serde_json::to_string(&paddlecloud_supervisor::probe());
            println!("{}", isolation.expect("made of strings, numbers and options"));
            ExitCode::SUCCESS
        }
        Some(dir) => paddlecloud_supervisor::run(dir.as_ref()),
        None => {
            eprintln!("error: the attempt's folder is missing");
            ExitCode::from(2)
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    eprintln!("error: workers run on Linux only");
    ExitCode::FAILURE
}
