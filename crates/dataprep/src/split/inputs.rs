//! Which files are split, and their names in the nodes' folders.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use paddlecloud_recordio::index_path;

use super::Request;
use crate::error::DataError;
use crate::input::{Stamp, check_regular};

/// Where the Kubernetes page keeps the data set that is split by default.
pub const DATA_SET: &str = "quick_start";

/// A file to split.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) path: PathBuf,
    pub(super) name: PathBuf,
    pub(super) stamp: Stamp,
}

pub(super) fn find(request: &Request) -> Result<Vec<Item>, DataError> {
    let mut found = Vec::new();
    for input in given(request)? {
        let about = fs::metadata(&input).map_err(|e| DataError::read(&input, e))?;
        match about.is_dir() {
            true => walk(&input, &input, &mut found)?,
            false => found.push((input.clone(), file_name(&input)?)),
        }
    }
    leave_indexes_out(&mut found);
    check_places(request, &found)?;
    check_names(&found)?;
    found
        .into_iter()
        .map(|(path, name)| {
            check_regular(&path)?;
            let stamp = Stamp::of(&path)?;
            Ok(Item { path, name, stamp })
        })
        .collect()
}

fn given(request: &Request) -> Result<Vec<PathBuf>, DataError> {
    if !request.inputs.is_empty() {
        return Ok(request.inputs.clone());
    }
    let data_set = request.out.join(DATA_SET);
    match data_set.is_dir() {
        true => Ok(vec![data_set]),
        false => Err(DataError::file(
            &data_set,
            "does not exist, and no files to split were named",
        )),
    }
}

/// The files below a folder, in order, without hidden ones.
fn walk(root: &Path, folder: &Path, found: &mut Vec<(PathBuf, PathBuf)>) -> Result<(), DataError> {
    let failed = |e| DataError::read(folder, e);
    let mut entries = fs::read_dir(folder)
        .map_err(failed)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(failed)?;
    entries.sort();
    for path in entries {
        let is_hidden = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if is_hidden {
            continue;
        }
        let about = fs::metadata(&path).map_err(|e| DataError::read(&path, e))?;
        if !about.is_dir() {
            let name = path.strip_prefix(root).expect("it was found below the root");
            found.push((path.clone(), name.to_owned()));
        } else if path.is_symlink() {
            return Err(DataError::file(
                &path,
                "is a link to a folder; name the folder itself",
            ));
        } else {
            walk(root, &path, found)?;
        }
    }
    Ok(())
}

fn file_name(path: &Path) -> Result<PathBuf, DataError> {
    match path.file_name() {
        Some(name) => Ok(PathBuf::from(name)),
        None => Err(DataError::file(path, "has no name")),
    }
}

/// The index of a file describes that file and none of its pieces.
fn leave_indexes_out(found: &mut Vec<(PathBuf, PathBuf)>) {
    let indexes: Vec<PathBuf> = found.iter().map(|(path, _)| index_path(path)).collect();
    found.retain(|(path, _)| !indexes.contains(path));
}

/// The output of a split must not be part of the next input.
fn check_places(request: &Request, found: &[(PathBuf, PathBuf)]) -> Result<(), DataError> {
    let Ok(out) = request.out.canonicalize() else {
        return Ok(());
    };
    for (path, _) in found {
        let real = path.canonicalize().map_err(|e| DataError::read(path, e))?;
        let Ok(below) = real.strip_prefix(&out) else {
            continue;
        };
        let mut parts = below.components().map(|part| part.as_os_str().to_string_lossy());
        let (first, second) = (parts.next(), parts.next());
        let is_number = first.is_some_and(|first| first.bytes().all(|byte| byte.is_ascii_digit()));
        if is_number && second.as_deref() == Some("data") {
            return Err(DataError::file(
                path,
                "is inside the output folder: name the data set itself",
            ));
        }
    }
    Ok(())
}

fn check_names(found: &[(PathBuf, PathBuf)]) -> Result<(), DataError> {
    if let Some((first, rest)) = found.split_first() {
        let mut names = HashMap::from([(&first.1, &first.0)]);
        for (path, name) in rest {
            if let Some(other) = names.insert(name, path) {
                let problem = format!(
                    "and `{}` have the same name and would overwrite each other",
                    other.display()
                );
                return Err(DataError::file(path, problem));
            }
        }
    }
    Ok(())
}
