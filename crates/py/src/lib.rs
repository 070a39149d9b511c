//! The native half of the wheel `paddlecloud`: the parts for which Python would be too slow.
//!
//! Python sees it as `paddlecloud._native`; people import `recordio` and the modules in `python/`, which
//! are built on it. `python/paddlecloud/_native.pyi` declares its names and types.

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
