//! Receives an uploaded package: announced by its manifest, sent as one stream, published as a whole.
//!
//! A file that an earlier package of the same user contains is not sent again; it is copied and checked. What arrived before a
//! stream broke is kept, and the upload resumes there; see `unfinished`.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::sync::{Arc, PoisonError};

use paddlecloud_core::names::UserName;
use paddlecloud_pfs::content::hash_file;
use paddlecloud_pfs::pack::{PackParser, Part, StagedTree, Unpacker};
use paddlecloud_pfs::package::{Manifest, PackageId};
use paddlecloud_pfs::root::{Durability, FileAttributes, StagedFile, Usage};
use paddlecloud_pfs::{Digest, Entry, Existing, Node, RelPath, Root, RootError};

use super::unfinished::stock;
use super::{list_path, read_list, stored_packages, tree_path, wanted_path};
use crate::homes::{Owner, Storage, StorageError, UserLocks, ours};

/// The longest accepted manifest, in bytes: some 300,000 files.
pub const MOST_LIST: usize = 64 << 20;
/// A manifest up to this many bytes needs no turn in the queue.
pub const SHORT_LIST: usize = 4 << 20;
/// How many earlier packages are searched for files.
const SEARCHED_PACKAGES: usize = 32;

/// What the client must send of a package.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct MissingContents {
    /// Contents that no package of the user has.
    pub missing: Vec<Digest>,
    /// How much of the missing files has already arrived.
    pub parts: Vec<Part>,
}

impl Storage {
    /// Whether the user has this package, complete.
    pub fn has_package(&self, user: &UserName, id: PackageId) -> Result<bool, StorageError> {
        Ok(self.home(user)?.exists(&list_path(id))?)
    }

    /// Stores a manifest and returns what is missing, taking into account what arrived earlier.
    pub fn announce(&self, user: &UserName, manifest: &Manifest) -> Result<MissingContents, StorageError> {
        let id = manifest.id();
        if self.has_package(user, id)? {
            return Ok(MissingContents::default());
        }
        let home = self.home(user)?;
        home.make_dirs(&ours(&["packages"]))?;
        home.write_file(&wanted_path(id), &manifest.to_json(), Existing::Replace)?;
        let stock = stock(&home, manifest)?;
        let mut wanted: HashSet<Digest> = manifest.entries().iter().filter_map(Entry::digest).collect();
        wanted.retain(|digest| !stock.whole.contains(digest));
        let known = known_files(&home, &wanted)?;
        // A job may have changed a stored file: a file that does not match its digest must be sent again.
        wanted.retain(|digest| {
            !known
                .get(digest)
                .is_some_and(|place| holds(&home, place, *digest))
        });
        let mut parts = stock.parts;
        parts.retain(|part| {
            let digest = manifest.get(&part.path).and_then(Entry::digest);
            digest.is_some_and(|digest| wanted.contains(&digest))
        });
        let mut missing: Vec<Digest> = wanted.into_iter().collect();
        missing.sort_unstable();
        Ok(MissingContents { missing, parts })
    }

    /// Starts to receive the announced package, or resumes an earlier upload; [`RootError::Busy`] while another request is
    /// receiving it.
    pub fn receive(&self, user: &UserName, id: PackageId) -> Result<Receiver, StorageError> {
        let home = self.home(user)?;
        let manifest = Arc::new(announced(&home, id)?);
        if manifest.id() != id {
            return Err(StorageError::WrongId(id.to_string()));
        }
        let staged = StagedTree::keep(&home, id)?;
        let held = staged.tidy(&manifest)?;
        let parser = staged.keeping_unpacker(Arc::clone(&manifest));
        Ok(Receiver {
            owner: self.owner(user),
            home: home.into_root(),
            staged,
            held,
            parser,
            manifest,
            id,
            locks: self.locks(user),
        })
    }
}

/// The manifest of an announced package, or of one that another upload has just completed.
fn announced(home: &Root, id: PackageId) -> Result<Manifest, StorageError> {
    for path in [wanted_path(id), list_path(id)] {
        match read_list(home, &path) {
            Err(StorageError::Storage(error)) if error.is_not_found() => {}
            other => return other,
        }
    }
    Err(StorageError::NotAnnounced(id.to_string()))
}

