//! Finds files of others among the output of a split: the next split would delete them.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::note::Names;
use crate::error::DataError;

/// The problem; its path comes before these words.
pub const PROBLEM: &str = "was not created by the previous split, which this one replaces: move it away, or choose another output folder";

/// A file in a node's data folder that the split did not create, if any.
pub(super) fn find(data: &Path, names: &Names<'_>) -> Result<Option<PathBuf>, DataError> {
    match fs::metadata(data) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(DataError::read(data, e)),
        Ok(about) if !about.is_dir() => Ok(Some(data.to_owned())),
        Ok(_) => find_below(data, data, names),
    }
}

fn find_below(data: &Path, folder: &Path, names: &Names<'_>) -> Result<Option<PathBuf>, DataError> {
    let failed = |e| DataError::read(folder, e);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        let name = path.strip_prefix(data).expect("it was found below the folder");
        let is_folder = entry.file_type().map_err(failed)?.is_dir();
        let is_ours = match is_folder {
            true => names.has_folder(name),
            false => names.has_file(name),
        };
        if !is_ours {
            return Ok(Some(path));
        }
        if is_folder && let Some(found) = find_below(data, &path, names)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}
