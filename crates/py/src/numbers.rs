//! The indexes of `r[…]`: a number, a slice or a list of numbers.

use std::ops::Range;

use numpy::{PyArray1, PyArrayMethods};
use pyo3::exceptions::{PyIndexError, PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PySlice};

/// Record numbers, checked against the number of records.
#[derive(Debug, PartialEq, Eq)]
pub enum RecordSelection {
    One(u64),
    Range(Range<u64>),
    Many(Vec<u64>),
}

impl RecordSelection {
    pub fn parse(given: &Bound<'_, PyAny>, len: u64) -> PyResult<Self> {
        if let Ok(slice) = given.cast::<PySlice>() {
            return from_slice(slice, len);
        }
        if given.hasattr("__index__")? && !given.hasattr("__len__")? {
            let number = given.extract::<i64>().map_err(|error| too_large(given, error))?;
            return Ok(Self::One(check(number, len)?));
        }
        let numbers = whole_numbers(given)?;
        let checked = numbers.into_iter().map(|number| check(number, len));
        Ok(Self::Many(checked.collect::<PyResult<_>>()?))
    }
}

fn from_slice(slice: &Bound<'_, PySlice>, len: u64) -> PyResult<RecordSelection> {
    let slice = slice.indices(len as isize)?;
    let (start, count) = (slice.start as i64, slice.slicelength as u64);
    if slice.step == 1 || count == 0 {
        let start = if count == 0 { 0 } else { start as u64 };
        return Ok(RecordSelection::Range(start..start + count));
    }
    let number = |i: u64| (start + i as i64 * slice.step as i64) as u64;
    Ok(RecordSelection::Many((0..count).map(number).collect()))
}

fn whole_numbers(given: &Bound<'_, PyAny>) -> PyResult<Vec<i64>> {
    if !given.hasattr("dtype")? {
        return given.extract().map_err(|error| not_numbers(given, error));
    }
    let kind: String = given.getattr("dtype")?.getattr("kind")?.extract()?;
    if !["i", "u"].contains(&kind.as_str()) || given.getattr("ndim")?.extract::<usize>()? != 1 {
        let message = "records are chosen by whole numbers in one dimension; \
                       for a mask, pass `numpy.flatnonzero(mask)`";
        return Err(PyTypeError::new_err(message));
    }
    let options = [("copy", false)].into_py_dict(given.py())?;
    let numbers = given.call_method("astype", ("int64",), Some(&options))?;
    Ok(numbers.cast::<PyArray1<i64>>()?.to_vec()?)
}

/// Counts negative numbers from the end.
fn check(number: i64, len: u64) -> PyResult<u64> {
    let found = match number < 0 {
        true => len.checked_sub(number.unsigned_abs()),
        false => Some(number as u64).filter(|number| *number < len),
    };
    found.ok_or_else(|| PyIndexError::new_err(format!("record {number} does not exist: there are {len}")))
}

fn too_large(given: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    match error.is_instance_of::<PyOverflowError>(given.py()) {
        true => PyIndexError::new_err(format!("record {given} does not exist")),
        false => error,
    }
}

fn not_numbers(given: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    if error.is_instance_of::<PyOverflowError>(given.py()) {
        return PyIndexError::new_err("a record number is too large");
    }
    let name = given.get_type().name();
    let name = name.map_or_else(|_| "that".to_owned(), |name| name.to_string());
    PyTypeError::new_err(format!(
        "records are chosen by number, slice or list of numbers, not by {name}"
    ))
}
