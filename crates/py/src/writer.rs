//! `recordio.writer`: a file that appears under its name when it is closed.

use std::ffi::OsStr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use paddlecloud_recordio::{Compressor, DEFAULT_CHUNK_SIZE, FileWriter, IndexFile, WriteOptions};
use pyo3::exceptions::{PyRuntimeError, PyRuntimeWarning, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyString, PyTuple};

use crate::error;
use crate::fork::{ForkLock, generation};
use crate::paths;

/// writer(path, compressor="snappy", chunk_size=1048576, *, threads=1, index=False)
/// --
///
/// Writes a RecordIO file. The name appears when `close` returns and the file is whole; a `with` block that
/// ends by an exception leaves nothing.
#[pyclass(name = "writer", module = "recordio", frozen)]
pub struct Writer {
    path: PathBuf,
    chunk_size: u64,
    state: ForkLock<State>,
}

struct State {
    /// none once closed or abandoned
    writer: Option<FileWriter>,
    records: u64,
    /// record bytes in the chunk being filled
    in_chunk: u64,
    /// the generation that may write: a forked child has a copy of the buffers, but not its own file
    owner: u32,
}

#[pymethods]
impl Writer {
    #[new]
    #[pyo3(signature = (
        path, compressor="snappy", chunk_size=DEFAULT_CHUNK_SIZE, *, threads=NonZeroUsize::MIN, index=false
    ))]
    fn new(
        path: &Bound<'_, PyAny>,
        compressor: Option<&str>,
        chunk_size: u64,
        threads: NonZeroUsize,
        index: bool,
    ) -> PyResult<Self> {
        let path = paths::name_of(path)?;
        let options = WriteOptions::new()
            .compressor(parse_compressor(compressor)?)
            .chunk_size(chunk_size)
            .threads(threads);
        let index = if index { IndexFile::Stored } else { IndexFile::None };
        let writer = FileWriter::create_with_index(&path, options, index).map_err(error::from_write)?;
        let state = State {
            writer: Some(writer),
            records: 0,
            in_chunk: 0,
            owner: generation(),
        };
        Ok(Self {
            path,
            chunk_size,
            state: ForkLock::new(state),
        })
    }

    /// Adds one record: bytes, or anything that shows its bytes (bytearray, memoryview, numpy array).
    fn write(&self, py: Python<'_>, record: &Bound<'_, PyAny>) -> PyResult<()> {
        let record = bytes_of(record)?;
        let mut state = self.state.lock(py)?;
        let State {
            writer,
            records,
            in_chunk,
            owner,
        } = &mut *state;
        let writer = open_here(writer, *owner)?;
        let record = record.as_bytes();
        let len = record.len() as u64;
        // Only a full chunk is worth releasing the interpreter's lock for: it is packed and written.
        let written = match *in_chunk + len > self.chunk_size {
            true => py.detach(|| writer.write(record)),
            false => writer.write(record),
        };
        written.map_err(error::from_write)?;
        *in_chunk = if *in_chunk + len > self.chunk_size {
            len
        } else {
            *in_chunk + len
        };
        *records += 1;
        Ok(())
    }

    /// Makes the file durable and gives it its name. Closing again does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let mut state = self.state.lock(py)?;
        if state.writer.is_none() {
            return Ok(());
        }
        let owner = state.owner;
        open_here(&mut state.writer, owner)?;
        let writer = state.writer.take().expect("it was just seen open");
        py.detach(|| writer.finish()).map_err(error::from_write)?;
        Ok(())
    }

    /// Drops what was written; an older file of that name stays as it is.
    fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        drop_writer(&mut *self.state.lock(py)?);
        Ok(())
    }

    #[getter]
    fn closed(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.state.lock(py)?.writer.is_none())
    }

    #[getter]
    fn path(&self) -> &OsStr {
        self.path.as_os_str()
    }

    /// How many records were written so far.
    #[getter]
    fn records(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.state.lock(py)?.records)
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (kind, *_rest))]
    fn __exit__(&self, py: Python<'_>, kind: &Bound<'_, PyAny>, _rest: &Bound<'_, PyTuple>) -> PyResult<()> {
        if kind.is_none() {
            return self.close(py);
        }
        self.abandon(py)
    }

    fn __repr__(&self) -> String {
        format!("<recordio.writer of '{}'>", self.path.display())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let lost = state.records;
        if drop_writer(state) && lost > 0 {
            let message = format!(
                "`{}` was never closed: {lost} records are dropped\0",
                self.path.display()
            );
            Python::try_attach(|py| warn(py, &message));
        }
    }
}

/// Returns whether there was something of this process to drop.
fn drop_writer(state: &mut State) -> bool {
    let Some(writer) = state.writer.take() else {
        return false;
    };
    if state.owner != generation() {
        // The temporary file is the parent's: dropping would remove it there.
        std::mem::forget(writer);
        return false;
    }
    true
}

fn warn(py: Python<'_>, message: &str) {
    let category = py.get_type::<PyRuntimeWarning>();
    let message = std::ffi::CStr::from_bytes_until_nul(message.as_bytes()).unwrap_or_default();
    if let Err(raised) = PyErr::warn(py, &category, message, 1) {
        // Warnings are errors here, and a destructor cannot raise.
        raised.write_unraisable(py, None);
    }
}

fn open_here(writer: &mut Option<FileWriter>, owner: u32) -> PyResult<&mut FileWriter> {
    if owner != generation() {
        let message = "this writer belongs to the process that opened it; open a new one after a fork";
        return Err(PyRuntimeError::new_err(message));
    }
    writer
        .as_mut()
        .ok_or_else(|| PyValueError::new_err("the writer is closed"))
}

fn bytes_of<'py>(record: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    if let Ok(bytes) = record.cast::<PyBytes>() {
        return Ok(bytes.clone());
    }
    if record.is_instance_of::<PyString>() {
        let message = "a record is bytes, not str: encode it first, for instance with `.encode(\"utf-8\")`";
        return Err(PyTypeError::new_err(message));
    }
    if let Ok(bytes) = record.cast::<PyByteArray>() {
        return Ok(PyBytes::new(record.py(), &bytes.to_vec()));
    }
    let view = record
        .py()
        .import("builtins")?
        .call_method1("memoryview", (record,));
    let view = view.map_err(|_| {
        let name = record.get_type().name();
        let name = name.map_or_else(|_| "that".to_owned(), |name| name.to_string());
        PyTypeError::new_err(format!("a record is bytes, not {name}"))
    })?;
    Ok(view.call_method0("tobytes")?.cast_into()?)
}

fn parse_compressor(name: Option<&str>) -> PyResult<Compressor> {
    name.unwrap_or("none").parse().map_err(|_| {
        let known = Compressor::ALL
            .map(|compressor| format!("\"{compressor}\""))
            .join(", ");
        PyValueError::new_err(format!(
            "unknown compressor `{}`: there are {known}",
            name.unwrap_or_default()
        ))
    })
}
