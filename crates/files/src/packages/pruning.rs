//! Removes packages that no job needs, and leftovers of interrupted uploads.

use std::collections::HashSet;
use std::sync::PoisonError;

use paddlecloud_core::names::UserName;
use paddlecloud_pfs::package::PackageId;
use paddlecloud_pfs::{Existing, RelPath, Root};

use super::{list_path, stored_packages, tree_path};
use crate::homes::{Pruned, Removal, Storage, StorageError, ours, remove};

impl Storage {
    /// The bytes of stored packages that no job in `kept` was submitted with.
    pub fn unused_packages(
        &self,
        user: &UserName,
        kept: &HashSet<String>,
        latest: Latest,
    ) -> Result<Pruned, StorageError> {
        let home = self.home(user)?;
        let mut pruned = Pruned::default();
        for id in unused(&home, kept, latest)? {
            remove(&home, &tree_path(id), Removal::Foreseen, &mut pruned)?;
        }
        Ok(pruned)
    }

    /// Removes the manifests of stored packages that no job in `kept` was submitted with, and renames trees without a manifest.
    /// From then on these packages do not exist; their trees are removed later, which may take long.
    ///
    /// The caller holds [`crate::homes::UserLocks::packages`] exclusively, so that no new job can need one of them.
    pub fn condemn_packages(
        &self,
        user: &UserName,
        kept: &HashSet<String>,
        latest: Latest,
    ) -> Result<Condemned, StorageError> {
        let home = self.home(user)?;
        for id in unused(&home, kept, latest)? {
            home.remove(&list_path(id))?;
        }
        self.condemn_leftovers(user, &home)
    }

    /// Removes leftovers of interrupted uploads and clean-ups.
    pub fn sweep_packages(&self, user: &UserName) -> Result<Pruned, StorageError> {
        let condemned = self.condemn_leftovers(user, &*self.home(user)?)?;
        self.remove_condemned(user, &condemned)
    }

    /// A tree without a manifest is a leftover.
    fn condemn_leftovers(&self, user: &UserName, home: &Root) -> Result<Condemned, StorageError> {
        let locks = self.locks(user);
        // A publish renames the tree before it writes the manifest.
        let _alone = locks.publishing.lock().unwrap_or_else(PoisonError::into_inner);
        condemn_leftovers(home)
    }

    /// Removes the trees of condemned packages.
    pub fn remove_condemned(&self, user: &UserName, condemned: &Condemned) -> Result<Pruned, StorageError> {
        let home = self.home(user)?;
        let mut pruned = Pruned::default();
        for path in &condemned.0 {
            remove(&home, path, Removal::Real, &mut pruned)?;
        }
        Ok(pruned)
    }
}

/// Paths that are no longer needed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Condemned(Vec<RelPath>);

/// The prefix of condemned trees.
const GONE: &str = ".gone-";

/// Whether the latest package is kept when no job uses it: the next submit is compared with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Latest {
    Stays,
    Goes,
}

fn unused(home: &Root, kept: &HashSet<String>, latest: Latest) -> Result<Vec<PackageId>, StorageError> {
    let spared = usize::from(latest == Latest::Stays);
    let stored = stored_packages(home)?.into_iter().skip(spared);
    Ok(stored.filter(|id| !kept.contains(&id.to_string())).collect())
}

fn condemn_leftovers(home: &Root) -> Result<Condemned, StorageError> {
    let mut condemned = Condemned::default();
    let entries = match home.list(&ours(&["packages"])) {
        Err(error) if error.is_not_found() => return Ok(condemned),
        other => other?,
    };
    for entry in entries {
        let Some(name) = entry.path.name().and_then(|name| std::str::from_utf8(name).ok()) else {
            continue;
        };
        if name.starts_with(GONE) {
            condemned.0.push(entry.path);
        } else if name.parse::<PackageId>().is_ok()
            && !home.exists(&ours(&["packages", &format!("{name}.json")]))?
        {
            let gone = ours(&["packages", &format!("{GONE}{name}")]);
            remove(home, &gone, Removal::Real, &mut Pruned::default())?;
            home.rename(&entry.path, &gone, Existing::Keep)?;
            condemned.0.push(gone);
        }
    }
    Ok(condemned)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::homes::testing::TestHome;

    impl TestHome {
        /// A package's tree, and a file with this suffix beside it.
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
        let home = TestHome::new();
        let kept = home.package('a', Some("json"));
        let unused = home.package('b', Some("json"));
        home.package('c', Some("json"));
        let needed = HashSet::from([kept.clone()]);
        let latest = unused_order(&home);
        let condemn = |latest| {
            home.storage
                .condemn_packages(&home.user, &needed, latest)
                .unwrap()
        };
        let condemned = condemn(Latest::Stays);
        let gone = latest[1..].iter().filter(|id| **id != kept).count();
        assert_eq!(condemned.0.len(), gone, "neither the latest nor what is needed");
        let before = home.names();
        home.package('b', Some("json"));
        let pruned = home.storage.remove_condemned(&home.user, &condemned).unwrap();
        assert_eq!(pruned.bytes, 5 * gone as u64);
        assert!(home.ours.join("packages").join(&unused).join("file").exists());
        assert!(before.iter().any(|name| name.starts_with(GONE)));
        assert!(!home.names().iter().any(|name| name.starts_with(GONE)));

        let condemned = condemn(Latest::Goes);
        home.storage.remove_condemned(&home.user, &condemned).unwrap();
        assert_eq!(
            home.names(),
            [kept.clone(), format!("{kept}.json")],
            "only what is needed"
        );
    }

    fn unused_order(home: &TestHome) -> Vec<String> {
        let root = home.storage.home(&home.user).unwrap();
        let stored = stored_packages(&root).unwrap();
        stored.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_tree_without_its_list_goes() {
        let home = TestHome::new();
        let whole = home.package('a', Some("json"));
        home.package('b', None);
        home.storage.sweep_packages(&home.user).unwrap();
        assert_eq!(home.names(), [whole.clone(), format!("{whole}.json")]);
    }
}
