//! Users' homes: where they are, who owns them, and which paths point into them.
//!
//! ```text
//! <storage>/.lock                           held by the one server that uses all this
//! <storage>/public/                         readable by all
//! <storage>/home/<user>/                    what the user sees as /pfs/<datacenter>/home/<user>
//!   job_word_emb -> .paddlecloud/latest/…   an uploaded folder appears under its own name
//!   .paddlecloud/packages/<id>/, <id>.json  uploaded once, never changed
//!   .pfs-staging/package-<id>/              a package that is being uploaded
//!   .paddlecloud/runs/<job id>/             one run: its copy of the package, its output
//!   .paddlecloud/latest/<package>           leads to the latest run; inside a worker to its own
//! ```
//!
//! All access goes through an opened root, so no link that a job plants leads elsewhere, and uses the rights of the home's owner.

mod error;
mod lock;
mod locks;
mod owner;
mod received;
mod removal;
#[cfg(test)]
pub(crate) mod testing;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use paddlecloud_accounts::users::Users;
use paddlecloud_core::names::{DatacenterName, UserName};
use paddlecloud_pfs::durable;
use paddlecloud_pfs::{Access, Caller, CallerRole, PfsPath, RelPath, Root, Space};

pub use error::StorageError;
pub use lock::{InUse, StorageLock};
use locks::AllLocks;
pub use locks::UserLocks;
pub use owner::{Acting, Home, HomeError, Owner};
pub use received::ReceivedFiles;
pub(crate) use removal::remove;
pub use removal::{Pruned, Removal};

/// The server's own folder in every home.
pub(crate) const OURS: &str = ".paddlecloud";

/// The storage folder on this machine, with all users' files.
#[derive(Debug, Clone)]
pub struct Storage {
    root: PathBuf,
    datacenter: DatacenterName,
    users: Users,
    locks: AllLocks,
    received: ReceivedFiles,
}

/// A package as a job names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PackageLocation {
    /// Below the caller's home.
    Home(RelPath),
    /// Below the public folder.
    Public(RelPath),
}

impl Storage {
    /// Opens the storage and creates its fixed folders.
    pub fn open(root: &Path, datacenter: DatacenterName) -> std::io::Result<Storage> {
        if let Some(above) = root.parent() {
            durable::make_folders(above, 0o777)?;
        }
        for folder in [root, &root.join("home"), &root.join("public")] {
            make_open(folder)?;
        }
        Ok(Storage {
            root: root.canonicalize()?,
            datacenter,
            users: Users::default(),
            locks: AllLocks::default(),
            received: ReceivedFiles::default(),
        })
    }

    /// The locks of this user's home.
    pub fn locks(&self, user: &UserName) -> Arc<UserLocks> {
        self.locks.of(user)
    }

    /// The files that this process wrote into staged packages.
    pub fn received(&self) -> &ReceivedFiles {
        &self.received
    }

    pub fn path(&self) -> &Path {
        &self.root
    }

    pub fn public_path(&self) -> PathBuf {
        self.root.join("public")
    }

    /// Opens the public folder.
    pub fn public(&self) -> Result<Root, StorageError> {
        Ok(Root::open(self.public_path())?)
    }

    /// `/pfs/<datacenter>/home/<user>`.
    pub fn home_name(&self, user: &UserName) -> String {
        format!("/pfs/{}/home/{user}", self.datacenter)
    }

    /// `/pfs/<datacenter>/public`.
    pub fn public_name(&self) -> String {
        format!("/pfs/{}/public", self.datacenter)
    }

    /// Resolves a path for this user, by the rules of the file service.
    ///
    /// The answer to a path in another home is the same whether or not it exists, so that users cannot probe each other's files.
    pub fn place(&self, user: &UserName, path: &str) -> Result<PackageLocation, StorageError> {
        let caller = Caller {
            user: user.as_str(),
            datacenter: self.datacenter.as_str(),
            role: CallerRole::User,
        };
        let not_found = |_| StorageError::NotFound(path.to_owned());
        let path: PfsPath = path.parse().map_err(not_found)?;
        let place = path.admit(&caller, Access::Read)?;
        Ok(match place.space {
            Space::Home(_) => PackageLocation::Home(place.path.clone()),
            Space::Public => PackageLocation::Public(place.path.clone()),
        })
    }

    /// All users whose home has a folder of the server.
    pub fn users(&self) -> Result<Vec<UserName>, StorageError> {
        let homes = std::fs::read_dir(self.path().join("home")).map_err(StorageError::Disk)?;
        let used = homes.flatten().filter(|home| home.path().join(OURS).is_dir());
        let names = used.map(|home| home.file_name());
        Ok(names.filter_map(|name| name.to_str()?.parse().ok()).collect())
    }
}

/// Creates a folder that all system users may enter, whatever the server's umask is. The mode of an existing folder stays.
fn make_open(path: &Path) -> std::io::Result<()> {
    match std::fs::create_dir(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Ok(()),
        other => other?,
    }
    std::fs::set_permissions(path, Permissions::from_mode(0o755))?;
    durable::sync_entry(path)
}

/// A path below the server's own folder, of fixed and valid parts.
pub(crate) fn ours(parts: &[&str]) -> RelPath {
    let path = [&[OURS], parts].concat().join("/");
    path.parse().expect("parts of ours are plain names")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn storage() -> (tempfile::TempDir, Storage, UserName) {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::open(folder.path(), "local".parse().unwrap()).unwrap();
        (folder, storage, "me".parse().unwrap())
    }

    #[test]
    fn both_spellings_of_home_and_public_are_understood() {
        let (_folder, storage, me) = storage();
        let home = |path: &str| storage.place(&me, path).unwrap();
        assert_eq!(
            home("/pfs/local/home/me/a/b"),
            PackageLocation::Home("a/b".parse().unwrap())
        );
        assert_eq!(
            home("/pfs/local/user/me//a/"),
            PackageLocation::Home("a".parse().unwrap())
        );
        assert_eq!(
            home("/pfs/public/x"),
            PackageLocation::Public("x".parse().unwrap())
        );
        assert_eq!(
            home("/pfs/local/public/x"),
            PackageLocation::Public("x".parse().unwrap())
        );
    }

    #[test]
    fn a_path_outside_the_users_home_is_refused_with_that_home() {
        let (_folder, storage, me) = storage();
        let refused = |path: &str| storage.place(&me, path).unwrap_err().to_string();
        assert_eq!(
            refused("/pfs/local/home/you/a"),
            "`/pfs/local/home/you/a` is not in your home, `/pfs/local/home/me`"
        );
        assert_eq!(
            refused("/pfs/other/home/me/a"),
            "`/pfs/other/home/me/a` does not exist: the only datacenter here is `local`"
        );
        for path in ["/etc/passwd", "/pfs/local/home/me/../you", "/pfs", ""] {
            assert!(
                matches!(storage.place(&me, path), Err(StorageError::NotFound(_))),
                "{path}"
            );
        }
    }
}
