//! What becomes of a deleted user's home: it is put aside, given to another user, or removed.

use std::ffi::CStr;
use std::io;
use std::path::{Path, PathBuf};

use paddlecloud_api::admin::Dispose;
use paddlecloud_api::error::{ErrorBody, ErrorName};
use rustix::fd::AsFd;
use rustix::fs::{self, AtFlags, Dir, FileType, Mode, OFlags};

use super::{App, internal};
use crate::auth::Caller;
use crate::users::{Account, Record};

impl App {
    /// Gives the place where the home is now; `None` if there is none. A home that an earlier try moved is left there.
    pub(super) async fn dispose_of_home(
        &self,
        record: &Record,
        dispose: Dispose,
        heir: Option<&Account>,
    ) -> Result<Option<String>, ErrorBody> {
        let home = self.storage.home_path(&record.name);
        let (target, owner) = match (dispose, heir) {
            (Dispose::Purge, _) => (None, None),
            (_, Some(heir)) => {
                // Makes sure that the heir has a home.
                let storage = self.storage.clone();
                let name = heir.name.clone();
                self.with_files(move |_| storage.home(&name).map(drop)).await?;
                let below = format!("from-{}", record.retired_name());
                let place = self.storage.home_path(&heir.name).join(below);
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
        let found = done.map_err(|_| internal())?.map_err(|error| {
            tracing::error!(user = %record.name, %error, "the home of a deleted user cannot be moved or removed");
            let problem = format!("the home of `{}` cannot be moved or removed: {error}", record.name);
            ErrorBody::new(ErrorName::Internal, problem)
                .with_hint("the account is disabled; repair the storage and delete it again")
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

fn move_home(home: &Path, target: &Path, owner: Option<(u32, u32)>) -> io::Result<bool> {
    match std::fs::rename(home, target) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(target.exists()),
        Err(error) => return Err(error),
    }
    if let Some((uid, gid)) = owner {
        let folder = fs::open(target, OFlags::DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
        give(&folder, uid, gid)?;
        chown(&folder, c"", uid, gid, AtFlags::EMPTY_PATH)?;
    }
    crate::durable::sync_entry(target)?;
    Ok(true)
}

fn remove_home(home: &PathBuf) -> io::Result<bool> {
    match std::fs::remove_dir_all(home) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Gives everything below a folder to another system user. No link is followed.
fn give(folder: &impl AsFd, uid: u32, gid: u32) -> io::Result<()> {
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
        if is_folder {
            let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
            give(&fs::openat(folder, name, flags, Mode::empty())?, uid, gid)?;
        }
        chown(folder, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}

fn chown(folder: &impl AsFd, name: &CStr, uid: u32, gid: u32, flags: AtFlags) -> io::Result<()> {
    let (uid, gid) = (fs::Uid::from_raw(uid), fs::Gid::from_raw(gid));
    Ok(fs::chownat(folder, name, Some(uid), Some(gid), flags)?)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
