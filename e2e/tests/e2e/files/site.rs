//! A server on its own port, with several users, that can be killed, stopped and started again.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use e2e::{Background, Ran, TestEnvironment, wait_until};
use serde_json::Value;

use super::arg;
use super::network::Network;

/// The configured server; ended when dropped.
pub struct Site<'a> {
    env: &'a TestEnvironment,
    config: PathBuf,
    data: PathBuf,
    storage: PathBuf,
    /// Words before the server's own: a tool that starts it as another user.
    under: Vec<String>,
    server: Option<Background>,
    endpoint: String,
    network: Option<Network>,
}

impl<'a> Site<'a> {
    /// The users `ada` and `bob`; the lines are added to what the configuration says of bob. Needs root: only
    /// root serves users who are kept apart.
    pub fn start(env: &'a TestEnvironment, of_bob: &str) -> Self {
        let of_bob = format!("  system_user: nobody\n{of_bob}");
        let of_ada = "  system_user: daemon\n";
        Self::with(env, &[("ada", of_ada), ("bob", &of_bob)], "", &[])
    }

    /// The user `ada` alone, who works as the user who runs the test.
    pub fn of_ada(env: &'a TestEnvironment, of_ada: &str) -> Self {
        Self::with(env, &[("ada", of_ada)], "", &[])
    }

    /// Users with lines of their own, further settings, and a tool that starts the server.
    pub fn with(env: &'a TestEnvironment, users: &[(&str, &str)], settings: &str, under: &[&str]) -> Self {
        let folder = env.folder("server");
        let (data, config) = (folder.join("data"), folder.join("config.yaml"));
        let mut text = format!(
            "listen: 127.0.0.1:0\ndata: {}\ndatacenter: cloud\ninventory: {{cpu: 2, memory: 1Gi}}\n{settings}users:\n",
            arg(&data)
        );
        for (name, more) in users {
            let password = folder.join(name);
            fs::write(&password, secret_of(name)).expect("a file in the test's own folder");
            let own = fs::Permissions::from_mode(0o600);
            fs::set_permissions(&password, own).expect("a file in the test's own folder");
            text += &format!("- name: {name}\n  password_file: {}\n{more}", arg(&password));
        }
        fs::write(&config, text).expect("a file in the test's own folder");
        let storage = settings
            .lines()
            .find_map(|line| line.strip_prefix("storage: "))
            .map_or_else(|| data.join("storage"), PathBuf::from);
        let mut site = Self {
            env,
            config,
            storage,
            data,
            under: under.iter().map(|word| (*word).to_owned()).collect(),
            server: None,
            endpoint: String::new(),
            network: None,
        };
        site.start_again();
        site
    }

    /// Starts the server on a free port; the network points there.
    pub fn start_again(&mut self) {
        self.server = None;
        let under: Vec<&str> = self.under.iter().map(String::as_str).collect();
        let words = ["--config", arg(&self.config)];
        let mut server = match under.as_slice() {
            [] => self.env.start_as("paddlecloud-server", &words),
            tool => self.env.start_under(tool, "paddlecloud-server", &words),
        };
        let ready = server.wait_for_line("ready");
        let (_, rest) = ready.split_once("127.0.0.1:").expect("it says where it listens");
        let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
        self.endpoint = format!("127.0.0.1:{port}");
        self.server = Some(server);
        if let Some(network) = &self.network {
            network.forward_to(&self.endpoint);
        }
    }

    /// Routes all clients through a network that a test can disturb.
    pub fn network(&mut self) -> &Network {
        let endpoint = &self.endpoint;
        self.network.get_or_insert_with(|| Network::to(endpoint))
    }

    pub fn server(&self) -> &Background {
        self.server.as_ref().expect("it was started")
    }

    /// Whether the server has ended.
    pub fn has_ended(&mut self) -> bool {
        self.server.as_mut().is_none_or(Background::has_ended)
    }

    /// Asks the server to end and waits for that.
    pub fn stop(&mut self) {
        let server = self.server.take().expect("it was started");
        server.interrupt();
        let (status, lines) = server.end();
        assert!(status.success(), "{}", lines.join("\n"));
    }

    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The server's own data folder.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Where the users' files are.
    pub fn storage(&self) -> &Path {
        &self.storage
    }

    /// A user's home on the server's disk.
    pub fn home(&self, user: &str) -> PathBuf {
        self.storage.join("home").join(user)
    }

    /// The client configuration of one of the users.
    pub fn config(&self, user: &str) -> PathBuf {
        let path = self.env.folder("configs").join(user);
        let endpoint = match &self.network {
            Some(network) => &network.endpoint,
            None => &self.endpoint,
        };
        let secret = secret_of(user);
        let text = format!(
            "datacenters:\n- name: cloud\n  username: {user}\n  password: {secret}\n  endpoint: {endpoint}\n"
        );
        // In one step: a command that was just started may be reading it.
        let draft = path.with_extension("new");
        fs::write(&draft, text).expect("a file in the test's own folder");
        fs::rename(&draft, &path).expect("a file in the test's own folder");
        path
    }

    /// Runs a command as one of the users.
    #[must_use = "check how it ended"]
    pub fn run(&self, user: &str, words: &[&str]) -> Ran {
        let config = self.config(user);
        let mut ran = self.env.paddlectl(&[&["--config", arg(&config)], words].concat());
        // Suggested commands repeat the flag; tests read them like users who need none.
        ran.stderr = ran.stderr.replace(&format!(" --config {}", arg(&config)), "");
        ran
    }

    /// Starts a command as one of the users and does not wait for it.
    pub fn spawn(&self, user: &str, words: &[&str]) -> Background {
        let config = self.config(user);
        self.env.start(&[&["--config", arg(&config)], words].concat())
    }

    /// Waits until a part of an upload is there that is none of those; its id.
    pub fn wait_for_part(&self, user: &str, others: &[Value]) -> Value {
        wait_until("a part must arrive", || {
            let known = self.run(user, &["pfs", "uploads", "-o", "json"]).ok().json();
            let is_new = |one: &&Value| one["arrived"].as_u64() > Some(0) && !others.contains(&one["id"]);
            known.as_array()?.iter().find(is_new).map(|one| one["id"].clone())
        })
    }
}

fn secret_of(user: &str) -> String {
    format!("secret of {user}")
}
