//! A listing, a few lines at a time: memory does not grow with the folder.
//!
//! The client receives something every few seconds, even while a large file is hashed.

use std::io;
use std::time::{Duration, Instant};

use paddlecloud_api::error::ErrorBody;
use paddlecloud_api::files::{FileMeta, ListEntry, ListLine, UnreadEntry};
use paddlecloud_pfs::root::{DirEntry, Kind, Stamp};
use paddlecloud_pfs::store::Entries;
use paddlecloud_pfs::{Access, Digest, PfsPath, RelPath, RootError};

use super::digests::Reading;
use super::{Files, FilesError, Reached};
use crate::auth::Caller;
use crate::queue::SIGN_OF_LIFE;

/// Bytes of text that are buffered before they are sent.
const LINES: usize = 64 << 10;

/// Entries per index lookup.
const PAGE: usize = 1000;

/// The most entries that are collected in memory.
const MOST_AT_ONCE: usize = 100_000;

/// An entry of a folder, and its row in the index if digests are wanted.
type Indexed = (Result<DirEntry, RootError>, Option<(Stamp, Digest)>);

/// Lists a folder.
pub struct Lister {
    files: Files,
    base: Reached,
    entries: Entries,
    /// The next entries, each with its row in the index.
    page: std::vec::IntoIter<Indexed>,
    digests: bool,
    /// Entries up to this one are skipped: an earlier listing sent them.
    after: Option<RelPath>,
    /// The entry that is being hashed.
    reading: Option<(ListEntry, Box<Reading>)>,
    pause: Duration,
    count: u64,
    ended: bool,
}

impl Files {
    /// Starts to list a folder, or everything below it.
    pub fn list(
        &self,
        caller: &Caller,
        path: &PfsPath,
        recursive: bool,
        digests: bool,
    ) -> Result<Lister, FilesError> {
        let base = self.reach(caller, path, Access::Read)?;
        let _acting = self.act(&base.place.space)?;
        if !base.stat()?.is_dir() {
            return Err(base.failed()(RootError::NotAFolder(base.place.path.clone())));
        }
        let entries: Entries = match recursive {
            true => base.root.walk(&base.place.path),
            false => {
                let listed = base.root.list(&base.place.path).map_err(base.failed())?;
                Box::new(listed.into_iter().map(Ok))
            }
        };
        Ok(Lister {
            files: self.clone(),
            base,
            entries,
            page: Vec::new().into_iter(),
            digests,
            after: None,
            reading: None,
            pause: SIGN_OF_LIFE,
            count: 0,
            ended: false,
        })
    }
}

impl Lister {
    /// Resumes after the last entry of an earlier listing that broke off.
    pub fn after(mut self, last: Option<RelPath>) -> Lister {
        self.after = last;
        self
    }

    /// The next lines; `None` after the last. While none is ready, a blank, which JSON ignores before a line.
    pub fn next_lines(&mut self) -> Option<Vec<u8>> {
        if self.ended {
            return None;
        }
        let acting = self.files.act(&self.base.place.space);
        let mut lines = Vec::with_capacity(LINES + 1024);
        let until = Instant::now() + self.pause;
        while lines.len() < LINES && !self.ended {
            let line = match &acting {
                Ok(_) => self.next_line(until),
                Err(error) => Some(ListLine::Error(error.refusal())),
            };
            // `None`: skipped, still being hashed, or removed after it was listed.
            if let Some(line) = line {
                match line {
                    ListLine::Entry(_) => self.count += 1,
                    ListLine::Unread(_) => {}
                    ListLine::End(_) | ListLine::Error(_) => self.ended = true,
                }
                serde_json::to_writer(&mut lines, &line).expect("plain data becomes JSON");
                lines.push(b'\n');
            }
            if Instant::now() >= until {
                break;
            }
        }
        if lines.is_empty() {
            lines.push(b' ');
        }
        Some(lines)
    }

    fn next_line(&mut self, until: Instant) -> Option<ListLine> {
        let line = match self.reading.take() {
            Some((entry, reading)) => self.read_on(entry, reading, until),
            None => match self.next_entry() {
                Some((Ok(entry), indexed)) => self.line(entry, indexed, until),
                Some((Err(error), _)) => Err(self.about(error)),
                None => return Some(ListLine::End(self.count)),
            },
        };
        match line {
            Ok(line) => line,
            Err(FilesError::Storage { path, source }) if is_about_one(&source) => {
                let error = FilesError::Storage {
                    path: path.clone(),
                    source,
                };
                Some(ListLine::Unread(UnreadEntry {
                    path: (*path).into(),
                    error: error.refusal(),
                }))
            }
            Err(error) => Some(ListLine::Error(error.refusal())),
        }
    }

