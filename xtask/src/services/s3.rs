//! A real S3 service: `s3s-fs`, which keeps objects as files.

use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use super::Running;
use super::process::{Process, Scratch, free_ports};
use crate::step;
use crate::workspace::Workspace;

const PROGRAM: &str = "s3s-fs";
const VERSION: &str = "0.14.1";

/// What the tests sign with.
const ACCESS_KEY: &str = "paddlecloud";
const SECRET_KEY: &str = "secret";

fn program(workspace: &Workspace) -> PathBuf {
    workspace.target().join("tools/bin").join(PROGRAM)
}

/// Builds it once, beside the build's other results.
pub fn fetch(workspace: &Workspace) -> Result<()> {
    if program(workspace).is_file() {
        return Ok(());
    }
    let tools = workspace.target().join("tools");
    let mut install = workspace.cargo(&[
        "install",
        "--quiet",
        "--locked",
        "--debug",
        "--features",
        "binary",
    ]);
    install
        .arg("--root")
        .arg(tools)
        .args([PROGRAM, "--version", VERSION]);
    step::run(&mut install).context("s3s-fs cannot be installed here")
}

/// Whether cargo's registry answers here.
pub fn is_offered(workspace: &Workspace) -> bool {
    let of = format!("{PROGRAM}@{VERSION}");
    step::capture(&mut workspace.cargo(&["info", "--quiet", &of])).is_ok()
}

/// The service with one empty bucket called `bucket`.
pub struct S3 {
    port: u16,
    _process: Process,
    _folder: Scratch,
}

impl S3 {
    pub fn start(workspace: &Workspace) -> Result<S3> {
        let folder = Scratch::new("s3")?;
        let objects = folder.path().join("objects");
        std::fs::create_dir_all(objects.join("bucket"))?;
        let [port] = free_ports()?;
        let mut command = Command::new(program(workspace));
        command
            .args(["--host", "127.0.0.1", "--port", &port.to_string()])
            .args(["--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY])
            .arg(&objects);
        let mut process = Process::start(PROGRAM, folder.path(), &mut command)?;
        process.wait_until("listening", || TcpStream::connect(("127.0.0.1", port)).is_ok())?;
        Ok(S3 {
            port,
            _process: process,
            _folder: folder,
        })
    }
}

impl Running for S3 {
    fn place(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}
