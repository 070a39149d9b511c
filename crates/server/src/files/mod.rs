//! The file service: users' files below `/pfs/<datacenter>/`, confined, counted and checked.
//!
//! Plain blocking code over `paddlecloud_pfs`; `app` runs it where blocking is allowed. Every path is resolved below
//! the opened root of a space; the text of a path only chooses the space.

mod accounts;
mod backend;
mod content;
mod error;
mod fsck;
mod housekeeping;
mod list;
mod moving;
mod old;
mod packs;
mod shares;
mod spans;
mod tree;
mod unfinished;
mod uploads;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use paddlecloud_api::files::{OURS, below};
use paddlecloud_pfs::content::{Hint, HintStore, hash_file};
use paddlecloud_pfs::root::{Meta, Stamp};
use paddlecloud_pfs::store::{FileStore, LocalStore, OpenSpace, ReadAt};
use paddlecloud_pfs::{
    Access, Caller as PfsCaller, Digest, HomeOwner, Mtime, PfsPath, Place, RelPath, Role, RootError, Space,
};

pub use backend::StoreError;
pub use content::{ByteRange, Content, PIECE, Parts, PartsAsked, RangeError};
pub use error::FilesError;
pub use fsck::Fsck;
pub use housekeeping::Swept;
pub use list::Lister;
pub use old::{OldRangeIn, RangeSum, Settled};
pub use packs::{PackIn, PackOut};
pub use uploads::{ChunkIn, RangeIn};

use crate::auth::Caller;
use crate::config::Config;
use crate::packages::{Acting, Storage};
use accounts::Accounts;
use shares::Shares;
use uploads::Uploads;

/// More hints are not kept: they are a convenience, and memory is not endless.
const MOST_HINTS: usize = 1_000_000;

/// All users' files. Cheap to clone.
#[derive(Clone)]
pub struct Files(Arc<Inner>);

struct Inner {
    store: Arc<dyn FileStore>,
    /// Where uploads to a store that is no folder are gathered.
    spool: LocalStore,
    /// Whether the store is no folder.
    remote: bool,
    /// Whose homes are whose.
    owners: Storage,
    datacenter: String,
    accounts: Accounts,
    hints: HintStore,
    hints_file: PathBuf,
    untold: fsck::Untold,
    uploads: Uploads,
    old_writes: old::OldWrites,
    shares: Shares,
}

/// A path the caller may use, and the opened space that confines it.
#[derive(Clone)]
struct Reached {
    root: OpenSpace,
    place: Place,
    /// As it was asked for, for messages.
    shown: PfsPath,
}

impl Files {
    /// Opens the storage and what is remembered of it.
    pub fn open(config: &Config, owners: &Storage) -> Result<Files, StoreError> {
        let spool = LocalStore::open(&config.storage).map_err(StoreError::Folder)?;
        let store = backend::open(config, &spool)?;
        let folder = config.data.join("files");
        std::fs::create_dir_all(&folder)?;
        let hints_file = folder.join("hints");
        Ok(Files(Arc::new(Inner {
            remote: config.backend.is_remote(),
            store,
            spool,
            owners: owners.clone(),
            datacenter: config.datacenter.to_string(),
            accounts: Accounts::new(config),
            hints: HintStore::load(&hints_file),
            untold: fsck::Untold::default(),
            uploads: Uploads::open(&folder)?,
            old_writes: old::OldWrites::default(),
            shares: Shares::open(&folder)?,
            hints_file,
        })))
    }

    /// Keeps what is known for the next start. Losing it costs time, nothing else.
    pub fn save(&self) {
        if let Err(error) = self.0.hints.save(&self.0.hints_file) {
            tracing::warn!(%error, "what is known of files could not be saved");
        }
    }

    /// Lets the caller through to a path.
    fn reach(&self, caller: &Caller, path: &PfsPath, access: Access) -> Result<Reached, FilesError> {
        let asking = PfsCaller {
            user: caller.user.as_str(),
            datacenter: &self.0.datacenter,
            role: match caller.admin {
                true => Role::Administrator,
                false => Role::User,
            },
        };
        let place = path.admit(&asking, access)?.clone();
        let ours =
            place.path.parts().next() == Some(OURS.as_bytes()) && matches!(place.space, Space::Home(_));
        if access == Access::Write && ours {
            return Err(FilesError::Ours(path.clone()));
        }
        Ok(Reached {
            root: self.space(&place.space)?,
            place,
            shown: path.clone(),
        })
    }

