//! Calls beside an event loop: any number under way at a time, none of which blocks the loop's thread.
//!
//! The client's thread never touches the interpreter. It notes which calls ended and makes a socket readable, which the event loop
//! watches; the loop's thread then fetches all of them at once.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use client::AsyncCluster;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;

use crate::call::{RawCall, Waiting, check_process, closed, failure, lock, options};

/// Which calls ended.
struct Ended {
    calls: Mutex<Vec<u64>>,
    bell: UnixStream,
}

impl Ended {
    fn add(&self, call: u64) {
        let mut calls = lock(&self.calls);
        calls.push(call);
        if calls.len() == 1 {
            // Fails only when full, so readable already, or when nobody listens any more.
            let _ = (&self.bell).write(&[1]);
        }
    }
}

struct CallWaker {
    call: u64,
    ended: Arc<Ended>,
}

impl Wake for CallWaker {
    fn wake(self: Arc<Self>) {
        self.ended.add(self.call);
    }
}

struct UnderWay {
    waiting: Box<dyn Waiting>,
    waker: Waker,
}

#[derive(Default)]
struct Calls {
    under_way: BTreeMap<u64, UnderWay>,
    last: u64,
}

/// A store, beside one event loop. No lock is held while Python objects are made or dropped: that may run anybody's code, which may come
/// back here.
#[pyclass(frozen, module = "rcbox._rcbox")]
pub struct RawAsyncCluster {
    /// `None`: closed.
    cluster: Mutex<Option<AsyncCluster>>,
    calls: Mutex<Calls>,
    ended: Arc<Ended>,
    listener: UnixStream,
    process: u32,
}

#[pymethods]
impl RawAsyncCluster {
    #[new]
    fn new(coordinator: &str, timeout_s: f64, spin_us: u64) -> PyResult<RawAsyncCluster> {
        let options = options(timeout_s, spin_us)?;
        let cluster =
            AsyncCluster::with_options(coordinator, options).map_err(|error| failure(&error))?;
        let (bell, listener) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        listener.set_nonblocking(true)?;
        let calls = Mutex::default();
        Ok(RawAsyncCluster {
            cluster: Mutex::new(Some(cluster)),
            calls: Mutex::default(),
            ended: Arc::new(Ended { calls, bell }),
            listener,
            process: std::process::id(),
        })
    }

    /// Readable when calls have ended.
    fn fileno(&self) -> i32 {
        self.listener.as_raw_fd()
    }

    /// Gives the call's number.
    fn start(&self, py: Python<'_>, call: &RawCall) -> PyResult<u64> {
        check_process(self.process)?;
        let mut waiting = {
            let cluster = lock(&self.cluster);
            call.take()?.start(cluster.as_ref().ok_or_else(closed)?)
        };
        let call = {
            let mut calls = lock(&self.calls);
            calls.last += 1;
            calls.last
        };
        let ended = Arc::clone(&self.ended);
        let waker = Waker::from(Arc::new(CallWaker { call, ended }));
        // One that could not be started fails here; one that has ended already will be found by its waker.
        if let Poll::Ready(result) = waiting.poll(py, &mut Context::from_waker(&waker)) {
            waiting = Box::new(Done(Some(result?)));
            waker.wake_by_ref();
        }
        let under_way = UnderWay { waiting, waker };
        lock(&self.calls).under_way.insert(call, under_way);
        Ok(call)
    }

    /// What ended since the last time: number, whether it is a result (or an exception), and that.
    fn take_ended(&self, py: Python<'_>) -> PyResult<Vec<(u64, bool, Py<PyAny>)>> {
        self.silence()?;
        let ended = std::mem::take(&mut *lock(&self.ended.calls));
        let mut results = Vec::with_capacity(ended.len());
        for call in ended {
            let Some(mut under_way) = lock(&self.calls).under_way.remove(&call) else {
                continue; // given up
            };
            let mut context = Context::from_waker(&under_way.waker);
            match under_way.waiting.poll(py, &mut context) {
                Poll::Ready(Ok(result)) => results.push((call, true, result)),
                Poll::Ready(Err(error)) => {
                    results.push((call, false, error.into_value(py).into_py_any(py)?));
                }
                Poll::Pending => {
                    lock(&self.calls).under_way.insert(call, under_way);
                }
            }
        }
        Ok(results)
    }

    fn cancel(&self, call: u64) {
        let given_up = lock(&self.calls).under_way.remove(&call);
        drop(given_up);
    }

    /// Gives up all calls. In a forked child it does nothing: see `drop`.
    fn close(&self) {
        if check_process(self.process).is_ok() {
            *lock(&self.cluster) = None;
            let given_up = std::mem::take(&mut lock(&self.calls).under_way);
            drop(given_up);
        }
    }
}

impl RawAsyncCluster {
    fn silence(&self) -> PyResult<()> {
        let mut bytes = [0; 64];
        loop {
            match (&self.listener).read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for RawAsyncCluster {
    fn drop(&mut self) {
        // A forked child has the parent's way to wake its thread, which is not the child's to stop. No lock: in the child, whoever held
        // it is gone.
        if check_process(self.process).is_err() {
            std::mem::forget(self.cluster.get_mut().map(Option::take));
        }
    }
}

/// A result that waits to be fetched.
struct Done(Option<Py<PyAny>>);

impl Waiting for Done {
    fn poll(&mut self, _py: Python<'_>, _context: &mut Context<'_>) -> Poll<PyResult<Py<PyAny>>> {
        self.0
            .take()
            .map_or(Poll::Pending, |it| Poll::Ready(Ok(it)))
    }
}
