//! Cleaning up after runs that left the history.

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

/// Whether a clean-up removes or only says how much it would.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    Real,
    Foreseen,
}

impl Storage {
    /// Removes a run's working copy. Its output stays when it holds anything, and so does all of the run that
    /// its package's path leads to.
    pub fn prune_run(&self, user: &UserName, job: &JobId, removal: Removal) -> Result<Pruned, PackageError> {
        let home = self.home(user)?;
        let run = ours(&["runs", job.as_str()]);
        if !home.exists(&run)? || is_latest(&home, job)? {
            return Ok(Pruned::default());
        }
        let mut pruned = Pruned::default();
        for entry in home.list(&run)? {
            remove_but_output(&home, &entry.path, removal, &mut pruned)?;
        }
        if removal == Removal::Real && home.list(&run)?.is_empty() {
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
                self.prune_run(&user, job, Removal::Real)?;
            }
        }
        Ok(())
    }

    /// Removes stored packages that no job in `kept` was submitted with.
    pub fn prune_packages(
        &self,
        user: &UserName,
        kept: &HashSet<String>,
        removal: Removal,
    ) -> Result<Pruned, PackageError> {
        let home = self.home(user)?;
        let mut pruned = Pruned::default();
        // The latest one is what the next submit is compared with.
        for id in stored_packages(&home)?.into_iter().skip(1) {
            if kept.contains(&id.to_string()) {
                continue;
            }
            if removal == Removal::Real {
                home.remove(&list_path(id))?;
            }
            remove(&home, &tree_path(id), removal, &mut pruned)?;
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
fn remove_but_output(
    home: &Root,
    path: &RelPath,
    removal: Removal,
    pruned: &mut Pruned,
) -> Result<(), PackageError> {
    let is_output = |path: &RelPath| path.name() == Some(b"output");
    let meta = home.stat_link(path)?;
    if !meta.is_dir()
        || (!is_output(path)
            && !home.exists(&path.child(b"output").map_err(paddlecloud_pfs::RootError::from)?)?)
    {
        return remove(home, path, removal, pruned);
    }
    if is_output(path) {
        return if home.list(path)?.is_empty() {
            remove(home, path, removal, pruned)
        } else {
            Ok(())
        };
    }
    for entry in home.list(path)? {
        if !is_output(&entry.path) || home.list(&entry.path)?.is_empty() {
            remove(home, &entry.path, removal, pruned)?;
        }
    }
    Ok(())
}

fn remove(home: &Root, path: &RelPath, removal: Removal, pruned: &mut Pruned) -> Result<(), PackageError> {
    if !home.exists(path)? {
        return Ok(());
    }
    let meta = home.stat_link(path)?;
    pruned.bytes += match meta.is_dir() {
        true => home.usage(path)?.bytes,
        false => meta.size,
    };
    match removal {
        Removal::Real => Ok(home.remove_all(path)?),
        Removal::Foreseen => Ok(()),
    }
}
