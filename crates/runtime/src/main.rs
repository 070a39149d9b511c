//! The standalone program `paddle`, small and static, for pods. Runs the program of the name by which it is called.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    let called = args.next().unwrap_or_default();
    let name = Path::new(&called).file_stem().unwrap_or_default().to_owned();
    let args: Vec<OsString> = args.collect();
    match name.to_str() {
        #[cfg(feature = "data")]
        Some("paddle-data") => paddlecloud_runtime::data_main(args),
        #[cfg(target_os = "linux")]
        Some("paddle_k8s") => paddlecloud_runtime::k8s_main(args),
        #[cfg(target_os = "linux")]
        Some("start_paddle") => paddlecloud_runtime::start_paddle_main(args),
        #[cfg(target_os = "linux")]
        Some("paddlecloud-supervise") => match args.as_slice() {
            [folder] => paddlecloud_supervisor::run(Path::new(folder)),
            _ => ExitCode::from(2),
        },
        _ => paddlecloud_runtime::main(args),
    }
}
