//! Looks through a folder and says what belongs to the package, how big it is, and what was left out.
//!
//! Sends nothing; the bytes are read here only to name them.

use std::path::Path;

use super::hashing::fill_digests;
use super::rules::{BuiltIn, Reason, Rules};
use super::{Manifest, ManifestError};
use crate::content::StatCache;
use crate::entry::Entry;
use crate::links::{LinkOutside, Links};
use crate::relpath::RelPath;
use crate::root::{DirEntry, Root, RootError, STAGING, Stamp};

/// How a folder is looked through. The default is what `submit` uses.
#[derive(Debug, Clone, Default)]
pub struct ScanOptions<'a> {
    pub names: Names,
    pub reading: Reading,
    /// Whether ignore files are left unread and nothing, not even `.git`, stays out.
    pub take_all: bool,
    /// A file or folder that stays out whatever the rules say.
    pub without: Option<RelPath>,
    /// What earlier scans found; files that did not change since are not read again.
    pub known: Option<&'a StatCache>,
    /// Threads that read; as many as there are cores when absent.
    pub threads: Option<std::num::NonZeroUsize>,
}

/// Which file names are acceptable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Names {
    /// Only UTF-8: what every backend and every program can open.
    #[default]
    Utf8,
    /// Any bytes; for backends that are plain file systems.
    Bytes,
}

/// Whether file contents are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reading {
    /// Every file gets its digest.
    #[default]
    Digests,
    /// Only names, sizes and times.
    Nothing,
}

/// A folder's contents, folders before what they hold.
#[derive(Debug, Clone, Default)]
pub struct Scan {
    pub entries: Vec<Entry>,
    pub total_bytes: u64,
    /// Files whose content was read; of the others it was known.
    pub read: usize,
    /// Files and folders that ignore rules kept out; an ignored folder counts once.
    pub ignored: u64,
    /// The folders among them that no ignore file names.
    pub built_in: Vec<(RelPath, BuiltIn)>,
    pub left_out: Vec<LeftOut>,
}

/// A node that cannot travel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// A socket, pipe or device.
    pub path: RelPath,
}

/// Why a folder cannot be a package.
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

/// Looks through `folder`.
pub fn scan(folder: impl AsRef<Path>, options: &ScanOptions<'_>) -> Result<Scan, ScanError> {
    let folder = folder.as_ref();
    let unreadable = |source| ScanError::Folder {
        folder: folder.display().to_string(),
        source,
    };
    scan_root(&Root::open(folder).map_err(unreadable)?, options)
}

/// Looks through a folder that is already open; never leaves it.
pub fn scan_root(root: &Root, options: &ScanOptions<'_>) -> Result<Scan, ScanError> {
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
    check_names(&scan, options)?;
    check_links(&scan)?;
    if options.reading == Reading::Digests {
        scan.read = fill_digests(root, &mut scan.entries, &stamps, options)?;
    }
    scan.total_bytes = scan.entries.iter().map(Entry::size).sum();
    Ok(scan)
}

impl Scan {
    /// How many files there are, folders and links not counted.
    pub fn file_count(&self) -> usize {
        self.entries.iter().filter(|entry| entry.is_file()).count()
    }

    /// The biggest files, the biggest first.
    pub fn biggest(&self, count: usize) -> Vec<&Entry> {
        let mut files: Vec<&Entry> = self.entries.iter().filter(|entry| entry.is_file()).collect();
        files.sort_by(|a, b| b.size().cmp(&a.size()).then_with(|| a.path.cmp(&b.path)));
        files.truncate(count);
        files
    }

    /// The list that names the package; needs a scan that read the files.
    pub fn manifest(&self) -> Result<Manifest, ManifestError> {
        Manifest::new(self.entries.clone())
    }
}

struct Collector<'a> {
    root: &'a Root,
    options: &'a ScanOptions<'a>,
    scan: Scan,
    rules: Rules,
    /// Of every entry, as it was listed.
    stamps: Vec<Stamp>,
}

impl Collector<'_> {
    /// Goes through the folders without recursion: depth costs no stack.
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
        // What an interrupted download left in a folder is nobody's file yet.
        entries.retain(|entry| entry.path.name() != Some(STAGING.as_bytes()));
        entries.retain(|entry| self.options.without.as_ref() != Some(&entry.path));
        if !self.options.take_all {
            self.rules.enter(self.root, folder, &entries)?;
            entries.retain(|entry| self.belongs(entry));
        }
        Ok(entries.into_iter())
    }

    /// Whether the rules let an entry in; counts it if they do not.
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
            Err(path) => self.scan.left_out.push(LeftOut { path }),
        }
    }
}

fn check_names(scan: &Scan, options: &ScanOptions<'_>) -> Result<(), ScanError> {
    if options.names == Names::Bytes {
        return Ok(());
    }
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

fn check_links(scan: &Scan) -> Result<(), LinkOutside> {
    Links::of(&scan.entries).check()
}
