//! Users' folders, the packages they uploaded, and the folder each run works in.
//!
//! ```text
//! <storage>/.lock                           held by the one server that uses all this
//! <storage>/public/                         read by all
//! <storage>/home/<user>/                    what the user sees as /pfs/<datacenter>/home/<user>
//!   job_word_emb -> .paddlecloud/latest/…   an uploaded folder appears under its own name
//!   .paddlecloud/packages/<id>/, <id>.json  uploaded once, never changed
//!   .pfs-staging/package-<id>/              what came of one before the stream broke
//!   .paddlecloud/runs/<job id>/             one run: its copy of the package, its output
//!   .paddlecloud/latest/<package>           leads to the latest run; inside a worker to its own
//! ```
//!
//! All of it is reached through an opened root, so no link a job plants leads anywhere else, and in the name of
//! the home's owner.

mod error;
mod homes;
mod links;
mod lock;
mod receive;
mod runs;
#[cfg(test)]
mod testing;
mod turns;
mod unfinished;
mod usage;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use paddlecloud_core::names::{DatacenterName, UserName};
use paddlecloud_pfs::{Access, Caller, PfsPath, RelPath, Role, Root, Space};

use crate::config::SystemUsers;
use crate::durable;

pub use error::PackageError;
pub use homes::{Acting, Home, HomeError, Owner};
pub use lock::{InUse, StorageLock};
pub use receive::{MOST_LIST, Receiver, Wanted};
pub use runs::{RunFolders, WorkDir};
pub use turns::Turn;
use turns::Turns;
pub use usage::{Condemned, Latest, Pruned, Removal};

/// The folder of ours in every home.
const OURS: &str = ".paddlecloud";

/// Where all users' files lie on this machine.
#[derive(Debug, Clone)]
pub struct Storage {
    root: PathBuf,
    datacenter: DatacenterName,
    owners: Arc<SystemUsers>,
    turns: Turns,
}

/// A package as a job names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Below the caller's home.
    Home(RelPath),
    /// Below the folder that all may read.
    Public(RelPath),
}

impl Storage {
    /// Makes the folders that are always there.
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
            owners: Arc::default(),
            turns: Turns::default(),
        })
    }

    /// Who waits for whom in this user's home.
    pub fn turn(&self, user: &UserName) -> Arc<Turn> {
        self.turns.of(user)
    }

    pub fn path(&self) -> &Path {
        &self.root
    }

    pub fn public_path(&self) -> PathBuf {
        self.root.join("public")
    }

    fn public(&self) -> Result<Root, PackageError> {
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

    /// Where a path leads for this user, by the file service's own rule.
    ///
    /// Whatever is not the caller's own or public is "not found": nobody learns what others have.
    pub fn place(&self, user: &UserName, path: &str) -> Result<Place, PackageError> {
        let not_found = || PackageError::NotFound(path.to_owned());
        let caller = Caller {
            user: user.as_str(),
            datacenter: self.datacenter.as_str(),
            role: Role::User,
        };
        let path: PfsPath = path.parse().map_err(|_| not_found())?;
        let place = path.admit(&caller, Access::Read).map_err(|_| not_found())?;
        Ok(match place.space {
            Space::Home(_) => Place::Home(place.path.clone()),
            Space::Public => Place::Public(place.path.clone()),
        })
    }

    /// Checks that a package used in place is a folder the caller may read.
    pub fn check_folder(&self, user: &UserName, path: &str) -> Result<Place, PackageError> {
        let place = self.place(user, path)?;
        if let Place::Home(below) = &place
            && self.leads_to_ours(user, below)?
            && self.run_behind(user, path)?.is_none()
        {
            return Err(PackageError::Ours(path.to_owned()));
        }
        let meta = match &place {
            Place::Home(below) => self.home(user)?.stat(below),
            Place::Public(below) => self.public()?.stat(below),
        };
        match meta {
            Ok(meta) if meta.is_dir() => Ok(place),
            Ok(_) => Err(PackageError::NotAFolder(path.to_owned())),
            Err(error) if error.is_not_found() => Err(PackageError::NotFound(path.to_owned())),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a folder of the user's home lies, links followed, in what the server keeps there.
    fn leads_to_ours(&self, user: &UserName, below: &RelPath) -> Result<bool, PackageError> {
        let real = self.home(user)?.real_folder(below);
        // What cannot be followed is told by whoever goes there.
        Ok(real.unwrap_or_else(|_| below.clone()).is_within(&ours(&[])))
    }
}

/// A folder that all system users may enter, whatever the server's own habits are. What an operator has set stays.
fn make_open(path: &Path) -> std::io::Result<()> {
    match std::fs::create_dir(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Ok(()),
        other => other?,
    }
    std::fs::set_permissions(path, Permissions::from_mode(0o755))?;
    durable::sync_entry(path)
}

/// A path of fixed parts; the parts are ours and always valid.
fn ours(parts: &[&str]) -> RelPath {
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
            Place::Home("a/b".parse().unwrap())
        );
        assert_eq!(home("/pfs/local/user/me//a/"), Place::Home("a".parse().unwrap()));
        assert_eq!(home("/pfs/public/x"), Place::Public("x".parse().unwrap()));
        assert_eq!(home("/pfs/local/public/x"), Place::Public("x".parse().unwrap()));
    }

    #[test]
    fn whatever_belongs_to_others_is_not_found() {
        let (_folder, storage, me) = storage();
        for path in [
            "/pfs/local/home/you/a",
            "/pfs/other/home/me/a",
            "/etc/passwd",
            "/pfs/local/home/me/../you",
            "/pfs",
            "",
        ] {
            assert!(
                matches!(storage.place(&me, path), Err(PackageError::NotFound(_))),
                "{path}"
            );
        }
    }

    #[test]
    fn no_link_makes_a_package_of_what_the_server_keeps() {
        let (_folder, storage, me) = storage();
        storage.home(&me).unwrap();
        let home = storage.home_path(&me);
        std::fs::create_dir_all(home.join(".paddlecloud/runs/j/job/sub")).unwrap();
        std::os::unix::fs::symlink(".", home.join("all")).unwrap();
        std::os::unix::fs::symlink(".paddlecloud/runs/j/job", home.join("job")).unwrap();
        for path in [".paddlecloud/runs/j", "all/.paddlecloud/runs/j/job", "job/sub"] {
            let refused = storage.check_folder(&me, &format!("/pfs/local/home/me/{path}"));
            assert!(
                matches!(refused, Err(PackageError::Ours(_))),
                "{path}: {refused:?}"
            );
        }
    }

    #[test]
    fn a_link_out_of_the_home_is_not_a_package() {
        let (_folder, storage, me) = storage();
        storage.home(&me).unwrap();
        std::os::unix::fs::symlink("/etc", storage.home_path(&me).join("trap")).unwrap();
        assert!(matches!(
            storage.check_folder(&me, "/pfs/local/home/me/trap"),
            Err(PackageError::NotFound(_))
        ));
    }
}
