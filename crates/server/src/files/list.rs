//! A listing, a few lines at a time: memory does not grow with the folder.

use paddlecloud_api::error::ErrorBody;
use paddlecloud_api::files::{FileMeta, ListEntry, ListLine, UnreadEntry};
use paddlecloud_pfs::root::{DirEntry, Kind};
use paddlecloud_pfs::store::Entries;
use paddlecloud_pfs::{Access, PfsPath, RelPath, RootError};

use super::{Files, FilesError, Reached};
use crate::auth::Caller;

/// Bytes of text that are gathered before they are sent.
const LINES: usize = 64 << 10;

/// Entries that are ever gathered in memory.
const MOST_AT_ONCE: usize = 100_000;

/// Goes through a folder.
pub struct Lister {
    files: Files,
    base: Reached,
    entries: Entries,
    digests: bool,
    /// What comes up to here was told before.
    after: Option<RelPath>,
    count: u64,
    ended: bool,
}

impl Files {
    /// Begins to list a folder, or everything below it.
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
            digests,
            after: None,
            count: 0,
            ended: false,
        })
    }
}

impl Lister {
    /// Leaves out what comes before the end of an earlier listing that broke off.
    pub fn after(mut self, last: Option<RelPath>) -> Lister {
        self.after = last;
        self
    }

    /// The next lines; `None` after the last.
    pub fn next_lines(&mut self) -> Option<Vec<u8>> {
        if self.ended {
            return None;
        }
        let acting = self.files.act(&self.base.place.space);
        let mut lines = Vec::with_capacity(LINES + 1024);
        while lines.len() < LINES && !self.ended {
            let line = match &acting {
                Ok(_) => self.next_line(),
                Err(error) => Some(ListLine::Error(error.refusal())),
            };
            // Told before, or gone between being listed and being read, as if it had gone a moment before.
            let Some(line) = line else { continue };
            match line {
                ListLine::Entry(_) => self.count += 1,
                ListLine::Unread(_) => {}
                ListLine::End(_) | ListLine::Error(_) => self.ended = true,
            }
            serde_json::to_writer(&mut lines, &line).expect("plain data becomes JSON");
            lines.push(b'\n');
        }
        Some(lines)
    }

    fn next_line(&mut self) -> Option<ListLine> {
        let line = match self.entries.next() {
            Some(Ok(entry)) => self.line(entry),
            Some(Err(error)) => Err(self.about(error)),
            None => return Some(ListLine::End(self.count)),
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

    /// Names the node an error is about, as people know it.
    fn about(&self, error: RootError) -> FilesError {
        let inside = error
            .path()
            .and_then(|path| path.strip_prefix(&self.base.place.path));
        match inside.and_then(|inside| self.base.below(&inside).ok()) {
            Some(node) => node.failed()(error),
            None => self.base.failed()(error),
        }
    }

    /// All entries at once, for the few who cannot take them one by one.
    pub fn collect(mut self) -> Result<Vec<ListEntry>, ErrorBody> {
        let mut entries = Vec::new();
        let _acting = self
            .files
            .act(&self.base.place.space)
            .map_err(|error| error.refusal())?;
        while let Some(entry) = self.entries.next() {
            let entry = match entry {
                // It has no way to tell what is left out.
                Err(error) if is_about_one(&error) => continue,
                other => other.map_err(|error| self.about(error).refusal())?,
            };
            if let Some(ListLine::Entry(entry)) = self.line(entry).map_err(|error| error.refusal())? {
                entries.push(entry);
            }
            if entries.len() > MOST_AT_ONCE {
                let problem = format!("`{}` holds more than an old client can list", self.base.shown);
                return Err(FilesError::BadRequest(problem).refusal());
            }
        }
        Ok(entries)
    }

    fn line(&self, entry: DirEntry) -> Result<Option<ListLine>, FilesError> {
        let below = entry.path.strip_prefix(&self.base.place.path);
        let path = below.expect("what is listed lies below what was asked for");
        if self.after.as_ref().is_some_and(|last| path <= *last) {
            return Ok(None);
        }
        let mut meta = FileMeta::of(&entry.meta);
        if self.digests && entry.meta.kind == Kind::File {
            meta.digest = match self.files.digest(&self.base.below(&path)?) {
                Ok(digest) => digest,
                Err(FilesError::Storage { source, .. }) if source.is_not_found() => return Ok(None),
                Err(error) => return Err(error),
            };
        }
        Ok(Some(ListLine::Entry(ListEntry { path, meta })))
    }
}

/// Whether the rest can still be listed.
fn is_about_one(error: &RootError) -> bool {
    !matches!(error, RootError::Unreachable { .. })
}
