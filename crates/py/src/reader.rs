//! `recordio.reader`: records of one or many files, in order or by number.
//!
//! One lock per reader: threads may share it, and each record goes to one of them. The GIL is released for everything
//! that waits or computes, but not to return a record that is already in memory.

use std::ffi::OsStr;
use std::sync::{Arc, MutexGuard};

use numpy::{IntoPyArray, PyArray1};
use paddlecloud_recordio::{Batch, Policy, ReadError, SkipBound};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyBytes, PyDict, PyList, PyTuple};

use crate::by_number::ByNumber;
use crate::damage::{DEFAULT_BOUND, LostRange, to_python};
use crate::error;
use crate::files::Files;
use crate::fork::ForkLock;
use crate::in_order::{InOrder, Position};
use crate::numbers::RecordSelection;
use crate::paths;

const CACHE_BYTES: usize = 64 << 20;

/// How many records are fetched by number before their objects are made: a few until their size is known.
const FIRST_STEP: usize = 8;
const MAX_STEP: usize = 4096;
const STEP_BYTES: usize = 512 << 10;

/// How many bytes a batch may have unless the caller says otherwise: enough for every useful batch, and not all memory.
const BATCH_BYTES: usize = 1 << 30;

/// reader(paths, *, policy="strict", max_lost_bytes=268435456, max_lost_ranges=1000, cache_bytes=67108864)
/// --
///
/// Reads RecordIO files: `paths` is a name, a pattern, several with commas, or a list of these.
///
/// `policy="skip"` passes over damage, up to the two bounds over all files; `damage` then lists what was lost.
#[pyclass(name = "reader", module = "recordio", frozen, subclass)]
pub struct Reader {
    files: Arc<Files>,
    cache_bytes: usize,
    state: ForkLock<State>,
}

struct State {
    in_order: InOrder,
    by_number: ByNumber,
    is_open: bool,
}

