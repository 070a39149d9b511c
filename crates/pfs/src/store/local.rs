//! Files in a local folder, or in a mounted file system (CephFS, NFS).
//!
//! `home/<user>` and `public` are below one root; each is confined on its own.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::{FileStore, NameRule, NewFile, ReadAt, StoreLimits};
use crate::entry::Mtime;
use crate::path::{Place, Space};
use crate::quota::Amount;
use crate::relpath::RelPath;
use crate::root::{DirEntry, Existing, FileAttributes, Meta, Root, RootError, StagedFile, Usage};
use crate::source::Source;

/// The default backend.
#[derive(Debug, Clone)]
pub struct LocalStore {
    root: Root,
    shown: String,
}

impl LocalStore {
    /// Opens a store in an existing folder.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, RootError> {
        Ok(Self {
            shown: folder.as_ref().display().to_string(),
            root: Root::open(folder)?,
        })
    }

    /// The confined folder of a space, created on first use.
    pub fn space(&self, space: &Space) -> Result<Root, RootError> {
        let folder = space.folder();
        match self.root.descend(&folder) {
            Err(RootError::NotFound(_)) => {
                self.root.make_dirs(&folder)?;
                self.root.descend(&folder)
            }
            other => other,
        }
    }
}

impl FileStore for LocalStore {
    fn limits(&self) -> StoreLimits {
        StoreLimits {
            name: RelPath::MAX_NAME,
            path: RelPath::MAX_LEN,
            depth: RelPath::MAX_LEN.div_ceil(2),
            names: NameRule::AnyBytes,
            without: "",
            links: true,
            moves_whole: true,
            stays_open: true,
            lists_times: true,
            own_name: "",
            writers: 1,
        }
    }

    fn name(&self) -> String {
        self.shown.clone()
    }

    fn stat(&self, place: &Place) -> Result<Meta, RootError> {
        self.space(&place.space)?.stat(&place.path)
    }

    fn list(&self, place: &Place) -> Result<Vec<DirEntry>, RootError> {
        self.space(&place.space)?.list(&place.path)
    }

    fn make_folder(&self, place: &Place) -> Result<(), RootError> {
        self.space(&place.space)?.make_dirs(&place.path)
    }

    fn remove(&self, place: &Place) -> Result<(), RootError> {
        self.space(&place.space)?.remove(&place.path)
    }

    fn remove_all(&self, place: &Place) -> Result<(), RootError> {
        self.space(&place.space)?.remove_all(&place.path)
    }

    fn rename(&self, from: &Place, to: &Place, existing: Existing) -> Result<(), RootError> {
        let source = self.space(&from.space)?;
        if from.space == to.space {
            return source.rename(&from.path, &to.path, existing);
        }
        source.rename_to(&from.path, &self.space(&to.space)?, &to.path, existing)
    }

    fn copy(&self, from: &Place, to: &Place, existing: Existing) -> Result<Amount, RootError> {
        self.space(&from.space)?
            .copy_all(&from.path, &self.space(&to.space)?, &to.path, existing)
    }

    fn open(&self, place: &Place) -> Result<Box<dyn ReadAt>, RootError> {
        let (file, meta) = self.space(&place.space)?.open_file(&place.path)?;
        Ok(Box::new(OpenFile { file, meta }))
    }

    fn begin(&self, place: &Place, attributes: FileAttributes) -> Result<Box<dyn NewFile>, RootError> {
        Ok(Box::new(NewLocalFile {
            staged: self.space(&place.space)?.stage_file(attributes)?,
            path: place.path.clone(),
        }))
    }

    fn usage(&self, place: &Place) -> Result<Usage, RootError> {
        let space = self.space(&place.space)?;
        match space.kept_usage(&place.path)? {
            Some(usage) => Ok(usage),
            None => space.usage(&place.path),
        }
    }

    fn staged(&self, space: &Space) -> Result<Usage, RootError> {
        let space = self.space(space)?;
        match space.kept_staged_usage()? {
            Some(usage) => Ok(usage),
            None => space.staged_usage(),
        }
    }

    fn folder(&self, space: &Space) -> Result<Option<Root>, RootError> {
        self.space(space).map(Some)
    }

    fn sweep(&self, space: &Space, age: Duration) -> Result<u64, RootError> {
        let now = Mtime::from(SystemTime::now());
        let cleared = crate::staging::expire(&self.space(space)?, age, now)?;
        Ok(cleared.gone.len() as u64 + cleared.strange)
    }

    /// CephFS stores the quota in the folder's attributes.
    fn quota(&self, space: &Space) -> Result<Option<u64>, RootError> {
        let limit = self
            .space(space)?
            .attribute_number(&RelPath::root(), c"ceph.quota.max_bytes")?;
        Ok(limit.filter(|limit| *limit > 0))
    }
}

/// An open local file, and its metadata when it was opened.
pub(super) struct OpenFile {
    pub file: File,
    pub meta: Meta,
}

