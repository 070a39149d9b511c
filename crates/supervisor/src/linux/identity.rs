//! Takes another system user's privileges: permanently before a program starts, or temporarily while working on files
//! that this user can tamper with.
//!
//! The caller chooses the user; [`super::account`] looks one up.

use std::io;
use std::marker::PhantomData;

use rustix::process::{Gid, Uid, getgroups};
use rustix::thread::{set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use paddlecloud_worker::protocol::RunAs;

/// Becomes this user permanently.
///
/// Changes the calling thread, which must be the only one.
pub fn become_user(user: &RunAs) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    set_no_new_privs(true)?;
    set_thread_groups(&gids(&user.groups))?;
    set_thread_res_gid(gid, gid, gid)?;
    Ok(set_thread_res_uid(uid, uid, uid)?)
}

/// Until the returned guard is dropped, this thread accesses files with the privileges of `user` and no others, and the
/// files it creates belong to that user.
///
/// Only this thread changes, and only its file access: it can still mount and signal. Threads started meanwhile inherit
/// the same privileges. Needs root. Guards nest.
///
/// The kernel clears the caller's parent-death signal when this begins and when it ends.
pub fn act_as(user: &RunAs) -> io::Result<ActingAs> {
    let guard = ActingAs {
        found: Rights::current()?,
        thread: PhantomData,
    };
    let rights = Rights {
        uid: user.uid,
        gid: user.gid,
        groups: gids(&user.groups),
    };
    rights.assume()?;
    Ok(guard)
}

/// Temporary privileges of another user for this thread; see [`act_as`].
#[must_use = "the rights are given back when this is dropped"]
#[derive(Debug)]
pub struct ActingAs {
    found: Rights,
    /// Makes the guard `!Send`: it must be dropped on its own thread.
    thread: PhantomData<*const ()>,
}

impl Drop for ActingAs {
    fn drop(&mut self) {
        if let Err(error) = self.found.assume() {
            // Otherwise this thread would continue as the wrong user.
            crate::trouble!("cannot drop another user's privileges: {error}");
            std::process::abort();
        }
    }
}

/// The ids that decide which files a thread may use.
#[derive(Debug)]
struct Rights {
    uid: u32,
    gid: u32,
    groups: Vec<Gid>,
}

impl Rights {
    fn current() -> io::Result<Self> {
        Ok(Self {
            uid: set_fs_uid(INVALID_ID),
            gid: set_fs_gid(INVALID_ID),
            groups: getgroups()?,
        })
    }

    fn assume(&self) -> io::Result<()> {
        set_thread_groups(&self.groups)?;
        set_fs_gid(self.gid);
        set_fs_uid(self.uid);
        let is_set = set_fs_uid(INVALID_ID) == self.uid && set_fs_gid(INVALID_ID) == self.gid;
        is_set
            .then_some(())
            .ok_or_else(|| io::ErrorKind::PermissionDenied.into())
    }
}

/// An invalid id: setting it changes nothing and returns the current id.
const INVALID_ID: u32 = u32::MAX;

/// Returns the previous id. A failure can only be detected by reading the id again.
fn set_fs_uid(uid: u32) -> u32 {
    // SAFETY: changes a number of this thread and touches no memory.
    unsafe { libc::setfsuid(uid) }.cast_unsigned()
}

fn set_fs_gid(gid: u32) -> u32 {
    // SAFETY: changes a number of this thread and touches no memory.
    unsafe { libc::setfsgid(gid) }.cast_unsigned()
}

fn gids(numbers: &[u32]) -> Vec<Gid> {
    numbers.iter().map(|number| Gid::from_raw(*number)).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;

    const TEST_ID: u32 = 31_337;

    fn test_user() -> RunAs {
        RunAs {
            uid: TEST_ID,
            gid: TEST_ID,
            groups: vec![TEST_ID],
        }
    }

    #[test]
    #[ignore = "needs root"]
    fn files_are_accessed_as_the_user_until_the_guard_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        fs::write(dir.path().join("secret"), "s").unwrap();
        fs::set_permissions(dir.path().join("secret"), fs::Permissions::from_mode(0o640)).unwrap();
        let before = getgroups().unwrap();
        let acting = act_as(&test_user()).unwrap();
        fs::write(dir.path().join("mine"), "m").unwrap();
        let refused = fs::read(dir.path().join("secret")).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        let elsewhere = dir.path().join("secret");
        let others = std::thread::scope(|scope| scope.spawn(|| fs::read(&elsewhere)).join().unwrap());
        assert!(others.is_err(), "who is started meanwhile begins the same way");
        drop(acting);
        let made = fs::metadata(dir.path().join("mine")).unwrap();
        assert_eq!((made.uid(), made.gid()), (TEST_ID, TEST_ID));
        assert_eq!(fs::read(dir.path().join("secret")).unwrap(), b"s");
        assert_eq!(getgroups().unwrap(), before);
    }

    #[test]
    #[ignore = "needs root"]
    fn an_inner_guard_restores_the_outer_identity() {
        let own = Rights::current().unwrap().uid;
        let outer = act_as(&test_user()).unwrap();
        let other = RunAs {
            uid: TEST_ID + 1,
            ..test_user()
        };
        let inner = act_as(&other).unwrap();
        assert_eq!(Rights::current().unwrap().uid, TEST_ID + 1);
        drop(inner);
        assert_eq!(Rights::current().unwrap().uid, TEST_ID);
        drop(outer);
        assert_eq!(Rights::current().unwrap().uid, own);
    }

    #[test]
    #[ignore = "needs root"]
    fn a_panic_restores_the_rights() {
        let own = Rights::current().unwrap().uid;
        let result = std::panic::catch_unwind(|| {
            let _acting = act_as(&test_user()).unwrap();
            panic!("on purpose");
        });
        assert!(result.is_err());
        assert_eq!(Rights::current().unwrap().uid, own);
    }
}
