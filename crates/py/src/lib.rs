//! The native half of the wheel `paddlecloud`: what Python would be too slow for.
//!
//! Python sees it as `paddlecloud._native`; people import `recordio` and the modules in `python/`, which
//! are made of it. Names and types for Python stand in `python/paddlecloud/_native.pyi`.

mod by_number;
mod client;
mod damage;
mod error;
mod files;
mod fork;
mod in_order;
mod numbers;
mod paths;
mod ps;
mod reader;
mod writer;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    error::register(module)?;
    fork::register(module)?;
    client::register(module)?;
    ps::register(module)?;
    module.add_class::<damage::LostRange>()?;
    module.add_class::<reader::Reader>()?;
    module.add_class::<writer::Writer>()?;
    module.add("DEFAULT_CHUNK_SIZE", paddlecloud_recordio::DEFAULT_CHUNK_SIZE)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
