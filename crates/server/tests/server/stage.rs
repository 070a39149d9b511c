//! A server with its own folder, stopped at the end of the test.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use paddlecloud_accounts::auth::Caller;
use paddlecloud_api::jobs::JobRequest;
use paddlecloud_core::job::{AfterKill, Phase};
use paddlecloud_core::names::JobRef;
use paddlecloud_server::app::App;
use paddlecloud_server::config::Config;
use paddlecloud_server::start::Server;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::client::{Reply, Request};

/// Two users and a machine that is exactly as big as the client design's example.
const SETTINGS: [(&str, &str); 3] = [
    ("listen:", "listen: 127.0.0.1:0\n"),
    ("inventory:", "inventory: {cpu: 6, memory: 6Gi}\n"),
    (
        "users:",
        "users:\n\
         - {name: me, password_file: word, admin: true, system_user: a, quota: {parallelism: 50}}\n\
         - {name: you, password_file: word, system_user: b}\n",
    ),
];

/// A job of `you` that runs all the time, so that the client design's example has to wait. It ends by itself should a test
/// fail to end it.
const BLOCKER: &str = "blocker";

pub struct Stage {
    pub folder: tempfile::TempDir,
    pub address: String,
    pub app: Arc<App>,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl Stage {
    pub async fn new() -> Stage {
        Stage::with("").await
    }

    /// A server with more lines in its configuration.
    pub async fn with(lines: &str) -> Stage {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("word"), "secret\n").unwrap();
        Stage::on(folder, lines).await
    }

    pub async fn on(folder: tempfile::TempDir, lines: &str) -> Stage {
        let config = config(folder.path(), lines);
        let server = Server::start(config, paddlecloud_supervisor::probe(), CancellationToken::new())
            .await
            .unwrap();
        for user in ["me", "you"] {
            std::fs::create_dir_all(home(folder.path(), user).join("job_word_emb")).unwrap();
        }
        let stage = Stage {
            address: server.addresses()[0].clone(),
            app: Arc::clone(server.app()),
            stop: server.stop_token(),
            running: tokio::spawn(server.run()),
            folder,
        };
        let (users, you) = (stage.app.auth.users(), "you".parse().unwrap());
        let may_submit = users.find(&you).is_some() && !users.shares_system_user(&you);
        if stage.app.jobs.active().is_empty() && may_submit {
            stage.block().await;
        }
        stage
    }

    async fn block(&self) {
        let request = JobRequest {
            name: Some(BLOCKER.to_owned()),
            job_package: Some("/pfs/dc1/home/you/job_word_emb".to_owned()),
            // Longer than any test takes on a busy machine.
            entry: Some("sleep 600".to_owned()),
            pservers: Some(0),
            cpu: Some("10m".into()),
            memory: Some("16Mi".into()),
            ..JobRequest::default()
        };
        let you = Caller {
            user: "you".parse().unwrap(),
            scopes: paddlecloud_core::access::Scopes::user(),
        };
        let submitted = self.app.job_submit(&you, request, None).await.unwrap();
        // Jobs that have not started when an account is added are refused.
        let mut blocker = self.app.jobs.watch(&submitted.id.unwrap()).unwrap();
        let runs = blocker.wait_for(|job| job.phase == Phase::Running || job.phase.is_final());
        assert_eq!(runs.await.unwrap().phase, Phase::Running);
    }

    /// Sends a request as `me`.
    pub async fn send(&self, request: Request) -> Reply {
        request
            .header("authorization", &basic("me"))
            .send(&self.address)
            .await
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.send(Request::new("GET", path)).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Reply {
        self.send(Request::new("POST", path).json(body)).await
    }

    /// Submits a job that will wait; returns its id.
    pub async fn submit(&self, name: &str) -> String {
        let reply = self.post("/api/v1/jobs", request(name)).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()["id"].as_str().unwrap().to_owned()
    }

    /// Stops the server and waits for its exit; workers continue. Returns its folder.
    pub async fn pause(self) -> tempfile::TempDir {
        self.stop.cancel();
        self.ended().await
    }

    /// Waits until the server has ended by itself.
    pub async fn ended(self) -> tempfile::TempDir {
        drop(self.app);
        self.running.await.unwrap();
        self.folder
    }

    /// Ends every job, then the server.
    pub async fn finish(self) -> tempfile::TempDir {
        self.end_jobs().await;
        self.pause().await
    }

    /// Ends every job. Those that wait go first, or they would run.
    pub async fn end_jobs(&self) {
        let mut jobs = self.app.jobs.active();
        jobs.sort_by_key(|job| job.spec.name.as_str() == BLOCKER);
        for job in jobs {
            self.app
                .jobs
                .kill(&job.user, JobRef::Id(job.id.clone()), AfterKill::KeepInHistory)
                .await
                .unwrap();
            self.app.jobs.wait_final(&job.id).await;
        }
    }
}

pub fn config(folder: &Path, lines: &str) -> Config {
    let missing = SETTINGS
        .iter()
        .filter(|(key, _)| !lines.contains(key))
        .map(|(_, text)| *text);
    let settings: String = missing.collect();
    let text = format!("data: data\ndatacenter: dc1\n{settings}{lines}");
    let mut config = Config::parse(&text, &folder.join("server.yaml")).unwrap();
    config.program = Some(supervisor());
    // Most tests need two users and no root: all act as the user who runs the test.
    config.users.iter_mut().for_each(|user| user.system_user = None);
    config
}

/// The example `supervise`, which cargo builds beside the tests.
pub fn supervisor() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let profile = tests.ancestors().nth(2).unwrap();
    let mut program = profile.join("examples/supervise");
    if !program.exists() {
        // With `build.build-dir` tests are elsewhere; examples are still in target/.
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
        program = target
            .join(profile.file_name().unwrap())
            .join("examples/supervise");
    }
    assert!(
        program.exists(),
        "run `cargo test -p paddlecloud-server`, which builds {}",
        program.display()
    );
    program
}

pub fn home(folder: &Path, user: &str) -> PathBuf {
    folder.join("data/storage/home").join(user)
}

/// The header of a login.
pub fn basic(user: &str) -> String {
    use base64::Engine as _;
    format!(
        "Basic {}",
        base64::engine::general_purpose::STANDARD.encode(format!("{user}:secret"))
    )
}

/// The client design's example, on this server.
pub fn request(name: &str) -> Value {
    json!({
        "name": name,
        "job_package": "/pfs/dc1/home/me/job_word_emb",
        "parallelism": 3,
        "cpu": 1,
        "memory": "1Gi",
        "pservers": 3,
        "pscpu": 1,
        "psmemory": "1Gi",
        "topology": "train.py"
    })
}
