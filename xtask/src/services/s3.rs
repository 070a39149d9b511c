//! A real S3 service, an example of `crates/backends`, which the storage tests are compiled with.

use std::net::TcpStream;
use std::process::Command;

use anyhow::Result;

use super::Running;
use super::process::{Process, Scratch, free_ports};
use crate::workspace::Workspace;

pub const EXAMPLE: &str = "s3_server";

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
        let mut command = Command::new(workspace.target().join("debug/examples").join(EXAMPLE));
        command
            .args([&format!("127.0.0.1:{port}"), ACCESS_KEY, SECRET_KEY])
            .arg(&objects);
        let mut process = Process::start(EXAMPLE, folder.path(), &mut command)?;
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