/// Whether a file still matches its digest.
fn holds(home: &Root, place: &RelPath, digest: Digest) -> bool {
    let found = home
        .open_file_no_links(place)
        .ok()
        .and_then(|(file, _)| hash_file(&file).ok());
    found == Some(digest)
}

/// An upload in progress. Nothing is published without `finish`.
pub struct Receiver {
    owner: Owner,
    home: Root,
    staged: StagedTree,
    held: Usage,
    parser: PackParser<Unpacker>,
    manifest: Arc<Manifest>,
    id: PackageId,
    locks: Arc<UserLocks>,
}

impl Receiver {
    /// The package's manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// What was already staged when this upload began.
    pub fn held(&self) -> Usage {
        self.held
    }

    /// Takes the next bytes of the stream. Anything that was not announced is refused before it is written.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        let _acting = self.owner.act()?;
        Ok(self.parser.feed(bytes)?)
    }

    /// Stops here. The staged files stay for the resuming client.
    pub fn put_down(self) {
        self.end(Unpublished::Stays);
    }

    /// Aborts the upload and removes its staged files.
    pub fn discard(self) {
        self.end(Unpublished::Goes);
    }

    fn end(self, what_came: Unpublished) {
        let acting = self.owner.act();
        if let Err(error) = &acting {
            return tracing::warn!(%error, "a staged package could not be removed");
        }
        drop(self.parser);
        leave(&self.home, self.staged, self.id, what_came);
    }

    /// Adds files of the user's other packages, checks everything, and publishes. Durable when it returns.
    pub fn finish(self) -> Result<(), StorageError> {
        let Receiver {
            owner,
            home,
            staged,
            parser,
            manifest,
            id,
            locks,
            ..
        } = self;
        let _acting = owner.act()?;
        let unpacked = parser.finish_unpacking().map_err(StorageError::from);
        let published = unpacked
            .and_then(|_| complete(&home, &staged, &manifest))
            .and_then(|()| publish(&home, &staged, &manifest, &locks));
        match &published {
            Ok(Published::Now) => {}
            Ok(Published::Before) => leave(&home, staged, id, Unpublished::Goes),
            Err(error) => leave(&home, staged, id, Unpublished::after(error)),
        }
        if published.is_ok()
            && let Err(error) = home.remove(&wanted_path(id))
            && !error.is_not_found()
        {
            tracing::warn!(%error, "the list of a package that has come could not be removed");
        }
        published.map(drop)
    }
}

/// What happens to a staged tree that is not published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unpublished {
    /// A later upload of the package resumes it.
    Stays,
    Goes,
}

impl Unpublished {
    /// On a full disk the staged tree is removed, to free its space.
    fn after(error: &StorageError) -> Unpublished {
        match error.is_full() {
            true => Unpublished::Goes,
            false => Unpublished::Stays,
        }
    }
}

/// Keeps or removes an unpublished tree. If the package exists by now, the tree is always removed.
fn leave(home: &Root, staged: StagedTree, id: PackageId, what_came: Unpublished) {
    if what_came == Unpublished::Stays && !home.exists(&list_path(id)).unwrap_or(false) {
        return;
    }
    if let Err(error) = staged.discard() {
        tracing::warn!(%error, "a staged package could not be removed");
    }
}

fn complete(home: &Root, staged: &StagedTree, manifest: &Manifest) -> Result<(), StorageError> {
    // A job of the owner may have written to the staging folder meanwhile.
    staged.tidy(manifest)?;
    let absent = staged.missing(manifest)?;
    let sources = Sources::find(home, staged, manifest, &absent)?;
    // The tree is synced as a whole when it is published, not file by file.
    let tree = staged.tree().clone().with_durability(Durability::Relaxed);
    let mut missing = Vec::new();
    for entry in absent {
        if !add_from_known(home, &tree, entry, &sources)? {
            missing.push(entry);
        }
    }
    match missing.first() {
        None => Ok(()),
        Some(entry) => Err(StorageError::Incomplete(missing.len(), entry.path.to_string())),
    }
}

/// Where contents may be found that the stream did not bring. They are checked when they are copied.
struct Sources([HashMap<Digest, RelPath>; 2]);

