//! A real S3 service: `s3s-fs`, which stores objects as files.

use std::net::TcpStream;
use std::process::Command;

use anyhow::Result;

use super::Running;
use super::process::{Process, Scratch, free_ports};
use crate::tools;
use crate::workspace::Workspace;

/// What the tests sign with.
const ACCESS_KEY: &str = "paddlecloud";
const SECRET_KEY: &str = "secret";

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
        let mut command = Command::new(tools::S3.path(workspace));
        command
            .args(["--host", "127.0.0.1", "--port", &port.to_string()])
            .args(["--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY])
            .arg(&objects);
        let mut process = Process::start(tools::S3.name, folder.path(), &mut command)?;
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