    /// The next entry. If digests are wanted, the index is asked about a page of entries at a time.
    fn next_entry(&mut self) -> Option<Indexed> {
        if !self.digests {
            return Some((self.entries.next()?, None));
        }
        if self.page.len() == 0 {
            let entries: Vec<_> = self.entries.by_ref().take(PAGE).collect();
            let path = |entry: &Result<DirEntry, RootError>| {
                let path = entry.as_ref().map(|entry| entry.path.clone());
                path.unwrap_or_default()
            };
            let paths: Vec<RelPath> = entries.iter().map(path).collect();
            let indexed = self.files.indexed(&self.base.place.space, &paths);
            self.page = entries.into_iter().zip(indexed).collect::<Vec<_>>().into_iter();
        }
        self.page.next()
    }

    /// Names the node that an error concerns by its full path.
    fn about(&self, error: RootError) -> FilesError {
        let inside = error
            .path()
            .and_then(|path| path.strip_prefix(&self.base.place.path));
        match inside.and_then(|inside| self.base.below(&inside).ok()) {
            Some(node) => node.failed()(error),
            None => self.base.failed()(error),
        }
    }

    /// Reports an unreadable file; the listing continues.
    fn unread(&self, path: &RelPath, error: FilesError) -> Result<ListLine, FilesError> {
        let node = self.base.below(path)?;
        let inside = node.place.path.clone();
        let error = match error {
            FilesError::Disk(source, _) if source.kind() == io::ErrorKind::UnexpectedEof => {
                // The file was truncated.
                node.failed()(RootError::Changing(inside))
            }
            FilesError::Disk(source, action) => node.failed()(RootError::Io {
                action,
                path: inside,
                source,
            }),
            other => other,
        };
        Ok(ListLine::Unread(UnreadEntry {
            path: node.shown.into(),
            error: error.refusal(),
        }))
    }

    /// All entries at once, for clients that cannot stream them.
    pub fn collect(mut self) -> Result<Vec<ListEntry>, ErrorBody> {
        let mut entries = Vec::new();
        let _acting = self
            .files
            .act(&self.base.place.space)
            .map_err(|error| error.refusal())?;
        while let Some(entry) = self.entries.next() {
            let entry = match entry {
                // The old protocol cannot report a skipped entry.
                Err(error) if is_about_one(&error) => continue,
                other => other.map_err(|error| self.about(error).refusal())?,
            };
            // Without digests, nothing is read, so the deadline does not matter.
            let line = self.line(entry, None, Instant::now());
            if let Some(ListLine::Entry(entry)) = line.map_err(|error| error.refusal())? {
                entries.push(entry);
            }
            if entries.len() > MOST_AT_ONCE {
                let problem = format!("`{}` holds more than an old client can list", self.base.shown);
                return Err(FilesError::BadRequest(problem).refusal());
            }
        }
        Ok(entries)
    }

