//! Turns the files that a program passes into a list of names.
//!
//! A name that exists is that file, whatever characters it has. Otherwise commas separate names, and those with
//! `*`, `?` or `[` are patterns; a pattern's files are sorted, as in a shell, without the indexes that were
//! stored beside them. Archives of data sets that the name or pattern of a 2017 program also matches are skipped.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use pyo3::exceptions::{PyFileNotFoundError, PyTypeError, PyUserWarning};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyString};

/// The files that a name, a pattern, several of them with commas, or a sequence of these refers to.
pub fn resolve(given: &Bound<'_, PyAny>) -> PyResult<Vec<PathBuf>> {
    let mut files = Vec::new();
    if is_one_name(given)? {
        add(&name_of(given)?, given.py(), &mut files)?;
    } else {
        for item in given.try_iter()? {
            add(&name_of(&item?)?, given.py(), &mut files)?;
        }
    }
    if files.is_empty() {
        return Err(PyFileNotFoundError::new_err(
            "no files to read: the list of names is empty",
        ));
    }
    skip_archives(&mut files, given.py())?;
    Ok(files)
}

/// Programs from 2017 read `mnist/train-*`, which also matches `train-images-idx3-ubyte.gz`, and expect no records in it.
fn skip_archives(files: &mut Vec<PathBuf>, py: Python<'_>) -> PyResult<()> {
    let mut skipped = Vec::new();
    files.retain(|path| {
        let is_archive = is_gzip(path);
        if is_archive {
            skipped.push(path.display().to_string());
        }
        !is_archive
    });
    for path in skipped {
        let words = format!("`{path}` is a gzip file, not RecordIO: it is skipped");
        let category = py.get_type::<PyUserWarning>();
        PyErr::warn(py, &category, &CString::new(words)?, 1)?;
    }
    Ok(())
}

/// Opens only files whose names end in `.gz`.
fn is_gzip(path: &Path) -> bool {
    let mut first = [0; 2];
    path.extension().is_some_and(|extension| extension == "gz")
        && File::open(path).is_ok_and(|mut file| file.read_exact(&mut first).is_ok())
        && first == [0x1f, 0x8b]
}

fn is_one_name(given: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(given.is_instance_of::<PyString>()
        || given.is_instance_of::<PyBytes>()
        || given.hasattr("__fspath__")?)
}

pub fn name_of(given: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    if given.is_instance_of::<PyByteArray>() {
        return Err(PyTypeError::new_err(
            "a file name is a str, bytes or path, not a bytearray",
        ));
    }
    let name = given.py().import("os")?.call_method1("fsdecode", (given,))?;
    Ok(PathBuf::from(name.extract::<OsString>()?))
}

fn add(name: &Path, py: Python<'_>, files: &mut Vec<PathBuf>) -> PyResult<()> {
    if name.exists() {
        files.push(name.to_owned());
        return Ok(());
    }
    match name.to_str() {
        Some(text) if text.contains(',') => {
            for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
                add_part(Path::new(part), py, files)?;
            }
            Ok(())
        }
        _ => add_part(name, py, files),
    }
}

fn add_part(name: &Path, py: Python<'_>, files: &mut Vec<PathBuf>) -> PyResult<()> {
    if name.exists() {
        files.push(name.to_owned());
        return Ok(());
    }
    let mut found: Vec<PathBuf> = py
        .import("glob")?
        .call_method1("glob", (name.as_os_str(),))?
        .extract()?;
    if found.is_empty() {
        let what = match is_pattern(name) {
            true => "no file matches",
            false => "no such file:",
        };
        return Err(PyFileNotFoundError::new_err(format!(
            "{what} `{}`",
            name.display()
        )));
    }
    found.sort();
    files.extend(found.iter().filter(|path| !is_index(path, &found)).cloned());
    Ok(())
}

/// Whether a file is the index (`<file>.idx`) of another one that was found.
fn is_index(path: &Path, found: &[PathBuf]) -> bool {
    path.extension().is_some_and(|extension| extension == "idx")
        && found.binary_search(&path.with_extension("")).is_ok()
}

fn is_pattern(name: &Path) -> bool {
    name.to_string_lossy().contains(['*', '?', '['])
}
