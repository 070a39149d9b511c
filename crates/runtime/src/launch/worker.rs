//! Starts the supervisor of this pod's worker, once, and talks to it over its socket.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use paddlecloud_worker::protocol::{self, Report, State, WorkerPlan};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;

use super::events::LaunchEvent;
use super::pod_files;

/// Names of the container's secret variables; set by the server, separated by commas.
const SECRET_NAMES: &str = "PADDLECLOUD_LINK_SECRETS";

/// This program, which is also the supervisor.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// The `PATH` for an image that sets none.
const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Where the pod's files are. Created by the init container.
#[derive(Debug, Clone)]
pub struct PodFolders {
    /// The supervisor's folder: plan, socket, recorded exit.
    pub attempt: PathBuf,
    /// Our own programs, first in the worker's `PATH`.
    pub programs: PathBuf,
    pub hosts: PathBuf,
}

/// The connection to the supervisor.
pub struct SupervisorLink {
    write: OwnedWriteHalf,
    /// The folder of the output.
    pub log: PathBuf,
    pub state: State,
}

impl SupervisorLink {
    /// Prepares the pod according to the plan and starts the supervisor.
    pub async fn start(
        folders: &PodFolders,
        plan: &WorkerPlan,
        events: mpsc::UnboundedSender<LaunchEvent>,
    ) -> Result<SupervisorLink, String> {
        pod_files::write_all(&plan.files)?;
        pod_files::write_hosts(&folders.hosts, &plan.hosts)?;
        start(&folders.attempt, plan, Some(&folders.programs), events).await
    }

    /// Connects to the supervisor of this folder.
    pub async fn connect(
        folder: &Path,
        log: PathBuf,
        events: mpsc::UnboundedSender<LaunchEvent>,
    ) -> io::Result<SupervisorLink> {
        let stream = paddlecloud_supervisor::connect(folder)?;
        stream.set_nonblocking(true)?;
        let (read, write) = UnixStream::from_std(stream)?.into_split();
        let mut lines = BufReader::new(read);
        let Some(Report::State(state)) = next_report(&mut lines).await? else {
            return Err(io::Error::other("it sent no greeting"));
        };
        tokio::spawn(hear(lines, events));
        Ok(SupervisorLink { write, log, state })
    }

    /// Ignores a failure: if the supervisor is gone, its closed connection shows it.
    pub async fn tell(&mut self, command: &protocol::Command) {
        let _ = self.write.write_all(&protocol::encode(command)).await;
    }
}

/// Starts the supervisor of a worker in its own folder. `programs` come first in the worker's `PATH`.
pub async fn start(
    folder: &Path,
    plan: &WorkerPlan,
    programs: Option<&Path>,
    events: mpsc::UnboundedSender<LaunchEvent>,
) -> Result<SupervisorLink, String> {
    let log = plan.log_folder(folder);
    if let Some(parent) = log.parent() {
        std::fs::create_dir_all(parent)
            .map_err(|error| format!("cannot create `{}`: {error}", parent.display()))?;
    }
    let mut plan = plan.clone();
    let (secrets, image) = split_secrets(std::env::vars());
    plan.env = environment(plan.env, image.into_iter(), programs);
    plan.write(folder).map_err(|error| error.to_string())?;
    paddlecloud_supervisor::start(Path::new(OWN_PROGRAM), folder, &secrets)
        .map_err(|error| format!("the supervisor {error}"))?;
    SupervisorLink::connect(folder, log, events)
        .await
        .map_err(|error| format!("the supervisor cannot be reached: {error}"))
}

/// Separates the container's secret variables from the others. The plan is a file, which must not contain secrets.
fn split_secrets(
    variables: impl Iterator<Item = (String, String)>,
) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    let all: BTreeMap<String, String> = variables.collect();
    let named = all.get(SECRET_NAMES).cloned().unwrap_or_default();
    let names: Vec<&str> = named.split(',').collect();
    all.into_iter()
        .partition(|(name, _)| names.contains(&name.as_str()))
}

/// The image's variables, overridden by the plan's. Of two `PATH`s, the job's is used.
fn environment(
    planned: Vec<(String, String)>,
    image: impl Iterator<Item = (String, String)>,
    programs: Option<&Path>,
) -> Vec<(String, String)> {
    let own = |name: &str| name.starts_with("PADDLECLOUD_LINK");
    let mut all: BTreeMap<String, String> = image.filter(|(name, _)| !own(name)).collect();
    all.extend(planned);
    let path = all.get("PATH").map_or(USUAL_PATH, String::as_str);
    let path = match programs {
        Some(programs) => format!("{}:{path}", programs.display()),
        None => path.to_owned(),
    };
    all.insert("PATH".to_owned(), path);
    all.into_iter().collect()
}

async fn next_report(lines: &mut BufReader<OwnedReadHalf>) -> io::Result<Option<Report>> {
    let mut line = Vec::new();
    match lines.read_until(b'\n', &mut line).await? {
        0 => Ok(None),
        _ => protocol::decode(&line).map(Some).map_err(io::Error::other),
    }
}

async fn hear(mut lines: BufReader<OwnedReadHalf>, events: mpsc::UnboundedSender<LaunchEvent>) {
    while let Ok(Some(report)) = next_report(&mut lines).await {
        if events.send(LaunchEvent::Report(report)).is_err() {
            return;
        }
    }
    let _ = events.send(LaunchEvent::SupervisorGone);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn a_secret_is_not_among_the_variables_that_are_stored() {
        let container = pairs(&[
            ("API_KEY", "canary"),
            ("LANG", "C"),
            ("PADDLECLOUD_LINK_SECRETS", "API_KEY,OTHER"),
            ("OTHER", "canary"),
        ]);
        let (secrets, others) = split_secrets(container.into_iter());
        let expected = pairs(&[("API_KEY", "canary"), ("OTHER", "canary")]);
        assert_eq!(secrets.into_iter().collect::<Vec<_>>(), expected);
        let stored = environment(Vec::new(), others.into_iter(), None);
        let expected = pairs(&[("LANG", "C"), ("PATH", USUAL_PATH)]);
        assert_eq!(stored, expected);
        let none = split_secrets(pairs(&[("A", "b")]).into_iter());
        assert!(none.0.is_empty());
    }

    #[test]
    fn the_image_keeps_its_environment_and_the_plan_wins() {
        let image = pairs(&[
            ("PATH", "/opt/conda/bin:/bin"),
            ("LANG", "C"),
            ("PADDLECLOUD_LINK", "10.0.0.1:1"),
            ("TRAINERS", "?"),
        ]);
        let planned = pairs(&[("TRAINERS", "3")]);
        let merged = environment(planned, image.into_iter(), Some(Path::new("/own/bin")));
        let expected = [
            ("LANG", "C"),
            ("PATH", "/own/bin:/opt/conda/bin:/bin"),
            ("TRAINERS", "3"),
        ];
        assert_eq!(merged, pairs(&expected));
    }
}
