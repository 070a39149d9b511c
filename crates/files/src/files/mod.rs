//! The file service: users' files below `/pfs/<datacenter>/`, confined, counted and checked.
//!
//! Blocking code over `paddlecloud_pfs`; `app` runs it where blocking is allowed. Every path is resolved below the opened root of
//! a space; the text of a path only chooses the space. Whether a path belongs to the server's own part of a home depends on where
//! it really leads.

mod backend;
mod content;
mod digests;
mod error;
mod fsck;
mod housekeeping;
mod list;
mod moving;
mod old;
mod packs;
mod shares;
mod sound;
mod space_usage;
mod takes;
#[cfg(test)]
mod testing;
mod tree;
mod unfinished;
mod uploads;

use std::sync::Arc;

use paddlecloud_accounts::auth::{Action, Caller};
use paddlecloud_api::files::{OURS, below};
use paddlecloud_core::access::Scope;
use paddlecloud_pfs::content::FileIndex;
use paddlecloud_pfs::pack::StagedTree;
use paddlecloud_pfs::package::PackageId;
use paddlecloud_pfs::root::{Meta, Stamp};
use paddlecloud_pfs::staging::in_package;
use paddlecloud_pfs::store::{FileStore, LocalStore, OpenSpace, ReadAt};
use paddlecloud_pfs::{
    Access, Caller as PfsCaller, CallerRole, Digest, Mtime, PfsPath, Place, RelPath, RootError, Space,
};
use paddlecloud_store::SqliteIndex;

pub use backend::{Backend, FileSettings, FileStoreError};
pub use content::{ByteRange, Content, Opened, RequestedBytes};
pub use error::FilesError;
pub use fsck::Fsck;
pub use housekeeping::KEEP_UNFINISHED;
pub use list::{ListQuery, Listed, Lister};
pub use old::{OLD_RANGES, RangeSum};
pub use packs::{PackIn, PackOut, PackStored};
pub use space_usage::MEASURED_AGAIN;
pub use takes::Takes;
pub use tree::{DigestMode, RemovedPath, StatOf};
pub use uploads::{ChunkIn, RangeIn};

use crate::homes::{Acting, Storage};
use crate::packages::staged_place;
use shares::Shares;
use space_usage::SpaceUsage;
use uploads::Uploads;

/// All users' files. Cheap to clone.
#[derive(Clone)]
pub struct Files(Arc<Inner>);

struct Inner {
    store: Arc<dyn FileStore>,
    /// Where uploads to a remote store are staged.
    spool: LocalStore,
    /// Whether the store is remote rather than a folder.
    remote: bool,
    /// The owners of homes.
    owners: Storage,
    datacenter: String,
    usage: SpaceUsage,
    index: Box<dyn FileIndex>,
    uploads: Uploads,
    shares: Shares,
}

/// A path that the caller may use, and the opened space that confines it.
#[derive(Clone)]
struct Reached {
    root: OpenSpace,
    place: Place,
    /// The requested path, for messages.
    shown: PfsPath,
}

impl Files {
    /// Opens the store, the file index and the list of links.
    pub fn open(settings: &FileSettings<'_>, owners: &Storage) -> Result<Files, FileStoreError> {
        let spool = LocalStore::open(settings.storage).map_err(FileStoreError::Folder)?;
        let store = backend::open(settings, &spool)?;
        let folder = settings.data.join("files");
        std::fs::create_dir_all(&folder)?;
        Ok(Files(Arc::new(Inner {
            remote: settings.backend.is_remote(),
            store,
            spool,
            owners: owners.clone(),
            datacenter: settings.datacenter.to_string(),
            usage: SpaceUsage::new(owners.accounts().clone()),
            index: Box::new(SqliteIndex::open(&folder.join("index.db"))?),
            uploads: Uploads::default(),
            shares: Shares::open(&folder, owners.accounts().clone())?,
        })))
    }

    /// Whether files are in a remote store, to which they are sent whole.
    pub fn is_remote(&self) -> bool {
        self.0.remote
    }

    /// Authorizes the caller for a path. Nobody may write to the server's own folder, by whatever path.
    ///
    /// Checked here before the client sends anything; the opened space enforces it again.
    fn reach(&self, caller: &Caller, path: &PfsPath, access: Access) -> Result<Reached, FilesError> {
        let reached = self.admit(caller, path, access)?;
        match access == Access::Write && reached.is_ours(&self.real_place(&reached)?) {
            true => Err(FilesError::Ours(reached.shown)),
            false => Ok(reached),
        }
    }

    /// Authorizes an upload. A file of a package goes into the staged tree of that package, which must be announced: that needs
    /// the scope `submit`, any other upload the scope `files`.
    fn reach_upload(&self, caller: &Caller, path: &PfsPath) -> Result<Reached, FilesError> {
        let Place { space, path: place } = path.place();
        let staged = staged_place(place).filter(|_| matches!(space, Space::Home(_)) && !self.0.remote);
        let Some(staged) = staged else {
            needs(caller, Scope::Files)?;
            return self.reach(caller, path, Access::Write);
        };
        needs(caller, Scope::Submit)?;
        let mut reached = self.admit(caller, path, Access::Write)?;
        reached.place.path = staged;
        Ok(reached)
    }

