//! A listing, a few entries at a time: memory does not grow with the folder.
//!
//! The reply (`http::files`) sends keep-alive bytes while a large file is hashed.

use std::time::Instant;

use paddlecloud_accounts::auth::Caller;
use paddlecloud_api::files::{FileMeta, ListEntry};
use paddlecloud_pfs::root::{DirEntry, Kind, Stamp};
use paddlecloud_pfs::store::Entries;
use paddlecloud_pfs::{Access, Digest, PfsPath, RelPath, RootError};

use super::{Files, FilesError, Reached};
use crate::queue::KEEP_ALIVE_INTERVAL;

/// Entries per index lookup.
const PAGE: usize = 1000;

/// The most entries that are collected in memory.
const MOST_AT_ONCE: usize = 100_000;

/// An entry of a folder, and its row in the index if digests are wanted.
type Indexed = (Result<DirEntry, RootError>, Option<(Stamp, Digest)>);

/// What a listing reports.
#[derive(Debug)]
pub enum Listed {
    Entry(ListEntry),
    /// An entry that cannot be read; the rest follows.
    Unread(PfsPath, FilesError),
    /// The end, after this many entries.
    End(u64),
    /// The rest cannot be listed.
    Broken(FilesError),
}

/// The parameters of a listing.
#[derive(Debug, Clone, Default)]
pub struct ListQuery {
    pub recursive: bool,
    pub digests: bool,
    /// List only entries after this path, the last one of an earlier listing that broke off.
    pub after: Option<RelPath>,
}

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
    count: u64,
    ended: bool,
}

impl Files {
    /// Starts to list a folder, or everything below it.
    pub fn list(&self, caller: &Caller, path: &PfsPath, query: ListQuery) -> Result<Lister, FilesError> {
        let base = self.reach(caller, path, Access::Read)?;
        let _acting = self.act(&base.place.space)?;
        if !base.stat()?.is_dir() {
            return Err(base.failed()(RootError::NotAFolder(base.place.path.clone())));
        }
        let entries: Entries = match query.recursive {
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
            digests: query.digests,
            after: query.after,
            count: 0,
            ended: false,
        })
    }
}

impl Lister {
    /// Passes on what comes next until `wants_more` returns false, a while has passed, or the listing ends. Returns false if it
    /// had ended before.
    pub fn pass_on(&mut self, mut wants_more: impl FnMut(Listed) -> bool) -> bool {
        if self.ended {
            return false;
        }
        let acting = self.files.act(&self.base.place.space);
        let _acting = match acting {
            Ok(acting) => acting,
            Err(error) => {
                self.ended = true;
                wants_more(Listed::Broken(error));
                return true;
            }
        };
        let until = Instant::now() + KEEP_ALIVE_INTERVAL;
        while !self.ended && Instant::now() < until {
            // `None`: skipped, or removed after it was listed.
            let Some(listed) = self.next_listed() else {
                continue;
            };
            match listed {
                Listed::Entry(_) => self.count += 1,
                Listed::Unread(..) => {}
                Listed::End(_) | Listed::Broken(_) => self.ended = true,
            }
            if !wants_more(listed) {
                break;
            }
        }
        true
    }

