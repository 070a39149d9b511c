//! Disposes of a deleted user's home: moves it aside, gives it to another user, or removes it.

use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use paddlecloud_accounts::auth::Caller;
use paddlecloud_accounts::users::Account;
use paddlecloud_api::admin::Dispose;
use paddlecloud_pfs::{RelPath, Root, RootError};
use paddlecloud_store::Record;
use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::{App, AppError};

const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl App {
    /// Returns the new path of the home, or `None` if it does not exist. A home that an earlier attempt moved stays where it is.
    pub(super) async fn dispose_of_home(
        &self,
        record: &Record,
        dispose: Dispose,
        heir: Option<&Account>,
    ) -> Result<Option<String>, AppError> {
        let home = self.storage.home_path(&record.name);
        let (target, owner) = match (dispose, heir) {
            (Dispose::Purge, _) => (None, None),
            (_, Some(heir)) => {
                // Makes sure that the heir has a home.
                let storage = self.storage.clone();
                let name = heir.name.clone();
                self.with_files(move |_| storage.home(&name).map(drop)).await?;
                let place = self.storage.home_path(&heir.name).join(record.given_folder());
                (
                    Some(place),
                    heir.run_as.as_ref().map(|run_as| (run_as.uid, run_as.gid)),
                )
            }
            (_, None) => (Some(self.storage.home_path(&record.retired_name())), None),
        };
        let moved = target.clone();
        let work = move || match moved {
            Some(target) => move_home(&home, &target, owner),
            None => remove_home(&home),
        };
        let done = tokio::task::spawn_blocking(work).await;
        let found = done.map_err(|_| AppError::Internal)?.map_err(|error| {
            tracing::error!(user = %record.name, %error, "the home of a deleted user cannot be moved or removed");
            AppError::HomeStays {
                user: record.name.clone(),
                problem: error,
            }
        })?;
        if let Some(heir) = heir {
            self.files.home_changed(&Caller {
                user: heir.name.clone(),
                scopes: heir.scopes,
            });
        }
        Ok(target.filter(|_| found).map(|path| path.display().to_string()))
    }
}

