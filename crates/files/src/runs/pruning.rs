//! Removes the files of runs that left the history.

use paddlecloud_core::names::{JobId, UserName};
use paddlecloud_pfs::root::Kind;
use paddlecloud_pfs::{RelPath, Root, RootError};

use crate::homes::{OURS, Pruned, Removal, Storage, StorageError, ours, remove};

/// Whether a clean-up keeps the outputs of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outputs {
    Stay,
    Go,
}

impl Storage {
    /// Removes a run's working copy, and its output if outputs go. The working copy of a package's latest run stays.
    pub fn prune_run(
        &self,
        user: &UserName,
        job: &JobId,
        outputs: Outputs,
        removal: Removal,
    ) -> Result<Pruned, StorageError> {
        let home = self.home(user)?;
        let run = ours(&["runs", job.as_str()]);
        let mut pruned = Pruned::default();
        if !home.exists(&run)? {
            return Ok(pruned);
        }
        if is_latest(&home, job)? {
            if outputs == Outputs::Go {
                empty_output(&home, &run, removal, &mut pruned)?;
            }
            return Ok(pruned);
        }
        if outputs == Outputs::Go || !home.stat_link(&run)?.is_dir() {
            remove(&home, &run, removal, &mut pruned)?;
            return Ok(pruned);
        }
        for entry in home.list(&run)? {
            remove_but_output(&home, &entry.path, removal, &mut pruned)?;
        }
        if removal == Removal::Real && home.list(&run)?.is_empty() {
            home.remove(&run)?;
        }
        Ok(pruned)
    }

    /// Removes the working copy of a job that left the history, for any user.
    pub(crate) fn forget_run(&self, job: &JobId) -> Result<(), StorageError> {
        let run = |user: &UserName| self.home_path(user).join(OURS).join("runs").join(job.as_str());
        for user in self.users()?.iter().filter(|user| run(user).exists()) {
            self.prune_run(user, job, Outputs::Stay, Removal::Real)?;
        }
        Ok(())
    }

    /// The runs that have files in a user's home.
    pub fn runs_of(&self, user: &UserName) -> Result<Vec<JobId>, StorageError> {
        let home = self.home(user)?;
        let runs = match home.list(&ours(&["runs"])) {
            Err(error) if error.is_not_found() => return Ok(Vec::new()),
            other => other?,
        };
        let names = runs
            .iter()
            .filter_map(|run| std::str::from_utf8(run.path.name()?).ok());
        Ok(names.filter_map(|name| name.parse().ok()).collect())
    }
}

fn is_latest(home: &Root, job: &JobId) -> Result<bool, StorageError> {
    let latest = ours(&["latest"]);
    if !home.exists(&latest)? {
        return Ok(false);
    }
    let run = format!("/runs/{job}/");
    Ok(home.list(&latest)?.iter().any(|entry| match &entry.meta.kind {
        Kind::Symlink(target) => String::from_utf8_lossy(target.as_bytes()).contains(&run),
        _ => false,
    }))
}

/// Removes the content of a run's outputs, which are in the run's folder or in its copy of the package.
fn empty_output(
    home: &Root,
    run: &RelPath,
    removal: Removal,
    pruned: &mut Pruned,
) -> Result<(), StorageError> {
    let below = |folder: &RelPath| folder.child(b"output").map_err(RootError::from);
    let mut places = vec![below(run)?];
    for entry in home.list(run)?.iter().filter(|entry| entry.meta.is_dir()) {
        places.push(below(&entry.path)?);
    }
    for output in places {
        if is_kept_output(home, &output)? && home.stat_link(&output)?.is_dir() {
            let entries = home.list(&output)?;
            entries
                .iter()
                .try_for_each(|entry| remove(home, &entry.path, removal, pruned))?;
        }
    }
    Ok(())
}

