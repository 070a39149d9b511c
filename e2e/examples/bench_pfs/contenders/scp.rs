//! scp and a private sshd.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::server::{Server, free_port, program};
use super::{Contender, shell};
use crate::stage::{Load, Stage};

struct Scp {
    folder: PathBuf,
    /// `scp` with the options that reach the private server.
    call: String,
    _server: Server,
}

pub fn start(stage: &Stage) -> Option<Vec<Box<dyn Contender>>> {
    let sshd = program("sshd")?;
    let (own, folder) = (stage.empty("ssh"), stage.empty("scp"));
    fs::set_permissions(&own, fs::Permissions::from_mode(0o700)).expect("it is ours");
    for key in ["host", "user"] {
        let mut keygen = Command::new(program("ssh-keygen")?);
        keygen
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(own.join(key));
        let made = keygen.stdout(Stdio::null()).status();
        made.ok().filter(|status| status.success())?;
    }
    // sshd insists on this folder when it is started by root.
    if rustix::process::geteuid().is_root() {
        fs::create_dir_all("/run/sshd").ok()?;
    }
    let port = free_port();
    let config = own.join("sshd_config");
    let text = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {own}/host\nAuthorizedKeysFile {own}/user.pub\n\
         StrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\nSubsystem sftp internal-sftp\n",
        own = own.display()
    );
    fs::write(&config, text).expect("a file in our own folder");
    let mut command = Command::new(sshd);
    command.args(["-D", "-f"]).arg(config);
    let call = format!(
        "scp -q -r -P {port} -i '{}/user' -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
         -o LogLevel=ERROR -o BatchMode=yes",
        own.display()
    );
    let server = Server::start(port, &mut command);
    let contender = Scp {
        folder,
        call,
        _server: server,
    };
    Some(vec![Box::new(contender)])
}

impl Contender for Scp {
    fn name(&self) -> String {
        "scp".to_owned()
    }

    fn up(&self, load: &Load) -> Command {
        let (from, to) = (load.path.display(), self.folder.display());
        shell(format!("{} '{from}' '127.0.0.1:{to}/'", self.call))
    }

    fn down(&self, load: &Load, into: &Path) -> Command {
        let from = self.kept(load);
        shell(format!(
            "{} '127.0.0.1:{}' '{}/'",
            self.call,
            from.display(),
            into.display()
        ))
    }

    fn kept(&self, load: &Load) -> PathBuf {
        self.folder.join(load.name())
    }
}