impl OpenFile {
    /// Whether its last hard link was removed.
    #[cfg(unix)]
    fn is_nameless(&self) -> io::Result<bool> {
        use std::os::unix::fs::MetadataExt as _;
        Ok(self.file.metadata()?.nlink() == 0)
    }

    /// On this system an open file keeps its name.
    #[cfg(not(unix))]
    fn is_nameless(&self) -> io::Result<bool> {
        Ok(false)
    }
}

impl Source for OpenFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        Source::read_at(&self.file, buffer, offset)
    }

    fn len(&self) -> io::Result<u64> {
        Source::len(&self.file)
    }

    fn file(&self) -> Option<&File> {
        Some(&self.file)
    }
}

impl ReadAt for OpenFile {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn is_as_opened(&self) -> io::Result<bool> {
        let (before, now) = (self.meta.stamp, Meta::of_file(&self.file)?.stamp);
        if (before.size, before.mtime) != (now.size, now.mtime) {
            return Ok(false);
        }
        // Removing the last hard link changes only a file's ctime.
        Ok(before.ctime == now.ctime || self.is_nameless()?)
    }
}

struct NewLocalFile {
    staged: StagedFile,
    path: RelPath,
}

impl NewFile for NewLocalFile {
    fn append(&mut self, bytes: &[u8]) -> Result<(), RootError> {
        self.staged
            .write_all(bytes)
            .map_err(|error| RootError::io("write", &self.path, error))
    }

    fn publish(self: Box<Self>, existing: Existing) -> Result<Meta, RootError> {
        self.staged.publish(&self.path, existing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::conformance;

    #[test]
    fn the_local_folder_passes_the_suite() {
        let folder = tempfile::tempdir().unwrap();
        let store = LocalStore::open(folder.path()).unwrap();
        conformance::check(&store);
        let left = std::fs::read_dir(folder.path().join("home/suite"))
            .unwrap()
            .count();
        assert_eq!(left, 0, "the suite cleans up and no staging folder stays");
    }

    #[test]
    fn a_link_in_one_home_does_not_lead_to_another() {
        let folder = tempfile::tempdir().unwrap();
        let store = LocalStore::open(folder.path()).unwrap();
        let space = |user: &str| Space::Home(user.parse().unwrap());
        let bob = store.space(&space("bob")).unwrap();
        bob.write_file(&"secret".parse().unwrap(), b"x", Existing::Keep)
            .unwrap();
        store.space(&space("ann")).unwrap();
        std::os::unix::fs::symlink("../bob/secret", folder.path().join("home/ann/l")).unwrap();
        let place = Place {
            space: space("ann"),
            path: "l".parse().unwrap(),
        };
        assert!(store.open(&place).is_err_and(|error| error.is_not_found()));
        assert!(store.stat(&place).is_err_and(|error| error.is_not_found()));
    }

    #[test]
    fn a_home_that_is_a_link_is_not_entered() {
        let folder = tempfile::tempdir().unwrap();
        let store = LocalStore::open(folder.path()).unwrap();
        std::fs::create_dir(folder.path().join("home")).unwrap();
        std::os::unix::fs::symlink("/etc", folder.path().join("home/ann")).unwrap();
        let error = store.space(&Space::Home("ann".parse().unwrap())).unwrap_err();
        assert!(matches!(error, RootError::ThroughLink(_)), "{error}");
    }

    #[test]
    fn limits_are_described_and_a_violation_names_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let mut limits = LocalStore::open(folder.path()).unwrap().limits();
        assert_eq!(
            limits.to_string(),
            "names of 255 bytes, paths of 4095 bytes, 2048 folders deep"
        );
        (limits.name, limits.depth, limits.links) = (4, 2, false);
        (limits.names, limits.without) = (NameRule::Utf8NoControls, ":");
        (limits.own_name, limits.stays_open) = (".own", false);
        assert_eq!(
            limits.to_string(),
            "names of 4 bytes, paths of 4095 bytes, 2 folders deep; names are UTF-8 without control \
             characters, without `:`, not called `.own`; no symbolic links; reading ends when a file is replaced"
        );
        let violation = |path: &str| limits.check(&path.parse().unwrap()).unwrap_err().to_string();
        assert_eq!(
            violation("a:b"),
            "`a:b` cannot be kept in this storage: names cannot contain `:` here"
        );
        assert!(violation("a/b/c").ends_with("folders nest at most 2 deep here"));
        assert!(violation("abcde").ends_with("names have at most 4 bytes here"));
        assert!(violation("a/.own").ends_with("the storage itself uses the name `.own`"));
        assert!(violation(r"\xff").ends_with("names must be UTF-8 here"));
        assert!(limits.check(&"été".parse().unwrap()).is_err(), "five bytes");
        assert!(limits.check(&"a/b".parse().unwrap()).is_ok());
    }
}
