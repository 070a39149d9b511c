//! The servers of a job in this process, which can be replaced as a crash would: the next attempt has the same address and
//! nothing in memory.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::checkpoint;
use crate::client::{Client, ClientError, Config, Gradients, Listener};
use crate::hello::RunSecret;
use crate::message::{Code, Session};
use crate::planted::Planted;
use crate::server::{self, Admission, CheckpointState, Listening, Server, listen};
use crate::steps::Mode;

use super::plan::Plan;

/// Makes all trainers give up when one has failed.
#[derive(Clone, Default)]
struct Failure(Arc<AtomicBool>);

impl Listener for Failure {
    fn waiting(&self, _server: u32, _message: &str) {}

    fn interrupted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The folders of all runs of a job.
pub struct Folders(tempfile::TempDir);

impl Folders {
    pub fn new() -> Folders {
        Folders(tempfile::tempdir().expect("a folder"))
    }

    fn of(&self, run: &str, bug: Option<Planted>) -> PathBuf {
        match bug {
            Some(Planted::OneFolderForAllRuns) => self.0.path().to_owned(),
            _ => self.0.path().join(run),
        }
    }
}

struct Running {
    server: Arc<Server>,
    listening: Listening,
    attempt: u32,
}

pub struct Cluster {
    running: Mutex<Vec<Running>>,
    addresses: Vec<SocketAddr>,
    folder: PathBuf,
    resume: String,
    trainers: u32,
    every: u64,
    mean: bool,
    bug: Option<Planted>,
    failure: Failure,
    /// A server was lost before the first checkpoint was complete: trainers fail, and their next attempts begin again.
    began_again: AtomicBool,
    pub attempts: Vec<AtomicU32>,
}

impl Cluster {
    /// The run called "second" continues the one called "first".
    pub fn start(plan: &Plan, servers: u32, folders: &Folders, run: &str, bug: Option<Planted>) -> Cluster {
        let resume = match run {
            "second" => folders.of("first", bug).display().to_string(),
            _ => String::new(),
        };
        let mut cluster = Cluster {
            running: Mutex::default(),
            addresses: vec![SocketAddr::from(([127, 0, 0, 1], 0)); servers as usize],
            folder: folders.of(run, bug),
            resume,
            trainers: plan.trainers,
            every: plan.every,
            mean: plan.mean,
            bug,
            failure: Failure::default(),
            began_again: AtomicBool::new(false),
            attempts: (0..plan.trainers).map(|_| AtomicU32::new(1)).collect(),
        };
        for index in 0..servers {
            let running = cluster.begin(index, 1);
            cluster.addresses[index as usize] = running.listening.addresses[0];
            cluster.running().push(running);
        }
        cluster
    }

    fn begin(&self, index: u32, attempt: u32) -> Running {
        let server = Server::new(server::Config {
            index,
            servers: self.addresses.len() as u32,
            trainers: self.trainers,
            attempt,
            cores: 2,
            secret: Some(RunSecret::new("test")),
            // Threads that wait notice soon that their client's connection was closed.
            patience: Duration::from_millis(20),
            ..server::Config::default()
        });
        if let Some(bug) = self.bug {
            server.plant(bug);
        }
        let listening = self.listen(index, &server);
        Running {
            server,
            listening,
            attempt,
        }
    }

    fn listen(&self, index: u32, server: &Arc<Server>) -> Listening {
        let address = self.addresses[index as usize];
        loop {
            match listen(server, &[address], &Admission::BySecret, |_| None) {
                Ok(listening) => return listening,
                // The port is free as soon as the stopped server's thread has ended.
                Err(_) => thread::yield_now(),
            }
        }
    }

    fn running(&self) -> MutexGuard<'_, Vec<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn servers(&self) -> u32 {
        self.addresses.len() as u32
    }

    pub fn connect(&self, trainer: u32) -> Result<Client, ClientError> {
        Client::connect(Config {
            addresses: self.addresses.iter().map(SocketAddr::to_string).collect(),
            trainer,
            trainers: self.trainers,
            attempt: self.attempts[trainer as usize].load(Ordering::Relaxed),
            secret: Some(RunSecret::new("test")),
            // Over shared memory, a server's thread that waits does not notice that it was killed.
            shares_memory: false,
            session: Session {
                mode: Mode::Sync,
                mean: self.mean,
                checkpoints: self.folder.display().to_string(),
                checkpoint_every: self.every,
                resume: self.resume.clone(),
            },
            gradients: Gradients::F32,
            patience: Duration::from_secs(60),
            listener: Arc::new(self.failure.clone()),
        })
    }

    /// Whether a trainer's next attempt can begin again after this error: its work is lost, but that is only the first step.
    pub fn may_begin_again(&self, error: &ClientError) -> bool {
        let is_lost = match error {
            ClientError::Lost => true,
            ClientError::Refused(refused) => refused.code == Code::NoCheckpoint,
            _ => false,
        };
        is_lost && self.began_again.load(Ordering::Relaxed)
    }

    fn complete(&self) -> Vec<u64> {
        let found = checkpoint::list(&self.folder).unwrap_or_default();
        found.iter().map(|found| found.step).collect()
    }

    /// Replaces servers. Nothing of the old processes runs when the new ones begin.
    pub fn kill(&self, servers: &[u32], is_unwritten: bool) {
        let mut running = self.running();
        for index in servers {
            running[*index as usize].end();
        }
        if self.complete().is_empty() && self.resume.is_empty() {
            self.began_again.store(true, Ordering::Relaxed);
        }
        if is_unwritten {
            self.lose_latest(servers[0]);
        }
        for index in servers {
            let attempt = running[*index as usize].attempt + 1;
            running[*index as usize] = self.begin(*index, attempt);
        }
    }

    /// Removes a server's file of the latest checkpoint, if there is another one to go back to.
    fn lose_latest(&self, server: u32) {
        let complete = self.complete();
        let has_other = complete.len() > 1 && can_be_loaded(&self.folder, complete[1]);
        if let (Some(latest), true) = (complete.first(), has_other) {
            let file = checkpoint::file(&self.folder, *latest, server, self.servers());
            let _ = fs::remove_file(file);
        }
    }

    pub fn cut_connections(&self, server: u32) {
        let mut running = self.running();
        let one = &mut running[server as usize];
        one.listening.stop();
        one.listening = self.listen(server, &one.server);
    }

    /// Ends the job because of a trainer's error.
    pub fn fail(&self, trainer: u32, error: &ClientError) -> ! {
        self.failure.0.store(true, Ordering::Relaxed);
        self.stop();
        panic!("trainer {trainer}: {error}");
    }

    /// Kills all servers at the end of a run.
    pub fn stop(&self) {
        self.running().iter().for_each(Running::end);
    }
}

fn can_be_loaded(folder: &Path, step: u64) -> bool {
    let Ok(found) = server::list_checkpoints(folder) else {
        return false;
    };
    let is_intact = |one: &server::ListedCheckpoint| matches!(one.state, CheckpointState::Intact { .. });
    found.iter().any(|one| one.step == step && is_intact(one))
}

impl Running {
    /// Ends the process: threads of connections, and the writer of a checkpoint.
    fn end(&self) {
        self.listening.stop();
        self.server.wait_until_idle();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop();
    }
}
