//! Published links: who published them, for which file, until when. The links themselves are not stored.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use paddlecloud_accounts::auth::{Action, Caller};
use paddlecloud_accounts::users::Users;
use paddlecloud_api::files::{ShareRequest, ShareView, below};
use paddlecloud_pfs::durable::write_whole;
use paddlecloud_pfs::share::{Share, ShareError, ShareId, ShareKey};
use paddlecloud_pfs::{Access, Mtime, Space};

use super::{Files, FilesError, time_of};

/// The longest lifetime of a link.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);
/// The most links of one user: all of them are in memory, and the whole list is written with each change.
const MOST: usize = 10_000;
/// Only the server may read the list and the key.
const PRIVATE: u32 = 0o600;
/// The route of links.
pub const SHARED: &str = "/api/v1/pfs/shared/";

pub(super) struct Shares {
    key: ShareKey,
    file: PathBuf,
    /// The valid links. A link that is missing here was revoked or has expired.
    given: Mutex<Vec<Share>>,
    /// How often the list changed.
    changes: AtomicU64,
    /// Accounts: links of removed or disabled users do not work.
    users: Users,
}

/// A link that bytes are read through. It is rechecked for every piece, since it may expire or be revoked meanwhile.
pub(super) struct Link {
    files: Files,
    share: Share,
    /// The versions of the list and of the accounts at the last check.
    seen: Option<(u64, u64)>,
}

impl Link {
    pub(super) fn still_works(&mut self) -> io::Result<()> {
        let shares = &self.files.0.shares;
        let changes = (shares.changes.load(Ordering::Acquire), shares.users.version());
        let is_there = self.seen == Some(changes) || shares.has(&self.share);
        if !is_there || self.share.expires <= now() {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, ShareError::Over));
        }
        self.seen = Some(changes);
        Ok(())
    }
}

/// Why the list or the key of links cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SharesError {
    #[error("cannot use `{path}`", path = .path.display())]
    Unusable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("`{path}`, which lists the links to files, is damaged", path = .path.display())]
    List {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    #[error("`{path}`, the key of links to files, is damaged", path = .path.display())]
    Key { path: PathBuf },
}

impl SharesError {
    /// A hint for the operator.
    pub fn hint(&self) -> Option<String> {
        match self {
            SharesError::Unusable { .. } => None,
            SharesError::List { path, .. } | SharesError::Key { path } => Some(format!(
                "restore it from a backup; without one, remove `{}`: existing links no longer work, files \
                 are not affected",
                path.display()
            )),
        }
    }
}

impl Shares {
    pub(super) fn open(folder: &Path, users: Users) -> Result<Shares, SharesError> {
        let file = folder.join("shares.json");
        let given = match std::fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|source| SharesError::List {
                path: file.clone(),
                source,
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(SharesError::Unusable { path: file, source }),
        };
        Ok(Shares {
            key: read_or_make_key(&folder.join("share.key"))?,
            file,
            given: Mutex::new(given),
            changes: AtomicU64::new(0),
            users,
        })
    }

    /// Whether a link was not revoked and its owner may still use the server.
    fn has(&self, share: &Share) -> bool {
        self.lock().iter().any(|given| given.id == share.id) && self.is_owned(share)
    }

    fn is_owned(&self, share: &Share) -> bool {
        let Space::Home(owner) = &share.place.space else {
            return false;
        };
        let name = owner.as_str().parse();
        name.is_ok_and(|name| self.users.enabled(&name).is_some())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Share>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the list and stores it before the change becomes visible.
    fn change(
        &self,
        change: impl FnOnce(&mut Vec<Share>) -> Result<(), FilesError>,
    ) -> Result<(), FilesError> {
        let mut given = self.lock();
        let mut changed = given.clone();
        let now = now();
        changed.retain(|share| share.expires > now);
        change(&mut changed)?;
        let text = serde_json::to_vec(&changed).expect("plain data becomes JSON");
        write_whole(&self.file, &text, PRIVATE).map_err(|error| FilesError::Disk(error, "note a link"))?;
        *given = changed;
        self.changes.fetch_add(1, Ordering::Release);
        Ok(())
    }
}

impl Files {
    /// Publishes a link to one of the caller's own files.
    pub fn share_create(&self, caller: &Caller, request: &ShareRequest) -> Result<ShareView, FilesError> {
        let reached = self.reach(caller, &request.path.0, Access::Read)?;
        if reached.place.space != Files::home_of(caller)? {
            return Err(FilesError::NotOwn);
        }
        let acting = self.act(&reached.place.space)?;
        if !reached.stat()?.is_file() {
            return Err(FilesError::not_a_file(&reached));
        }
        drop(acting);
        let lifetime = Duration::from_secs(request.seconds);
        if lifetime.is_zero() || lifetime > LONGEST {
            let problem = format!(
                "a link can work for 1 second to {} days",
                LONGEST.as_secs() / 86_400
            );
            return Err(FilesError::BadRequest(problem));
        }
        let share = Share::new(reached.place.clone(), Mtime::from(SystemTime::now() + lifetime));
        self.0.shares.change(|given| add(given, share.clone()))?;
        let mut view = self.share_view(&share)?;
        view.link = Some(format!("{SHARED}{}", self.0.shares.key.sign(&share.id)));
        Ok(view)
    }

