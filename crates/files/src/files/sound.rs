//! Refuses to serve small files whose bytes the disk has damaged.
//!
//! A client checks a large file against the digest it gets with it. A small file is read first, also before it is copied on the
//! server. Large files are copied without being read, and their copies are recorded with the digest they should have. Reads by
//! jobs are not checked.

use paddlecloud_api::files::SMALL_FILE;
use paddlecloud_pfs::content::{Moved, hash_file};
use paddlecloud_pfs::root::{Meta, Stamp};
use paddlecloud_pfs::store::ReadAt;
use paddlecloud_pfs::{Digest, RelPath};

use super::digests::logged;
use super::{Files, FilesError, Reached};

/// Files per index lookup.
const AT_ONCE: usize = 1000;

impl Files {
    /// The digest with which an open file was stored, if known. A damaged small file is refused.
    pub(super) fn stored_digest(
        &self,
        reached: &Reached,
        file: &dyn ReadAt,
    ) -> Result<Option<Digest>, FilesError> {
        let stamp = file.meta().stamp;
        let indexed = self.indexed_digest(&reached.place, &stamp);
        if stamp.size > SMALL_FILE || indexed.is_none() {
            return Ok(indexed);
        }
        let digest = hash_file(file).map_err(|error| FilesError::Disk(error, "read"))?;
        let is_sound = self.is_sound(reached, &stamp, indexed, &digest)?;
        Ok(is_sound.then_some(digest))
    }

    /// Whether the bytes that were read are what the index says was stored. A damaged file is an error; a file that was modified
    /// meanwhile is not sound either.
    pub(super) fn is_sound(
        &self,
        reached: &Reached,
        stamp: &Stamp,
        indexed: Option<Digest>,
        digest: &Digest,
    ) -> Result<bool, FilesError> {
        if indexed.is_none_or(|stored| stored == *digest) {
            return Ok(true);
        }
        // The bytes belong to the stamp only if nothing was written meanwhile.
        match reached.stat()?.stamp == *stamp {
            true => {
                tracing::error!(path = %reached.shown, "the bytes of a file are not what was stored: the disk is damaged");
                Err(FilesError::DamagedOnDisk(Box::new(reached.shown.clone())))
            }
            false => Ok(false),
        }
    }

    /// Moves the records of a renamed node.
    ///
    /// If it may not be the same node, its records are dropped: without metadata from before the rename, or on a remote store,
    /// which copies it.
    pub(super) fn record_move(&self, from: &Reached, to: &Reached, before: Option<&Meta>) {
        let after = to.stat_link().ok();
        let moved = before.zip(after.as_ref()).filter(|_| !self.0.remote);
        let moved = moved.and_then(|(before, after)| Moved::new(&from.place, &to.place, before, after));
        match moved {
            Some(moved) => logged(self.index().moved(&moved)),
            None => {
                self.forget(&from.place);
                self.forget(&to.place);
            }
        }
    }

    /// Refuses to copy a damaged small file, or a folder that contains one. Large files are not read.
    pub(super) fn refuse_damaged_copy(&self, from: &Reached) -> Result<(), FilesError> {
        // A remote store copies by itself, and reading from it is slow.
        let nodes = (!self.0.remote).then(|| files_in(from)).into_iter().flatten();
        let mut small = nodes
            .filter(|(_, meta)| meta.size <= SMALL_FILE)
            .map(|(path, _)| path);
        loop {
            let names: Vec<RelPath> = small.by_ref().take(AT_ONCE).collect();
            if names.is_empty() {
                return Ok(());
            }
            let files: Vec<Reached> = names
                .iter()
                .map(|path| from.below(path))
                .collect::<Result<_, _>>()?;
            let paths: Vec<RelPath> = files.iter().map(|file| file.place.path.clone()).collect();
            let indexed = self.indexed(&from.place.space, &paths);
            for (file, indexed) in files.iter().zip(indexed).filter(|(_, indexed)| indexed.is_some()) {
                // The copy itself reports unreadable files.
                if let Err(damaged @ FilesError::DamagedOnDisk(_)) = self.digest(file, indexed) {
                    return Err(damaged);
                }
            }
        }
    }

