//! rsync and its daemon.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use super::server::{Server, free_port, program};
use super::{Contender, Durable, shell, twice};
use crate::stage::{Load, Stage};

/// The daemon, and how its client is called.
pub struct Rsync {
    folder: PathBuf,
    port: u16,
    durable: Durable,
    _server: Rc<Server>,
}

pub fn start(stage: &Stage) -> Option<Vec<Box<dyn Contender>>> {
    let server = Rc::new(daemon(stage)?);
    let folder = stage.empty("rsync");
    twice(stage, |durable| {
        Some(Rsync {
            folder: folder.clone(),
            port: server.port,
            durable,
            _server: server.clone(),
        })
    })
}

fn daemon(stage: &Stage) -> Option<Server> {
    let config = stage.empty("rsyncd").join("rsyncd.conf");
    let folder = stage.empty("rsync");
    let port = free_port();
    let owner = match rustix::process::geteuid().is_root() {
        true => "uid = 0\ngid = 0\n",
        false => "",
    };
    let text = format!(
        "address = 127.0.0.1\nport = {port}\nuse chroot = no\n{owner}[files]\npath = {}\nread only = no\n",
        folder.display()
    );
    fs::write(&config, text).expect("a file in our own folder");
    let mut command = Command::new(program("rsync")?);
    command.args(["--daemon", "--no-detach", "--config"]).arg(config);
    Some(Server::start(port, &mut command))
}

impl Rsync {
    /// One of its own; `None` where it is not installed.
    pub fn alone(stage: &Stage) -> Option<Self> {
        let server = daemon(stage)?;
        Some(Self {
            folder: stage.empty("rsync"),
            port: server.port,
            durable: Durable::No,
            _server: Rc::new(server),
        })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sends to any port: a relay may stand between.
    pub fn send_through(&self, port: u16, load: &Load) -> Command {
        self.sync(&load.path, Path::new(&format!("rsync://127.0.0.1:{port}/files/")))
    }

    fn sync(&self, from: &Path, to: &Path) -> Command {
        let fsync = match self.durable {
            Durable::Yes => "--fsync",
            Durable::No => "",
        };
        // Files change within a second here, which its look at size and time does not see.
        shell(format!(
            "rsync -a -I {fsync} '{}' '{}'",
            from.display(),
            to.display()
        ))
    }
}

impl Contender for Rsync {
    fn name(&self) -> String {
        self.durable.named("rsync daemon")
    }

    fn up(&self, load: &Load) -> Command {
        self.send_through(self.port, load)
    }

    fn down(&self, load: &Load, into: &Path) -> Command {
        let from = format!("rsync://127.0.0.1:{}/files/{}", self.port, load.name());
        self.sync(Path::new(&from), into)
    }

    fn kept(&self, load: &Load) -> PathBuf {
        self.folder.join(load.name())
    }
}
