//! The local side of a transfer: the sources that an argument names, and the contents of folders.
//!
//! A link named on the command line is followed; links inside a folder are copied as links.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use paddlecloud_pfs::Root;
use paddlecloud_pfs::root::{DirEntry, GlobPattern};

use super::location::{is_pattern, shown};
use super::report::Lost;
use super::rules::{Kind, Target, TransferSource};
use crate::error::chain;

/// A source on this machine.
#[derive(Debug)]
pub struct LocalSource {
    pub path: PathBuf,
    pub source: TransferSource,
}

impl LocalSource {
    /// The same, with a slash at its end: only a folder is accepted.
    fn with_slash(self) -> Option<LocalSource> {
        let mut path = self.path.into_os_string();
        path.push("/");
        (self.source.kind == Kind::Folder).then(|| source(Path::new(&path), true))
    }
}

/// What an argument names: that path or, if it does not exist, everything that matches it as a pattern.
pub fn sources(path: &Path) -> Result<Vec<LocalSource>, Lost> {
    sources_from(Path::new(""), path)
}

/// The same, relative to a folder, whose own name is not a pattern. Matches are shown as they were typed.
pub fn sources_from(base: &Path, path: &Path) -> Result<Vec<LocalSource>, Lost> {
    let lost = |reason: String| Lost::new(shown(path), reason);
    match std::fs::metadata(base.join(path)) {
        Ok(meta) => Ok(vec![source(path, meta.is_dir())]),
        Err(error) if is_no_name(path, &error) => {
            let found = expand(base, path).map_err(lost)?;
            match found.is_empty() {
                true => Err(lost("there is no such file or folder".to_owned())),
                false => Ok(found),
            }
        }
        Err(error) => Err(lost(error.to_string())),
    }
}

/// Whether the path does not exist. On Windows no name can contain wildcards.
fn is_no_name(path: &Path, error: &std::io::Error) -> bool {
    match error.kind() {
        ErrorKind::NotFound => true,
        ErrorKind::InvalidFilename => is_pattern(path.as_os_str().as_encoded_bytes()),
        _ => false,
    }
}

/// What is at a destination.
pub fn target(path: &Path) -> Result<Target, std::io::Error> {
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => Ok(Target::Folder),
        Ok(_) => Ok(Target::File),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Target::Missing),
        Err(error) => Err(error),
    }
}

/// Whether a path was typed as a folder.
pub fn has_slash(path: &Path) -> bool {
    let bytes = path.as_os_str().as_encoded_bytes();
    ends_with_slash(bytes) || matches!(last_name(bytes), b"." | b"..")
}

fn source(path: &Path, is_folder: bool) -> LocalSource {
    let bytes = path.as_os_str().as_encoded_bytes();
    let name = last_name(bytes);
    LocalSource {
        path: path.to_owned(),
        source: TransferSource {
            shown: shown(path),
            name: (!matches!(name, b"" | b"." | b"..")).then(|| name.to_vec()),
            kind: if is_folder { Kind::Folder } else { Kind::File },
            slash: ends_with_slash(bytes),
        },
    }
}

/// Unlike `Path::file_name` this returns `.`, which means the contents of a folder.
fn last_name(path: &[u8]) -> &[u8] {
    let end = path
        .iter()
        .rposition(|byte| !is_slash(*byte))
        .map_or(0, |at| at + 1);
    let trimmed = &path[..end];
    let start = trimmed
        .iter()
        .rposition(|byte| is_slash(*byte))
        .map_or(0, |at| at + 1);
    &trimmed[start..]
}

fn ends_with_slash(path: &[u8]) -> bool {
    path.last().is_some_and(|byte| is_slash(*byte))
}

/// Whether a character separates names: on Windows two characters do.
fn is_slash(byte: u8) -> bool {
    std::path::is_separator(char::from(byte))
}

fn expand(base: &Path, pattern: &Path) -> Result<Vec<LocalSource>, String> {
    if !is_pattern(pattern.as_os_str().as_encoded_bytes()) {
        return Ok(Vec::new());
    }
    let (folder, rest) = split(pattern);
    let rest: Option<Vec<&str>> = rest.iter().map(|part| part.to_str()).collect();
    let rest = rest.ok_or("a pattern must be UTF-8")?.join("/");
    let parsed = GlobPattern::parse(&rest).map_err(|error| chain(&error))?;
    let opened = match base.join(&folder) {
        here if here.as_os_str().is_empty() => PathBuf::from("."),
        opened => opened,
    };
    let root = match Root::open(&opened) {
        Ok(root) => root,
        Err(error) if error.is_not_found() => return Ok(Vec::new()),
        Err(error) => return Err(chain(&error)),
    };
    let found = root.glob(&parsed).map_err(|error| chain(&error))?;
    let is_folder = |path: &Path| std::fs::metadata(base.join(path)).is_ok_and(|meta| meta.is_dir());
    let place = |entry: &DirEntry| {
        let path = entry.path.in_folder(&folder).map_err(|error| chain(&error))?;
        Ok(source(&path, is_folder(&path)))
    };
    let found: Result<Vec<LocalSource>, String> = found.iter().map(place).collect();
    match ends_with_slash(pattern.as_os_str().as_encoded_bytes()) {
        true => Ok(found?.into_iter().filter_map(LocalSource::with_slash).collect()),
        false => found,
    }
}

/// The folder before the first wildcard, and the rest.
fn split(pattern: &Path) -> (PathBuf, PathBuf) {
    let is_plain = |part: &&OsStr| !is_pattern(part.as_encoded_bytes());
    let fixed: Vec<&OsStr> = pattern.iter().take_while(is_plain).collect();
    let rest = pattern.iter().skip(fixed.len()).collect();
    (fixed.into_iter().collect(), rest)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn names(sources: &[LocalSource], below: &Path) -> Vec<String> {
        let name = |source: &LocalSource| shown(source.path.strip_prefix(below).unwrap());
        sources.iter().map(name).collect()
    }

    #[test]
    fn a_pattern_expands_unless_a_file_has_that_name() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("d")).unwrap();
        for name in ["d/a.txt", "d/b.txt", "d/c.log", "d/[x].txt"] {
            fs::write(at(name), "").unwrap();
        }
        let found = sources(&at("d/*.txt")).unwrap();
        assert_eq!(names(&found, folder.path()), ["d/[x].txt", "d/a.txt", "d/b.txt"]);
        let folders = sources(&at("*/")).unwrap();
        assert!(folders.len() == 1 && folders[0].source.slash, "{folders:?}");
        let literal = sources(&at("d/[x].txt")).unwrap();
        assert_eq!(names(&literal, folder.path()), ["d/[x].txt"]);
        let lost = sources(&at("none/*.txt")).unwrap_err();
        assert_eq!(lost.reason, "there is no such file or folder");
    }

    #[test]
    fn the_last_name_is_what_was_typed() {
        for (text, name) in [
            ("d/a", Some("a")),
            ("d/a///", Some("a")),
            ("d/.", None),
            ("./", None),
            ("..", None),
            ("/", None),
        ] {
            let found = source(Path::new(text), true).source;
            assert_eq!(found.name.as_deref(), name.map(str::as_bytes), "{text}");
        }
    }
}
