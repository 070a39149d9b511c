//! Packs: many small files in one request, in either direction.
//!
//! A pack for a folder is staged and merged. A pack for a package is written into the package's staged tree; if it breaks, its
//! whole files stay there.

use std::collections::HashSet;

use bytes::Bytes;
use paddlecloud_accounts::auth::Caller;
use paddlecloud_api::files::{PackRequest, SMALL_FILE};
use paddlecloud_pfs::content::IndexedFile;
use paddlecloud_pfs::pack::{
    Merged, PackLimits, PackParser, PackTotals, PackWriter, StagedTree, Unpacked, Unpacker,
};
use paddlecloud_pfs::quota::{Amount, Reservation};
use paddlecloud_pfs::root::{Stamp, Usage};
use paddlecloud_pfs::staging::in_package;
use paddlecloud_pfs::store::ReadAt;
use paddlecloud_pfs::{Access, Digest, Entry, Existing, Node, PfsPath, Place, RelPath, RootError};

use super::content::PIECE;
use super::digests::logged;
use super::tree::existing;
use super::{Files, FilesError, Reached, Takes};
use crate::queue::Class;

/// The most bytes of content in a pack.
const MOST_BYTES: u64 = 1 << 30;
/// The most entries in a pack.
const MOST_ENTRIES: u64 = 100_000;

/// A pack that is being received. If it is dropped unfinished, none of its files appear.
pub struct PackIn {
    files: Files,
    folder: Reached,
    staged: StagedTree,
    parser: PackParser<Unpacker>,
    room: Option<Reservation>,
    existing: Existing,
    /// No space was left for it.
    is_full: bool,
}

/// What became of a received pack.
#[derive(Debug, Default)]
pub struct PackStored {
    /// Files and links that were stored.
    pub stored: u64,
    /// Existing ones that were kept, relative to the folder.
    pub kept: Vec<RelPath>,
    pub failed: Vec<(RelPath, FilesError)>,
}

impl Files {
    /// Starts to receive a pack of the announced size, whose files go below a folder.
    pub fn pack_in(
        &self,
        caller: &Caller,
        path: &PfsPath,
        announced: PackTotals,
        no_overwrite: bool,
    ) -> Result<PackIn, FilesError> {
        let folder = self.reach_upload(caller, path)?;
        match in_package(&folder.place.path) {
            None => {
                let _acting = self.act(&folder.place.space)?;
                folder.refuse_own_folder()?;
            }
            Some((_, inside)) if inside.is_root() => {}
            Some(_) => return Err(FilesError::BadRequest("a pack is for a whole package".to_owned())),
        }
        if announced.bytes > MOST_BYTES || announced.entries > MOST_ENTRIES {
            return Err(FilesError::BadRequest("a pack cannot hold that much".to_owned()));
        }
        let asked = Amount {
            bytes: announced.bytes,
            files: announced.entries,
        };
        let room = self.reserve(&folder.place.space, asked)?;
        let _acting = self.act(&folder.place.space)?;
        let staged = match folder.package_tree()? {
            Some(tree) => tree,
            None => StagedTree::create(folder.root.staging()).map_err(folder.failed())?,
        };
        let usual = PackLimits::default();
        let limits = PackLimits {
            entries: announced.entries,
            bytes: announced.bytes,
            // A package gets its links from its manifest, when all files have come.
            links: if folder.package().is_some() {
                0
            } else {
                usual.links
            },
            ..usual
        };
        let parser = staged.unpacker(limits);
        Ok(PackIn {
            files: self.clone(),
            folder,
            staged,
            parser,
            room,
            existing: existing(no_overwrite),
            is_full: false,
        })
    }
}

impl Takes for PackIn {
    type Done = PackStored;
    /// Files are synced, or sent to a remote store.
    const END: Option<Class> = Some(Class::End);

    fn feed(&mut self, bytes: &[u8]) -> Result<(), FilesError> {
        let _acting = self.files.act(&self.folder.place.space)?;
        self.parser.feed(bytes).map_err(|error| {
            let error = FilesError::from(error);
            self.is_full |= error.is_full();
            error
        })
    }

    /// Aborts the pack and removes its staged files. Whole files of a package stay, unless the disk is full.
    fn discard(self) {
        let acting = self.files.act(&self.folder.place.space);
        if let Err(error) = &acting {
            return tracing::warn!(%error, "a staged pack could not be removed");
        }
        drop(self.parser);
        if self.folder.package().is_some() {
            drop(self.room);
            self.files.forget_measure(&self.folder.place.space);
            if !self.is_full {
                return;
            }
        }
        if let Err(error) = self.staged.discard() {
            tracing::warn!(%error, "a staged pack could not be removed");
        }
    }

