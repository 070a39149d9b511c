//! How much every user may store and stores.
//!
//! What goes through the service is counted as it is written, and what replaces a file with what it adds to it; what jobs
//! write is found by measuring, also what they put where only uploads should lie. Only spaces with a limit are counted
//! at all.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use paddlecloud_api::files::StorageView;
use paddlecloud_pfs::quota::{Amount, Ledger, Quota, QuotaError, Reservation};
use paddlecloud_pfs::{Place, RelPath, RootError, Space};

use super::unfinished::beside;
use super::{Files, FilesError, Reached, owner_of};
use crate::auth::Caller;
use crate::config::Config;

/// How old a measurement may be before jobs' writes are looked for again.
const MEASURED_FOR: Duration = Duration::from_secs(300);
/// How old it may be when it is the reason for a refusal: somebody may just have made room.
const REFUSED_BY: Duration = Duration::from_secs(5);

pub(super) struct Accounts {
    ledger: Ledger,
    limited: HashSet<Space>,
    measured: Mutex<HashMap<Space, Instant>>,
}

impl Accounts {
    pub(super) fn new(config: &Config) -> Accounts {
        let ledger = Ledger::new();
        let mut limited = HashSet::new();
        for user in &config.users {
            let quota = Quota {
                bytes: user.storage.map(|bytes| bytes.as_u64()),
                files: user.files,
            };
            if let Ok(owner) = user.name.as_str().parse()
                && quota != Quota::default()
            {
                let space = Space::Home(owner);
                ledger.limit(&space, quota);
                limited.insert(space);
            }
        }
        Accounts {
            ledger,
            limited,
            measured: Mutex::default(),
        }
    }

    pub(super) fn is_limited(&self, space: &Space) -> bool {
        self.limited.contains(space)
    }

    /// Sets room aside by what was measured last.
    pub(super) fn reserve_at(
        &self,
        reached: &Reached,
        asked: Amount,
        old: Amount,
    ) -> Result<Reservation, QuotaError> {
        let (place, old) = giving_way(reached, old);
        self.ledger.reserve_at(&place, asked, old)
    }

    /// Counts what is there already, whether it fits or not.
    pub(super) fn claim_at(&self, reached: &Reached, amount: Amount, old: Amount) -> Reservation {
        let (place, old) = giving_way(reached, old);
        self.ledger.claim_at(&place, amount, old)
    }

