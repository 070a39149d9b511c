//! Completes an announced package and publishes it as a whole.
//!
//! The files arrive as ordinary uploads (`crate::files`) in the package's staged tree. A file that an earlier package of the same
//! user contains is not sent again; it is copied and checked.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::sync::{Arc, PoisonError};

use paddlecloud_core::names::UserName;
use paddlecloud_pfs::pack::StagedTree;
use paddlecloud_pfs::package::{Manifest, PackageId};
use paddlecloud_pfs::root::{Durability, FileAttributes, StagedFile, Usage};
use paddlecloud_pfs::{Digest, Entry, Existing, Node, RelPath, Root, RootError};

use super::{list_path, read_list, stored_packages, tree_path};
use crate::homes::{Owner, ReceivedFiles, Storage, StorageError, UserLocks, ours};

/// The longest accepted manifest, in bytes: some 300,000 files.
pub const MOST_LIST: usize = 64 << 20;
/// A manifest up to this many bytes needs no turn in the queue.
pub const SHORT_LIST: usize = 4 << 20;
/// How many earlier packages are searched for files.
const SEARCHED_PACKAGES: usize = 32;

impl Storage {
    /// Whether the user has this package, complete.
    pub fn has_package(&self, user: &UserName, id: PackageId) -> Result<bool, StorageError> {
        Ok(self.home(user)?.exists(&list_path(id))?)
    }

    /// Locks the staged tree of an announced package and removes what does not belong to it; [`RootError::Busy`] while files are
    /// uploaded into it.
    pub fn announce<'a>(
        &self,
        user: &UserName,
        manifest: &'a Manifest,
    ) -> Result<Announced<'a>, StorageError> {
        let home = self.home(user)?;
        home.make_dirs(&ours(&["packages"]))?;
        let staged = StagedTree::keep(&home, manifest.id())?;
        let held = staged.tidy(manifest)?;
        Ok(Announced {
            owner: self.owner(user),
            home: home.into_root(),
            staged,
            held,
            manifest,
            locks: self.locks(user),
            received: self.received().clone(),
        })
    }
}

/// An announced package. No file is uploaded into it while this value lives.
pub struct Announced<'a> {
    owner: Owner,
    home: Root,
    staged: StagedTree,
    held: Usage,
    manifest: &'a Manifest,
    locks: Arc<UserLocks>,
    received: ReceivedFiles,
}

/// The result of [`Announced::complete`].
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Completed {
    /// Contents that the client must send; if there are none, the package is published.
    pub missing: Vec<Digest>,
    /// What was copied from earlier packages.
    pub copied: Usage,
}

