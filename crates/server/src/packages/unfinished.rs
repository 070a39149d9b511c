//! Partly received packages: lists, tidies and discards them.
//!
//! They are in the staging folder of the home, named by their package, and expire three days after their last change, as
//! unfinished uploads of files do.

use paddlecloud_core::names::UserName;
use paddlecloud_pfs::pack::{StagedTree, Stock};
use paddlecloud_pfs::package::{Manifest, PackageId};
use paddlecloud_pfs::root::Usage;
use paddlecloud_pfs::staging::{UnfinishedPackage, unfinished_package_ids, unfinished_packages};
use paddlecloud_pfs::{Root, RootError};

use super::{read_list, wanted_path};
use crate::homes::{Storage, StorageError};

impl Storage {
    /// Removes files that do not belong to the package from its staged tree; returns what is left. Contents are not checked.
    pub fn tidy_unfinished(&self, user: &UserName, manifest: &Manifest) -> Result<Usage, StorageError> {
        match StagedTree::kept(&*self.home(user)?, manifest.id())? {
            Some(tree) => Ok(tree.tidy(manifest)?),
            None => Ok(Usage::default()),
        }
    }

    /// Partly received packages, including those in flight.
    pub fn unfinished_packages(&self, user: &UserName) -> Result<Vec<UnfinishedPackage>, StorageError> {
        Ok(unfinished_packages(&*self.home(user)?)?)
    }

    /// The ids of partly received packages.
    pub fn unfinished_ids(&self, user: &UserName) -> Result<Vec<PackageId>, StorageError> {
        Ok(unfinished_package_ids(&*self.home(user)?)?)
    }

    /// The total bytes of an announced package, if known.
    pub fn awaited_bytes(&self, user: &UserName, id: PackageId) -> Result<Option<u64>, StorageError> {
        let list = read_list(&*self.home(user)?, &wanted_path(id));
        Ok(list.ok().map(|list| list.total_bytes()))
    }

    /// The length of an announced package's manifest; 0 if there is none.
    pub fn awaited_list(&self, user: &UserName, id: PackageId) -> Result<u64, StorageError> {
        match self.home(user)?.stat_link(&wanted_path(id)) {
            Err(error) if error.is_not_found() => Ok(0),
            found => Ok(found?.size),
        }
    }

    /// Discards the staged tree of a package and its `.wanted` manifest, unless it is being sent. Returns whether anything was
    /// removed.
    pub fn give_up_unfinished(&self, user: &UserName, id: PackageId) -> Result<bool, StorageError> {
        let home = self.home(user)?;
        let tree = match StagedTree::kept(&home, id) {
            Err(RootError::Busy(_)) | Ok(None) => return Ok(false),
            Ok(Some(tree)) => tree,
            Err(error) => return Err(error.into()),
        };
        // The tree stays locked until the manifest is gone, so that no client resumes it meanwhile.
        match home.remove(&wanted_path(id)) {
            Err(error) if !error.is_not_found() => return Err(error.into()),
            _ => {}
        }
        tree.discard()?;
        Ok(true)
    }
}

