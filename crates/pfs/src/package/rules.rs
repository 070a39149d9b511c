//! Which files do not belong to a package: `.paddleignore` and `.gitignore`, in every folder of it.
//!
//! Only files inside the package count, so a package is the same wherever its folder lies.

use std::io::Read;
use std::path::{Path, PathBuf};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::ScanError;
use crate::relpath::RelPath;
use crate::root::{DirEntry, Root, RootError};
use crate::sys;

/// The rules of the folders from the package's own down to the current one.
#[derive(Debug, Default)]
pub(super) struct Rules(Vec<FolderRules>);

#[derive(Debug)]
struct FolderRules {
    folder: RelPath,
    /// In the order of [`FILES`]; absent where the folder has none.
    files: [Option<Gitignore>; FILES.len()],
}

/// Strongest first: what ours says about a file, git's cannot change.
const FILES: [&str; 2] = [".paddleignore", ".gitignore"];

impl Rules {
    /// Takes up the rules of a folder; called on the way down.
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

    /// Whether an entry of the current folder stays out.
    pub fn leave_out(&self, entry: &DirEntry) -> bool {
        if entry.path.name() == Some(b".git") {
            return true;
        }
        let path = rooted(&entry.path);
        (0..FILES.len())
            .find_map(|rank| self.verdict(rank, &path, entry.meta.is_dir()))
            .unwrap_or(false)
    }

    /// What the files of one rank say, the deepest folder first.
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

/// Patterns are matched on made-up absolute paths, so that the library never looks at the disk.
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
