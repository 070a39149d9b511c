//! How much a user's files take, and cleaning up after runs that left the history.

use std::collections::HashSet;

use paddlecloud_core::names::{JobId, UserName};
use paddlecloud_pfs::{RelPath, Root};

use super::receive::{list_path, stored_packages, tree_path};
use super::{OURS, PackageError, Storage, ours};

/// What a clean-up removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    pub bytes: u64,
}

impl Storage {
    /// Bytes of everything in a user's home.
    pub fn used_bytes(&self, user: &UserName) -> Result<u64, PackageError> {
        Ok(self.home(user)?.usage(&RelPath::root())?.bytes)
    }

    /// Removes a run's working copy. Its output stays when it holds anything, and so does all of the run that
    /// its package's path leads to.
    pub fn prune_run(&self, user: &UserName, job: &JobId) -> Result<Pruned, PackageError> {
        let home = self.home(user)?;
        let run = ours(&["runs", job.as_str()]);
        if !home.exists(&run)? || is_latest(&home, job)? {
            return Ok(Pruned::default());
        }
        let mut pruned = Pruned::default();
        for entry in home.list(&run)? {
            remove_but_output(&home, &entry.path, &mut pruned)?;
        }
        if home.list(&run)?.is_empty() {
            home.remove(&run)?;
        }
        Ok(pruned)
    }

    /// Removes the working copy of a job that left the history, whoever's it was.
    pub fn forget_run(&self, job: &JobId) -> Result<(), PackageError> {
        for home in std::fs::read_dir(self.path().join("home"))
            .map_err(PackageError::Disk)?
            .flatten()
        {
            let user = home
                .file_name()
                .to_str()
                .and_then(|name| name.parse::<UserName>().ok());
            if let Some(user) =
                user.filter(|_| home.path().join(OURS).join("runs").join(job.as_str()).exists())
            {
                self.prune_run(&user, job)?;
            }
        }
        Ok(())
    }

    /// Removes stored packages that no job in `kept` was submitted with.
    pub fn prune_packages(&self, user: &UserName, kept: &HashSet<String>) -> Result<Pruned, PackageError> {
        let home = self.home(user)?;
        let mut pruned = Pruned::default();
        // The latest one is what the next submit is compared with.
        for id in stored_packages(&home)?.into_iter().skip(1) {
            if kept.contains(&id.to_string()) {
                continue;
            }
            home.remove(&list_path(id))?;
            remove(&home, &tree_path(id), &mut pruned)?;
        }
        Ok(pruned)
    }
}

fn is_latest(home: &Root, job: &JobId) -> Result<bool, PackageError> {
    let latest = ours(&["latest"]);
    if !home.exists(&latest)? {
        return Ok(false);
    }
    let run = format!("/runs/{job}/");
    Ok(home.list(&latest)?.iter().any(|entry| match &entry.meta.kind {
        paddlecloud_pfs::root::Kind::Symlink(target) => {
            String::from_utf8_lossy(target.as_bytes()).contains(&run)
        }
        _ => false,
    }))
}

/// An entry of a run: everything goes but a folder `output` that holds something.
fn remove_but_output(home: &Root, path: &RelPath, pruned: &mut Pruned) -> Result<(), PackageError> {
    let is_output = |path: &RelPath| path.name() == Some(b"output");
    let meta = home.stat_link(path)?;
    if !meta.is_dir()
        || (!is_output(path)
            && !home.exists(&path.child(b"output").map_err(paddlecloud_pfs::RootError::from)?)?)
    {
        return remove(home, path, pruned);
    }
    if is_output(path) {
        return if home.list(path)?.is_empty() {
            remove(home, path, pruned)
        } else {
            Ok(())
        };
    }
    for entry in home.list(path)? {
        if !is_output(&entry.path) || home.list(&entry.path)?.is_empty() {
            remove(home, &entry.path, pruned)?;
        }
    }
    Ok(())
}

fn remove(home: &Root, path: &RelPath, pruned: &mut Pruned) -> Result<(), PackageError> {
    if !home.exists(path)? {
        return Ok(());
    }
    if home.stat_link(path)?.is_dir() {
        pruned.bytes += home.usage(path)?.bytes;
        home.remove_all(path)?;
    } else {
        pruned.bytes += home.stat_link(path)?.size;
        home.remove(path)?;
    }
    Ok(())
}
