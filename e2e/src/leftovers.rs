//! What a job or a server may have left behind: processes, mounts, control groups, sockets.
//!
//! Everything is found by the test's own home, whose path is unique, or by the ids of its jobs.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};

/// Processes that carry the home's path in their arguments or environment.
pub fn processes(home: &Path) -> Vec<Process> {
    let this = std::process::id();
    let pids = entries(Path::new("/proc")).filter_map(|path| path.file_name()?.to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != this)
        .filter_map(|pid| Process::of_home(pid, home))
        .collect()
}

/// A process that belongs to a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    pub arguments: String,
}

impl Process {
    fn of_home(pid: u32, home: &Path) -> Option<Self> {
        let read = |what: &str| fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
        let arguments = read("cmdline");
        let mine = [&arguments, &read("environ")]
            .iter()
            .any(|text| contains(text, home));
        let arguments = String::from_utf8_lossy(&arguments).replace('\0', " ");
        mine.then_some(Self { pid, arguments })
    }

    /// Kills it; it may be gone already.
    pub fn end(&self) {
        self.signal(Signal::KILL);
    }

    /// Suspends it until [`Process::resume`].
    pub fn stop(&self) {
        self.signal(Signal::STOP);
    }

    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal);
        }
    }
}

/// Whether a process has ended and closed its files. Its arguments disappear before that.
pub fn has_ended(pid: u32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat
            .rsplit(") ")
            .next()
            .is_some_and(|state| state.starts_with('Z')),
        Err(_) => true,
    }
}

/// Everything else that remains when all processes are gone.
pub fn traces(home: &Path, job_ids: &[String]) -> Vec<String> {
    let mut found = mounts(home);
    found.extend(sockets(home));
    found.extend(control_groups(job_ids));
    found
}

fn mounts(home: &Path) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mine = table.lines().filter(|line| contains(line.as_bytes(), home));
    mine.map(|line| format!("mount: {line}")).collect()
}

fn sockets(home: &Path) -> Vec<String> {
    let is_socket =
        |path: &PathBuf| fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    below(home)
        .into_iter()
        .filter(is_socket)
        .map(|path| format!("socket: {}", path.display()))
        .collect()
}

/// Groups of our engine that are named after one of these jobs.
fn control_groups(job_ids: &[String]) -> Vec<String> {
    let ours = |path: &PathBuf| {
        let in_engine = path
            .parent()
            .is_some_and(|parent| parent.ends_with("paddlecloud"));
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        in_engine && job_ids.iter().any(|id| name.contains(id.as_str()))
    };
    let groups = below(Path::new("/sys/fs/cgroup")).into_iter().filter(ours);
    groups
        .map(|path| format!("control group: {}", path.display()))
        .collect()
}

/// Every path below a folder; links are not followed.
fn below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for path in entries(&folder) {
            if fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_dir()) {
                open.push(path.clone());
            }
            found.push(path);
        }
    }
    found
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
}

fn contains(bytes: &[u8], path: &Path) -> bool {
    let path = path.as_os_str().as_encoded_bytes();
    bytes.windows(path.len()).any(|window| window == path)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixListener;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_is_found_by_the_home_in_its_environment() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(processes(home.path()), []);
        let mut child = Command::new("cat")
            .env("HOME", home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // A process that answers has become the program, with its environment.
        child.stdin.as_mut().unwrap().write_all(b"?").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let found: Vec<u32> = processes(home.path()).iter().map(|process| process.pid).collect();
        assert_eq!(found, [child.id()]);
        processes(home.path())[0].end();
        child.wait().unwrap();
        assert_eq!(processes(home.path()), []);
    }

    #[test]
    fn a_socket_deep_in_the_home_is_found() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("a/b");
        fs::create_dir_all(&folder).unwrap();
        assert!(traces(home.path(), &[]).is_empty());
        let _listener = UnixListener::bind(folder.join("sock")).unwrap();
        assert_eq!(traces(home.path(), &[]).len(), 1);
    }
}
