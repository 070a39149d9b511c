//! Scans a folder and returns what belongs to the package, its size, and what was left out.
//!
//! Sends nothing; files are read here only to compute digests.

use std::collections::BTreeSet;
use std::path::Path;

use super::hashing::{Listed, fill_digests};
use super::rules::{BuiltIn, Rules, Verdict};
use super::{Manifest, ManifestError};
use crate::content::StatCache;
use crate::entry::Entry;
use crate::links::{LinkOutside, Links};
use crate::relpath::RelPath;
use crate::root::{DirEntry, Root, RootError, STAGING};

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
    /// The ignored files and folders that no ignore file names.
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
    let (scan, rules, listed) = Default::default();
    let mut collector = Collector {
        root,
        options,
        scan,
        rules,
        listed,
    };
    collector.collect_folders()?;
    let Collector { mut scan, listed, .. } = collector;
    check_names(&scan)?;
    Links::of(&scan.entries).check()?;
    let filled = fill_digests(root, &mut scan.entries, &listed, options.known)?;
    scan.read = filled.read;
    scan.leave_out_keys(filled.private_keys);
    scan.total_bytes = scan.entries.iter().map(Entry::size).sum();
    Ok(scan)
}

impl Scan {
    fn leave_out_keys(&mut self, keys: BTreeSet<RelPath>) {
        self.entries.retain(|entry| !keys.contains(&entry.path));
        self.ignored += keys.len() as u64;
        let keys = keys.into_iter().map(|key| (key, BuiltIn::PrivateKey));
        self.built_in.extend(keys);
    }

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
    /// What the listing says about every entry of `scan`.
    listed: Vec<Listed>,
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
            let (entry, is_included) = entry;
            let is_dir = entry.meta.is_dir();
            let path = entry.path.clone();
            self.collect(entry, is_included);
            if is_dir {
                levels.push(self.list(&path)?);
            }
        }
        Ok(())
    }

    /// The entries of a folder that belong to the package, and whether `.paddleignore` includes each by name.
    fn list(&mut self, folder: &RelPath) -> Result<std::vec::IntoIter<(DirEntry, bool)>, ScanError> {
        let mut entries = self.root.list(folder)?;
        // Staged files of an interrupted download are not part of the folder.
        entries.retain(|entry| entry.path.name() != Some(STAGING.as_bytes()));
        entries.retain(|entry| self.options.without.as_ref() != Some(&entry.path));
        self.rules.enter(self.root, folder, &entries)?;
        let belonging = entries.into_iter().filter_map(|entry| self.judge(entry));
        Ok(belonging.collect::<Vec<_>>().into_iter())
    }

    /// The entry, and whether it is included by name; counts it if it is left out.
    fn judge(&mut self, entry: DirEntry) -> Option<(DirEntry, bool)> {
        let kind = match self.rules.judge(self.root, &entry) {
            Verdict::Included => return Some((entry, true)),
            Verdict::Unnamed => return Some((entry, false)),
            Verdict::LeftOut(kind) => kind,
        };
        self.scan.ignored += 1;
        self.scan.built_in.extend(kind.map(|kind| (entry.path, kind)));
        None
    }

    fn collect(&mut self, entry: DirEntry, is_included: bool) {
        let stamp = entry.meta.stamp;
        match entry.into_entry() {
            Ok(entry) => {
                self.listed.push(Listed { stamp, is_included });
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