impl Sources {
    fn find(
        home: &Root,
        staged: &StagedTree,
        manifest: &Manifest,
        absent: &[&Entry],
    ) -> Result<Sources, StorageError> {
        let wanted: HashSet<Digest> = absent.iter().filter_map(|entry| entry.digest()).collect();
        let absent: HashSet<&RelPath> = absent.iter().map(|entry| &entry.path).collect();
        let mut staging = HashMap::new();
        let here = staged.place();
        // The same content under another name.
        for entry in manifest.entries() {
            if let Some(digest) = entry.digest().filter(|digest| wanted.contains(digest))
                && !absent.contains(&entry.path)
            {
                let place = here.join(&entry.path).map_err(RootError::from)?;
                staging.entry(digest).or_insert(place);
            }
        }
        Ok(Sources([staging, known_files(home, &wanted)?]))
    }

    fn of(&self, digest: Digest) -> impl Iterator<Item = &RelPath> {
        self.0.iter().filter_map(move |known| known.get(&digest))
    }
}

/// Adds an entry that the stream did not bring; returns whether that was possible. A file is checked as it is copied.
fn add_from_known(home: &Root, tree: &Root, entry: &Entry, sources: &Sources) -> Result<bool, StorageError> {
    if let Some((parent, _)) = entry.path.split_last() {
        tree.make_dirs(&parent)?;
    }
    let (digest, executable) = match &entry.node {
        Node::Dir => return Ok(tree.make_dirs(&entry.path).map(|()| true)?),
        Node::Symlink { target } => return Ok(tree.make_link(&entry.path, target).map(|()| true)?),
        Node::File {
            digest, executable, ..
        } => (*digest, *executable),
    };
    // Mode and time may differ from those of the source.
    let attributes = FileAttributes {
        executable,
        mtime: Some(entry.mtime),
    };
    for (digest, source) in digest
        .into_iter()
        .flat_map(|digest| sources.of(digest).map(move |source| (digest, source)))
    {
        if let Ok((content, _)) = home.open_file_no_links(source)
            && tree.fill_from(&entry.path, &content, attributes, digest)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

enum Published {
    Now,
    /// The package exists already and is kept: a run may be copying from it.
    Before,
}

/// Publishes the package.
fn publish(
    home: &Root,
    staged: &StagedTree,
    manifest: &Manifest,
    locks: &UserLocks,
) -> Result<Published, StorageError> {
    staged.settle()?;
    let id = manifest.id();
    let _alone = locks.publishing.lock().unwrap_or_else(PoisonError::into_inner);
    if home.exists(&list_path(id))? {
        return Ok(Published::Before);
    }
    let (tree, list) = (tree_path(id), list_path(id));
    // Write the manifest first: after the tree is renamed, nothing is left that a full disk could refuse.
    let written = written_list(home, manifest)?;
    let placed = staged
        .take_place(&tree, Existing::Replace)
        .and_then(|()| written.publish(&list, Existing::Replace).map(drop));
    if let Err(error) = placed {
        // Without its manifest the tree would belong to no package but still count. With it the package exists, even if a power
        // cut may undo that.
        if !home.exists(&list).unwrap_or(true)
            && let Err(error) = staged.step_back(&tree)
        {
            tracing::warn!(%error, "a package without a list stays where it is");
        }
        return Err(error.into());
    }
    Ok(Published::Now)
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
fn known_files(home: &Root, wanted: &HashSet<Digest>) -> Result<HashMap<Digest, RelPath>, StorageError> {
    let mut known = HashMap::new();
    for id in stored_packages(home)?.into_iter().take(SEARCHED_PACKAGES) {
        if known.len() == wanted.len() {
            break;
        }
        let Ok(manifest) = read_list(home, &list_path(id)) else {
            continue;
        };
        for entry in manifest.entries() {
            if let Some(digest) = entry.digest().filter(|digest| wanted.contains(digest)) {
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

    use super::*;
    use crate::packages::testing::Fixture;
    use crate::small_disk::Disk;

    /// Sends exactly what is missing; returns the number of files sent.
    fn send(fixture: &Fixture) -> (PackageId, usize) {
        let (id, wanted) = (fixture.manifest().id(), fixture.announce());
        if fixture.has_it() {
            return (id, 0);
        }
        let mut receiver = fixture.receive();
        receiver.feed(&fixture.stream(&wanted)).unwrap();
        receiver.finish().unwrap();
        (id, wanted.missing.len())
    }

    #[test]
    fn only_what_changed_is_asked_for() {
        let fixture = Fixture::new();
        fixture.write("train.py", "one");
        fixture.write("data.bin", "big");
        let (first, sent) = send(&fixture);
        assert_eq!(sent, 2);
        assert_eq!(send(&fixture), (first, 0));
        fixture.write("train.py", "two");
        let (second, sent) = send(&fixture);
        assert_eq!(sent, 1);
        let read = |id, name| fs::read(fixture.stored(id).join(name)).unwrap();
        assert_eq!(read(second, "data.bin"), b"big");
        assert_eq!(read(first, "train.py"), b"one");
    }

    #[test]
    fn an_upload_that_lacks_a_file_publishes_nothing() {
        let fixture = Fixture::new();
        fixture.write("a", "1");
        fixture.announce();
        let mut receiver = fixture.receive();
        receiver
            .feed(&fixture.stream(&MissingContents::default()))
            .unwrap();
        assert!(matches!(receiver.finish(), Err(StorageError::Incomplete(1, _))));
        assert!(!fixture.has_it());
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
    fn a_package_that_is_here_may_be_sent_again() {
        let fixture = Fixture::new();
        fixture.write("a", "1");
        let stream = fixture.stream(&fixture.announce());
        for _ in 0..2 {
            let mut receiver = fixture.receive();
            receiver.feed(&stream).unwrap();
            receiver.finish().unwrap();
            assert!(fixture.has_it() && !fixture.staging().exists());
        }
    }

    #[test]
    fn a_package_is_stored_also_when_what_it_was_awaited_by_cannot_be_removed() {
        let fixture = Fixture::new();
        fixture.write("a", "1");
        let stream = fixture.stream(&fixture.announce());
        let mut receiver = fixture.receive();
        receiver.feed(&stream).unwrap();
        let home = fixture.storage.home_path(&fixture.me);
        let list = home.join(wanted_path(fixture.manifest().id()).as_path());
        fs::remove_file(&list).unwrap();
        fs::create_dir_all(list.join("full")).unwrap();
        receiver.finish().unwrap();
        assert!(fixture.has_it());
    }

    #[test]
    fn a_disk_that_is_full_when_all_has_come_keeps_nothing_of_a_package_without_its_list() {
        let Some(disk) = Disk::mount() else { return };
        let fixture = Fixture::on(&disk.path().join("storage"));
        for number in 0..2000 {
            fixture.write(&format!("{number}"), "");
        }
        let stream = fixture.stream(&fixture.announce());
        let mut receiver = fixture.receive();
        receiver.feed(&stream).unwrap();
        disk.fill();
        let refused = receiver.finish().unwrap_err();
        assert!(refused.is_full(), "{refused}");
        assert!(!fixture.has_it());
        let tree = fixture.stored(fixture.manifest().id());
        assert!(!tree.exists(), "it would count, and be of no use");
        assert!(!fixture.staging().exists());
        disk.make_room();
        assert_eq!(send(&fixture).1, 1, "all files are the same");
        assert!(fixture.has_it());
    }

    #[test]
    fn a_stored_file_that_was_changed_is_asked_for_again() {
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
    fn a_stored_file_that_changes_after_it_was_counted_on_is_not_taken() {
        let fixture = Fixture::new();
        fixture.write("t.sh", "good");
        let (id, _) = send(&fixture);
        fixture.write("more", "x");
        let stream = fixture.stream(&fixture.announce());
        fs::write(fixture.stored(id).join("t.sh"), "POISONED").unwrap();
        let mut receiver = fixture.receive();
        receiver.feed(&stream).unwrap();
        assert!(matches!(receiver.finish(), Err(StorageError::Incomplete(1, _))));
        assert!(!fixture.has_it());
    }

    #[test]
    fn another_user_cannot_claim_a_package_by_its_digest() {
        let fixture = Fixture::new();
        fixture.write("secret", "s");
        let (id, _) = send(&fixture);
        let you: UserName = "you".parse().unwrap();
        assert!(!fixture.storage.has_package(&you, id).unwrap());
        let wanted = fixture.storage.announce(&you, &fixture.manifest()).unwrap();
        assert_eq!(wanted.missing.len(), 1);
    }
}