    /// The caller's valid links.
    pub fn share_list(&self, caller: &Caller) -> Result<Vec<ShareView>, FilesError> {
        let own = Files::home_of(caller)?;
        let now = now();
        let given = self.0.shares.lock().clone();
        given
            .iter()
            .filter(|share| share.place.space == own && share.expires > now)
            .map(|share| self.share_view(share))
            .collect()
    }

    /// Revokes a link.
    pub fn share_revoke(&self, caller: &Caller, id: &str) -> Result<(), FilesError> {
        let own = Files::home_of(caller)?;
        let not_found = || FilesError::NoLink(id.escape_debug().to_string());
        let id: ShareId = id.parse().map_err(|_| not_found())?;
        let is_it =
            |share: &Share| share.id == id && (share.place.space == own || caller.may(Action::Administer));
        if !self.0.shares.lock().iter().any(is_it) {
            return Err(not_found());
        }
        self.0.shares.change(|given| {
            given.retain(|share| !is_it(share));
            Ok(())
        })
    }

    /// The target of a link, if the link is valid.
    pub fn share_open(&self, token: &str) -> Result<Share, FilesError> {
        let shares = &self.0.shares;
        let id = shares.key.read(token)?;
        let now = now();
        let given = shares.lock();
        let works = |share: &&Share| share.expires > now && shares.is_owned(share);
        let found = given.iter().find(|share| share.id == id).filter(works);
        Ok(found.cloned().ok_or(ShareError::Over)?)
    }

    /// A checked handle for reading through a link.
    pub(super) fn link(&self, share: &Share) -> Link {
        Link {
            files: self.clone(),
            share: share.clone(),
            seen: None,
        }
    }