    /// Checks the pack and publishes its files. Durable when it returns, except in a package, which is synced as a whole.
    fn finish(self) -> Result<PackStored, FilesError> {
        if self.folder.package().is_some() {
            return self.end_in_package();
        }
        let PackIn {
            files,
            folder,
            staged,
            parser,
            room,
            existing,
            ..
        } = self;
        let _acting = files.act(&folder.place.space)?;
        let checked = match contains_own_folder(&staged, &folder) {
            Ok(true) => Err(folder
                .below(&super::ours())
                .map_or_else(|error| error, |ours| FilesError::Ours(ours.shown))),
            Ok(false) => parser.finish_unpacking().map_err(FilesError::from),
            Err(error) => Err(folder.failed()(error)),
        };
        let (totals, arrived) = match checked {
            Ok(checked) => checked,
            Err(refused) => {
                staged.discard().map_err(folder.failed())?;
                return Err(refused);
            }
        };
        let written = match room {
            Some(_) => staged.tree().usage(&RelPath::root()).unwrap_or_else(|_| {
                files.forget_measure(&folder.place.space);
                Usage::default()
            }),
            None => Usage::default(),
        };
        let merged = folder.root.merge(staged, &folder.place.path, existing);
        let merged = merged.map_err(|error| {
            // Some files may have been published; only a measurement shows which.
            files.forget_measure(&folder.place.space);
            folder.failed()(error)
        })?;
        if let Some(room) = room {
            room.charge(written.into(), merged.replaced.into());
        }
        if !merged.kept.is_empty() || !merged.failed.is_empty() {
            files.forget_measure(&folder.place.space);
        }
        files.record_pack(&folder, &merged, arrived);
        let failed = merged.failed.into_iter().map(|(path, error)| {
            let shown = folder.below(&path);
            let error = match shown {
                Ok(reached) => reached.failed()(error),
                Err(error) => error,
            };
            (path, error)
        });
        let failed: Vec<_> = failed.collect();
        Ok(PackStored {
            stored: totals.entries - merged.kept.len() as u64 - failed.len() as u64,
            kept: merged.kept,
            failed,
        })
    }
}

impl PackIn {
    /// Ends a pack whose files are in their package now, or as many of them as arrived.
    fn end_in_package(self) -> Result<PackStored, FilesError> {
        let (files, folder) = (self.files, self.folder);
        let _acting = files.act(&folder.place.space)?;
        let checked = self.parser.finish_unpacking();
        // Only a measurement shows what arrived.
        let (totals, arrived) = checked.inspect_err(|_| files.forget_measure(&folder.place.space))?;
        files.received(&folder, arrived.iter().map(|file| (file.stamp, file.digest)));
        if let Some(room) = self.room {
            let written = Amount {
                bytes: totals.bytes,
                files: arrived.len() as u64,
            };
            room.charge(written, Amount::default());
        }
        Ok(PackStored {
            stored: totals.entries,
            ..PackStored::default()
        })
    }
}

/// Whether a pack for the home itself contains the server's own folder. Elsewhere that name has no meaning.
fn contains_own_folder(staged: &StagedTree, folder: &Reached) -> Result<bool, RootError> {
    let is_own_folder = folder
        .place
        .path
        .join(&super::ours())
        .is_ok_and(|path| folder.is_ours(&path));
    Ok(is_own_folder && staged.tree().exists(&super::ours())?)
}

impl Files {
    /// Records the digests of a pack's files, in one transaction.
    fn record_pack(&self, folder: &Reached, merged: &Merged, files: Vec<Unpacked>) {
        let settled = merged.settled(files).into_iter();
        // A job's write sets both times to the same moment, so only a stamp whose times differ can reveal a later write.
        let files = settled
            .filter(|file| file.stamp.mtime != file.stamp.ctime)
            .filter_map(|file| {
                let place = Place {
                    space: folder.place.space.clone(),
                    path: folder.place.path.join(&file.path).ok()?,
                };
                let Unpacked { stamp, digest, .. } = file;
                Some(IndexedFile { place, stamp, digest })
            });
        logged(self.index().record(&files.collect::<Vec<_>>()));
    }
}

/// A pack that is being sent. Unreadable files, and files that are no longer small, are left out.
pub struct PackOut {
    store: Files,
    folder: Reached,
    /// Each with its record in the index.
    files: std::iter::Zip<std::vec::IntoIter<RelPath>, std::vec::IntoIter<Option<(Stamp, Digest)>>>,
    writer: Option<PackWriter<Vec<u8>>>,
    seen: HashSet<RelPath>,
    content: Vec<u8>,
}

impl Files {
    /// Starts to send small files of a folder.
    pub fn pack_out(&self, caller: &Caller, request: PackRequest) -> Result<PackOut, FilesError> {
        let folder = self.reach(caller, &request.path.0, Access::Read)?;
        let _acting = self.act(&folder.place.space)?;
        if !folder.stat()?.is_dir() {
            return Err(FilesError::not_a_file(&folder));
        }
        let ascending = request.files.is_sorted_by(|a, b| a < b);
        if !ascending
            || request.files.len() as u64 > MOST_ENTRIES
            || request.files.iter().any(RelPath::is_root)
        {
            return Err(FilesError::BadRequest(
                "the files of a pack must be named once, in order".to_owned(),
            ));
        }
        let places: Result<Vec<RelPath>, _> = request
            .files
            .iter()
            .map(|path| folder.place.path.join(path))
            .collect();
        let places = places.map_err(|error| folder.failed()(error.into()))?;
        let indexed = self.indexed(&folder.place.space, &places);
        Ok(PackOut {
            store: self.clone(),
            folder,
            files: request.files.into_iter().zip(indexed),
            writer: Some(PackWriter::new(Vec::new())?),
            seen: HashSet::from([RelPath::root()]),
            content: Vec::new(),
        })
    }
}

