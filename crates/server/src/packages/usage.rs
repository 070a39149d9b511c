//! Cleaning up after runs that left the history.

use std::collections::HashSet;
use std::sync::PoisonError;
use std::time::{Duration, SystemTime};

use paddlecloud_core::names::{JobId, UserName};
use paddlecloud_pfs::package::PackageId;
use paddlecloud_pfs::{Existing, Mtime, RelPath, Root, RootError};

use super::receive::{list_path, stored_packages, tree_path};
use super::{OURS, PackageError, Storage, ours};

/// What a clean-up removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    pub bytes: u64,
}

/// Whether a clean-up removes or only says how much it would.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    Real,
    Foreseen,
}

impl Storage {
    /// Removes a run's working copy. Its output stays when it holds anything, and so does all of the run that
    /// its package's path leads to.
    pub fn prune_run(&self, user: &UserName, job: &JobId, removal: Removal) -> Result<Pruned, PackageError> {
        let home = self.home(user)?;
        let run = ours(&["runs", job.as_str()]);
        if !home.exists(&run)? || is_latest(&home, job)? {
            return Ok(Pruned::default());
        }
        let mut pruned = Pruned::default();
        if !home.stat_link(&run)?.is_dir() {
            remove(&home, &run, removal, &mut pruned)?;
            return Ok(pruned);
        }
        for entry in home.list(&run)? {
            remove_but_output(&home, &entry.path, removal, &mut pruned)?;
        }
        if removal == Removal::Real && home.list(&run)?.is_empty() {
            home.remove(&run)?;
        }
        Ok(pruned)
    }

    /// Removes the working copy of a job that left the history, whoever's it was.
    pub fn forget_run(&self, job: &JobId) -> Result<(), PackageError> {
        let run = |user: &UserName| self.home_path(user).join(OURS).join("runs").join(job.as_str());
        for user in self.users()?.iter().filter(|user| run(user).exists()) {
            self.prune_run(user, job, Removal::Real)?;
        }
        Ok(())
    }

    /// The bytes of stored packages that no job in `kept` was submitted with.
    pub fn unused_packages(
        &self,
        user: &UserName,
        kept: &HashSet<String>,
        latest: Latest,
    ) -> Result<Pruned, PackageError> {
        let home = self.home(user)?;
        let mut pruned = Pruned::default();
        for id in unused(&home, kept, latest)? {
            remove(&home, &tree_path(id), Removal::Foreseen, &mut pruned)?;
        }
        Ok(pruned)
    }

    /// Takes away the names of stored packages that no job in `kept` was submitted with, and of leftovers. From then on
    /// they are not there; what lay behind the names is removed later, which may take long.
    ///
    /// Whoever calls this has [`super::Turn::packages`] alone, so that no job comes to need one meanwhile.
    pub fn condemn_packages(
        &self,
        user: &UserName,
        kept: &HashSet<String>,
        latest: Latest,
    ) -> Result<Condemned, PackageError> {
        let home = self.home(user)?;
        for id in unused(&home, kept, latest)? {
            home.remove(&list_path(id))?;
        }
        self.condemn_leftovers(user, &home)
    }

    /// Removes what uploads and clean-ups that were cut short left.
    pub fn sweep_packages(&self, user: &UserName) -> Result<Pruned, PackageError> {
        let condemned = self.condemn_leftovers(user, &*self.home(user)?)?;
        self.remove_condemned(user, &condemned)
    }

    /// Packages without a list are not there; a list that is only wanted says that one may come.
    fn condemn_leftovers(&self, user: &UserName, home: &Root) -> Result<Condemned, PackageError> {
        let turn = self.turn(user);
        // Who publishes gives the tree its name before the list.
        let _alone = turn.publishing.lock().unwrap_or_else(PoisonError::into_inner);
        condemn_leftovers(home)
    }

    /// Removes what lay behind condemned names.
    pub fn remove_condemned(&self, user: &UserName, condemned: &Condemned) -> Result<Pruned, PackageError> {
        let home = self.home(user)?;
        let mut pruned = Pruned::default();
        for path in &condemned.0 {
            remove(&home, path, Removal::Real, &mut pruned)?;
        }
        Ok(pruned)
    }

    /// Everybody who has something of ours in their home.
    pub fn users(&self) -> Result<Vec<UserName>, PackageError> {
        let homes = std::fs::read_dir(self.path().join("home")).map_err(PackageError::Disk)?;
        let used = homes.flatten().filter(|home| home.path().join(OURS).is_dir());
        let names = used.map(|home| home.file_name());
        Ok(names.filter_map(|name| name.to_str()?.parse().ok()).collect())
    }

    /// Runs that left something in a user's home.
    pub fn runs_of(&self, user: &UserName) -> Result<Vec<JobId>, PackageError> {
        let home = self.home(user)?;
        let runs = match home.list(&ours(&["runs"])) {
            Err(error) if error.is_not_found() => return Ok(Vec::new()),
            other => other?,
        };
        let names = runs
            .iter()
            .filter_map(|run| std::str::from_utf8(run.path.name()?).ok());
        Ok(names.filter_map(|name| name.parse().ok()).collect())
    }
}

