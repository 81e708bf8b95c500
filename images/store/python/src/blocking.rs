//! Calls that the calling thread waits for.

use std::sync::Mutex;

use client::{Cluster, Options};
use pyo3::prelude::*;

use crate::call::{RawCall, check_process, closed, failure, lock, options};

/// A store. A client of the library serves one thread at a time, so there are as many as threads that call at a time: a call takes one
/// that is idle, or makes one. Nobody waits for another thread's call.
#[pyclass(frozen, module = "rcbox._rcbox")]
pub struct RawCluster {
    coordinator: String,
    options: Options,
    /// `None`: closed.
    idle: Mutex<Option<Vec<Cluster>>>,
    process: u32,
}

#[pymethods]
impl RawCluster {
    #[new]
    fn new(coordinator: String, timeout_s: f64, spin_us: u64) -> PyResult<RawCluster> {
        let options = options(timeout_s, spin_us)?;
        let first =
            Cluster::with_options(&coordinator, options).map_err(|error| failure(&error))?;
        Ok(RawCluster {
            coordinator,
            options,
            idle: Mutex::new(Some(vec![first])),
            process: std::process::id(),
        })
    }

    fn run(&self, py: Python<'_>, call: &RawCall) -> PyResult<Py<PyAny>> {
        check_process(self.process)?;
        let mut cluster = self.take_idle()?;
        let is_closed = || lock(&self.idle).is_none();
        let result = call.take()?.run(py, &mut cluster, &is_closed);
        if let Some(idle) = lock(&self.idle).as_mut() {
            idle.push(cluster);
        }
        result
    }

    /// Calls of other threads that are under way fail soon. In a forked child it does nothing: see `drop`.
    fn close(&self) {
        if check_process(self.process).is_ok() {
            *lock(&self.idle) = None;
        }
    }
}

impl RawCluster {
    fn take_idle(&self) -> PyResult<Cluster> {
        let idle = lock(&self.idle).as_mut().ok_or_else(closed)?.pop();
        idle.map_or_else(
            || {
                Cluster::with_options(&self.coordinator, self.options)
                    .map_err(|error| failure(&error))
            },
            Ok,
        )
    }
}

impl Drop for RawCluster {
    fn drop(&mut self) {
        // A forked child has the parent's connections and its epoll, and would change them for both. No lock: in the child, whoever
        // held it is gone.
        if check_process(self.process).is_err() {
            std::mem::forget(self.idle.get_mut().map(Option::take));
        }
    }
}
