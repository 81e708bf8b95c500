//! A call that is described and not made yet, and what can go wrong with it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use client::ops::Operation;
use client::{AsyncCluster, Cluster, Error, Options, Pending};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyRuntimeError};
use pyo3::prelude::*;

create_exception!(
    _rcbox,
    StoreError,
    PyException,
    "(kind, version, text): kind is a status of the store, or what is wrong here"
);

/// How often a wait looks whether Ctrl-C was pressed or the client closed.
const SLICE: Duration = Duration::from_millis(50);
/// More is nobody's patience, and fits into every clock.
const MAX_TIMEOUT: Duration = Duration::from_secs(10 * 365 * 86_400);

pub fn failure(error: &Error) -> PyErr {
    let (kind, version) = match error {
        Error::Refused { status, version } => (status.name(), *version),
        Error::Timeout { .. } => ("TIMEOUT", 0),
        Error::Unreachable(_) => ("UNREACHABLE", 0),
        Error::TooManyOperations => ("TOO_MANY_OPERATIONS", 0),
        Error::Closed => ("CLOSED", 0),
        Error::Io(_) => ("IO", 0),
        Error::Locator(_) | Error::Invalid(_) => ("INVALID", 0),
    };
    StoreError::new_err((kind, version, error.to_string()))
}

pub fn closed() -> PyErr {
    StoreError::new_err(("CLOSED", 0, "this client is closed; make a new one"))
}

pub fn invalid(text: String) -> PyErr {
    StoreError::new_err(("INVALID", 0, text))
}

/// Connections and threads cannot be shared with a child process.
pub fn check_process(made_by: u32) -> PyResult<()> {
    if made_by == std::process::id() {
        return Ok(());
    }
    let text = "this client was made by another process; after a fork, make a new one";
    Err(StoreError::new_err(("FORKED", 0, text)))
}

pub fn duration(seconds: f64, what: &str) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|duration| !duration.is_zero() && *duration <= MAX_TIMEOUT)
        .ok_or_else(|| {
            let limit = MAX_TIMEOUT.as_secs();
            invalid(format!(
                "{what} is {seconds}; it has to be above 0 and at most {limit} (seconds)"
            ))
        })
}

pub fn options(timeout_s: f64, spin_us: u64) -> PyResult<Options> {
    Ok(Options {
        timeout: duration(timeout_s, "timeout_s")?,
        spin: Duration::from_micros(spin_us),
        ..Options::default()
    })
}

/// What is behind these locks is whole at every moment: somebody else's panic does not matter.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An operation with what makes a Python object of its result.
pub trait Task: Send {
    /// Runs it to its end with the interpreter free for other threads. A signal, or `is_closed`, gives it up.
    fn run(
        self: Box<Self>,
        py: Python<'_>,
        cluster: &mut Cluster,
        is_closed: &(dyn Fn() -> bool + Sync),
    ) -> PyResult<Py<PyAny>>;

    fn start(self: Box<Self>, cluster: &AsyncCluster) -> Box<dyn Waiting>;
}

/// An operation under way. One that is dropped is given up.
pub trait Waiting: Send {
    fn poll(&mut self, py: Python<'_>, context: &mut Context<'_>) -> Poll<PyResult<Py<PyAny>>>;
}

/// A call that is described and not made yet; it can be made once.
#[pyclass(frozen, module = "rcbox._rcbox")]
pub struct RawCall(Mutex<Option<Box<dyn Task>>>);

impl RawCall {
    pub fn new<O, F>(operation: O, convert: F) -> RawCall
    where
        O: Operation + Send + 'static,
        O::Output: Send,
        F: FnOnce(Python<'_>, O::Output) -> PyResult<Py<PyAny>> + Send + 'static,
    {
        let described = Described { operation, convert };
        RawCall(Mutex::new(Some(Box::new(described))))
    }

    pub fn take(&self) -> PyResult<Box<dyn Task>> {
        lock(&self.0)
            .take()
            .ok_or_else(|| PyRuntimeError::new_err("this call was made before"))
    }
}

struct Described<O, F> {
    operation: O,
    convert: F,
}

impl<O, F> Task for Described<O, F>
where
    O: Operation + Send + 'static,
    O::Output: Send,
    F: FnOnce(Python<'_>, O::Output) -> PyResult<Py<PyAny>> + Send + 'static,
{
    fn run(
        self: Box<Self>,
        py: Python<'_>,
        cluster: &mut Cluster,
        is_closed: &(dyn Fn() -> bool + Sync),
    ) -> PyResult<Py<PyAny>> {
        let Described { operation, convert } = *self;
        let mut ticket = py
            .detach(|| cluster.submit(operation))
            .map_err(|error| failure(&error))?;
        loop {
            let slice = py.detach(|| {
                let is_ready = cluster.wait_for(&ticket, SLICE)?;
                Ok(if is_ready {
                    Slice::Ended(cluster.wait(ticket)?)
                } else {
                    Slice::GoesOn(ticket)
                })
            });
            ticket = match slice.map_err(|error: Error| failure(&error))? {
                Slice::Ended(output) => return convert(py, output),
                Slice::GoesOn(ticket) => ticket,
            };
            let stop = if is_closed() {
                Err(failure(&Error::Closed))
            } else {
                py.check_signals()
            };
            if let Err(reason) = stop {
                cluster.cancel(ticket);
                return Err(reason);
            }
        }
    }

    fn start(self: Box<Self>, cluster: &AsyncCluster) -> Box<dyn Waiting> {
        Box::new(UnderWay {
            pending: cluster.start(self.operation),
            convert: Some(self.convert),
        })
    }
}

enum Slice<T, O> {
    Ended(O),
    GoesOn(T),
}

struct UnderWay<O: Operation, F> {
    pending: Pending<O>,
    convert: Option<F>,
}

impl<O, F> Waiting for UnderWay<O, F>
where
    O: Operation,
    F: FnOnce(Python<'_>, O::Output) -> PyResult<Py<PyAny>> + Send,
{
    fn poll(&mut self, py: Python<'_>, context: &mut Context<'_>) -> Poll<PyResult<Py<PyAny>>> {
        let Poll::Ready(result) = std::pin::Pin::new(&mut self.pending).poll(context) else {
            return Poll::Pending;
        };
        let convert = self.convert.take();
        Poll::Ready(match (result, convert) {
            (Ok(output), Some(convert)) => convert(py, output),
            (Err(error), _) => Err(failure(&error)),
            (Ok(_), None) => Err(PyRuntimeError::new_err("this call has ended before")),
        })
    }
}
