//! Errors of the format library as Python exceptions.
//!
//! An error of the system is an `OSError` with its number and file name, so that `FileNotFoundError` and similar classes
//! are caught as usual; damaged bytes are a `DamageError`.

use std::io;
use std::path::Path;

use paddlecloud_recordio::{ReadError, WriteError};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyIndexError, PyOSError, PyValueError};
use pyo3::prelude::*;

create_exception!(
    recordio,
    Error,
    PyException,
    "A RecordIO file could not be read or written."
);
create_exception!(
    recordio,
    DamageError,
    Error,
    "A file is not what was once written: `file`, `offset` (None where there is none) and `reason` say where and what."
);

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("Error", py.get_type::<Error>())?;
    module.add("DamageError", py.get_type::<DamageError>())
}

pub fn from_read(py: Python<'_>, error: ReadError) -> PyErr {
    let message = error.to_string();
    match error {
        ReadError::Io { file, source } => os_error(&file, &source),
        ReadError::NoSuchRecord { .. } => PyIndexError::new_err(message),
        ReadError::AlreadyFailed { .. } => Error::new_err(message),
        ReadError::Damaged { file, offset, fault } => {
            damage(py, message, &file, Some(offset), fault.to_string())
        }
        ReadError::TooMuchDamage { file, offset, .. } => damage(
            py,
            message,
            &file,
            Some(offset),
            "too much damage to skip".to_owned(),
        ),
        ReadError::Unrecoverable { file, offset, .. } | ReadError::LostInStream { file, offset, .. } => {
            damage(
                py,
                message,
                &file,
                Some(offset),
                "no good chunk follows".to_owned(),
            )
        }
        ReadError::Shrunk { file, found, .. } => damage(
            py,
            message,
            &file,
            Some(found),
            "the file shrank while it was read".to_owned(),
        ),
        ReadError::BadIndex { file, reason } => damage(py, message, &file, None, reason.to_string()),
    }
}

pub fn from_write(error: WriteError) -> PyErr {
    match error {
        WriteError::Io { file, source } => os_error(&file, &source),
        WriteError::RecordTooLarge { .. } => PyValueError::new_err(error.to_string()),
        WriteError::ChunkTooLarge { .. } | WriteError::AlreadyFailed { .. } => {
            Error::new_err(error.to_string())
        }
    }
}

fn damage(py: Python<'_>, message: String, file: &Path, offset: Option<u64>, reason: String) -> PyErr {
    let error = DamageError::new_err(message);
    let value = error.value(py);
    let set = value
        .setattr("file", file.as_os_str())
        .and_then(|()| value.setattr("offset", offset))
        .and_then(|()| value.setattr("reason", reason));
    match set {
        Ok(()) => error,
        Err(failure) => failure,
    }
}

/// Python chooses the subclass by the number.
fn os_error(file: &Path, source: &io::Error) -> PyErr {
    match source.raw_os_error() {
        Some(number) => {
            let words = source.to_string();
            let words = words.split(" (os error").next().unwrap_or_default().to_owned();
            PyOSError::new_err((number, words, file.as_os_str().to_owned()))
        }
        None => PyOSError::new_err(format!("cannot use `{}`: {source}", file.display())),
    }
}