impl Announced<'_> {
    /// What was already staged.
    pub fn held(&self) -> Usage {
        self.held
    }

    /// Removes the tree if nothing of the package has arrived yet: it was refused.
    pub fn refuse(self) {
        if self.held == Usage::default()
            && let Err(error) = self.staged.discard()
        {
            tracing::warn!(%error, "the staged tree of a refused package could not be removed");
        }
    }

    /// Adds files of the user's other packages, and publishes the package if it has everything then. Durable when it returns.
    pub fn complete(self) -> Result<Completed, StorageError> {
        let _acting = self.owner.act()?;
        let completed = self.add_known().and_then(|completed| {
            if completed.missing.is_empty() {
                self.publish()?;
            }
            Ok(completed)
        });
        // On a full disk the staged tree is removed, to free its space. If the package exists, nobody needs the tree.
        let is_full = completed.as_ref().is_err_and(StorageError::is_full);
        if (is_full || self.home.exists(&list_path(self.manifest.id())).unwrap_or(false))
            && let Err(error) = self.staged.discard()
        {
            tracing::warn!(%error, "a staged package could not be removed");
        }
        completed
    }

    /// Adds what need not be sent. Links come last: nothing is uploaded through them.
    fn add_known(&self) -> Result<Completed, StorageError> {
        let received = self.received.take(self.manifest.id());
        let absent = self.staged.missing(self.manifest, &received)?;
        let (files, others): (Vec<&Entry>, Vec<&Entry>) =
            absent.into_iter().partition(|entry| entry.is_file());
        let sources = Sources::find(&self.home, &self.staged, self.manifest, &files)?;
        // The tree is synced as a whole when it is published, not file by file.
        let tree = self.staged.tree().clone().with_durability(Durability::Relaxed);
        let mut completed = Completed::default();
        let mut missing = HashSet::new();
        for entry in files {
            let Some(digest) = entry.digest() else { continue };
            if self.copy_known(&tree, entry, digest, &sources)? {
                completed.copied.bytes += entry.size();
                completed.copied.files += 1;
            } else if missing.insert(digest) {
                completed.missing.push(digest);
            }
        }
        if completed.missing.is_empty() {
            for entry in others {
                match &entry.node {
                    Node::Symlink { target } => {
                        make_parent(&tree, entry)?;
                        tree.make_link(&entry.path, target)?;
                    }
                    _ => tree.make_dirs(&entry.path)?,
                }
            }
        }
        Ok(completed)
    }

    /// Copies a file that an earlier package has; returns whether that was possible. It is checked as it is copied.
    fn copy_known(
        &self,
        tree: &Root,
        entry: &Entry,
        digest: Digest,
        sources: &Sources,
    ) -> Result<bool, StorageError> {
        // Mode and time may differ from those of the source.
        let attributes = FileAttributes {
            executable: matches!(entry.node, Node::File { executable: true, .. }),
            mtime: Some(entry.mtime),
        };
        for source in sources.of(digest) {
            make_parent(tree, entry)?;
            if let Ok((content, _)) = self.home.open_file_no_links(source)
                && tree.fill_from(&entry.path, &content, attributes, digest)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Gives the package its place. If it exists already it is kept: a run may be copying from it.
    fn publish(&self) -> Result<(), StorageError> {
        let (home, staged, id) = (&self.home, &self.staged, self.manifest.id());
        staged.sync()?;
        let _alone = self
            .locks
            .publishing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (tree, list) = (tree_path(id), list_path(id));
        if home.exists(&list)? {
            return Ok(());
        }
        // Write the manifest first: after the tree is renamed, nothing is left that a full disk could refuse.
        let written = written_list(home, self.manifest)?;
        let placed = staged
            .take_place(&tree, Existing::Replace)
            .and_then(|()| written.publish(&list, Existing::Replace).map(drop));
        // Without its manifest the tree would belong to no package but still count. With it the package exists, even if a power
        // cut may undo that.
        if placed.is_err()
            && !home.exists(&list).unwrap_or(true)
            && let Err(error) = staged.step_back(&tree)
        {
            tracing::warn!(%error, "a package without a list stays where it is");
        }
        Ok(placed?)
    }
}

fn make_parent(tree: &Root, entry: &Entry) -> Result<(), RootError> {
    match entry.path.split_last() {
        Some((parent, _)) => tree.make_dirs(&parent),
        None => Ok(()),
    }
}

/// Where contents may be found that the client did not send. They are checked when they are copied.
struct Sources([HashMap<Digest, RelPath>; 2]);

impl Sources {
    fn find(
        home: &Root,
        staged: &StagedTree,
        manifest: &Manifest,
        absent: &[&Entry],
    ) -> Result<Sources, StorageError> {
        let needed: HashSet<Digest> = absent.iter().filter_map(|entry| entry.digest()).collect();
        let absent: HashSet<&RelPath> = absent.iter().map(|entry| &entry.path).collect();
        let mut staging = HashMap::new();
        let here = staged.place();
        // The same content under another name.
        for entry in manifest.entries() {
            if let Some(digest) = entry.digest().filter(|digest| needed.contains(digest))
                && !absent.contains(&entry.path)
            {
                let place = here.join(&entry.path).map_err(RootError::from)?;
                staging.entry(digest).or_insert(place);
            }
        }
        Ok(Sources([staging, known_files(home, &needed)?]))
    }

    fn of(&self, digest: Digest) -> impl Iterator<Item = &RelPath> {
        self.0.iter().filter_map(move |known| known.get(&digest))
    }
}

/// The manifest, written to disk but not yet named.
fn written_list(home: &Root, manifest: &Manifest) -> Result<StagedFile, RootError> {
    let mut list = home.stage_file(FileAttributes::default())?;
    list.write_all(&manifest.to_json())
        .and_then(|()| list.file().sync_data())
        .map_err(|error| RootError::io("write", &list_path(manifest.id()), error))?;
    Ok(list)
}

/// Where the user's latest packages have these contents.
fn known_files(home: &Root, needed: &HashSet<Digest>) -> Result<HashMap<Digest, RelPath>, StorageError> {
    let mut known = HashMap::new();
    for id in stored_packages(home)?.into_iter().take(SEARCHED_PACKAGES) {
        if known.len() == needed.len() {
            break;
        }
        let Ok(manifest) = read_list(home, &list_path(id)) else {
            continue;
        };
        for entry in manifest.entries() {
            if let Some(digest) = entry.digest().filter(|digest| needed.contains(digest)) {
                known
                    .entry(digest)
                    .or_insert(tree_path(id).join(&entry.path).map_err(RootError::from)?);
            }
        }
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use paddlecloud_pfs::small_disk::Disk;

    use super::*;
    use crate::packages::testing::Fixture;

    /// Sends exactly what is missing; returns the number of files sent.
    fn send(fixture: &Fixture) -> (PackageId, usize) {
        let id = fixture.manifest().id();
        let missing = fixture.announce().missing;
        if !missing.is_empty() {
            fixture.fill(&missing);
            assert_eq!(fixture.announce().missing, []);
        }
        assert!(fixture.is_stored() && !fixture.staging().exists());
        (id, missing.len())
    }

    #[test]
    fn only_changed_files_are_requested() {
        let fixture = Fixture::new();
        fixture.write("train.py", "one");
        fixture.write("data.bin", "big");
        fs::create_dir(fixture.source().join("empty")).unwrap();
        std::os::unix::fs::symlink("data.bin", fixture.source().join("link")).unwrap();
        let (first, sent) = send(&fixture);
        assert_eq!(sent, 2);
        assert_eq!(send(&fixture), (first, 0));
        fixture.write("train.py", "two");
        let (second, sent) = send(&fixture);
        assert_eq!(sent, 1);
        let read = |id, name| fs::read(fixture.stored(id).join(name)).unwrap();
        assert_eq!(read(second, "link"), b"big");
        assert_eq!(read(first, "train.py"), b"one");
        assert!(fixture.stored(second).join("empty").is_dir());
    }

    #[test]
    fn copied_and_received_files_count_as_held() {
        let fixture = Fixture::new();
        fixture.write("known", "1");
        send(&fixture);
        fixture.write("d/new", "23");
        fixture.write("d/other", "4");
        let announced = fixture.announce();
        assert_eq!((announced.copied.bytes, announced.copied.files), (1, 1));
        fixture.fill(&announced.missing[..1]);
        let manifest = fixture.manifest();
        let held = fixture.storage.announce(&fixture.me, &manifest).unwrap().held();
        assert_eq!((held.bytes, held.files), (3, 2));
        let again = fixture.announce();
        assert_eq!((again.missing.len(), again.copied.files), (1, 0));
        assert!(!fixture.is_stored());
        assert_eq!(send(&fixture).1, 1);
    }

    #[test]
    fn a_file_that_became_a_program_is_stored_as_one() {
        let fixture = Fixture::new();
        fixture.write("run.sh", "#!/bin/sh\n");
        send(&fixture);
        let script = fixture.source().join("run.sh");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let (id, sent) = send(&fixture);
        assert_eq!(sent, 0, "its content is known");
        let stored = fs::metadata(fixture.stored(id).join("run.sh")).unwrap();
        assert_eq!(stored.permissions().mode() & 0o100, 0o100);
    }

    #[test]
    fn a_package_cannot_be_announced_while_files_are_uploaded_into_it() {
        let fixture = Fixture::new();
        fixture.write("a", "1");
        let (missing, manifest) = (fixture.announce().missing, fixture.manifest());
        let home = fixture.storage.home_path(&fixture.me);
        let uploading = StagedTree::share(&Root::open(home).unwrap(), manifest.id()).unwrap();
        let refused = fixture.storage.announce(&fixture.me, &manifest).map(drop);
        let is_busy = |result| matches!(result, Err(StorageError::Storage(RootError::Busy(_))));
        assert!(is_busy(refused));
        let give_up = || fixture.storage.give_up_unfinished(&fixture.me, manifest.id());
        assert!(is_busy(give_up()));
        drop(uploading);
        fixture.fill(&missing);
        give_up().unwrap();
        assert!(!fixture.staging().exists());
        assert_eq!(send(&fixture).1, 1);
    }

    #[test]
    #[ignore = "needs permission to mount"]
    fn a_disk_that_is_full_at_the_end_keeps_nothing_of_the_package() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::mount(folder.path());
        let fixture = Fixture::on(&disk.path().join("storage"));
        for number in 0..2000 {
            fixture.write(&format!("{number}"), "");
        }
        fixture.fill(&fixture.announce().missing);
        disk.fill();
        let manifest = fixture.manifest();
        let announced = fixture.storage.announce(&fixture.me, &manifest).unwrap();
        let refused = announced.complete().unwrap_err();
        assert!(refused.is_full(), "{refused}");
        assert!(!fixture.is_stored());
        assert!(
            !fixture.stored(manifest.id()).exists(),
            "it would count, and be of no use"
        );
        assert!(!fixture.staging().exists());
        disk.make_room();
        assert_eq!(send(&fixture).1, 1, "all files are the same");
    }

    #[test]
    fn a_changed_stored_file_is_requested_again() {
        let fixture = Fixture::new();
        fixture.write("t.sh", "good");
        let (id, _) = send(&fixture);
        fs::write(fixture.stored(id).join("t.sh"), "POISONED").unwrap();
        fixture.write("more", "x");
        let (second, sent) = send(&fixture);
        assert_eq!(sent, 2);
        assert_eq!(fs::read(fixture.stored(second).join("t.sh")).unwrap(), b"good");
    }

    #[test]
    fn staged_files_changed_or_added_by_a_job_are_not_published() {
        let fixture = Fixture::new();
        fixture.write("t.sh", "good");
        fixture.write("more", "x");
        fixture.fill(&fixture.announce().missing);
        let staged = fs::read_dir(fixture.staging())
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .path();
        fs::write(staged.join("t.sh"), "evil").unwrap();
        fs::write(staged.join("huge"), vec![0; 1 << 20]).unwrap();
        assert_eq!(fixture.announce().missing, [Digest::of(b"good")]);
        let (id, _) = send(&fixture);
        let names = fs::read_dir(fixture.stored(id)).unwrap();
        assert_eq!(names.count(), 2);
    }

    #[test]
    fn another_user_cannot_claim_a_package_by_its_digest() {
        let fixture = Fixture::new();
        fixture.write("secret", "s");
        let (id, _) = send(&fixture);
        let you: UserName = "you".parse().unwrap();
        assert!(!fixture.storage.has_package(&you, id).unwrap());
        let manifest = fixture.manifest();
        let announced = fixture.storage.announce(&you, &manifest).unwrap();
        assert_eq!(announced.complete().unwrap().missing.len(), 1);
    }
}