    fn line(
        &mut self,
        entry: DirEntry,
        indexed: Option<(Stamp, Digest)>,
        until: Instant,
    ) -> Result<Option<ListLine>, FilesError> {
        let below = entry.path.strip_prefix(&self.base.place.path);
        let path = below.expect("what is listed lies below what was asked for");
        if self.after.as_ref().is_some_and(|last| path <= *last) {
            return Ok(None);
        }
        let is_file = entry.meta.kind == Kind::File;
        let entry = ListEntry {
            path,
            meta: FileMeta::of(&entry.meta),
        };
        if self.digests && is_file {
            let reached = self.base.below(&entry.path)?;
            match self.files.begin_reading(&reached, indexed) {
                Ok(Some(reading)) => return self.read_on(entry, reading, until),
                Ok(None) => {}
                Err(FilesError::Storage { source, .. }) if source.is_not_found() => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok(Some(ListLine::Entry(entry)))
    }

    /// Continues to hash an entry; returns its line once the digest is known.
    fn read_on(
        &mut self,
        mut entry: ListEntry,
        mut reading: Box<Reading>,
        until: Instant,
    ) -> Result<Option<ListLine>, FilesError> {
        entry.meta.digest = match reading.read_until(&self.files, until) {
            Ok(digest) => digest,
            Err(error) => return self.unread(&entry.path, error).map(Some),
        };
        if entry.meta.digest.is_none() {
            self.reading = Some((entry, reading));
            return Ok(None);
        }
        Ok(Some(ListLine::Entry(entry)))
    }
}

/// Whether the error concerns one entry only, so that the rest can still be listed.
fn is_about_one(error: &RootError) -> bool {
    !matches!(error, RootError::Unreachable { .. })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use paddlecloud_pfs::Source;
    use paddlecloud_pfs::root::Meta;
    use paddlecloud_pfs::store::ReadAt;

    use super::*;
    use crate::files::testing::{files, home, me};

    /// A listing whose deadline has always passed.
    fn lister(files: &Files, digests: bool) -> Lister {
        let path = "/pfs/dc/home/me".parse().unwrap();
        let mut lister = files.list(&me(), &path, true, digests).unwrap();
        lister.pause = Duration::ZERO;
        lister
    }

    fn pieces(files: &Files, digests: bool) -> Vec<Vec<u8>> {
        let mut lister = lister(files, digests);
        std::iter::from_fn(|| lister.next_lines()).collect()
    }

    /// JSON ignores the blanks.
    fn parsed(text: &[u8]) -> Vec<ListLine> {
        text.split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect()
    }

    #[test]
    fn whoever_waits_for_the_digest_of_a_large_file_hears_something_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(folder.path());
        let home = home(folder.path());
        let large = vec![7; 18 << 20];
        for (name, content) in [("a", &b"1"[..]), ("b", &large), ("c", b"2")] {
            std::fs::write(home.join(name), content).unwrap();
        }
        let told = pieces(&files, true);
        let is_line = |piece: &&Vec<u8>| piece.ends_with(b"\n");
        assert_eq!(told.iter().filter(is_line).count(), 4, "three files and the end");
        let (first, second) = (1, told.iter().rposition(|piece| piece.len() == 1).unwrap() + 1);
        let waits = &told[first..second];
        assert!(waits.len() >= 4, "{} signs of life", waits.len());
        assert!(
            waits.iter().all(|piece| piece == b" "),
            "nothing but signs of life"
        );

        let lines = parsed(&told.concat());
        let digests: Vec<Digest> = lines
            .iter()
            .filter_map(|line| match line {
                ListLine::Entry(entry) => entry.meta.digest,
                _ => None,
            })
            .collect();
        assert_eq!(digests, [Digest::of(b"1"), Digest::of(&large), Digest::of(b"2")]);
        assert!(matches!(lines.last(), Some(ListLine::End(3))));
    }

    /// A disk that fails every read of a file.
    struct BadDisk(Meta);

    impl ReadAt for BadDisk {
        fn meta(&self) -> &Meta {
            &self.0
        }
    }

    impl Source for BadDisk {
        fn len(&self) -> io::Result<u64> {
            Ok(self.0.size)
        }

        fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
            Err(io::Error::other("a bad sector"))
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_to_its_end_does_not_end_the_listing() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(folder.path());
        let home = home(folder.path());
        for (name, size) in [("a", 1), ("b", 18 << 20), ("c", 1)] {
            std::fs::write(home.join(name), vec![7; size]).unwrap();
        }
        let mut lister = lister(&files, true);
        let mut told = Vec::new();
        while let Some(piece) = lister.next_lines() {
            if let Some((_, reading)) = &mut lister.reading {
                reading.file = Arc::new(BadDisk(reading.file.meta().clone()));
            }
            told.extend(piece);
        }
        let lines = parsed(&told);
        let [
            ListLine::Entry(a),
            ListLine::Unread(b),
            ListLine::Entry(c),
            ListLine::End(2),
        ] = &lines[..]
        else {
            panic!("{lines:?}");
        };
        assert_eq!((a.path.to_string(), c.path.to_string()), ("a".into(), "c".into()));
        assert_eq!(b.path.0.to_string(), "/pfs/dc/home/me/b");
        assert_eq!(b.error.msg, "cannot read `/pfs/dc/home/me/b`");
    }

    #[test]
    fn without_digests_nothing_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(folder.path());
        let large = home(folder.path()).join("large");
        std::fs::write(large, vec![7; 9 << 20]).unwrap();
        let told = pieces(&files, false);
        assert!(told.iter().all(|piece| piece.ends_with(b"\n")));
    }
}