/// Paths whose content nobody needs.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Condemned(Vec<RelPath>);

/// How old a list of files is when its package will not come any more.
const AWAITED_FOR: Duration = Duration::from_secs(24 * 60 * 60);
/// What the names of condemned packages begin with.
const GONE: &str = ".gone-";

/// What becomes of the latest package, if no job has it: it is what the next submit is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Latest {
    Stays,
    Goes,
}

fn unused(home: &Root, kept: &HashSet<String>, latest: Latest) -> Result<Vec<PackageId>, PackageError> {
    let spared = usize::from(latest == Latest::Stays);
    let stored = stored_packages(home)?.into_iter().skip(spared);
    Ok(stored.filter(|id| !kept.contains(&id.to_string())).collect())
}

fn condemn_leftovers(home: &Root) -> Result<Condemned, PackageError> {
    let mut condemned = Condemned::default();
    let entries = match home.list(&ours(&["packages"])) {
        Err(error) if error.is_not_found() => return Ok(condemned),
        other => other?,
    };
    let now = Mtime::from(SystemTime::now());
    for entry in entries {
        let Some(name) = entry.path.name().and_then(|name| std::str::from_utf8(name).ok()) else {
            continue;
        };
        if name.starts_with(GONE) {
            condemned.0.push(entry.path);
        } else if name.strip_suffix(".wanted").is_some_and(is_package) {
            if entry.meta.mtime.age(now) > AWAITED_FOR {
                condemned.0.push(entry.path);
            }
        } else if is_package(name) && !home.exists(&ours(&["packages", &format!("{name}.json")]))? {
            let gone = ours(&["packages", &format!("{GONE}{name}")]);
            remove(home, &gone, Removal::Real, &mut Pruned::default())?;
            home.rename(&entry.path, &gone, Existing::Keep)?;
            condemned.0.push(gone);
        }
    }
    Ok(condemned)
}

fn is_package(name: &str) -> bool {
    name.parse::<PackageId>().is_ok()
}

fn is_latest(home: &Root, job: &JobId) -> Result<bool, PackageError> {
    let latest = ours(&["latest"]);
    if !home.exists(&latest)? {
        return Ok(false);
    }
    let run = format!("/runs/{job}/");
    Ok(home.list(&latest)?.iter().any(|entry| match &entry.meta.kind {
        paddlecloud_pfs::root::Kind::Symlink(target) => {
            String::from_utf8_lossy(target.as_bytes()).contains(&run)
        }
        _ => false,
    }))
}

/// An entry of a run: everything goes but an `output` that holds something.
fn remove_but_output(
    home: &Root,
    path: &RelPath,
    removal: Removal,
    pruned: &mut Pruned,
) -> Result<(), PackageError> {
    if is_kept_output(home, path)? {
        return Ok(());
    }
    let inside = path.child(b"output").map_err(RootError::from)?;
    if !home.stat_link(path)?.is_dir() || !is_kept_output(home, &inside)? {
        return remove(home, path, removal, pruned);
    }
    for entry in home.list(path)? {
        if entry.path != inside {
            remove(home, &entry.path, removal, pruned)?;
        }
    }
    Ok(())
}

