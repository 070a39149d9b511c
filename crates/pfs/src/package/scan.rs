//! Scans a folder and returns what belongs to the package, its size, and what was left out.
//!
//! Sends nothing; files are read here only to compute digests.

use std::path::Path;

use super::hashing::fill_digests;
use super::rules::{BuiltIn, Reason, Rules};
use super::{Manifest, ManifestError};
use crate::content::StatCache;
use crate::entry::Entry;
use crate::links::{LinkOutside, Links};
use crate::relpath::RelPath;
use crate::root::{DirEntry, Root, RootError, STAGING, Stamp};

/// Options for a scan. The default is what `submit` uses.
#[derive(Debug, Clone, Default)]
pub struct ScanOptions<'a> {
    /// A file or folder to leave out regardless of the rules.
    pub without: Option<RelPath>,
    /// Digests from earlier scans; unchanged files are not read again.
    pub known: Option<&'a StatCache>,
}

/// The contents of a folder; every folder precedes its contents.
#[derive(Debug, Clone, Default)]
pub struct Scan {
    pub entries: Vec<Entry>,
    pub total_bytes: u64,
    /// Number of files that were read; the others were in the cache.
    pub read: usize,
    /// Number of ignored files and folders; an ignored folder counts once.
    pub ignored: u64,
    /// The ignored folders that no ignore file names.
    pub built_in: Vec<(RelPath, BuiltIn)>,
    /// Sockets, pipes and devices, which cannot be part of a package.
    pub special: Vec<RelPath>,
}

/// Why a folder cannot be packaged.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    #[error("the folder `{folder}` cannot be read")]
    Folder { folder: String, source: RootError },
    #[error(transparent)]
    Read(#[from] RootError),
    #[error(transparent)]
    LinkOutside(#[from] LinkOutside),
    #[error("{} is not UTF-8: {}", count_names(.0.len()), list_names(.0))]
    NotUtf8(Vec<RelPath>),
    #[error("line {line} of `{file}` is not a valid pattern: {reason}")]
    Rule {
        file: RelPath,
        line: usize,
        reason: String,
    },
    #[error("`{0}` keeps changing while it is read")]
    Changing(RelPath),
}

fn count_names(count: usize) -> String {
    if count == 1 {
        "a file name".to_owned()
    } else {
        format!("each of {count} file names")
    }
}

fn list_names(names: &[RelPath]) -> String {
    const SHOWN: usize = 5;
    let mut text = names
        .iter()
        .take(SHOWN)
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(", ");
    if names.len() > SHOWN {
        text.push_str(", …");
    }
    text
}

/// Scans `folder`; never leaves it.
pub fn scan(folder: impl AsRef<Path>, options: &ScanOptions<'_>) -> Result<Scan, ScanError> {
    let folder = folder.as_ref();
    let unreadable = |source| ScanError::Folder {
        folder: folder.display().to_string(),
        source,
    };
    let root = &Root::open(folder).map_err(unreadable)?;
    let (scan, rules, stamps) = Default::default();
    let mut collector = Collector {
        root,
        options,
        scan,
        rules,
        stamps,
    };
    collector.collect_folders()?;
    let Collector { mut scan, stamps, .. } = collector;
    check_names(&scan)?;
    Links::of(&scan.entries).check()?;
    scan.read = fill_digests(root, &mut scan.entries, &stamps, options.known)?;
    scan.total_bytes = scan.entries.iter().map(Entry::size).sum();
    Ok(scan)
}

impl Scan {
    /// The number of files, without folders and links.
    pub fn file_count(&self) -> usize {
        self.entries.iter().filter(|entry| entry.is_file()).count()
    }

    /// The largest files, largest first.
    pub fn biggest(&self, count: usize) -> Vec<&Entry> {
        let mut files: Vec<&Entry> = self.entries.iter().filter(|entry| entry.is_file()).collect();
        files.sort_by(|a, b| b.size().cmp(&a.size()).then_with(|| a.path.cmp(&b.path)));
        files.truncate(count);
        files
    }

    /// The manifest of the package; needs a scan that read the files.
    pub fn manifest(&self) -> Result<Manifest, ManifestError> {
        Manifest::new(self.entries.clone())
    }
}

struct Collector<'a> {
    root: &'a Root,
    options: &'a ScanOptions<'a>,
    scan: Scan,
    rules: Rules,
    /// The stamp of every entry at the time of listing.
    stamps: Vec<Stamp>,
}

impl Collector<'_> {
    /// Walks the folders without recursion, so that depth needs no stack.
    fn collect_folders(&mut self) -> Result<(), ScanError> {
        let mut levels = vec![self.list(&RelPath::root())?];
        while let Some(level) = levels.last_mut() {
            let Some(entry) = level.next() else {
                levels.pop();
                continue;
            };
            let is_dir = entry.meta.is_dir();
            let path = entry.path.clone();
            self.collect(entry);
            if is_dir {
                levels.push(self.list(&path)?);
            }
        }
        Ok(())
    }

    fn list(&mut self, folder: &RelPath) -> Result<std::vec::IntoIter<DirEntry>, ScanError> {
        let mut entries = self.root.list(folder)?;
        // Staged files of an interrupted download are not part of the folder.
        entries.retain(|entry| entry.path.name() != Some(STAGING.as_bytes()));
        entries.retain(|entry| self.options.without.as_ref() != Some(&entry.path));
        self.rules.enter(self.root, folder, &entries)?;
        entries.retain(|entry| self.belongs(entry));
        Ok(entries.into_iter())
    }

    /// Whether the rules include an entry; counts it if not.
    fn belongs(&mut self, entry: &DirEntry) -> bool {
        let reason = self.rules.leave_out(self.root, entry);
        if let Some(Reason::BuiltIn(kind)) = reason {
            self.scan.built_in.push((entry.path.clone(), kind));
        }
        self.scan.ignored += u64::from(reason.is_some());
        reason.is_none()
    }

    fn collect(&mut self, entry: DirEntry) {
        let stamp = entry.meta.stamp;
        match entry.into_entry() {
            Ok(entry) => {
                self.stamps.push(stamp);
                self.scan.entries.push(entry);
            }
            Err(path) => self.scan.special.push(path),
        }
    }
}

/// Every backend and program can open names in UTF-8.
fn check_names(scan: &Scan) -> Result<(), ScanError> {
    let bad: Vec<RelPath> = scan
        .entries
        .iter()
        .map(|entry| &entry.path)
        .filter(|path| !path.is_utf8())
        .cloned()
        .collect();
    if bad.is_empty() {
        Ok(())
    } else {
        Err(ScanError::NotUtf8(bad))
    }
}
