//! Packages that are used in place: the user's own folders, or public ones.

use paddlecloud_core::names::UserName;
use paddlecloud_pfs::RelPath;

use crate::homes::{PackageLocation, Storage, StorageError, ours};

impl Storage {
    /// Checks that a package used in place is a folder that the caller may read.
    pub fn check_folder(&self, user: &UserName, path: &str) -> Result<PackageLocation, StorageError> {
        let place = self.place(user, path)?;
        if let PackageLocation::Home(below) = &place
            && self.is_in_own_folder(user, below)?
            && self.run_behind(user, path)?.is_none()
        {
            return Err(StorageError::Ours(path.to_owned()));
        }
        let meta = match &place {
            PackageLocation::Home(below) => self.home(user)?.stat(below),
            PackageLocation::Public(below) => self.public()?.stat(below),
        };
        match meta {
            Ok(meta) if meta.is_dir() => Ok(place),
            Ok(_) => Err(StorageError::NotAFolder(path.to_owned())),
            Err(error) if error.is_not_found() => Err(StorageError::NotFound(path.to_owned())),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a folder of the home is, after following links, inside the server's own folder.
    fn is_in_own_folder(&self, user: &UserName, below: &RelPath) -> Result<bool, StorageError> {
        let real = self.home(user)?.real_folder(below);
        // A link that cannot be resolved is reported where it is used.
        Ok(real.unwrap_or_else(|_| below.clone()).is_within(&ours(&[])))
    }
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
    fn no_link_makes_a_package_of_the_servers_own_files() {
        let (_folder, storage, me) = storage();
        storage.home(&me).unwrap();
        let home = storage.home_path(&me);
        std::fs::create_dir_all(home.join(".paddlecloud/runs/j/job/sub")).unwrap();
        std::os::unix::fs::symlink(".", home.join("all")).unwrap();
        std::os::unix::fs::symlink(".paddlecloud/runs/j/job", home.join("job")).unwrap();
        for path in [".paddlecloud/runs/j", "all/.paddlecloud/runs/j/job", "job/sub"] {
            let refused = storage.check_folder(&me, &format!("/pfs/local/home/me/{path}"));
            assert!(
                matches!(refused, Err(StorageError::Ours(_))),
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
            Err(StorageError::NotFound(_))
        ));
    }
}