#[pymethods]
impl Reader {
    #[new]
    #[pyo3(signature = (
        paths, *, policy="strict", max_lost_bytes=DEFAULT_BOUND.max_bytes,
        max_lost_ranges=DEFAULT_BOUND.max_ranges, cache_bytes=CACHE_BYTES
    ))]
    fn new(
        paths: &Bound<'_, PyAny>,
        policy: &str,
        max_lost_bytes: u64,
        max_lost_ranges: u64,
        cache_bytes: usize,
    ) -> PyResult<Self> {
        let bound = SkipBound {
            max_bytes: max_lost_bytes,
            max_ranges: max_lost_ranges,
        };
        let files = Arc::new(Files::new(paths::resolve(paths)?, parse_policy(policy, bound)?));
        let state = State {
            in_order: InOrder::new(Arc::clone(&files)),
            by_number: ByNumber::new(Arc::clone(&files), cache_bytes),
            is_open: true,
        };
        Ok(Self {
            files,
            cache_bytes,
            state: ForkLock::new(state),
        })
    }

    /// The next record, or None at the end. An empty record is b"".
    fn read<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let mut state = self.lock_open(py)?;
        next_record(py, &mut state.in_order)
    }

    /// Up to `n` records in a list, which is empty at the end. It is shorter where the records reach `max_bytes`.
    #[pyo3(signature = (n, *, max_bytes=BATCH_BYTES))]
    fn read_batch<'py>(&self, py: Python<'py>, n: usize, max_bytes: usize) -> PyResult<Bound<'py, PyList>> {
        let mut state = self.lock_open(py)?;
        let (mut records, mut bytes) = (Vec::new(), 0);
        while records.len() < n && (bytes < max_bytes || records.is_empty()) {
            if !state.in_order.is_loaded() {
                py.check_signals()?;
            }
            match next_record(py, &mut state.in_order) {
                Ok(Some(record)) => {
                    bytes += record.as_bytes().len();
                    records.push(record);
                }
                Ok(None) => break,
                // What was read before the damage is given first; the next call meets it again.
                Err(_) if !records.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        PyList::new(py, records)
    }

    /// Up to `n` records as one uint8 array and n + 1 int64 offsets: record i is data[offsets[i]:offsets[i + 1]].
    /// There are fewer where the chunks read reach `max_bytes`.
    #[pyo3(signature = (n, *, max_bytes=BATCH_BYTES))]
    fn read_batch_buffer<'py>(&self, py: Python<'py>, n: usize, max_bytes: usize) -> PyResult<Buffers<'py>> {
        let mut state = self.lock_open(py)?;
        let in_order = &mut state.in_order;
        let mut batch = Batch::new();
        while batch.len() < n && (batch.data().len() < max_bytes || batch.is_empty()) {
            py.check_signals()?;
            let more = py.detach(|| in_order.read_chunk(n, &mut batch));
            if !more.map_err(|e| error::from_read(py, e))? {
                break;
            }
        }
        Ok(into_arrays(py, batch))
    }

    /// The records `start` to `stop` by number, in a list. Under "skip" those in damaged chunks are left out.
    fn read_range<'py>(&self, py: Python<'py>, start: u64, stop: u64) -> PyResult<Bound<'py, PyList>> {
        let len = self.count(py)?;
        if start > stop || stop > len {
            return Err(PyValueError::new_err(format!(
                "no records {start} to {stop}: there are {len}"
            )));
        }
        let batch = self.by_number(py, |by_number| by_number.read_range(start..stop))?;
        list_of(py, batch.iter())
    }

    /// Where to divide the records for reading: the first record of every chunk, small chunks being taken
    /// together until they have `min_bytes`, then the number of all records. An int64 array.
    #[pyo3(signature = (min_bytes=0))]
    fn piece_starts<'py>(&self, py: Python<'py>, min_bytes: u64) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let starts = self.by_number(py, |by_number| by_number.piece_starts(min_bytes))?;
        Ok(starts.into_pyarray(py))
    }

    /// Files are closed; reading on is a ValueError.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let mut state = self.state.lock(py)?;
        state.is_open = false;
        state.in_order = InOrder::new(Arc::clone(&self.files));
        state.by_number.close();
        Ok(())
    }

    #[getter]
    fn closed(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(!self.state.lock(py)?.is_open)
    }

    /// The files read, in order.
    #[getter]
    fn paths(&self) -> Vec<&OsStr> {
        self.files.paths().iter().map(|path| path.as_os_str()).collect()
    }

    /// What was passed over so far under policy="skip".
    #[getter]
    fn damage(&self, py: Python<'_>) -> PyResult<Vec<LostRange>> {
        let state = self.state.lock(py)?;
        let (before, file, now) = state.in_order.losses();
        let mut all = before.to_python();
        all.extend(now.iter().map(|range| to_python(file, range)));
        all.extend(state.by_number.losses().to_python());
        Ok(all)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.count(py)? as usize)
    }

    /// An open reader is true even when it has no records: `if reader:` must not look into every file.
    fn __bool__(&self) -> bool {
        true
    }

    fn __getitem__<'py>(&self, py: Python<'py>, numbers: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match RecordSelection::parse(numbers, self.count(py)?)? {
            RecordSelection::One(number) => {
                let mut record = Batch::new();
                self.by_number(py, |by_number| by_number.gather(&[number], &mut record))?;
                Ok(PyBytes::new(py, record.get(0)).into_any())
            }
            RecordSelection::Range(range) => {
                let batch = self.by_number(py, |by_number| by_number.get_range(range))?;
                Ok(list_of(py, batch.iter())?.into_any())
            }
            RecordSelection::Many(numbers) => Ok(self.gather(py, &numbers)?.into_any()),
        }
    }

    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.read(py)
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        let (first, more) = (self.files.path(0).display(), self.files.len() - 1);
        match more {
            0 => format!("<recordio.reader of '{first}'>"),
            _ => format!("<recordio.reader of '{first}' and {more} more>"),
        }
    }

    /// With `__getstate__`, how a reader is pickled: by names and position, never by open files.
    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<((Vec<&OsStr>,), Bound<'py, PyDict>)> {
        let options = [("cache_bytes", self.cache_bytes as u64)].into_py_dict(py)?;
        if let Policy::Skip(bound) = self.files.policy() {
            options.set_item("policy", "skip")?;
            options.set_item("max_lost_bytes", bound.max_bytes)?;
            options.set_item("max_lost_ranges", bound.max_ranges)?;
        }
        Ok(((self.paths(),), options))
    }

    fn __getstate__(&self, py: Python<'_>) -> PyResult<(bool, usize, u64, bool)> {
        let state = self.state.lock(py)?;
        let Position {
            file,
            given,
            after_damage,
        } = state.in_order.position();
        Ok((state.is_open, file, given, after_damage))
    }

    fn __setstate__(&self, py: Python<'_>, saved: (bool, usize, u64, bool)) -> PyResult<()> {
        let (is_open, file, given, after_damage) = saved;
        let mut state = self.state.lock(py)?;
        state.is_open = is_open;
        let to = Position {
            file,
            given,
            after_damage,
        };
        let in_order = &mut state.in_order;
        py.detach(|| in_order.seek(to))
            .map_err(|e| error::from_read(py, e))
    }
}

