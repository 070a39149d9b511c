//! A shared server: configured, with a password, its own capacity and a free port.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::background::Background;
use crate::environment::TestEnvironment;

/// The password of its only user, `ada`.
pub const PASSWORD: &str = "correct horse battery staple";

/// A running server; ended when dropped.
#[derive(Debug)]
pub struct Shared {
    /// Host and port.
    pub endpoint: String,
    server: Background,
}

impl Shared {
    /// `settings` are lines of the configuration, including an `inventory`; `of_the_user` are lines of `ada`, indented
    /// by two.
    pub fn start(env: &TestEnvironment, settings: &str, of_the_user: &str) -> Self {
        Self::start_under(env, &["env"], settings, of_the_user)
    }

    /// The same with a tool that executes the server, such as `prlimit --nofile=100`.
    pub fn start_under(env: &TestEnvironment, tool: &[&str], settings: &str, of_the_user: &str) -> Self {
        let folder = env.folder("server");
        let password = folder.join("password");
        fs::write(&password, PASSWORD).expect("a file in the test's own folder");
        fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).expect("it is ours");
        let config = folder.join("config.yaml");
        let inventory = match settings.contains("inventory:") {
            true => "",
            false => "inventory: {cpu: 2, memory: 1Gi}\n",
        };
        let text = format!(
            "listen: 127.0.0.1:0\ndata: {data}\ndatacenter: cloud\n{inventory}{settings}\
             users:\n- name: ada\n  password_file: {password}\n{of_the_user}",
            data = folder.join("data").display(),
            password = password.display(),
        );
        fs::write(&config, text).expect("a file in the test's own folder");
        let mut server = env.start_under(
            tool,
            "paddlecloud-server",
            &["--config", config.to_str().expect("a plain name")],
        );
        let ready = server.wait_for_line("ready version=");
        let (_, endpoint) = ready.split_once("127.0.0.1:").expect("it says where it listens");
        let port: String = endpoint.chars().take_while(char::is_ascii_digit).collect();
        Self {
            endpoint: format!("127.0.0.1:{port}"),
            server,
        }
    }

    /// The program itself, for tests that watch it exit.
    pub fn into_server(self) -> Background {
        self.server
    }

    /// What the server has logged so far.
    pub fn log(&mut self) -> String {
        self.server.lines_so_far().join("\n")
    }

    /// The process id of the server.
    pub fn pid(&self) -> u32 {
        self.server.id()
    }

    /// Writes the user's configuration in the first form of the documents.
    pub fn configure(&self, env: &TestEnvironment, password: &str) {
        let entry = format!(
            "name: cloud\n  username: ada\n  password: {password}\n  endpoint: {}",
            self.endpoint
        );
        env.configure(&format!("datacenters:\n- {entry}\ncurrent-datacenter: cloud\n"));
    }
}
