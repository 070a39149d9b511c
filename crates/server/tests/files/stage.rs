//! A server with two users and a client for each.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use paddlecloud_accounts::auth::Caller;
use paddlecloud_api::client::{Client, Credentials, Limits};
use paddlecloud_api::files::UploadRequest;
use paddlecloud_pfs::{Digest, Entry, Node, PfsPath};
use paddlecloud_server::app::App;
use paddlecloud_server::config::Config;
use paddlecloud_server::start::Server;
use paddlecloud_transfer::walk;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const USERS: &str = "users:\n\
    - {name: me, password_file: word, admin: true, system_user: a}\n\
    - {name: you, password_file: word, system_user: b}\n";

pub struct Stage {
    pub folder: tempfile::TempDir,
    pub address: String,
    pub app: Arc<App>,
    pub me: Client,
    pub you: Client,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl Stage {
    pub async fn new() -> Stage {
        Stage::with(USERS).await
    }

    pub async fn with(users: &str) -> Stage {
        Stage::on(tempfile::tempdir().unwrap(), users).await
    }

    pub async fn on(folder: tempfile::TempDir, users: &str) -> Stage {
        std::fs::write(folder.path().join("word"), "secret\n").unwrap();
        let text = format!("data: data\ndatacenter: dc\nlisten: 127.0.0.1:0\n{users}");
        let mut config = Config::parse(&text, &folder.path().join("server.yaml")).unwrap();
        // `a` and `b` do not exist; the server's own system user does everything for them.
        let made_up = |user: &&mut paddlecloud_accounts::users::User| {
            matches!(user.system_user.as_deref(), Some("a" | "b"))
        };
        config
            .users
            .iter_mut()
            .filter(made_up)
            .for_each(|user| user.system_user = None);
        let server = Server::start(config, paddlecloud_supervisor::probe(), CancellationToken::new())
            .await
            .unwrap();
        let address = server.addresses()[0].clone();
        Stage {
            app: Arc::clone(server.app()),
            me: client(&address, "me"),
            you: client(&address, "you"),
            stop: server.stop_token(),
            running: tokio::spawn(server.run()),
            address,
            folder,
        }
    }

    pub fn home(&self, user: &str) -> PathBuf {
        self.folder.path().join("data/storage/home").join(user)
    }

    pub fn public(&self) -> PathBuf {
        self.folder.path().join("data/storage/public")
    }

    /// Stops the server and returns its folder back.
    pub async fn finish(self) -> tempfile::TempDir {
        self.stop.cancel();
        drop((self.app, self.me, self.you));
        self.running.await.unwrap();
        self.folder
    }
}

pub fn client(address: &str, user: &str) -> Client {
    let limits = Limits {
        pause: std::time::Duration::from_millis(1),
        ..Limits::default()
    };
    Client::new(format!("http://{address}").parse().unwrap())
        .with_credentials(Credentials {
            login: Some((user.to_owned(), "secret".to_owned())),
            token: None,
        })
        .with_limits(limits)
}

/// The user `me`, as the server knows them.
pub fn me() -> Caller {
    Caller {
        user: "me".parse().unwrap(),
        scopes: paddlecloud_core::access::Scopes::user(),
    }
}

/// What begins an upload to the home of `me`.
pub fn begin(name: &str, size: u64) -> UploadRequest {
    UploadRequest {
        path: mine(name).into(),
        size,
        executable: false,
        mtime: None,
        key: name.to_owned(),
        no_overwrite: false,
    }
}

/// A path in the home of `me`.
pub fn mine(path: &str) -> PfsPath {
    format!("/pfs/dc/home/me/{path}").parse().unwrap()
}

/// Everything in a folder, as a transfer wants it.
pub fn entries(folder: &Path) -> Vec<Entry> {
    walk(folder).unwrap().entries
}

/// Bytes that do not repeat and are the same for the same seed.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&next().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Fails with what differs when two trees are not the same, times and bits included.
pub fn assert_same(a: &Path, b: &Path) {
    let strip = |folder: &Path| -> Vec<Entry> {
        let mut entries = entries(folder);
        for entry in &mut entries {
            let path = entry.path.in_folder(folder).unwrap();
            match &mut entry.node {
                Node::File { digest, .. } => *digest = Some(Digest::of(&std::fs::read(path).unwrap())),
                // The time of a folder changes with what is put into it.
                _ => entry.mtime = Default::default(),
            }
        }
        entries
    };
    let (a, b) = (strip(a), strip(b));
    for (left, right) in a.iter().zip(&b) {
        assert_eq!(left, right);
    }
    assert_eq!(a.len(), b.len());
}

/// Nothing unfinished lies in a home.
pub fn assert_tidy(home: &Path) {
    assert!(
        !home.join(".pfs-staging").exists(),
        "something unfinished is left in {}",
        home.display()
    );
}

/// One request, byte by byte.
pub async fn raw(stage: &Stage, user: &str, method: &str, target: &str, body: &[u8]) -> (u16, String) {
    raw_with(stage, user, method, target, "", body).await
}

/// One request with more lines in its head.
pub async fn raw_with(
    stage: &Stage,
    user: &str,
    method: &str,
    target: &str,
    headers: &str,
    body: &[u8],
) -> (u16, String) {
    let mut stream = send(stage, user, method, target, headers, body).await;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).await.unwrap();
    let text = String::from_utf8_lossy(&reply).into_owned();
    let status = text
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .unwrap_or(0);
    (status, text)
}

/// The same, with its reply still to come.
pub async fn send(
    stage: &Stage,
    user: &str,
    method: &str,
    target: &str,
    headers: &str,
    body: &[u8],
) -> TcpStream {
    use base64::Engine as _;
    let login = base64::engine::general_purpose::STANDARD.encode(format!("{user}:secret"));
    let mut stream = TcpStream::connect(&stage.address).await.unwrap();
    let head = format!(
        "{method} {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Basic {login}\r\n{headers}content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
    stream
}
