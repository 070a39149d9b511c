//! Opens homes, and selects the user whose rights the server uses in them.
//!
//! A user who is mapped to a system user owns their home: the server creates it, changes its owner, and from then on works in it
//! with that user's rights only. What it creates is theirs, and a link they plant gains them nothing.

use std::fs::{DirBuilder, File};
use std::io;
use std::ops::Deref;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, fchown};
use std::path::PathBuf;

use jiff::Timestamp;
use paddlecloud_accounts::users::{Origin, Users};
use paddlecloud_accounts::{ForeignHome, OWN_FOLDERS, claim_home};
use paddlecloud_core::names::UserName;
use paddlecloud_pfs::durable;
use paddlecloud_pfs::root::{Durability, Existing};
use paddlecloud_pfs::{RelPath, Root};
use paddlecloud_supervisor::{ActingAs, act_as};
use paddlecloud_worker::protocol::RunAs;

use super::{Storage, StorageError, ours};

/// Why a user's home cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    #[error("cannot create the home `{path}` of user `{user}`", path = .path.display())]
    Make {
        user: UserName,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("user `{user}` has no access to their home `{path}`", path = .path.display())]
    Closed {
        user: UserName,
        path: PathBuf,
        #[source]
        source: StorageError,
    },
    #[error(transparent)]
    Foreign(ForeignHome),
}

impl HomeError {
    /// How to fix it.
    pub fn hint(&self) -> Option<String> {
        match self {
            HomeError::Make { .. } => None,
            HomeError::Closed { .. } => Some(
                "let all users enter the storage folder and `home` in it: `chmod 711` is enough".to_owned(),
            ),
            // Homes of other accounts do not stop the server.
            HomeError::Foreign(home) => Some(format!(
                "change its owner with `{}`, or correct `system_user` in the configuration",
                home.command()
            )),
        }
    }
}

/// Whose rights the server uses for a user's files; by default its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owner(Option<RunAs>);

impl Owner {
    /// The system user, unless it is the server's own.
    pub fn run_as(&self) -> Option<&RunAs> {
        self.0.as_ref()
    }

    /// Until the guard is dropped, this thread accesses files with the owner's rights. The guard is bound to its thread, so the
    /// compiler rejects holding it across an `.await`.
    pub fn act(&self) -> Result<Acting, StorageError> {
        let acting = self.0.as_ref().map(act_as).transpose();
        acting.map(Acting).map_err(StorageError::Disk)
    }
}

