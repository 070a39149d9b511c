//! Python's arrays as slices of Rust, without copying. Python has made sure that they are contiguous.

use std::marker::PhantomData;

use numpy::{Element, PyArrayDyn, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

/// The memory of an array that the caller holds a reference to.
pub struct Slice<'a, T> {
    start: *mut T,
    length: usize,
    _array: PhantomData<&'a T>,
}

// SAFETY: a slice only points; the array it points into is kept alive by the caller's reference for `'a`.
unsafe impl<T: Send> Send for Slice<'_, T> {}
// SAFETY: as above; shared access reads only.
unsafe impl<T: Sync> Sync for Slice<'_, T> {}

impl<T> Slice<'_, T> {
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: `of` checked that this many elements lie here; a program that changes them meanwhile in another thread
        // gets what it asked for, as with numpy itself.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
}

/// An array that is read.
pub type Floats<'a> = Slice<'a, f32>;

impl<'a> Floats<'a> {
    pub fn new(array: &'a Bound<'_, PyAny>) -> PyResult<Floats<'a>> {
        of(array, "float32")
    }
}

/// An array that is written.
pub struct FloatsMut<'a>(Slice<'a, f32>);

impl<'a> FloatsMut<'a> {
    pub fn new(array: &'a Bound<'_, PyAny>) -> PyResult<FloatsMut<'a>> {
        Ok(FloatsMut(of(array, "float32")?))
    }

    pub fn as_mut_slice(&mut self) -> &mut [f32] {
        // SAFETY: as in `as_slice`; Python passes only arrays that may be written.
        unsafe { std::slice::from_raw_parts_mut(self.0.start, self.0.length) }
    }
}

/// Row ids.
pub fn ids<'a>(array: &'a Bound<'_, PyAny>) -> PyResult<Slice<'a, u64>> {
    of(array, "uint64")
}

/// The shape of an array of float32.
pub fn shape(array: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
    let found = array.cast::<PyArrayDyn<f32>>();
    let array = found.map_err(|_| PyTypeError::new_err("not an array of float32"))?;
    Ok(array.shape().iter().map(|length| *length as u64).collect())
}

fn of<'a, T: Element>(array: &'a Bound<'_, PyAny>, expected: &str) -> PyResult<Slice<'a, T>> {
    let found = array.cast::<PyArrayDyn<T>>();
    let array = found.map_err(|_| PyTypeError::new_err(format!("not an array of {expected}")))?;
    if !array.is_c_contiguous() {
        return Err(PyTypeError::new_err("an array that is not contiguous"));
    }
    // An empty array may have no memory at all.
    let start = match array.len() {
        0 => std::ptr::NonNull::dangling().as_ptr(),
        _ => array.data(),
    };
    Ok(Slice {
        start,
        length: array.len(),
        _array: PhantomData,
    })
}
