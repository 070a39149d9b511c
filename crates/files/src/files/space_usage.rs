//! How much each user may store, and how much they store.
//!
//! Writes through the service are counted as they happen. What jobs write is found by measuring, including files they put into the
//! staging folder. Only spaces with a limit are counted.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use paddlecloud_accounts::auth::Caller;
use paddlecloud_accounts::users::Users;
use paddlecloud_api::files::StorageView;
use paddlecloud_pfs::package::PackageId;
use paddlecloud_pfs::quota::{Amount, Ledger, Measuring, Quota, QuotaError, Reservation};
use paddlecloud_pfs::root::Usage;
use paddlecloud_pfs::staging::package_place;
use paddlecloud_pfs::{Place, RelPath, RootError, Space};

use super::unfinished::beside;
use super::{Files, FilesError};

/// How old a measurement may be before the space is measured again, to count what jobs wrote.
const MEASURED_FOR: Duration = Duration::from_secs(300);
/// How old a measurement may be when it is the reason for a refusal: the user may just have freed space.
const REFUSED_BY: Duration = Duration::from_secs(5);
/// How often a stale or invalidated measurement is repeated for one request before the caller must retry.
pub const MEASURED_AGAIN: usize = 4;

/// What every space with a limit holds, and when that was measured.
pub(super) struct SpaceUsage {
    users: Users,
    ledger: Ledger,
    looks: Mutex<Looks>,
}

/// When each space was measured.
#[derive(Default)]
struct Looks {
    measured: HashMap<Space, Measured>,
    /// How often a space's measurement was invalidated: a measurement that began before that may have missed the cause.
    forgotten: HashMap<Space, u64>,
}

impl Looks {
    fn forgotten(&self, space: &Space) -> u64 {
        self.forgotten.get(space).copied().unwrap_or_default()
    }
}

/// When a space was measured.
#[derive(Clone, Copy)]
struct Measured {
    began: Instant,
    ended: Instant,
}

/// A measurement in progress.
struct Look {
    forgotten: u64,
    began: Instant,
    measuring: Measuring,
}

impl SpaceUsage {
    pub(super) fn new(users: Users) -> SpaceUsage {
        SpaceUsage {
            users,
            ledger: Ledger::default(),
            looks: Mutex::default(),
        }
    }

    /// Whether a space has a limit now. Every use of the ledger calls this first, so this is where the ledger learns the limit.
    pub(super) fn is_limited(&self, space: &Space) -> bool {
        let quota = self.quota(space);
        let is_limited = quota != Quota::default();
        if is_limited {
            self.ledger.limit(space, quota);
        }
        is_limited
    }

    fn quota(&self, space: &Space) -> Quota {
        let Space::Home(owner) = space else {
            return Quota::default();
        };
        let account = owner
            .as_str()
            .parse()
            .ok()
            .and_then(|name| self.users.find(&name));
        account.map(|account| account.storage).unwrap_or_default()
    }

    /// Counts what is already stored, whether it fits or not.
    pub(super) fn claim(&self, space: &Space, amount: Amount) -> Reservation {
        self.ledger.claim(space, amount)
    }

    fn age(&self, space: &Space) -> Option<Duration> {
        let looks = self.lock();
        looks.measured.get(space).map(|measured| measured.ended.elapsed())
    }

    fn was_measured_since(&self, space: &Space, asked: Instant) -> bool {
        let looks = self.lock();
        let measured = looks.measured.get(space);
        measured.is_some_and(|measured| measured.began >= asked)
    }

    /// The ledger's answer. A refusal based on a stale measurement becomes `Unmeasured`: the caller measures and asks again.
    fn answer<T>(
        &self,
        space: &Space,
        ask: impl FnOnce(&Ledger) -> Result<T, QuotaError>,
    ) -> Result<T, FilesError> {
        // Read the age first: a measurement that ends while the ledger is asked is not the one the answer is based on.
        let age = self.age(space).filter(|age| *age < MEASURED_FOR);
        let age = age.ok_or_else(|| FilesError::Unmeasured(space.clone()))?;
        match ask(&self.ledger) {
            Err(_) if age >= REFUSED_BY => Err(FilesError::Unmeasured(space.clone())),
            answer => Ok(answer?),
        }
    }

    /// Stores the result of a measurement, unless a later one is known. It counts as current unless it was invalidated after it
    /// began.
    fn put_in(&self, space: &Space, look: Look, used: Amount, unreadable: Option<RelPath>) {
        let mut looks = self.lock();
        let known = looks.measured.get(space);
        if known.is_some_and(|known| known.began > look.began) {
            return;
        }
        self.ledger.measured(space, look.measuring, used);
        self.ledger.unreadable(space, unreadable);
        if looks.forgotten(space) == look.forgotten {
            let (began, ended) = (look.began, Instant::now());
            looks.measured.insert(space.clone(), Measured { began, ended });
        }
    }