impl Reader {
    fn lock_open(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, State>> {
        let state = self.state.lock(py)?;
        match state.is_open {
            true => Ok(state),
            false => Err(PyValueError::new_err("the reader is closed")),
        }
    }

    fn count(&self, py: Python<'_>) -> PyResult<u64> {
        self.by_number(py, ByNumber::len)
    }

    /// The records with these numbers, in their order.
    ///
    /// They are fetched in file order, so that every chunk is needed once, and a little at a time, so that a
    /// record is still in the processor's cache when its object is made.
    fn gather<'py>(&self, py: Python<'py>, numbers: &[u64]) -> PyResult<Bound<'py, PyList>> {
        let mut order: Vec<usize> = (0..numbers.len()).collect();
        order.sort_by_key(|place| numbers[*place]);
        let sorted: Vec<u64> = order.iter().map(|place| numbers[*place]).collect();
        let mut records: Vec<Option<Bound<'py, PyBytes>>> = vec![None; numbers.len()];
        let (mut done, mut step) = (0, FIRST_STEP);
        let mut batch = Batch::new();
        while done < sorted.len() {
            py.check_signals()?;
            let end = sorted.len().min(done + step);
            batch.clear();
            self.by_number(py, |by_number| by_number.gather(&sorted[done..end], &mut batch))?;
            for (record, place) in batch.iter().zip(&order[done..end]) {
                records[*place] = Some(PyBytes::new(py, record));
            }
            step = (STEP_BYTES * batch.len() / batch.data().len().max(1)).clamp(FIRST_STEP, MAX_STEP);
            done = end;
        }
        PyList::new(py, records)
    }

    fn by_number<T: Send>(
        &self,
        py: Python<'_>,
        ask: impl FnOnce(&mut ByNumber) -> Result<T, ReadError> + Send,
    ) -> PyResult<T> {
        let mut state = self.lock_open(py)?;
        let by_number = &mut state.by_number;
        py.detach(|| ask(by_number)).map_err(|e| error::from_read(py, e))
    }
}

type Buffers<'py> = (Bound<'py, PyArray1<u8>>, Bound<'py, PyArray1<i64>>);

fn next_record<'py>(py: Python<'py>, in_order: &mut InOrder) -> PyResult<Option<Bound<'py, PyBytes>>> {
    if !in_order.is_loaded() {
        let loaded = py.detach(|| in_order.load());
        if !loaded.map_err(|e| error::from_read(py, e))? {
            return Ok(None);
        }
    }
    let record = in_order.take().map_err(|e| error::from_read(py, e))?;
    Ok(Some(PyBytes::new(py, record)))
}

fn list_of<'a, 'py>(
    py: Python<'py>,
    records: impl ExactSizeIterator<Item = &'a [u8]>,
) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, records.map(|record| PyBytes::new(py, record)))
}

/// Python takes the memory over as it is.
fn into_arrays(py: Python<'_>, batch: Batch) -> Buffers<'_> {
    let (data, offsets) = batch.into_parts();
    // Same size and place: the compiler makes of it one pass over the offsets, or none.
    let offsets: Vec<i64> = offsets.into_iter().map(|offset| offset as i64).collect();
    (data.into_pyarray(py), offsets.into_pyarray(py))
}

fn parse_policy(policy: &str, bound: SkipBound) -> PyResult<Policy> {
    match policy {
        "strict" => Ok(Policy::Strict),
        "skip" => Ok(Policy::Skip(bound)),
        other => Err(PyValueError::new_err(format!(
            "unknown policy `{other}`: \"strict\" stops at damage, \"skip\" passes over it"
        ))),
    }
}