    /// Notes what was written into the staged tree of a package. A job's write sets both times to the same moment, so only a stamp
    /// whose times differ can reveal a later write.
    fn received(&self, reached: &Reached, files: impl IntoIterator<Item = (Stamp, Digest)>) {
        if let (Some(package), Space::Home(_)) = (reached.package(), &reached.place.space) {
            let files = files.into_iter().filter(|(stamp, _)| stamp.mtime != stamp.ctime);
            self.0.owners.received().add(package, files);
        }
    }

    /// Where a node really is. A path that cannot be resolved stands for itself: using it reports the reason.
    fn real_place(&self, reached: &Reached) -> Result<RelPath, FilesError> {
        let _acting = self.act(&reached.place.space)?;
        let real = reached.root.real_place(&reached.place.path);
        Ok(real.unwrap_or_else(|_| reached.place.path.clone()))
    }

    /// Authorizes the caller for a path by its space.
    fn admit(&self, caller: &Caller, path: &PfsPath, access: Access) -> Result<Reached, FilesError> {
        let asking = PfsCaller {
            user: caller.user.as_str(),
            datacenter: &self.0.datacenter,
            role: match caller.may(Action::Administer) {
                true => CallerRole::Administrator,
                false => CallerRole::User,
            },
        };
        let place = path.admit(&asking, access)?.clone();
        Ok(Reached {
            root: self.space(&place.space)?,
            place,
            shown: path.clone(),
        })
    }

    /// While the guard lives, this thread works with the rights of the home's owner: what it creates is theirs, and a link they
    /// plant gains them nothing. Meanwhile it must not touch the server's own files.
    fn act(&self, space: &Space) -> Result<Option<Acting>, FilesError> {
        let Space::Home(owner) = space else {
            return Ok(None);
        };
        if self.0.remote {
            // Only the spool is touched here, and it belongs to the server.
            return Ok(None);
        }
        let not_found = || FilesError::NotFound(space.to_string());
        let user = owner.as_str().parse().map_err(|_| not_found())?;
        self.ensure_home(space)?;
        let acting = self.0.owners.acting_as(&user);
        acting
            .map(Some)
            .map_err(|error| FilesError::Owner(Box::new(error)))
    }

    /// Creates a home if needed: the server's own work may be the first to open it.
    fn ensure_home(&self, space: &Space) -> Result<(), FilesError> {
        match space {
            Space::Home(owner) if !self.0.remote => {
                let Ok(user) = owner.as_str().parse() else {
                    return Ok(());
                };
                let made = self.0.owners.ensure_home(&user);
                made.map_err(|error| FilesError::Owner(Box::new(error)))
            }
            _ => Ok(()),
        }
    }

    /// Opens a space, with the server's own folder protected.
    fn space(&self, space: &Space) -> Result<OpenSpace, FilesError> {
        self.ensure_home(space)?;
        let opened = OpenSpace::open(&self.0.store, space, &self.0.spool);
        let opened = opened.map_err(FilesError::of_space(space))?;
        Ok(opened.protecting(match space {
            Space::Home(_) => vec![ours()],
            Space::Public => Vec::new(),
        }))
    }
}

impl Reached {
    /// The package whose staged tree contains this path.
    fn package(&self) -> Option<PackageId> {
        in_package(&self.place.path).map(|(id, _)| id)
    }

    /// The staged tree of this path's package. While it is held, the package is not published.
    fn package_tree(&self) -> Result<Option<StagedTree>, FilesError> {
        let tree = self
            .package()
            .map(|id| StagedTree::share(self.root.staging(), id));
        tree.transpose().map_err(self.failed())
    }

    /// The scope that an upload to this path needs.
    fn scope(&self) -> Scope {
        match self.package() {
            Some(_) => Scope::Submit,
            None => Scope::Files,
        }
    }

    /// Replaces the path in a storage error by the requested one.
    fn failed(&self) -> impl Fn(RootError) -> FilesError {
        |source| match source {
            RootError::Protected(_) => FilesError::Ours(self.shown.clone()),
            source => FilesError::Storage {
                path: Box::new(self.shown.clone()),
                source,
            },
        }
    }

    /// Refuses a folder that is the server's own, or a link to it.
    fn refuse_own_folder(&self) -> Result<(), FilesError> {
        let real = self.root.real_folder(&self.place.path);
        match real.is_ok_and(|real| self.is_ours(&real)) {
            true => Err(FilesError::Ours(self.shown.clone())),
            false => Ok(()),
        }
    }

    /// Whether a path of this space is the server's own.
    fn is_ours(&self, real: &RelPath) -> bool {
        matches!(self.place.space, Space::Home(_)) && real.is_within(&ours())
    }

    /// A path below this one.
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

    /// The metadata of what exists here; `None` if nothing does.
    fn stat_if_exists(&self) -> Result<Option<Meta>, FilesError> {
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

fn needs(caller: &Caller, scope: Scope) -> Result<(), FilesError> {
    match caller.may(Action::Call(scope)) {
        true => Ok(()),
        false => Err(FilesError::Scope(scope)),
    }
}

/// The server's own folder in every home.
fn ours() -> RelPath {
    OURS.parse().expect("a plain name")
}

/// A time as replies have it.
pub fn time_of(time: Mtime) -> jiff::Timestamp {
    let (seconds, nanos) = time.parts();
    jiff::Timestamp::new(seconds, nanos as i32).unwrap_or(jiff::Timestamp::MAX)
}