/// Whether this is output that stays: usually a folder, but a job may have put a file there. A link is no output; what it
/// leads to lies elsewhere, and stays there.
fn is_kept_output(home: &Root, path: &RelPath) -> Result<bool, PackageError> {
    if path.name() != Some(b"output") {
        return Ok(false);
    }
    match home.stat_link(path) {
        Ok(meta) if meta.is_dir() => Ok(!home.list(path)?.is_empty()),
        Ok(meta) => Ok(meta.is_file() && meta.size > 0),
        Err(RootError::NotFound(_) | RootError::NotAFolder(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn remove(home: &Root, path: &RelPath, removal: Removal, pruned: &mut Pruned) -> Result<(), PackageError> {
    if !home.exists(path)? {
        return Ok(());
    }
    let meta = home.stat_link(path)?;
    pruned.bytes += match meta.is_dir() {
        true => home.usage(path)?.bytes,
        false => meta.size,
    };
    match removal {
        Removal::Real => Ok(home.remove_all(path)?),
        Removal::Foreseen => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    struct Fixture {
        _folder: tempfile::TempDir,
        storage: Storage,
        user: UserName,
        ours: PathBuf,
    }

    impl Fixture {
        fn new() -> Fixture {
            let folder = tempfile::tempdir().unwrap();
            let storage = Storage::open(folder.path(), "local".parse().unwrap()).unwrap();
            let user: UserName = "me".parse().unwrap();
            storage.home(&user).unwrap();
            Fixture {
                ours: storage.home_path(&user).join(OURS),
                _folder: folder,
                storage,
                user,
            }
        }

        /// A package's tree, and what lies beside it.
        fn package(&self, digit: char, suffix: Option<&str>) -> String {
            let id = digit.to_string().repeat(64);
            fs::create_dir_all(self.ours.join("packages").join(&id)).unwrap();
            fs::write(self.ours.join("packages").join(&id).join("file"), "12345").unwrap();
            if let Some(suffix) = suffix {
                fs::write(self.ours.join(format!("packages/{id}.{suffix}")), "{}").unwrap();
            }
            id
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(self.ours.join("packages")).unwrap();
            let mut names: Vec<String> = entries
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        }
    }

    #[test]
    fn a_condemned_package_is_not_there_and_may_come_again_before_it_is_removed() {
        let fixture = Fixture::new();
        let kept = fixture.package('a', Some("json"));
        let unused = fixture.package('b', Some("json"));
        fixture.package('c', Some("json"));
        let needed = HashSet::from([kept.clone()]);
        let latest = unused_order(&fixture);
        let condemn = |latest| {
            fixture
                .storage
                .condemn_packages(&fixture.user, &needed, latest)
                .unwrap()
        };
        let condemned = condemn(Latest::Stays);
        let gone = latest[1..].iter().filter(|id| **id != kept).count();
        assert_eq!(condemned.0.len(), gone, "neither the latest nor what is needed");
        let before = fixture.names();
        fixture.package('b', Some("json"));
        let pruned = fixture
            .storage
            .remove_condemned(&fixture.user, &condemned)
            .unwrap();
        assert_eq!(pruned.bytes, 5 * gone as u64);
        assert!(fixture.ours.join("packages").join(&unused).join("file").exists());
        assert!(before.iter().any(|name| name.starts_with(GONE)));
        assert!(!fixture.names().iter().any(|name| name.starts_with(GONE)));

        let condemned = condemn(Latest::Goes);
        fixture
            .storage
            .remove_condemned(&fixture.user, &condemned)
            .unwrap();
        assert_eq!(
            fixture.names(),
            [kept.clone(), format!("{kept}.json")],
            "only what is needed"
        );
    }

    fn unused_order(fixture: &Fixture) -> Vec<String> {
        let home = fixture.storage.home(&fixture.user).unwrap();
        let stored = stored_packages(&home).unwrap();
        stored.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_a_job_made_of_its_output_keeps_no_run_from_being_cleared() {
        let fixture = Fixture::new();
        type Make = fn(&std::path::Path);
        let cases: [(&str, Make, bool); 5] = [
            ("file", |output| fs::write(output, "results").unwrap(), true),
            ("empty", |output| fs::write(output, "").unwrap(), false),
            (
                "dangling",
                |output| std::os::unix::fs::symlink("nowhere", output).unwrap(),
                false,
            ),
            ("none", |_| {}, false),
            (
                "folder",
                |output| {
                    fs::create_dir(output).unwrap();
                    fs::write(output.join("model"), "results").unwrap();
                },
                true,
            ),
        ];
        let places = [("", "flat"), ("job", "deep")];
        let numbered = cases.iter().flat_map(|case| places.map(|place| (case, place)));
        for (number, ((name, make, stays), (below, depth))) in numbered.enumerate() {
            let (stays, shown) = (*stays, format!("{name}, {depth}"));
            let job: JobId = format!("j_{number:014}").parse().unwrap();
            let run = fixture.ours.join("runs").join(job.as_str());
            let copy = run.join(below);
            fs::create_dir_all(&copy).unwrap();
            fs::write(copy.join("train.py"), "12345").unwrap();
            make(&copy.join("output"));
            for removal in [Removal::Foreseen, Removal::Real] {
                let pruned = fixture.storage.prune_run(&fixture.user, &job, removal);
                assert!(pruned.unwrap().bytes >= 5, "{shown}");
            }
            assert!(!copy.join("train.py").exists(), "{shown}");
            assert_eq!(run.exists(), stays, "{shown}");
            assert_eq!(copy.join("output").exists(), stays, "{shown}");
        }
    }

    #[test]
    fn leftovers_of_uploads_go_and_what_may_still_come_stays() {
        let fixture = Fixture::new();
        let whole = fixture.package('a', Some("json"));
        fixture.package('b', None);
        let old = fixture.ours.join(format!("packages/{}.wanted", "c".repeat(64)));
        let fresh = format!("{}.wanted", "d".repeat(64));
        fs::write(&old, "{}").unwrap();
        fs::write(fixture.ours.join("packages").join(&fresh), "{}").unwrap();
        let long_ago = SystemTime::now() - 2 * AWAITED_FOR;
        fs::File::options()
            .write(true)
            .open(&old)
            .and_then(|file| file.set_modified(long_ago))
            .unwrap();
        fixture.storage.sweep_packages(&fixture.user).unwrap();
        assert_eq!(fixture.names(), [whole.clone(), format!("{whole}.json"), fresh]);
    }
}