impl PackOut {
    /// The next bytes; `None` at the end.
    pub fn next_piece(&mut self) -> Result<Option<Bytes>, FilesError> {
        let Some(mut writer) = self.writer.take() else {
            return Ok(None);
        };
        let _acting = self.store.act(&self.folder.place.space)?;
        while writer.get_mut().len() < PIECE {
            let Some((path, indexed)) = self.files.next() else {
                return Ok(Some(writer.finish()?.0.into()));
            };
            self.add(&mut writer, path, indexed)?;
        }
        let written = std::mem::take(writer.get_mut());
        self.writer = Some(writer);
        Ok(Some(written.into()))
    }

    fn add(
        &mut self,
        writer: &mut PackWriter<Vec<u8>>,
        path: RelPath,
        indexed: Option<(Stamp, Digest)>,
    ) -> Result<(), FilesError> {
        let Some(entry) = self.read(&path, indexed) else {
            return Ok(());
        };
        let mut missing = Vec::new();
        let mut parent = path.parent();
        while let Some(folder) = parent.filter(|folder| !self.seen.contains(folder)) {
            parent = folder.parent();
            missing.push(folder);
        }
        for folder in missing.into_iter().rev() {
            let entry = Entry {
                path: folder.clone(),
                node: Node::Dir,
                mtime: entry.mtime,
            };
            writer.add_node(&entry)?;
            self.seen.insert(folder);
        }
        Ok(writer.add_file(&entry, self.content.as_slice())?)
    }

    /// Reads a whole file, so that nothing can fail after its header was sent.
    ///
    /// Leaves out a damaged file, and one that was modified meanwhile: a request for that file alone then reports the damage or
    /// gets its new content.
    fn read(&mut self, path: &RelPath, indexed: Option<(Stamp, Digest)>) -> Option<Entry> {
        let reached = self.folder.below(path).ok()?;
        let file = reached.root.open_file(&reached.place.path).ok()?;
        self.read_from(&*file, path, indexed)
    }

    fn read_from(
        &mut self,
        file: &dyn ReadAt,
        path: &RelPath,
        indexed: Option<(Stamp, Digest)>,
    ) -> Option<Entry> {
        let meta = file.meta();
        if meta.size > SMALL_FILE {
            return None;
        }
        file.read_whole(usize::try_from(meta.size).ok()?, &mut self.content)
            .ok()?;
        if self.content.len() as u64 != meta.size || !file.is_as_opened().ok()? {
            return None;
        }
        let digest = Digest::of(&self.content);
        if indexed.is_some_and(|(stamp, stored)| stamp == meta.stamp && stored != digest) {
            return None;
        }
        Some(Entry {
            path: path.clone(),
            node: Node::File {
                size: meta.size,
                executable: meta.executable,
                digest: Some(digest),
            },
            mtime: meta.mtime,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::{self, Write as _};
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::time::UNIX_EPOCH;

    use paddlecloud_pfs::Source;
    use paddlecloud_pfs::root::Meta;

    use super::*;
    use crate::files::testing::{files, home, me};

    /// A file that a job rewrites in place once its first bytes were read.
    struct Rewritten {
        file: Arc<dyn ReadAt>,
        path: PathBuf,
    }

    impl Source for Rewritten {
        fn len(&self) -> io::Result<u64> {
            self.file.len()
        }

        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            let some = buffer.len().min(4);
            let read = self.file.read_at(&mut buffer[..some], offset)?;
            let mut file = File::options().write(true).open(&self.path)?;
            file.write_all(b"two two")?;
            // File times are coarse; make sure that this one changes.
            file.set_modified(UNIX_EPOCH)?;
            Ok(read)
        }
    }

    impl ReadAt for Rewritten {
        fn meta(&self) -> &Meta {
            self.file.meta()
        }

        fn is_as_opened(&self) -> io::Result<bool> {
            self.file.is_as_opened()
        }
    }

    #[test]
    fn a_file_that_is_rewritten_while_it_is_read_is_left_out_of_a_pack() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(folder.path());
        let path: RelPath = "f".parse().unwrap();
        let real = home(folder.path()).join("f");
        fs::write(&real, "one one").unwrap();
        let request = PackRequest {
            path: "/pfs/dc/home/me".parse().unwrap(),
            files: vec![path.clone()],
        };
        let mut pack = files.pack_out(&me(), request).unwrap();
        let opened = pack.folder.root.open_file(&path).unwrap();
        assert!(pack.read_from(&*opened, &path, None).is_some(), "it rests");
        let rewritten = Rewritten {
            file: opened,
            path: real,
        };
        assert_eq!(pack.read_from(&rewritten, &path, None), None);
        assert_eq!(pack.content, b"one two", "a mixture is what was read");
        assert!(pack.read(&path, None).is_some(), "it rests again");
    }
}