/// While it lives, a thread has a user's rights; empty if those are the server's own.
#[derive(Debug)]
#[must_use = "the thread acts as the user only while this lives"]
pub struct Acting(#[expect(dead_code, reason = "what counts is its drop")] Option<ActingAs>);

/// An opened home; while it lives, this thread acts as its owner.
#[derive(Debug)]
pub struct Home {
    root: Root,
    _acting: Acting,
}

impl Home {
    /// The same home with another durability.
    pub(crate) fn with_durability(mut self, durability: Durability) -> Home {
        self.root = self.root.with_durability(durability);
        self
    }

    /// The folder alone, for work on several threads: each must act as the [`Owner`] by itself.
    pub(crate) fn into_root(self) -> Root {
        self.root
    }
}

impl Deref for Home {
    type Target = Root;

    fn deref(&self) -> &Root {
        &self.root
    }
}

/// Renames whatever blocks one of the server's own folders. A job may have put a link or a file there, and its user could no
/// longer submit.
fn move_non_folder_aside(root: &Root, user: &UserName) -> Result<(), StorageError> {
    for folder in OWN_FOLDERS.iter().rev() {
        let folder: RelPath = folder.parse().expect("plain names");
        let is_in_the_way = match root.stat_link(&folder) {
            Ok(found) => !found.is_dir(),
            Err(_) => false,
        };
        if !is_in_the_way {
            continue;
        }
        let aside = format!("{folder}.replaced-{}", Timestamp::now().as_millisecond());
        let aside: RelPath = aside.parse().map_err(|_| StorageError::NotFound(aside.clone()))?;
        tracing::warn!(%user, %folder, %aside, "no folder where one of the server's own belongs: renamed");
        root.rename(&folder, &aside, Existing::Keep)?;
    }
    Ok(())
}

fn unusable(error: HomeError) -> StorageError {
    match error {
        HomeError::Foreign(home) => refuse(&home),
        other => StorageError::Disk(io::Error::other(other)),
    }
}

/// Logs what an administrator has to do; the user must not see the path.
fn refuse(home: &ForeignHome) -> StorageError {
    tracing::error!(
        user = %home.user, problem = %home, command = home.command(),
        "requests for this home are refused until the command has handed it over"
    );
    StorageError::Foreign(home.user.clone())
}

impl Storage {
    /// The same storage with homes of these users.
    pub fn with_users(mut self, users: Users) -> Storage {
        self.users = users;
        self
    }

    /// The accounts of the homes' owners.
    pub fn accounts(&self) -> &Users {
        &self.users
    }

    /// Creates the homes of all users with a system user, or reports which home cannot be used and why. An account of the
    /// database whose home belongs to another system user stops nobody else: only its own requests are refused.
    pub fn make_homes(&self) -> Result<(), HomeError> {
        let accounts = self.users.all();
        for account in accounts.iter().filter(|account| account.run_as.is_some()) {
            let user = &account.name;
            match self.make_home(user) {
                Err(HomeError::Foreign(home)) if account.origin == Origin::Database => {
                    refuse(&home);
                    continue;
                }
                other => other?,
            }
            self.try_home(user).map_err(|source| HomeError::Closed {
                user: user.clone(),
                path: self.home_path(user),
                source,
            })?;
        }
        Ok(())
    }

    /// Looks a home up as its owner, starting at the storage folder. Its own mode does not matter: a job may have changed it.
    fn try_home(&self, user: &UserName) -> Result<(), StorageError> {
        let storage = Root::open(&self.root)?;
        let home = format!("home/{user}").parse::<RelPath>();
        let home = home.map_err(|_| StorageError::NotFound(self.home_name(user)))?;
        let _acting = self.acting_as(user)?;
        storage.stat_link(&home)?;
        Ok(())
    }

    /// The path of a user's home on this machine.
    pub fn home_path(&self, user: &UserName) -> PathBuf {
        self.root.join("home").join(user.as_str())
    }

    pub fn owner(&self, user: &UserName) -> Owner {
        Owner(self.users.find(user).and_then(|account| account.run_as.clone()))
    }

    /// Until the guard is dropped, this thread accesses files as the user; see [`Owner::act`].
    pub(crate) fn acting_as(&self, user: &UserName) -> Result<Acting, StorageError> {
        self.owner(user).act()
    }

    /// Opens a user's home with the user's rights; creates it on first use.
    pub fn home(&self, user: &UserName) -> Result<Home, StorageError> {
        self.make_home(user).map_err(unusable)?;
        let root = Root::open(self.home_path(user))?;
        let acting = self.acting_as(user)?;
        move_non_folder_aside(&root, user)?;
        root.make_dirs(&ours(&[]))?;
        Ok(Home {
            root,
            _acting: acting,
        })
    }

    /// Creates the home of a user with their own system user, if it is missing: created by the store, it would belong to the
    /// server. A thread that already acts as the user may be unable to see the path; its home exists by then.
    pub(crate) fn ensure_home(&self, user: &UserName) -> Result<(), StorageError> {
        let owner = self.owner(user);
        let Some(owner) = owner.run_as() else {
            return Ok(());
        };
        match std::fs::symlink_metadata(self.home_path(user)) {
            Ok(found) if found.uid() == owner.uid => Ok(()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Ok(()),
            _ => self.make_home(user).map_err(unusable),
        }
    }

    fn make_home(&self, user: &UserName) -> Result<(), HomeError> {
        let (path, owner) = (self.home_path(user), self.owner(user));
        let made = match owner.run_as() {
            Some(owner) => {
                claim_home(&path, user, owner).map_err(HomeError::Foreign)?;
                match path.symlink_metadata() {
                    Ok(_) => Ok(()),
                    Err(_) => self.give_home(user, owner),
                }
            }
            None => durable::make_folders(&path, 0o777),
        };
        made.map_err(|source| HomeError::Make {
            user: user.clone(),
            path,
            source,
        })
    }

    /// Creates the home under another name and renames it once it belongs to its user, so that a partial home is never visible.
    fn give_home(&self, user: &UserName, owner: &RunAs) -> io::Result<()> {
        let draft = self.root.join(format!(".new-home-{user}"));
        DirBuilder::new().recursive(true).mode(0o700).create(&draft)?;
        fchown(File::open(&draft)?, Some(owner.uid), Some(owner.gid))?;
        let home = self.home_path(user);
        match std::fs::rename(&draft, &home) {
            // A concurrent request created the home and has already written to it.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => std::fs::remove_dir(&draft),
            other => other.and_then(|()| durable::sync_entry(&home)),
        }
    }
}