/// Removes an entry of a run, except for a non-empty `output`.
fn remove_but_output(
    home: &Root,
    path: &RelPath,
    removal: Removal,
    pruned: &mut Pruned,
) -> Result<(), StorageError> {
    if is_kept_output(home, path)? {
        return Ok(());
    }
    let inside = path.child(b"output").map_err(RootError::from)?;
    if !home.stat_link(path)?.is_dir() || !is_kept_output(home, &inside)? {
        return remove(home, path, removal, pruned);
    }
    for entry in home.list(path)? {
        if entry.path != inside {
            remove(home, &entry.path, removal, pruned)?;
        }
    }
    Ok(())
}

/// Whether this is an output to keep: usually a folder, but a job may have put a file there. A link is not an output; its target
/// is elsewhere and stays.
fn is_kept_output(home: &Root, path: &RelPath) -> Result<bool, StorageError> {
    if path.name() != Some(b"output") {
        return Ok(false);
    }
    match home.stat_link(path) {
        Ok(meta) if meta.is_dir() => Ok(!home.list(path)?.is_empty()),
        Ok(meta) => Ok(meta.is_file() && meta.size > 0),
        Err(RootError::NotFound(_) | RootError::NotAFolder(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::homes::testing::TestHome;

    #[test]
    fn what_a_job_made_of_its_output_keeps_no_run_from_being_cleared() {
        let home = TestHome::new();
        type Make = fn(&std::path::Path);
        let cases: [(&str, Make, bool); 5] = [
            ("file", |output| fs::write(output, "results").unwrap(), true),
            ("empty", |output| fs::write(output, "").unwrap(), false),
            (
                "dangling",
                |output| std::os::unix::fs::symlink("nowhere", output).unwrap(),
                false,
            ),
            ("none", |_| {}, false),
            (
                "folder",
                |output| {
                    fs::create_dir(output).unwrap();
                    fs::write(output.join("model"), "results").unwrap();
                },
                true,
            ),
        ];
        let places = [("", "flat"), ("job", "deep")];
        let numbered = cases.iter().flat_map(|case| places.map(|place| (case, place)));
        for (number, ((name, make, stays), (below, depth))) in numbered.enumerate() {
            let (stays, shown) = (*stays, format!("{name}, {depth}"));
            let job: JobId = format!("j_{number:014}").parse().unwrap();
            let run = home.ours.join("runs").join(job.as_str());
            let copy = run.join(below);
            fs::create_dir_all(&copy).unwrap();
            fs::write(copy.join("train.py"), "12345").unwrap();
            make(&copy.join("output"));
            for removal in [Removal::Foreseen, Removal::Real] {
                let pruned = home.storage.prune_run(&home.user, &job, Outputs::Stay, removal);
                assert!(pruned.unwrap().bytes >= 5, "{shown}");
            }
            assert!(!copy.join("train.py").exists(), "{shown}");
            assert_eq!(run.exists(), stays, "{shown}");
            assert_eq!(copy.join("output").exists(), stays, "{shown}");
        }
    }

    #[test]
    fn outputs_go_when_they_are_meant_also_that_of_the_latest_run() {
        let home = TestHome::new();
        let runs = home.ours.join("runs");
        let make = |job: &str| {
            let copy = runs.join(job).join("pkg");
            fs::create_dir_all(copy.join("output/node_0")).unwrap();
            fs::write(copy.join("train.py"), "12345").unwrap();
            fs::write(copy.join("output/node_0/train.log"), "1234567").unwrap();
            copy
        };
        let (old, latest) = ("j_00000000000001", "j_00000000000002");
        make(old);
        let copy = make(latest);
        fs::create_dir_all(home.ours.join("latest")).unwrap();
        let target = format!("../runs/{latest}/pkg");
        std::os::unix::fs::symlink(target, home.ours.join("latest/pkg")).unwrap();
        let prune = |job: &str, removal| {
            let job: JobId = job.parse().unwrap();
            let pruned = home.storage.prune_run(&home.user, &job, Outputs::Go, removal);
            pruned.unwrap().bytes
        };
        for removal in [Removal::Foreseen, Removal::Real] {
            assert_eq!(
                (prune(old, removal), prune(latest, removal)),
                (12, 7),
                "{removal:?}"
            );
        }
        assert!(!runs.join(old).exists());
        assert!(copy.join("train.py").exists() && copy.join("output").exists());
        assert!(!copy.join("output/node_0").exists());
    }
}