    fn begin_look(&self, space: &Space) -> Look {
        let forgotten = self.lock().forgotten(space);
        Look {
            forgotten,
            began: Instant::now(),
            measuring: self.ledger.measure(space),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Looks> {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Files {
    /// Reserves space for a write. Otherwise reports limit and usage, or that the space must be measured first.
    pub(super) fn reserve(&self, space: &Space, asked: Amount) -> Result<Option<Reservation>, FilesError> {
        let usage = &self.0.usage;
        if !usage.is_limited(space) {
            return Ok(None);
        }
        usage
            .answer(space, |ledger| ledger.reserve(space, asked))
            .map(Some)
    }

    /// Calls `reserve` and measures first where that is due. Only for threads that may run long.
    ///
    /// Callers measure this late because walking the source of a copy may take longer than a measurement stays valid.
    pub fn measured<T>(&self, reserve: impl Fn() -> Result<T, FilesError>) -> Result<T, FilesError> {
        for _ in 0..MEASURED_AGAIN {
            match reserve() {
                Err(FilesError::Unmeasured(space)) => self.measure(&space)?,
                answer => return answer,
            }
        }
        reserve()
    }

    /// Reserves what a package will add to the caller's home. What its unfinished uploads will add is reserved already.
    pub fn room_for_package(
        &self,
        caller: &Caller,
        id: PackageId,
        asked: Amount,
    ) -> Result<Option<Reservation>, FilesError> {
        let space = Files::home_of(caller)?;
        if !self.0.usage.is_limited(&space) {
            return Ok(None);
        }
        self.reserve(&space, asked.minus(self.begun_in(&space, &package_place(id))?))
    }

    /// Makes the next write measure the caller's home first.
    pub fn home_changed(&self, caller: &Caller) {
        if let Ok(home) = Files::home_of(caller) {
            self.forget_measure(&home);
        }
    }

    /// Records that something was removed.
    pub(super) fn freed(&self, space: &Space, amount: Amount) {
        if self.0.usage.is_limited(space) {
            self.0.usage.ledger.removed(space, amount);
        }
    }

    /// Makes the next write measure the space again, because the change cannot be counted exactly.
    pub(super) fn forget_measure(&self, space: &Space) {
        let mut looks = self.0.usage.lock();
        looks.measured.remove(space);
        *looks.forgotten.entry(space.clone()).or_default() += 1;
    }

    /// Whether the last measurement is fresh enough to refuse a request.
    pub fn was_just_measured(&self, space: &Space) -> bool {
        self.0.usage.age(space).is_some_and(|age| age < REFUSED_BY)
    }

    /// Whether the caller's home has a limit.
    pub fn is_limited(&self, caller: &Caller) -> bool {
        Files::home_of(caller).is_ok_and(|space| self.0.usage.is_limited(&space))
    }

    /// The space of the caller's own files.
    pub fn home_of(caller: &Caller) -> Result<Space, FilesError> {
        let owner = caller.user.as_str().parse();
        let not_found = |_| FilesError::NotFound(format!("the home of {}", caller.user));
        owner.map(Space::Home).map_err(not_found)
    }

    /// Measures what a space with a limit holds.
    pub fn measure(&self, space: &Space) -> Result<(), FilesError> {
        let usage = &self.0.usage;
        let look = usage.begin_look(space);
        let (used, unreadable) = match self.count(space, &look) {
            // A job may deny the server the home itself, or its staging folder.
            Err(FilesError::Space {
                source: RootError::Denied(_),
                ..
            }) => {
                let opened = self.space(space).ok();
                let unreadable = opened.and_then(|root| root.unreadable());
                (Amount::default(), Some(unreadable.unwrap_or_default()))
            }
            counted => counted?,
        };
        usage.put_in(space, look, used, unreadable);
        Ok(())
    }

    /// What a space holds, and a folder whose contents are missing in that.
    fn count(&self, space: &Space, look: &Look) -> Result<(Amount, Option<RelPath>), FilesError> {
        let root = self.space(space)?;
        self.find_rooms(space, &root)?;
        let staged = self.staged(space)?;
        let besides = Amount::from(staged).minus(self.0.uploads.rooms.beside(space));
        // A job can write to staging too: anything beyond the reservations counts as published.
        let unreserved = self.0.usage.ledger.unreserved(space, &look.measuring, besides);
        let published = self.published(space)?;
        let is_complete = staged.unread + published.unread == 0;
        // One that can be read again by now stands for the whole space.
        let unreadable = (!is_complete).then(|| root.unreadable().unwrap_or_default());
        Ok((Amount::from(published).plus(unreserved), unreadable))
    }

    fn published(&self, space: &Space) -> Result<Usage, FilesError> {
        let place = Place {
            space: space.clone(),
            path: RelPath::root(),
        };
        match self.0.store.usage(&place) {
            // Every user has a home, but a store may not have created it yet.
            Err(RootError::NotFound(_)) => Ok(Usage::default()),
            usage => usage.map_err(FilesError::of_space(space)),
        }
    }

    fn staged(&self, space: &Space) -> Result<Usage, FilesError> {
        self.0.store.staged(space).map_err(FilesError::of_space(space))
    }

    /// The caller's limits and usage, measured no earlier than `asked`.
    pub fn storage(&self, caller: &Caller, asked: Instant) -> Result<StorageView, FilesError> {
        let space = Files::home_of(caller)?;
        let unfinished = self.unfinished_in(&space)?;
        let set_aside = Amount {
            bytes: unfinished.iter().map(|upload| upload.size).sum(),
            files: unfinished.len() as u64,
        };
        let (quota, counted) = match self.0.usage.is_limited(&space) {
            true => {
                if !self.0.usage.was_measured_since(&space, asked) {
                    self.measure(&space)?;
                }
                self.0.usage.ledger.report(&space)
            }
            false => {
                let beside = unfinished.iter().map(|upload| beside(upload.size));
                let staged = Amount::from(self.staged(&space)?).minus(beside.fold(set_aside, Amount::plus));
                let published = Amount::from(self.published(&space)?);
                (Quota::default(), published.plus(set_aside).plus(staged))
            }
        };
        let kept = self.0.store.quota(&space).map_err(FilesError::of_space(&space))?;
        Ok(StorageView {
            bytes_used: counted.bytes,
            files_used: counted.files,
            // The lower limit applies.
            bytes_limit: [quota.bytes, kept].into_iter().flatten().min(),
            files_limit: quota.files,
            unfinished_bytes: set_aside.bytes,
            unfinished_uploads: set_aside.files,
        })
    }

    /// By how much the caller's home exceeds its limits, measured no earlier than `asked`.
    pub fn excess(&self, caller: &Caller, asked: Instant) -> Result<Option<QuotaError>, FilesError> {
        let (space, usage) = (Files::home_of(caller)?, &self.0.usage);
        if !usage.is_limited(&space) {
            return Ok(None);
        }
        if !usage.was_measured_since(&space, asked) {
            self.measure(&space)?;
        }
        Ok(usage.ledger.not_over(&space).err())
    }

    /// The full path of a folder in a space.
    pub fn shown(&self, space: &Space, folder: &RelPath) -> String {
        let space = self.name_of(space);
        match folder.is_root() {
            true => space.to_string(),
            false => format!("{space}/{folder}"),
        }
    }

    /// The same as far as it is known: the last measurement, and what was written and removed through the server since.
    pub fn known_excess(&self, caller: &Caller) -> Option<QuotaError> {
        let space = Files::home_of(caller).ok()?;
        let is_limited = self.0.usage.is_limited(&space);
        is_limited.then(|| self.0.usage.ledger.not_over(&space).err())?
    }

    /// Fails if the user is over quota and must free space before anything new begins. Jobs may have filled the home.
    pub fn check_room(&self, caller: &Caller) -> Result<(), FilesError> {
        let (space, usage) = (Files::home_of(caller)?, &self.0.usage);
        match usage.is_limited(&space) {
            true => usage.answer(&space, |ledger| ledger.not_over(&space)),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;
    use crate::files::testing::{files_of, home, me, user};

    /// Reserves space for a file in the home.
    fn room(files: &Files, bytes: u64) -> Result<Option<Reservation>, FilesError> {
        files.reserve(&Files::home_of(&me())?, Amount { bytes, files: 1 })
    }

    #[test]
    fn nobody_is_refused_by_what_was_measured_too_long_ago() {
        let folder = tempfile::tempdir().unwrap();
        let files = files_of(folder.path(), &[user("me", "storage=4Ki")]);
        let output = home(folder.path()).join("output");
        std::fs::write(&output, [0; 5 << 10]).unwrap();
        let space = Files::home_of(&me()).unwrap();
        let ask = |bytes| room(&files, bytes).map(drop);
        let measured = |ago| {
            files.measure(&space).unwrap();
            let mut looks = files.0.usage.lock();
            looks.measured.get_mut(&space).unwrap().ended -= ago;
        };
        assert!(
            matches!(ask(1), Err(FilesError::Unmeasured(_))),
            "nothing is known"
        );
        measured(Duration::ZERO);
        assert!(matches!(ask(1), Err(FilesError::Quota(_))));
        assert!(matches!(files.check_room(&me()), Err(FilesError::Quota(_))));
        measured(REFUSED_BY);
        assert!(matches!(ask(1), Err(FilesError::Unmeasured(_))));
        assert!(matches!(files.check_room(&me()), Err(FilesError::Unmeasured(_))));

        std::fs::remove_file(output).unwrap();
        measured(REFUSED_BY);
        ask(1).unwrap();
        files.check_room(&me()).unwrap();
        measured(MEASURED_FOR);
        assert!(
            matches!(ask(1), Err(FilesError::Unmeasured(_))),
            "jobs may have written since"
        );
    }

    /// Measures as a server that is not root, for which permissions apply.
    fn measure_as_ordinary_user(files: &Files, space: &Space) {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                if rustix::process::geteuid().is_root() {
                    let nobody = rustix::process::Uid::from_raw(65534);
                    // Affects only this thread, as the system call does.
                    rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
                }
                files.measure(space).unwrap();
            });
        });
    }

    #[test]
    fn a_job_cannot_hide_what_it_wrote_in_an_unreadable_folder() {
        let folder = tempfile::tempdir().unwrap();
        let files = files_of(folder.path(), &[user("me", "storage=4Ki")]);
        let (space, home) = (Files::home_of(&me()).unwrap(), home(folder.path()));
        let closed = home.join("output/closed");
        let staging = home.join(".pfs-staging");
        std::fs::create_dir_all(&closed).unwrap();
        std::fs::create_dir_all(&staging).unwrap();
        std::fs::write(closed.join("big"), [0; 5 << 10]).unwrap();
        let set_mode = |folder: &Path, mode| {
            std::fs::set_permissions(folder, PermissionsExt::from_mode(mode)).unwrap();
        };
        for (hidden, shown) in [
            (&closed, "/pfs/dc/home/me/output/closed"),
            (&staging, "/pfs/dc/home/me/.pfs-staging"),
            (&home, "/pfs/dc/home/me"),
        ] {
            set_mode(hidden, 0o000);
            measure_as_ordinary_user(&files, &space);
            match files.known_excess(&me()) {
                Some(QuotaError::Unreadable { folder, .. }) => {
                    assert_eq!(files.shown(&space, &folder), shown)
                }
                other => panic!("{shown}: {other:?}"),
            }
            let written = room(&files, 1).map(drop);
            assert!(
                matches!(written, Err(FilesError::Quota(QuotaError::Unreadable { .. }))),
                "{shown}: {written:?}"
            );
            set_mode(hidden, 0o755);
            measure_as_ordinary_user(&files, &space);
            let known = files.known_excess(&me());
            assert!(
                matches!(known, Some(QuotaError::Bytes { .. })),
                "{shown}: {known:?}"
            );
        }
    }

    /// As if walking the source of a copy had outlasted the measurement.
    #[test]
    fn what_takes_long_measures_just_before_it_asks() {
        let folder = tempfile::tempdir().unwrap();
        let files = files_of(folder.path(), &[user("me", "storage=4Ki")]);
        let ask = |bytes| files.measured(|| room(&files, bytes).map(drop));
        ask(1).unwrap();
        std::fs::write(home(folder.path()).join("output"), [0; 5 << 10]).unwrap();
        let space = Files::home_of(&me()).unwrap();
        let mut looks = files.0.usage.lock();
        looks.measured.get_mut(&space).unwrap().ended -= MEASURED_FOR;
        drop(looks);
        assert!(matches!(ask(1), Err(FilesError::Quota(_))));
    }

    #[test]
    fn a_look_that_began_before_all_was_forgotten_is_not_taken_for_a_later_one() {
        let folder = tempfile::tempdir().unwrap();
        let files = files_of(folder.path(), &[user("me", "storage=4Ki")]);
        let (space, usage) = (Files::home_of(&me()).unwrap(), &files.0.usage);
        let early = usage.begin_look(&space);
        let slow = usage.begin_look(&space);
        std::fs::write(home(folder.path()).join("output"), [0; 5 << 10]).unwrap();
        files.home_changed(&me());
        usage.put_in(&space, early, Amount::default(), None);
        let asked = room(&files, 1).map(drop);
        assert!(matches!(asked, Err(FilesError::Unmeasured(_))), "{asked:?}");
        files.measure(&space).unwrap();
        usage.put_in(&space, slow, Amount::default(), None);
        let asked = room(&files, 1).map(drop);
        assert!(matches!(asked, Err(FilesError::Quota(_))), "{asked:?}");
    }

    #[test]
    fn who_asks_what_is_stored_shares_only_what_was_measured_since() {
        let folder = tempfile::tempdir().unwrap();
        let files = files_of(folder.path(), &[user("me", "storage=4Ki")]);
        let asked = Instant::now();
        assert_eq!(files.storage(&me(), asked).unwrap().files_used, 0);
        std::fs::write(home(folder.path()).join("output"), "x").unwrap();
        assert_eq!(files.storage(&me(), asked).unwrap().files_used, 0, "asked before");
        assert_eq!(files.storage(&me(), Instant::now()).unwrap().files_used, 1);
    }
}