    fn share_view(&self, share: &Share) -> Result<ShareView, FilesError> {
        let path = below(&self.name_of(&share.place.space), &share.place.path)
            .map_err(|_| FilesError::NotFound(share.place.path.to_string()))?;
        Ok(ShareView {
            id: share.id.to_string(),
            path: path.into(),
            expires: time_of(share.expires),
            link: None,
        })
    }
}

/// Adds a link, unless its owner has reached the limit.
fn add(given: &mut Vec<Share>, share: Share) -> Result<(), FilesError> {
    let owner = &share.place.space;
    if given.iter().filter(|other| other.place.space == *owner).count() >= MOST {
        return Err(FilesError::TooManyLinks(MOST));
    }
    given.push(share);
    Ok(())
}

fn now() -> Mtime {
    Mtime::from(SystemTime::now())
}

fn read_or_make_key(path: &Path) -> Result<ShareKey, SharesError> {
    let unusable = |source| SharesError::Unusable {
        path: path.to_owned(),
        source,
    };
    match std::fs::read(path) {
        Ok(bytes) => {
            let bytes = bytes.try_into().map_err(|_| SharesError::Key {
                path: path.to_owned(),
            })?;
            Ok(ShareKey::from_bytes(bytes))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => make_key(path).map_err(unusable),
        Err(error) => Err(unusable(error)),
    }
}

fn make_key(path: &Path) -> io::Result<ShareKey> {
    let mut bytes = [0; 32];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if filled != bytes.len() {
        return Err(io::Error::other("the system gave too few random bytes"));
    }
    write_whole(path, &bytes, PRIVATE)?;
    Ok(ShareKey::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use paddlecloud_api::files::WirePath;

    use super::*;
    use crate::files::content::PIECE;
    use crate::files::testing::{self, me};
    use crate::files::{Content, Opened, RequestedBytes};

    struct Fixture {
        folder: tempfile::TempDir,
        files: Files,
    }

    impl Fixture {
        /// With a file that takes several pieces to read.
        fn new() -> Fixture {
            let folder = tempfile::tempdir().unwrap();
            let files = testing::files(folder.path());
            std::fs::write(testing::home(folder.path()).join("f"), vec![7; 3 * PIECE]).unwrap();
            Fixture { folder, files }
        }

        fn publish(&self) -> Result<ShareView, FilesError> {
            let path = "/pfs/dc/home/me/f".parse::<WirePath>().unwrap();
            self.files
                .share_create(&me(), &ShareRequest { path, seconds: 3600 })
        }

        fn token(view: &ShareView) -> String {
            let link = view.link.as_deref().unwrap();
            link.strip_prefix(SHARED).unwrap().to_owned()
        }

        fn open(&self, share: &Share) -> Content {
            match self.files.shared(share, &RequestedBytes::default()).unwrap() {
                Opened::Content(content) => *content,
                Opened::Outside { .. } => panic!("all of it was asked for"),
            }
        }
    }

    #[test]
    fn a_download_ends_when_its_link_is_revoked_or_expires() {
        let fixture = Fixture::new();
        let (first, second) = (fixture.publish().unwrap(), fixture.publish().unwrap());
        let share = |view| fixture.files.share_open(&Fixture::token(view)).unwrap();
        let (mut taken, mut kept) = (fixture.open(&share(&first)), fixture.open(&share(&second)));
        assert!(taken.next_piece().unwrap().is_some() && kept.next_piece().unwrap().is_some());
        fixture.files.share_revoke(&me(), &first.id).unwrap();
        let error = taken.next_piece().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
        while let Some(piece) = kept.next_piece().unwrap() {
            assert!(!piece.is_empty(), "another link still works");
        }
        let over = Share {
            expires: now(),
            ..share(&second)
        };
        let error = fixture.open(&over).next_piece().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
    }

    #[test]
    fn links_of_a_removed_user_stop_working() {
        let fixture = Fixture::new();
        let token = Fixture::token(&fixture.publish().unwrap());
        assert!(fixture.files.share_open(&token).is_ok());
        let Fixture { folder, files } = fixture;
        drop(files);
        let files = testing::files_of(folder.path(), &[testing::user("you", "")]);
        let refused = files.share_open(&token);
        assert!(
            matches!(refused, Err(FilesError::Share(ShareError::Over))),
            "{refused:?}"
        );
        drop(files);
        assert!(
            testing::files(folder.path()).share_open(&token).is_ok(),
            "until they are back"
        );
    }

    #[test]
    fn the_number_of_links_per_user_is_limited() {
        let fixture = Fixture::new();
        fixture.publish().unwrap();
        let mut given = fixture.files.0.shares.lock();
        let one = given[0].clone();
        given.resize(MOST, one);
        drop(given);
        let refused = fixture.publish();
        assert!(
            matches!(refused, Err(FilesError::TooManyLinks(MOST))),
            "{refused:?}"
        );
        // Links of another user count separately.
        let mut given = fixture.files.0.shares.lock();
        given
            .iter_mut()
            .for_each(|share| share.place.space = Space::Home("you".parse().unwrap()));
        drop(given);
        fixture.publish().unwrap();
    }

    #[test]
    fn a_damaged_key_or_list_of_links_is_reported_with_a_hint() {
        for (name, content) in [("share.key", "short"), ("shares.json", "[{")] {
            let folder = tempfile::tempdir().unwrap();
            drop(testing::files(folder.path()));
            let file = std::fs::canonicalize(folder.path())
                .unwrap()
                .join("data/files")
                .join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, content).unwrap();
            let error = Shares::open(file.parent().unwrap(), Users::default())
                .err()
                .expect("it is torn");
            assert!(error.to_string().contains(name), "{error}");
            assert!(
                error
                    .hint()
                    .unwrap()
                    .contains(&format!("remove `{}`", file.display()))
            );
        }
    }
}
