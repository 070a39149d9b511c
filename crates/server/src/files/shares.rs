//! Links that were given out: who gave them, for what, until when. The links themselves are not kept.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use paddlecloud_api::files::{ShareRequest, ShareView, below};
use paddlecloud_pfs::share::{Share, ShareError, ShareId, ShareKey};
use paddlecloud_pfs::{Access, Mtime, Space};

use super::{Files, FilesError, owner_of};
use crate::auth::Caller;
use crate::durable::write_whole;

/// No link works longer.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);
/// Nobody but the server reads what it keeps of links.
const PRIVATE: u32 = 0o600;
/// Where links lead.
pub const SHARED: &str = "/api/v1/pfs/shared/";

pub(super) struct Shares {
    key: ShareKey,
    file: PathBuf,
    /// Those that work. One that is not here was taken back.
    given: Mutex<Vec<Share>>,
}

impl Shares {
    pub(super) fn open(folder: &Path) -> io::Result<Shares> {
        let file = folder.join("shares.json");
        let given = match std::fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::other)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        Ok(Shares {
            key: read_or_make_key(&folder.join("share.key"))?,
            file,
            given: Mutex::new(given),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Share>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the list and writes it down before anybody hears of it.
    fn change(&self, change: impl FnOnce(&mut Vec<Share>)) -> Result<(), FilesError> {
        let mut given = self.lock();
        let mut changed = given.clone();
        let now = now();
        changed.retain(|share| share.expires > now);
        change(&mut changed);
        let text = serde_json::to_vec(&changed).expect("plain data becomes JSON");
        write_whole(&self.file, &text, PRIVATE).map_err(|error| FilesError::Disk(error, "note a link"))?;
        *given = changed;
        Ok(())
    }
}

impl Files {
    /// Makes a link to one of the caller's own files.
    pub fn share_create(&self, caller: &Caller, request: &ShareRequest) -> Result<ShareView, FilesError> {
        let reached = self.reach(caller, &request.path.0, Access::Read)?;
        if reached.place.space != Space::Home(owner_of(caller)?) {
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
        self.0.shares.change(|given| given.push(share.clone()))?;
        let mut view = self.share_view(&share)?;
        view.link = Some(format!("{SHARED}{}", self.0.shares.key.sign(&share.id)));
        Ok(view)
    }

    /// The caller's links that still work.
    pub fn share_list(&self, caller: &Caller) -> Result<Vec<ShareView>, FilesError> {
        let own = Space::Home(owner_of(caller)?);
        let now = now();
        let given = self.0.shares.lock().clone();
        given
            .iter()
            .filter(|share| share.place.space == own && share.expires > now)
            .map(|share| self.share_view(share))
            .collect()
    }

    /// Takes a link back.
    pub fn share_revoke(&self, caller: &Caller, id: &str) -> Result<(), FilesError> {
        let own = Space::Home(owner_of(caller)?);
        let not_found = || FilesError::NotFound(format!("the link {}", id.escape_default()));
        let id: ShareId = id.parse().map_err(|_| not_found())?;
        let is_it = |share: &Share| share.id == id && (share.place.space == own || caller.admin);
        if !self.0.shares.lock().iter().any(is_it) {
            return Err(not_found());
        }
        self.0.shares.change(|given| given.retain(|share| !is_it(share)))
    }

    /// What a link allows, if it works.
    pub fn share_open(&self, token: &str) -> Result<Share, FilesError> {
        let shares = &self.0.shares;
        let id = shares.key.read(token)?;
        let now = now();
        let given = shares.lock();
        let works = given.iter().find(|share| share.id == id && share.expires > now);
        Ok(works.cloned().ok_or(ShareError::Over)?)
    }

    fn share_view(&self, share: &Share) -> Result<ShareView, FilesError> {
        let path = below(&self.name_of(&share.place.space), &share.place.path)
            .map_err(|_| FilesError::NotFound(share.place.path.to_string()))?;
        let (seconds, nanos) = share.expires.parts();
        Ok(ShareView {
            id: share.id.to_string(),
            path: path.into(),
            expires: jiff::Timestamp::new(seconds, nanos as i32).unwrap_or(jiff::Timestamp::MAX),
            link: None,
        })
    }
}

fn now() -> Mtime {
    Mtime::from(SystemTime::now())
}

fn read_or_make_key(path: &Path) -> io::Result<ShareKey> {
    match std::fs::read(path) {
        Ok(bytes) => {
            let bytes = bytes
                .try_into()
                .map_err(|_| io::Error::other("the key of links is damaged"))?;
            Ok(ShareKey::from_bytes(bytes))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut bytes = [0; 32];
            let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
            if filled != bytes.len() {
                return Err(io::Error::other("the system gave too few random bytes"));
            }
            write_whole(path, &bytes, PRIVATE)?;
            Ok(ShareKey::from_bytes(bytes))
        }
        Err(error) => Err(error),
    }
}
