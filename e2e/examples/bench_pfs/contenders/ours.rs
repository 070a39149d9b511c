//! `paddlectl` and `paddlecloud-server`, as they are shipped.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::{Background, TestEnvironment, link_names_to};

use super::Contender;
use crate::arguments::Arguments;
use crate::stage::{Load, Stage};

const PASSWORD: &str = "only for measuring";

/// A shared server of our own with one user.
pub struct Ours {
    /// Ends before its user does, who would complain about what is left.
    _server: Background,
    pub env: TestEnvironment,
    name: &'static str,
    data: PathBuf,
    port: u16,
}

impl Ours {
    /// This build, and the other one to compare it with, if there is one.
    pub fn builds(stage: &Stage, arguments: &Arguments) -> Vec<Self> {
        let mut builds = vec![Self::start(stage)];
        if let Some(other) = &arguments.versus {
            let mut env = TestEnvironment::new();
            let bin = stage.empty("other-bin");
            let other = other.canonicalize().expect("the other build exists");
            link_names_to(&other, &bin);
            env.use_programs_of(bin);
            builds.push(Self::start_in(env, "other build", stage.empty("other")));
        }
        builds
    }

    fn start(stage: &Stage) -> Self {
        Self::start_in(TestEnvironment::new(), "paddlectl", stage.empty("ours"))
    }

    fn start_in(env: TestEnvironment, name: &'static str, data: PathBuf) -> Self {
        let (password, config) = (data.join("password"), data.join("config.yaml"));
        fs::write(&password, PASSWORD).expect("a file in our own folder");
        fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).expect("it is ours");
        let text = format!(
            "listen: 127.0.0.1:0\ndata: {data}/data\ndatacenter: dc\ninventory: {{cpu: 2, memory: 1Gi}}\n\
             users:\n- name: ada\n  password_file: {password}\n",
            data = data.display(),
            password = password.display(),
        );
        fs::write(&config, text).expect("a file in our own folder");
        let config = config.to_str().expect("our folders have plain names");
        let mut server = env.start_as("paddlecloud-server", &["--config", config]);
        let ready = server.wait_for_line("ready");
        let (_, rest) = ready.split_once("127.0.0.1:").expect("it says where it listens");
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        let ours = Self {
            _server: server,
            env,
            name,
            data,
            port: digits.parse().expect("a port"),
        };
        ours.reach_through(ours.port);
        // The first command trades the password for a token; later ones have it.
        ours.env.paddlectl(&["whoami"]).ok();
        ours
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Lets the client use this port: a relay may stand between.
    pub fn reach_through(&self, port: u16) {
        let config = self.env.home().join(".paddle/config");
        fs::create_dir_all(config.parent().expect("it lies in a folder")).expect("a home can be written");
        let entry = format!(
            "datacenters:\n- name: dc\n  username: ada\n  password: {PASSWORD}\n  \
             endpoint: http://127.0.0.1:{port}\ncurrent-datacenter: dc\n"
        );
        fs::write(config, entry).expect("a home can be written");
    }

    /// The server's process.
    pub fn server_pid(&self) -> u32 {
        let processes = self.env.processes();
        let server = processes
            .iter()
            .find(|process| process.arguments.contains("config.yaml"));
        server.expect("the server runs").pid
    }

    pub fn remote(name: &str) -> String {
        format!("/pfs/dc/home/ada/{name}")
    }
}

impl Contender for Ours {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn up(&self, load: &Load) -> Command {
        let from = load.path.to_str().expect("our folders have plain names");
        self.env
            .command("paddlectl", &["cp", "-r", from, &Ours::remote(load.name())])
    }

    fn down(&self, load: &Load, into: &Path) -> Command {
        let to = into.join(load.name());
        let to = to.to_str().expect("our folders have plain names");
        self.env
            .command("paddlectl", &["cp", "-r", &Ours::remote(load.name()), to])
    }

    fn kept(&self, load: &Load) -> PathBuf {
        self.data.join("data/storage/home/ada").join(load.name())
    }
}