    fn next_listed(&mut self) -> Option<Listed> {
        let entry = match self.next_entry() {
            Some((Ok(entry), indexed)) => self.entry(entry, indexed),
            Some((Err(error), _)) => Err(self.about(error)),
            None => return Some(Listed::End(self.count)),
        };
        match entry {
            Ok(entry) => entry.map(Listed::Entry),
            Err(error) => Some(match about_one(&error) {
                Some(path) => Listed::Unread(path, error),
                None => Listed::Broken(error),
            }),
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

    /// All entries at once, for clients that cannot stream them.
    pub fn collect(mut self) -> Result<Vec<ListEntry>, FilesError> {
        let mut entries = Vec::new();
        let _acting = self.files.act(&self.base.place.space)?;
        while let Some(entry) = self.entries.next() {
            let entry = match entry {
                // The old protocol cannot report a skipped entry.
                Err(error) if is_about_one(&error) => continue,
                other => other.map_err(|error| self.about(error))?,
            };
            entries.extend(self.entry(entry, None)?);
            if entries.len() > MOST_AT_ONCE {
                let problem = format!(
                    "`{}` has more entries than an old client can list",
                    self.base.shown
                );
                return Err(FilesError::BadRequest(problem));
            }
        }
        Ok(entries)
    }

    fn entry(
        &mut self,
        entry: DirEntry,
        indexed: Option<(Stamp, Digest)>,
    ) -> Result<Option<ListEntry>, FilesError> {
        let below = entry.path.strip_prefix(&self.base.place.path);
        let path = below.expect("what is listed lies below what was asked for");
        if self.after.as_ref().is_some_and(|last| path <= *last) {
            return Ok(None);
        }
        let is_file = entry.meta.kind == Kind::File;
        let mut entry = ListEntry {
            path,
            meta: FileMeta::of(&entry.meta),
        };
        if self.digests && is_file {
            let reached = self.base.below(&entry.path)?;
            match self.files.digest(&reached, indexed) {
                Ok(digest) => entry.meta.digest = digest,
                Err(FilesError::Storage { source, .. }) if source.is_not_found() => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok(Some(entry))
    }
}

/// The path of the one entry that an error concerns; the rest can still be listed.
fn about_one(error: &FilesError) -> Option<PfsPath> {
    match error {
        FilesError::Storage { path, source } if is_about_one(source) => Some((**path).clone()),
        FilesError::DamagedOnDisk(path) => Some((**path).clone()),
        _ => None,
    }
}

/// Whether the error concerns one entry only, so that the rest can still be listed.
fn is_about_one(error: &RootError) -> bool {
    !matches!(error, RootError::Unreachable { .. })
}

#[cfg(test)]
mod tests {
    use paddlecloud_pfs::{Place, Root, Space};

    use super::*;
    use crate::files::testing::{files, home, me};

    fn listed(files: &Files, digests: bool) -> Vec<Listed> {
        let path = "/pfs/dc/home/me".parse().unwrap();
        let query = ListQuery {
            recursive: true,
            digests,
            after: None,
        };
        let mut lister = files.list(&me(), &path, query).unwrap();
        let mut all = Vec::new();
        while lister.pass_on(|listed| {
            all.push(listed);
            true
        }) {}
        all
    }

    #[test]
    fn a_damaged_file_does_not_end_the_listing() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(folder.path());
        let home = home(folder.path());
        for name in ["a", "b", "c"] {
            std::fs::write(home.join(name), name).unwrap();
        }
        let place = Place {
            space: Space::Home("me".parse().unwrap()),
            path: "b".parse().unwrap(),
        };
        let stamp = Root::open(&home).unwrap().stat(&place.path).unwrap().stamp;
        files.record(&place, stamp, Digest::of(b"what was stored"));
        let listed = listed(&files, true);
        let [
            Listed::Entry(a),
            Listed::Unread(b, FilesError::DamagedOnDisk(_)),
            Listed::Entry(c),
            Listed::End(2),
        ] = &listed[..]
        else {
            panic!("{listed:?}");
        };
        let digests = [a.meta.digest, c.meta.digest];
        assert_eq!(digests, [Some(Digest::of(b"a")), Some(Digest::of(b"c"))]);
        assert_eq!(b.to_string(), "/pfs/dc/home/me/b");
    }

    #[test]
    fn without_digests_nothing_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(folder.path());
        std::fs::write(home(folder.path()).join("f"), "x").unwrap();
        let listed = listed(&files, false);
        assert!(matches!(&listed[0], Listed::Entry(entry) if entry.meta.digest.is_none()));
    }
}
