//! The part of the Python package that is not Python.
//!
//! Each call of the client library is described once ([`calls`]) and can then be run in two ways: by the thread that calls
//! ([`blocking`]), or beside an event loop ([`concurrent`]). The rest, what users see, is Python around it.

mod blocking;
mod call;
mod calls;
mod concurrent;
mod convert;

use pyo3::prelude::*;

#[pymodule]
fn _rcbox(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<blocking::RawCluster>()?;
    module.add_class::<concurrent::RawAsyncCluster>()?;
    module.add_class::<call::RawCall>()?;
    module.add_class::<calls::RawPosition>()?;
    module.add("StoreError", module.py().get_type::<call::StoreError>())?;
    calls::add_to(module)
}