    /// While the guard lives, this thread works in a home as its owner: what it makes is theirs, and a link they
    /// plant gains them nothing. The server's own files must not be touched meanwhile.
    fn act(&self, space: &Space) -> Result<Option<Acting>, FilesError> {
        let Space::Home(owner) = space else {
            return Ok(None);
        };
        if self.0.remote {
            // Only the spool is touched here, and that is the server's own.
            return Ok(None);
        }
        let not_found = || FilesError::NotFound(space.to_string());
        let user = owner.as_str().parse().map_err(|_| not_found())?;
        let acting = self.0.owners.acting_as(&user);
        acting
            .map(Some)
            .map_err(|error| FilesError::Owner(Box::new(error)))
    }

    /// A space, opened.
    fn space(&self, space: &Space) -> Result<OpenSpace, FilesError> {
        let opened = OpenSpace::open(&self.0.store, space, &self.0.spool);
        opened.map_err(|source| FilesError::Space {
            space: space.clone(),
            source,
        })
    }

    /// The spaces a caller may read: content in them need not be sent again.
    fn readable(&self, caller: &Caller) -> Result<Vec<(Space, OpenSpace)>, FilesError> {
        let spaces = [Space::Home(owner_of(caller)?), Space::Public];
        spaces
            .into_iter()
            .map(|space| Ok((space.clone(), self.space(&space)?)))
            .collect()
    }

    /// The digest of a file, read only when it is not known.
    fn digest(&self, reached: &Reached) -> Result<Option<Digest>, FilesError> {
        let file = match reached.root.open_file(&reached.place.path) {
            Err(RootError::IsAFolder(_) | RootError::NotAFile(_)) => return Ok(None),
            other => other.map_err(reached.failed())?,
        };
        let meta = file.meta();
        if let Some(known) = self.0.hints.digest_of(&reached.place, &meta.stamp) {
            return Ok(Some(known));
        }
        let began = Mtime::from(SystemTime::now());
        let digest = hash_file(&*file).map_err(|error| FilesError::Disk(error, "read"))?;
        if meta.stamp.is_settled(began) {
            self.remember(&reached.place, meta.stamp, digest);
        }
        Ok(Some(digest))
    }

    fn remember(&self, place: &Place, stamp: Stamp, digest: Digest) {
        if self.0.hints.len() < MOST_HINTS {
            self.0.hints.record(Hint {
                place: place.clone(),
                stamp,
                digest,
            });
        }
    }
}

impl Reached {
    /// Names the path that was asked for in an error of the storage.
    fn failed(&self) -> impl Fn(RootError) -> FilesError {
        let shown = self.shown.clone();
        move |source| FilesError::Storage {
            path: Box::new(shown.clone()),
            source,
        }
    }

    /// Something below it.
    fn below(&self, path: &RelPath) -> Result<Reached, FilesError> {
        Ok(Reached {
            root: self.root.clone(),
            place: Place {
                space: self.place.space.clone(),
                path: self
                    .place
                    .path
                    .join(path)
                    .map_err(|error| self.failed()(error.into()))?,
            },
            shown: below(&self.shown, path)
                .map_err(|_| FilesError::NotFound(format!("{}/{path}", self.shown)))?,
        })
    }

    fn stat(&self) -> Result<Meta, FilesError> {
        self.root.stat(&self.place.path).map_err(self.failed())
    }

    fn open_file(&self) -> Result<Arc<dyn ReadAt>, FilesError> {
        self.root.open_file(&self.place.path).map_err(self.failed())
    }

    fn stat_link(&self) -> Result<Meta, FilesError> {
        self.root.stat_link(&self.place.path).map_err(self.failed())
    }

    /// What is there now; `None` for nothing.
    fn stat_if_there(&self) -> Result<Option<Meta>, FilesError> {
        match self.root.stat_link(&self.place.path) {
            Ok(meta) => Ok(Some(meta)),
            Err(RootError::NotFound(_) | RootError::NotAFolder(_)) => Ok(None),
            Err(error) => Err(self.failed()(error)),
        }
    }

    /// Refuses a home or the public folder itself.
    fn not_the_space(&self) -> Result<(), FilesError> {
        match self.place.path.is_root() {
            true => Err(FilesError::SpaceItself(self.shown.clone())),
            false => Ok(()),
        }
    }
}

fn owner_of(caller: &Caller) -> Result<HomeOwner, FilesError> {
    let owner = caller.user.as_str().parse();
    owner.map_err(|_| FilesError::NotFound(format!("the home of {}", caller.user)))
}
