//! A private PostgreSQL in a temporary folder, for one test.

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::DatabaseUrl;

/// The usual folders of its programs, newest version first.
const PLACES: [&str; 4] = [
    "/usr/lib/postgresql/17/bin",
    "/usr/lib/postgresql/16/bin",
    "/usr/lib/postgresql/15/bin",
    "/usr/bin",
];

/// A running server; stopped and removed when dropped.
pub struct Server {
    programs: PathBuf,
    folder: tempfile::TempDir,
    /// The user to run as if this is root: PostgreSQL refuses to run as root.
    run_as: Option<(u32, u32)>,
}

impl Server {
    pub fn start() -> Server {
        let programs = PLACES
            .iter()
            .map(PathBuf::from)
            .find(|place| place.join("initdb").exists())
            .expect("the test needs PostgreSQL");
        let folder = tempfile::tempdir().unwrap();
        let run_as = rustix::process::geteuid().is_root().then(unprivileged);
        if let Some((uid, gid)) = run_as {
            chown(folder.path(), Some(uid), Some(gid)).unwrap();
        }
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        let server = Server {
            programs,
            folder,
            run_as,
        };
        let data = server.data();
        server.run(
            "initdb",
            &[
                "-D",
                &data,
                "-A",
                "trust",
                "-U",
                "test",
                "--no-sync",
                "-E",
                "UTF8",
            ],
        );
        server.run_server("start");
        server
    }

    /// Restarts the server, which closes every connection.
    pub fn restart(&self) {
        self.run_server("restart");
    }

    fn run_server(&self, how: &str) {
        let options = format!(
            "-c listen_addresses= -c unix_socket_directories={} -c fsync=off",
            self.sockets()
        );
        let log = self.folder.path().join("log").display().to_string();
        self.run(
            "pg_ctl",
            &[
                how,
                "-w",
                "-m",
                "immediate",
                "-D",
                &self.data(),
                "-l",
                &log,
                "-o",
                &options,
            ],
        );
    }

    /// The URL of a new, empty database.
    pub fn database(&self, name: &str) -> DatabaseUrl {
        self.run("createdb", &["-h", &self.sockets(), "-U", "test", name]);
        let url = format!("postgres://test@localhost/{name}?host={}", self.sockets());
        url.parse().unwrap()
    }

    fn data(&self) -> String {
        self.folder.path().join("data").display().to_string()
    }

    fn sockets(&self) -> String {
        self.folder.path().display().to_string()
    }

    fn run(&self, program: &str, args: &[&str]) {
        let status = self.command(program, args).status().unwrap();
        assert!(status.success(), "{program} {args:?}: {status}");
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command
            .args(args)
            .current_dir(self.folder.path())
            .env("LC_ALL", "C.UTF-8");
        command
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null());
        if let Some((uid, gid)) = self.run_as {
            command.uid(uid).gid(gid);
        }
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let stopped = self
            .command("pg_ctl", &["stop", "-m", "immediate", "-w", "-D", &self.data()])
            .status();
        if !stopped.is_ok_and(|status| status.success()) {
            eprintln!(
                "the private PostgreSQL in {} did not stop",
                self.folder.path().display()
            );
        }
    }
}

/// The user and group of `postgres`, or of `nobody`.
fn unprivileged() -> (u32, u32) {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap();
    let ids = |name: &str| {
        let line = passwd
            .lines()
            .find(|line| line.starts_with(&format!("{name}:")))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    ids("postgres")
        .or_else(|| ids("nobody"))
        .expect("every system has `nobody`")
}
