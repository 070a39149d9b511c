//! The system users that own the homes in the storage folder. A new account gets no uid that already owns a home, and no account
//! gets a home that belongs to another uid. `homes` opens and creates homes.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use paddlecloud_core::names::UserName;
use paddlecloud_core::spec::shell_quote;
use paddlecloud_worker::protocol::RunAs;

/// A home that belongs to a system user other than its user's.
#[derive(Debug, thiserror::Error)]
#[error(
    "the home `{path}` of user `{user}` belongs to system user number {found}, not to number {expected}",
    path = .path.display()
)]
pub struct ForeignHome {
    pub user: UserName,
    pub path: PathBuf,
    pub found: u32,
    pub expected: u32,
    pub group: u32,
}

impl ForeignHome {
    /// The command that changes the owner of the home.
    pub fn command(&self) -> String {
        let (expected, group) = (self.expected, self.group);
        let path = shell_quote(&self.path.to_string_lossy());
        format!("chown -R --no-dereference {expected}:{group} {path}")
    }
}

/// The folder with all homes.
#[derive(Debug)]
pub(super) struct HomeOwners(PathBuf);

/// The folders that the server itself creates in a home, the outermost last.
pub const OWN_FOLDERS: [&str; 4] = [
    ".paddlecloud/packages",
    ".paddlecloud/runs",
    ".paddlecloud/latest",
    ".paddlecloud",
];

impl HomeOwners {
    pub fn in_storage(storage: &Path) -> HomeOwners {
        HomeOwners(storage.join("home"))
    }

    /// The numbers that own homes of others, including those that deleted users left.
    pub fn owners_except(&self, user: &UserName) -> io::Result<BTreeSet<u32>> {
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

    /// See [`claim_home`].
    pub fn claim(&self, user: &UserName, owner: &RunAs) -> Result<(), ForeignHome> {
        claim_home(&self.0.join(user.as_str()), user, owner)
    }
}

/// Refuses a home that belongs to another system user. An empty one of the server's own, made before its user had a system user,
/// is removed: its user gets a new one.
pub fn claim_home(home: &Path, user: &UserName, owner: &RunAs) -> Result<(), ForeignHome> {
    let Ok(found) = std::fs::symlink_metadata(home).map(|found| found.uid()) else {
        return Ok(());
    };
    let is_ours = found == rustix::process::geteuid().as_raw();
    if found == owner.uid || (is_ours && remove_empty(home)) {
        return Ok(());
    }
    Err(ForeignHome {
        user: user.clone(),
        path: home.canonicalize().unwrap_or_else(|_| home.to_owned()),
        found,
        expected: owner.uid,
        group: owner.gid,
    })
}

/// Removes a home that has nothing in it but empty folders of the server.
fn remove_empty(home: &Path) -> bool {
    for folder in OWN_FOLDERS {
        let _ = std::fs::remove_dir(home.join(folder));
    }
    std::fs::remove_dir(home).is_ok()
}