    fn age(&self, space: &Space) -> Option<Duration> {
        self.lock().get(space).map(Instant::elapsed)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Space, Instant>> {
        self.measured.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Files {
    /// Sets room aside for a write, or says what the limit is and what is used.
    pub(super) fn reserve(&self, space: &Space, asked: Amount) -> Result<Option<Reservation>, FilesError> {
        self.reserve_by(space, |ledger| ledger.reserve(space, asked))
    }

    /// The same for a write to a place where now lies as much as `old`: only what it adds need fit.
    pub(super) fn reserve_at(
        &self,
        reached: &Reached,
        asked: Amount,
        old: Amount,
    ) -> Result<Option<Reservation>, FilesError> {
        let (place, old) = giving_way(reached, old);
        self.reserve_by(&place.space, |ledger| ledger.reserve_at(&place, asked, old))
    }

    fn reserve_by(
        &self,
        space: &Space,
        reserve: impl Fn(&Ledger) -> Result<Reservation, QuotaError>,
    ) -> Result<Option<Reservation>, FilesError> {
        let accounts = &self.0.accounts;
        if !accounts.is_limited(space) {
            return Ok(None);
        }
        self.measure_if_older(space, MEASURED_FOR)?;
        let refused = match reserve(&accounts.ledger) {
            Ok(reservation) => return Ok(Some(reservation)),
            Err(refused) => refused,
        };
        if !self.measure_if_older(space, REFUSED_BY)? {
            return Err(refused.into());
        }
        Ok(Some(reserve(&accounts.ledger)?))
    }

    /// Sets room aside in the caller's home for what does not come as a file of theirs.
    pub fn room_at_home(&self, caller: &Caller, asked: Amount) -> Result<Option<Reservation>, FilesError> {
        self.reserve(&Space::Home(owner_of(caller)?), asked)
    }

    /// The same for what goes on with something that lies unfinished in the home, which counts already.
    pub fn room_to_go_on(
        &self,
        caller: &Caller,
        asked: Amount,
        held: Amount,
    ) -> Result<Option<Reservation>, FilesError> {
        let accounts = &self.0.accounts;
        let space = Space::Home(owner_of(caller)?);
        if !accounts.is_limited(&space) {
            return Ok(None);
        }
        let place = Place {
            space: space.clone(),
            path: RelPath::root(),
        };
        // Set aside first: what is there is then nobody else's when the home is measured.
        let mut room = accounts.ledger.claim_at(&place, held, Amount::default());
        self.measure(&space)?;
        let grown = room.grow(asked.minus(held));
        if grown.is_err() {
            // It was left out of what was measured just now.
            self.forget_measure(&space);
        }
        Ok(Some(grown.map(|()| room)?))
    }

    /// The next write looks first what lies in the caller's home.
    pub fn home_changed(&self, caller: &Caller) {
        if let Ok(owner) = owner_of(caller) {
            self.forget_measure(&Space::Home(owner));
        }
    }

    /// Notes that something went.
    pub(super) fn freed(&self, space: &Space, amount: Amount) {
        if self.0.accounts.is_limited(space) {
            self.0.accounts.ledger.removed(space, amount);
        }
    }

    /// Looks again at the next write: what happened cannot be told exactly.
    pub(super) fn forget_measure(&self, space: &Space) {
        self.0.accounts.lock().remove(space);
    }

    /// The caller's home, if it has to be measured before anything is written to it.
    pub fn to_measure(&self, caller: &Caller) -> Option<Space> {
        let space = Space::Home(owner_of(caller).ok()?);
        let accounts = &self.0.accounts;
        let is_fresh = accounts.age(&space).is_some_and(|age| age < MEASURED_FOR);
        (accounts.is_limited(&space) && !is_fresh).then_some(space)
    }

    /// Measures a space unless that was done a while ago only.
    pub fn measure_again(&self, space: &Space) -> Result<(), FilesError> {
        self.measure_if_older(space, MEASURED_FOR).map(drop)
    }

    fn measure_if_older(&self, space: &Space, age: Duration) -> Result<bool, FilesError> {
        if self.0.accounts.age(space).is_some_and(|known| known < age) {
            return Ok(false);
        }
        self.measure(space)?;
        Ok(true)
    }

    /// Looks what a space holds that has a limit.
    fn measure(&self, space: &Space) -> Result<(), FilesError> {
        self.find_rooms(space, &self.space(space)?)?;
        let accounts = &self.0.accounts;
        let measuring = accounts.ledger.measure(space);
        let staged = self.staged(space)?.minus(self.0.uploads.rooms.beside(space));
        // A job can write there too: whatever is more than was set aside is as good as published.
        let nobodys = accounts.ledger.nobodys(space, &measuring, staged);
        let used = self.published(space)?.plus(nobodys);
        accounts.ledger.measured(space, measuring, used);
        accounts.lock().insert(space.clone(), Instant::now());
        Ok(())
    }

    fn published(&self, space: &Space) -> Result<Amount, FilesError> {
        let place = Place {
            space: space.clone(),
            path: RelPath::root(),
        };
        match self.0.store.usage(&place) {
            // A home is there from the beginning, although nobody made it: a store may not have it yet.
            Err(RootError::NotFound(_)) => Ok(Amount::default()),
            usage => Ok(usage.map_err(unmeasured(space))?.into()),
        }
    }

    fn staged(&self, space: &Space) -> Result<Amount, FilesError> {
        let usage = self.0.store.staged(space).map_err(unmeasured(space))?;
        Ok(usage.into())
    }

    /// What the caller may store and stores, freshly measured.
    pub fn storage(&self, caller: &Caller) -> Result<StorageView, FilesError> {
        let space = Space::Home(owner_of(caller)?);
        let acting = self.act(&space)?;
        self.give_up_left_alone(&space, &self.space(&space)?);
        drop(acting);
        let unfinished = self.unfinished_in(&space)?;
        let set_aside = Amount {
            bytes: unfinished.iter().map(|upload| upload.size).sum(),
            files: unfinished.len() as u64,
        };
        let (quota, counted) = match self.0.accounts.is_limited(&space) {
            true => {
                self.measure(&space)?;
                self.0.accounts.ledger.report(&space)
            }
            false => {
                let beside = unfinished.iter().map(|upload| beside(upload.size));
                let staged = self.staged(&space)?.minus(beside.fold(set_aside, Amount::plus));
                (
                    Quota::default(),
                    self.published(&space)?.plus(set_aside).plus(staged),
                )
            }
        };
        let kept = self.0.store.quota(&space).map_err(unmeasured(&space))?;
        Ok(StorageView {
            bytes_used: counted.bytes,
            files_used: counted.files,
            // Whichever is reached first.
            bytes_limit: [quota.bytes, kept].into_iter().flatten().min(),
            files_limit: quota.files,
            unfinished_bytes: set_aside.bytes,
            unfinished_uploads: set_aside.files,
        })
    }

    /// Says why a user must make room before anything new is begun; jobs may have filled the home.
    pub fn check_room(&self, caller: &Caller) -> Result<(), FilesError> {
        let space = Space::Home(owner_of(caller)?);
        if !self.0.accounts.is_limited(&space) {
            return Ok(());
        }
        self.measure_if_older(&space, MEASURED_FOR)?;
        if self.0.accounts.ledger.is_over(&space) {
            self.measure_if_older(&space, REFUSED_BY)?;
        }
        self.over(&space)
    }

    fn over(&self, space: &Space) -> Result<(), FilesError> {
        let (quota, used) = self.0.accounts.ledger.report(space);
        if let Some(limit) = quota.bytes.filter(|limit| used.bytes > *limit) {
            return Err(QuotaError::Bytes {
                space: space.clone(),
                asked: 0,
                used: used.bytes,
                limit,
            }
            .into());
        }
        if let Some(limit) = quota.files.filter(|limit| used.files > *limit) {
            return Err(QuotaError::Files {
                space: space.clone(),
                asked: 0,
                used: used.files,
                limit,
            }
            .into());
        }
        Ok(())
    }
}

/// Where what gives way really lies: links lead to one file by many paths, and it makes room once. What cannot be followed
/// makes none.
fn giving_way(reached: &Reached, old: Amount) -> (Place, Amount) {
    let space = reached.place.space.clone();
    match reached.root.real_place(&reached.place.path) {
        Ok(path) => (Place { space, path }, old),
        Err(_) => (reached.place.clone(), Amount::default()),
    }
}

fn unmeasured(space: &Space) -> impl Fn(RootError) -> FilesError {
    let space = space.clone();
    move |source| FilesError::Space {
        space: space.clone(),
        source,
    }
}
