//! Decides which files are left out of a package: those in `.paddleignore` and `.gitignore` of any of its folders, virtual
//! environments, caches and credentials.
//!
//! Reads only ignore files inside the package, so a package does not depend on where its folder is.

use std::io::Read;
use std::path::{Path, PathBuf};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::ScanError;
use super::credentials::has_telling_name;
use crate::relpath::RelPath;
use crate::root::{DirEntry, Root, RootError};
use crate::sys;

/// The rules of the folders from the package's root to the current one.
#[derive(Debug, Default)]
pub(super) struct Rules(Vec<FolderRules>);

#[derive(Debug)]
struct FolderRules {
    folder: RelPath,
    /// In the order of [`FILES`]; `None` if the folder lacks the file.
    files: [Option<Gitignore>; FILES.len()],
}

/// Strongest first: `.gitignore` cannot override `.paddleignore`.
const FILES: [&str; 2] = [".paddleignore", ".gitignore"];

impl Rules {
    /// Reads the rules of a folder; called on the way down.
    pub fn enter(&mut self, root: &Root, folder: &RelPath, entries: &[DirEntry]) -> Result<(), ScanError> {
        while self
            .0
            .last()
            .is_some_and(|rules| !folder.is_within(&rules.folder))
        {
            self.0.pop();
        }
        let mut files = [const { None }; FILES.len()];
        for (name, rules) in FILES.iter().zip(&mut files) {
            let listed =
                |entry: &&DirEntry| entry.path.name() == Some(name.as_bytes()) && !entry.meta.is_dir();
            if let Some(entry) = entries.iter().find(listed) {
                *rules = Some(read_rules(root, folder, &entry.path)?);
            }
        }
        self.0.push(FolderRules {
            folder: folder.clone(),
            files,
        });
        Ok(())
    }

    /// What the rules say about an entry of the current folder.
    ///
    /// Strongest first: `.git`, `.paddleignore`, the built-in kinds, `.gitignore`. So `!.venv` in `.paddleignore` includes an
    /// environment that is left out by default.
    pub fn judge(&self, root: &Root, entry: &DirEntry) -> Verdict {
        if entry.path.name() == Some(b".git") {
            return Verdict::LeftOut(None);
        }
        let path = rooted(&entry.path);
        let by_file = |rank| self.verdict(rank, &path, entry.meta.is_dir());
        match by_file(0) {
            Some(true) => return Verdict::LeftOut(None),
            Some(false) => return Verdict::Included,
            None => {}
        }
        match built_in(root, entry) {
            Some(kind) => Verdict::LeftOut(Some(kind)),
            None if by_file(1) == Some(true) => Verdict::LeftOut(None),
            None => Verdict::Unnamed,
        }
    }

    /// The verdict of the files of one rank, deepest folder first.
    fn verdict(&self, rank: usize, path: &Path, is_dir: bool) -> Option<bool> {
        self.0
            .iter()
            .rev()
            .filter_map(|rules| rules.files[rank].as_ref())
            .find_map(|file| match file.matched(path, is_dir) {
                Match::None => None,
                Match::Ignore(_) => Some(true),
                Match::Whitelist(_) => Some(false),
            })
    }
}

/// Whether an entry is part of a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// By a line of an ignore file, as `.git`, or as a built-in kind.
    LeftOut(Option<BuiltIn>),
    /// `.paddleignore` includes it by name.
    Included,
    /// It is part of the package unless its content is that of a built-in kind.
    Unnamed,
}

/// A kind of file or folder that is left out unless `.paddleignore` includes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BuiltIn {
    /// Created by `venv`, `virtualenv`, `uv` or `conda`. Its programs point to files outside the package.
    VirtualEnvironment,
    /// Written by a tool, which recreates it if missing.
    Cache,
    /// Its name says that it holds passwords or keys.
    Credentials,
    /// Its first line says that it is a private key.
    PrivateKey,
}

const CACHES: [&[u8]; 8] = [
    b"__pycache__",
    b".ipynb_checkpoints",
    b".mypy_cache",
    b".nox",
    b".pytest_cache",
    b".pytype",
    b".ruff_cache",
    b".tox",
];

/// Files that mark a virtual environment, relative to it.
const ENVIRONMENT_MARKS: [&str; 2] = ["pyvenv.cfg", "conda-meta/history"];

fn built_in(root: &Root, entry: &DirEntry) -> Option<BuiltIn> {
    if has_telling_name(entry) {
        return Some(BuiltIn::Credentials);
    }
    let name = entry.path.name().filter(|_| entry.meta.is_dir())?;
    if CACHES.contains(&name) {
        return Some(BuiltIn::Cache);
    }
    let exists = |mark: &str| {
        let mark = [entry.path.as_bytes(), b"/", mark.as_bytes()].concat();
        RelPath::from_bytes(&mark).is_ok_and(|mark| root.stat_link(&mark).is_ok_and(|meta| meta.is_file()))
    };
    ENVIRONMENT_MARKS
        .iter()
        .any(|mark| exists(mark))
        .then_some(BuiltIn::VirtualEnvironment)
}

/// Patterns are matched against invented absolute paths, so that the library never reads the disk.
fn rooted(path: &RelPath) -> PathBuf {
    Path::new("/").join(sys::path_to_match(path.as_bytes()))
}

fn read_rules(root: &Root, folder: &RelPath, path: &RelPath) -> Result<Gitignore, ScanError> {
    let mut bytes = Vec::new();
    let (mut file, _) = root.open_file(path)?;
    file.read_to_end(&mut bytes)
        .map_err(|error| RootError::io("read", path, error))?;
    let text = String::from_utf8_lossy(&bytes);
    let mut builder = GitignoreBuilder::new(rooted(folder));
    for (index, line) in text.strip_prefix('\u{feff}').unwrap_or(&text).lines().enumerate() {
        builder
            .add_line(None, line)
            .map_err(|error| bad_rule(path, index, &error))?;
    }
    builder.build().map_err(|error| bad_rule(path, 0, &error))
}

fn bad_rule(path: &RelPath, index: usize, error: &ignore::Error) -> ScanError {
    ScanError::Rule {
        file: path.clone(),
        line: index + 1,
        reason: error.to_string(),
    }
}