/// Moves a home that is no longer in use. The owner changes before the move, because others can access the new place.
fn move_home(home: &Path, target: &Path, owner: Option<(u32, u32)>) -> io::Result<bool> {
    if let Some((uid, gid)) = owner {
        match fs::open(home, FOLDER, Mode::empty()) {
            Ok(folder) => give(folder, uid, gid)?,
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    match std::fs::rename(home, target) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(target.exists()),
        Err(error) => return Err(error),
    }
    paddlecloud_pfs::durable::sync_entry(target)?;
    Ok(true)
}

/// How long the launchers of jobs that have ended may still write to a home.
const LAST_WRITES: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(100);

/// Removes a home. Its folders may be nested deeper than a stack or a path allows. A folder that is filled meanwhile is
/// emptied again, up to a limit.
fn remove_home(home: &Path) -> io::Result<bool> {
    let (Some(folder), Some(name)) = (home.parent(), home.file_name()) else {
        return Err(io::Error::other("it is not a user's folder"));
    };
    let name = RelPath::from_bytes(name.as_bytes()).map_err(io::Error::other)?;
    let remove = || Root::open(folder).and_then(|root| root.remove_all(&name));
    let give_up = Instant::now() + LAST_WRITES;
    let mut removed = remove();
    while is_written_to(home, &removed) && Instant::now() < give_up {
        std::thread::sleep(PAUSE);
        removed = remove();
    }
    match removed {
        Ok(()) => Ok(true),
        Err(RootError::NotFound(_)) => Ok(false),
        Err(error) => Err(io::Error::other(error)),
    }
}

/// Whether a removal failed because files appeared or vanished meanwhile.
fn is_written_to(home: &Path, removed: &Result<(), RootError>) -> bool {
    match removed {
        Err(RootError::NotEmpty(_)) => true,
        Err(RootError::Io { source, .. }) => source.kind() == io::ErrorKind::DirectoryNotEmpty,
        Err(RootError::NotFound(_)) => home.exists(),
        _ => false,
    }
}

/// A parent of the current folder, with its remaining subfolders.
struct Above {
    identity: (u64, u64),
    left: Vec<CString>,
}

/// Changes the owner of a folder and everything below it. Follows no links, and keeps only one folder open at a time.
fn give(top: OwnedFd, uid: u32, gid: u32) -> io::Result<()> {
    let mut above = Vec::new();
    let mut folder = top;
    let mut left = give_entries(&folder, uid, gid)?;
    loop {
        if let Some(name) = left.pop() {
            let below = fs::openat(&folder, &name, FOLDER, Mode::empty())?;
            above.push(Above {
                identity: identity(&folder)?,
                left,
            });
            folder = below;
            left = give_entries(&folder, uid, gid)?;
            continue;
        }
        let Some(parent) = above.pop() else {
            return Ok(());
        };
        folder = fs::openat(&folder, c"..", FOLDER, Mode::empty())?;
        if identity(&folder)? != parent.identity {
            return Err(io::Error::other("a folder was moved meanwhile"));
        }
        left = parent.left;
    }
}

/// Changes the owner of a folder and the files in it. Returns the names of its subfolders.
fn give_entries(folder: &OwnedFd, uid: u32, gid: u32) -> io::Result<Vec<CString>> {
    let mut folders = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let is_folder = match entry.file_type() {
            FileType::Unknown => {
                let stat = fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
                FileType::from_raw_mode(stat.st_mode) == FileType::Directory
            }
            kind => kind == FileType::Directory,
        };
        match is_folder {
            true => folders.push(name.to_owned()),
            false => chown(folder, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?,
        }
    }
    chown(folder, c"", uid, gid, AtFlags::EMPTY_PATH)?;
    Ok(folders)
}

fn identity(folder: &OwnedFd) -> io::Result<(u64, u64)> {
    let stat = fs::fstat(folder)?;
    Ok((stat.st_dev, stat.st_ino))
}

fn chown(folder: &OwnedFd, name: &CStr, uid: u32, gid: u32, flags: AtFlags) -> io::Result<()> {
    let (uid, gid) = (fs::Uid::from_raw(uid), fs::Gid::from_raw(gid));
    Ok(fs::chownat(folder, name, Some(uid), Some(gid), flags)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_that_is_still_written_to_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("ann");
        let spool = home.join("runs/j_1/spool");
        std::fs::create_dir_all(&spool).unwrap();
        let until = Instant::now() + Duration::from_millis(500);
        let writes = std::thread::spawn(move || {
            let mut number = 0;
            while Instant::now() < until {
                number += 1;
                let _ = std::fs::create_dir_all(&spool);
                let _ = std::fs::write(spool.join(number.to_string()), "x");
            }
        });
        while !writes.is_finished() {
            remove_home(&home).unwrap();
        }
        writes.join().unwrap();
        remove_home(&home).unwrap();
        assert!(!home.exists());
    }

    #[test]
    fn a_home_is_moved_once_and_its_links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (home, target) = (folder.path().join("ann"), folder.path().join("kept"));
        std::fs::create_dir_all(home.join("a/b")).unwrap();
        std::fs::write(home.join("a/b/file"), "x").unwrap();
        std::os::unix::fs::symlink("/", home.join("a/root")).unwrap();
        let own = (
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        );
        assert!(move_home(&home, &target, Some(own)).unwrap());
        assert_eq!(std::fs::read(target.join("a/b/file")).unwrap(), b"x");
        assert!(
            move_home(&home, &target, Some(own)).unwrap(),
            "it is there already"
        );
        assert!(remove_home(&target).unwrap());
        assert!(!remove_home(&target).unwrap());
    }

    #[test]
    fn a_home_may_be_deeper_than_any_path_is_long() {
        const DEPTH: usize = 5000;
        let folder = tempfile::tempdir().unwrap();
        let (home, target) = (folder.path().join("ann"), folder.path().join("kept"));
        std::fs::create_dir(&home).unwrap();
        let mut deepest = fs::open(&home, FOLDER, Mode::empty()).unwrap();
        for _ in 0..DEPTH {
            fs::mkdirat(&deepest, c"d", Mode::RWXU).unwrap();
            fs::mkdirat(&deepest, c"e", Mode::RWXU).unwrap();
            deepest = fs::openat(&deepest, c"d", FOLDER, Mode::empty()).unwrap();
        }
        let own = (
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        );
        assert!(move_home(&home, &target, Some(own)).unwrap());
        assert!(remove_home(&target).unwrap());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
