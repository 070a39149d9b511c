//! Who owns the homes in the storage folder: a new account gets no number that owns files, and no account gets a home of another
//! number. Opening and making homes is the work of `homes`.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use paddlecloud_core::names::UserName;
use paddlecloud_core::spec::shell_quote;
use paddlecloud_supervisor::protocol::RunAs;

/// A home that belongs to another system user than its user's.
#[derive(Debug, thiserror::Error)]
#[error(
    "the home `{path}` of user `{user}` belongs to system user number {found}, not to number {wanted}",
    path = .path.display()
)]
pub struct ForeignHome {
    pub user: UserName,
    pub path: PathBuf,
    pub found: u32,
    pub wanted: u32,
    pub group: u32,
}

impl ForeignHome {
    /// The command that hands the home over.
    pub fn command(&self) -> String {
        let (wanted, group) = (self.wanted, self.group);
        let path = shell_quote(&self.path.to_string_lossy());
        format!("chown -R --no-dereference {wanted}:{group} {path}")
    }
}

/// The folder with all homes.
#[derive(Debug)]
pub(super) struct HomeOwners(PathBuf);

/// How deep the folders lie that the server makes in a home by itself.
const OWN_DEPTH: u32 = 2;

impl HomeOwners {
    pub fn in_storage(storage: &Path) -> HomeOwners {
        HomeOwners(storage.join("home"))
    }

    /// The numbers that own homes of others, including those that deleted users left.
    pub fn beside(&self, user: &UserName) -> io::Result<BTreeSet<u32>> {
        let homes = match std::fs::read_dir(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
            other => other?,
        };
        let mut owners = BTreeSet::new();
        for home in homes {
            let home = home?;
            if home.file_name() == user.as_str() {
                continue;
            }
            match home.metadata() {
                Ok(found) => drop(owners.insert(found.uid())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(owners)
    }

    /// Refuses a home that belongs to another system user. An empty one of the server's own goes to its user when it is used.
    pub fn check(&self, user: &UserName, owner: &RunAs) -> Result<(), ForeignHome> {
        let path = self.0.join(user.as_str());
        let Ok(found) = std::fs::symlink_metadata(&path).map(|found| found.uid()) else {
            return Ok(());
        };
        let is_ours = found == rustix::process::geteuid().as_raw();
        if found == owner.uid || (is_ours && is_without_files(&path, OWN_DEPTH)) {
            return Ok(());
        }
        Err(ForeignHome {
            user: user.clone(),
            path: path.canonicalize().unwrap_or(path),
            found,
            wanted: owner.uid,
            group: owner.gid,
        })
    }
}

fn is_without_files(folder: &Path, depth: u32) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return false;
    };
    let is_folder = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    entries.into_iter().all(|entry| {
        entry.is_ok_and(|entry| depth > 0 && is_folder(&entry) && is_without_files(&entry.path(), depth - 1))
    })
}