/// What was received of a package.
pub(super) fn stock(home: &Root, manifest: &Manifest) -> Result<Stock, StorageError> {
    match StagedTree::kept(home, manifest.id())? {
        Some(tree) => Ok(tree.take_stock(manifest)?),
        None => Ok(Stock::default()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use paddlecloud_pfs::pack::Part;

    use super::*;
    use crate::packages::testing::Fixture;

    const LARGE: usize = 400_000;

    /// A folder with a large file between two small ones, and a user's storage.
    fn fixture() -> Fixture {
        let fixture = Fixture::new();
        for (name, text) in [("a", "1"), ("d/same", "1"), ("z", "last")] {
            fixture.write(name, text);
        }
        let large: Vec<u8> = (0..LARGE).map(|at| (at % 251) as u8).collect();
        fixture.write("large", large);
        fixture
    }

    /// Sends this many bytes, then stops.
    fn send(fixture: &Fixture, bytes: usize) {
        let stream = fixture.stream(&fixture.announce());
        let mut receiver = fixture.receive();
        receiver.feed(&stream[..bytes]).unwrap();
        receiver.put_down();
    }

    /// Sends what is missing; returns how many bytes that took.
    fn finish(fixture: &Fixture) -> (usize, Result<(), StorageError>) {
        let stream = fixture.stream(&fixture.announce());
        let mut receiver = fixture.receive();
        receiver.feed(&stream).unwrap();
        (stream.len(), receiver.finish())
    }

    #[test]
    fn what_came_before_a_cut_is_not_asked_for_again() {
        let fixture = fixture();
        assert_eq!(fixture.announce().missing.len(), 3, "two files are the same");
        send(&fixture, 300_000);
        let wanted = fixture.announce();
        assert_eq!(wanted.missing.len(), 2, "the large one and the last");
        let [Part { path, len }] = wanted.parts.as_slice() else {
            panic!("one file is there in part: {wanted:?}");
        };
        assert!(path.as_bytes() == b"large" && *len > 290_000, "{wanted:?}");
        let (sent, finished) = finish(&fixture);
        finished.unwrap();
        assert!(sent < LARGE - 290_000 + 1000, "{sent}");
        assert!(fixture.has_it() && !fixture.staging().exists());
    }

    #[test]
    fn an_upload_that_fails_at_its_end_is_gone_on_with() {
        let fixture = fixture();
        let stream = fixture.stream(&fixture.announce());
        let mut receiver = fixture.receive();
        receiver.feed(&stream[..300_000]).unwrap();
        assert!(receiver.finish().is_err(), "the stream is not whole");
        assert_eq!(fixture.announce().parts.len(), 1);
        finish(&fixture).1.unwrap();
        assert!(!fixture.staging().exists());
    }

    #[test]
    fn whoever_comes_while_a_package_is_being_sent_hears_that_and_nothing_stays_of_what_is_here() {
        let fixture = fixture();
        send(&fixture, 300_000);
        let stream = fixture.stream(&fixture.announce());
        let first = fixture.receive();
        let (user, manifest) = (&fixture.me, fixture.manifest());
        let refused = [
            fixture.storage.receive(user, manifest.id()).map(drop),
            fixture.storage.announce(user, &manifest).map(drop),
            fixture.storage.tidy_unfinished(user, &manifest).map(drop),
        ];
        for refused in refused {
            let is_busy = matches!(refused, Err(StorageError::Storage(RootError::Busy(_))));
            assert!(is_busy, "{refused:?}");
        }
        first.put_down();
        let mut second = fixture.receive();
        second.feed(&stream).unwrap();
        second.finish().unwrap();
        assert!(fixture.has_it());
        // Announced earlier, and sent although the package exists by now.
        let mut late = fixture.receive();
        late.feed(&stream[..1000]).unwrap();
        late.put_down();
        assert!(
            !fixture.staging().exists(),
            "nobody needs the rest of what is here"
        );
    }

    #[test]
    fn a_damaged_beginning_costs_its_file_once() {
        let fixture = fixture();
        send(&fixture, 300_000);
        let kept = fs::read_dir(fixture.staging()).unwrap().next().unwrap().unwrap();
        let part = kept.path().join("large");
        let mut bytes = fs::read(&part).unwrap();
        bytes[77] ^= 1;
        fs::write(&part, bytes).unwrap();
        let (sent, finished) = finish(&fixture);
        assert!(
            sent < LARGE && matches!(finished, Err(StorageError::Incomplete(1, _))),
            "{sent}"
        );
        let (sent, finished) = finish(&fixture);
        assert!(sent > LARGE, "{sent}");
        finished.unwrap();
        assert!(!fixture.staging().exists());
    }

    #[test]
    fn what_came_is_listed_and_given_up_unless_it_is_being_sent() {
        let fixture = fixture();
        send(&fixture, 300_000);
        let id = fixture.manifest().id();
        let found = fixture.storage.unfinished_packages(&fixture.me).unwrap();
        let [package] = found.as_slice() else {
            panic!("{found:?}");
        };
        assert_eq!((package.id, package.usage.files), (id, 3));
        assert!(package.usage.bytes > 290_000 && package.usage.bytes < 300_000);
        let whole = fixture.storage.awaited_bytes(&fixture.me, id).unwrap();
        assert_eq!(whole, Some(LARGE as u64 + 6));
        assert_eq!(fixture.storage.unfinished_ids(&fixture.me).unwrap(), [id]);
        let give_up = || fixture.storage.give_up_unfinished(&fixture.me, id).unwrap();
        let home = fixture.storage.home_path(&fixture.me);
        let list = home.join(".paddlecloud/packages").join(format!("{id}.wanted"));
        let receiver = fixture.receive();
        assert!(!give_up());
        assert!(list.exists(), "somebody is sending it");
        receiver.put_down();
        assert!(give_up());
        assert!(!fixture.staging().exists());
        assert!(!list.exists(), "it counts in the quota");
        assert_eq!(fixture.announce().missing.len(), 3);
    }

    #[test]
    fn what_a_job_puts_there_is_neither_published_nor_counted() {
        let fixture = fixture();
        send(&fixture, 300_000);
        let kept = fs::read_dir(fixture.staging())
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .path();
        fs::write(kept.join("huge"), vec![0; 1 << 20]).unwrap();
        std::os::unix::fs::symlink("/etc", kept.join("z")).unwrap();
        let held = fixture
            .storage
            .tidy_unfinished(&fixture.me, &fixture.manifest())
            .unwrap();
        assert!(held.bytes < LARGE as u64, "{held:?}");
        // The same while it is being received.
        let stream = fixture.stream(&fixture.announce());
        let mut receiver = fixture.receive();
        fs::create_dir(kept.join("late")).unwrap();
        receiver.feed(&stream).unwrap();
        receiver.finish().unwrap();
        let mut names: Vec<_> = fs::read_dir(fixture.stored(fixture.manifest().id()))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["a", "d", "large", "z"]);
    }
}