    /// Records large copies with the digests of their sources: the copy of a damaged file is damaged too.
    pub(super) fn record_copies(&self, from: &Reached, to: &Reached) {
        let nodes = (!self.0.remote).then(|| files_in(from));
        for (path, meta) in nodes.into_iter().flatten() {
            if let (true, Ok(from), Ok(to)) = (meta.size > SMALL_FILE, from.below(&path), to.below(&path))
                && let Some(digest) = self.indexed_digest(&from.place, &meta.stamp)
                && let Some(copy) = copy_of(&meta.stamp, &to)
            {
                self.record(&to.place, copy, digest);
            }
        }
    }
}

/// A file, or all files of a folder, by their paths below it.
fn files_in(of: &Reached) -> impl Iterator<Item = (RelPath, Meta)> {
    let own = of.stat().ok().filter(Meta::is_file);
    let below = own.is_none().then(|| of.root.walk(&of.place.path));
    let below = below.into_iter().flatten().filter_map(|entry| {
        let entry = entry.ok().filter(|entry| entry.meta.is_file())?;
        Some((entry.path.strip_prefix(&of.place.path)?, entry.meta))
    });
    own.map(|own| (RelPath::root(), own)).into_iter().chain(below)
}

/// The stamp of a copy, if its source had this stamp when it was made, and the copy was not modified since.
fn copy_of(source: &Stamp, copy: &Reached) -> Option<Stamp> {
    let copy = copy.stat_link().ok().filter(Meta::is_file)?.stamp;
    let is_alike = (copy.size, copy.mtime) == (source.size, source.mtime);
    let is_as_made = source.ctime < copy.ctime && copy.mtime != copy.ctime;
    (is_alike && is_as_made).then_some(copy)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use paddlecloud_accounts::auth::Caller;
    use paddlecloud_api::files::{MoveRequest, PackRequest};
    use paddlecloud_pfs::pack::{PackLimits, PackParser, Unpacker};
    use paddlecloud_pfs::{PfsPath, Place, Root, Space};

    use super::*;
    use crate::files::{DigestMode, ListQuery, Listed, RequestedBytes, StatOf, testing};

    struct Fixture {
        folder: tempfile::TempDir,
        files: Files,
        me: Caller,
    }

    impl Fixture {
        fn new() -> Fixture {
            let folder = tempfile::tempdir().unwrap();
            Fixture {
                files: testing::files(folder.path()),
                me: testing::me(),
                folder,
            }
        }

        fn home(&self) -> std::path::PathBuf {
            testing::home(self.folder.path())
        }

        /// A file whose content differs from its record, as after a flipped bit on the disk.
        fn damaged(&self, name: &str, stored: &str, found: &str) {
            let path = self.home().join(name);
            std::fs::write(&path, found).unwrap();
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            let earlier = SystemTime::now() - Duration::from_secs(3600);
            file.set_modified(earlier).unwrap();
            let root = Root::open(self.home()).unwrap();
            let stamp = root.stat(&name.parse().unwrap()).unwrap().stamp;
            let place = Place {
                space: Space::Home("me".parse().unwrap()),
                path: name.parse().unwrap(),
            };
            self.files.record(&place, stamp, Digest::of(stored.as_bytes()));
        }

        /// The result of each way to request a single file.
        fn read_errors(&self, name: &str) -> [Option<FilesError>; 2] {
            let path = path(name);
            let content = self.files.content(&self.me, &path, &RequestedBytes::default());
            let digest = self
                .files
                .stat(&self.me, &path, StatOf::Target, DigestMode::Always);
            [content.err(), digest.err()]
        }

        /// The files that a pack contains.
        fn in_a_pack(&self, names: &[&str]) -> Vec<String> {
            let request = PackRequest {
                path: path("").into(),
                files: names.iter().map(|name| name.parse().unwrap()).collect(),
            };
            let mut pack = self.files.pack_out(&self.me, request).unwrap();
            let mut bytes = Vec::new();
            while let Some(piece) = pack.next_piece().unwrap() {
                bytes.extend_from_slice(&piece);
            }
            let folder = tempfile::tempdir().unwrap();
            let root = Root::open(folder.path()).unwrap();
            let mut parser = PackParser::new(Unpacker::new(root.clone()), PackLimits::default());
            parser.feed(&bytes).unwrap();
            parser.finish_unpacking().unwrap();
            let listed = root.list(&RelPath::root()).unwrap();
            listed.iter().map(|entry| entry.path.to_string()).collect()
        }
    }

    fn path(name: &str) -> PfsPath {
        format!("/pfs/dc/home/me/{name}").parse().unwrap()
    }

    #[test]
    fn a_damaged_small_file_is_refused_and_named_by_every_kind_of_read() {
        let fixture = Fixture::new();
        fixture.damaged("bad", "right", "wrong");
        fixture.damaged("good", "right", "right");
        for error in fixture.read_errors("bad") {
            let error = error.unwrap();
            assert!(matches!(error, FilesError::DamagedOnDisk(_)), "{error:?}");
            let message = error.to_string();
            assert!(message.contains("`/pfs/dc/home/me/bad`"), "{message}");
            assert!(message.contains("the disk is damaged"), "{message}");
        }
        assert!(fixture.read_errors("good").iter().all(Option::is_none));
        assert_eq!(fixture.in_a_pack(&["bad", "good"]), ["good"]);
        let (home, mut all) = (path(""), Vec::new());
        let query = ListQuery {
            recursive: true,
            digests: true,
            after: None,
        };
        let mut lister = fixture.files.list(&fixture.me, &home, query).unwrap();
        while lister.pass_on(|listed| {
            all.push(listed);
            true
        }) {}
        assert!(matches!(&all[0], Listed::Unread(unread, _) if *unread == path("bad")));
        assert!(matches!(&all[1], Listed::Entry(entry) if entry.meta.digest == Some(Digest::of(b"right"))));
    }

    #[test]
    fn the_digest_of_a_large_file_is_what_the_disk_has_and_not_what_is_remembered() {
        let fixture = Fixture::new();
        let [right, wrong] = ["r", "w"].map(|byte| byte.repeat(2 << 20));
        fixture.damaged("large", &right, &wrong);
        let [_, digest] = fixture.read_errors("large");
        assert!(matches!(digest.unwrap(), FilesError::DamagedOnDisk(_)));
        let request = paddlecloud_api::files::StatsRequest {
            path: path("").into(),
            files: vec!["large".parse().unwrap()],
            digest: true,
        };
        let there = fixture.files.stats(&fixture.me, &request).unwrap();
        assert_eq!(there[0].as_ref().unwrap().digest, None, "so it is sent again");
    }

    #[test]
    fn a_file_that_was_written_to_is_not_reported_as_damaged() {
        let fixture = Fixture::new();
        fixture.damaged("f", "right", "wrong");
        std::fs::write(fixture.home().join("f"), "newer").unwrap();
        assert!(fixture.read_errors("f").iter().all(Option::is_none));
        assert_eq!(fixture.in_a_pack(&["f"]), ["f"]);
    }

    #[test]
    fn a_damaged_file_stays_damaged_when_it_or_its_folder_moves() {
        let fixture = Fixture::new();
        fixture.damaged("f", "right", "wrong");
        std::fs::create_dir(fixture.home().join("d")).unwrap();
        for (from, to) in [("f", "d/g"), ("d", "e")] {
            let request = MoveRequest {
                from: path(from).into(),
                to: path(to).into(),
                no_overwrite: false,
                keep_link: false,
            };
            fixture
                .files
                .rename(&fixture.me, &request, &Default::default())
                .unwrap();
        }
        assert!(fixture.read_errors("e/g").iter().all(Option::is_some));
        assert_eq!(fixture.in_a_pack(&["e/g"]), [] as [&str; 0]);
    }

    #[test]
    fn asking_for_a_digest_does_not_hide_damage_from_fsck() {
        let fixture = Fixture::new();
        fixture.damaged("f", "right", "wrong");
        drop(fixture.read_errors("f"));
        let admin = Caller {
            scopes: paddlecloud_core::access::Scopes::all(),
            ..fixture.me.clone()
        };
        let mut fsck = fixture.files.fsck(&admin).unwrap();
        let lines: Vec<u8> = std::iter::from_fn(|| fsck.next_lines()).flatten().collect();
        let report = String::from_utf8(lines).unwrap();
        assert!(
            report.contains("damaged") && report.contains("home/me/f"),
            "{report}"
        );
    }
}
