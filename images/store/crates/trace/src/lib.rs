//! The time trace: what a thread did, and when, in events of a few nanoseconds each. docs/trace.md has the whole story.
//!
//! Every layer calls [`record`]; it is always compiled in. A thread that has no [`Recorder`] records nothing: that is so in the
//! simulator and in tests, so that whatever is pure stays so (nothing that is recorded ever comes back to whoever recorded it).
//!
//! ```
//! let recorder = trace::start("example");
//! trace::record(trace::Event::OperationStarted, 7);
//! let trace = recorder.read(10);
//! assert_eq!(trace.events[0].arg, 7);
//! ```

#![deny(unsafe_code)]

mod clock;
mod dump;
mod event;
mod ring;
mod text;

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::{Mutex, PoisonError};

pub use clock::{Clock, boot_id, ticks};
pub use dump::DumpError;
pub use event::{Arg, Event, ShortField};
use ring::Ring;
pub use ring::{EVENTS, Record};
pub use text::{Format, Wanted};

thread_local! {
    static RING: Cell<Option<&'static Ring>> = const { Cell::new(None) };
}

/// Every ring that was ever made. One that no thread uses any more is given to the next: there are never more than there
/// were threads at one time.
static RINGS: Mutex<Vec<&'static Ring>> = Mutex::new(Vec::new());

/// The place of what was received or flushed for a port of datagrams as a whole, and not for one connection.
pub const DATAGRAMS: u64 = 0xffff;

/// Notes that `event` happens now, if this thread has a [`Recorder`]. The low 32 bits of `arg` are kept.
#[inline]
pub fn record(event: Event, arg: u64) {
    record_at(event, 0, arg);
}

/// As [`record`], with where it happens: the low 16 bits of a connection's number, an opcode ([`Event::place`] says which).
#[inline]
pub fn record_at(event: Event, place: u64, arg: u64) {
    if let Some(ring) = RING.get() {
        ring.put(ticks(), event, place as u16, arg as u32);
    }
}

/// As [`record_at`], with the stamp of the event before it, which happened just now: reading the counter is what an event costs.
#[inline]
pub fn note(event: Event, place: u64, arg: u64) {
    if let Some(ring) = RING.get() {
        ring.put(ring.last_ticks(), event, place as u16, arg as u32);
    }
}

/// While it lives, its thread records.
#[derive(Debug)]
pub struct Recorder {
    ring: &'static Ring,
    /// Another recorder of this thread was there before.
    is_second: bool,
    /// It stays with its thread.
    thread: PhantomData<*const ()>,
}

/// What one thread did, the oldest event first.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    pub clock: Clock,
    /// Number of the first event, counted from the thread's first.
    pub first: u64,
    pub events: Vec<Record>,
}

/// Begins to record this thread. A second recorder of one thread is the same as the first, which has to outlive it.
pub fn start(thread: &str) -> Recorder {
    if let Some(ring) = RING.get() {
        return Recorder {
            ring,
            is_second: true,
            thread: PhantomData,
        };
    }
    clock::anchor();
    let mut rings = RINGS.lock().unwrap_or_else(PoisonError::into_inner);
    let free = rings.iter().find(|ring| ring.take(thread)).copied();
    let ring = free.unwrap_or_else(|| {
        let ring: &'static Ring = Box::leak(Box::new(Ring::new()));
        ring.take(thread);
        rings.push(ring);
        ring
    });
    RING.set(Some(ring));
    Recorder {
        ring,
        is_second: false,
        thread: PhantomData,
    }
}

impl Recorder {
    /// The last events of this thread, `last` at most.
    pub fn read(&self, last: usize) -> Trace {
        self.ring.trace(last)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if !self.is_second {
            RING.set(None);
            self.ring.give_back();
        }
    }
}

/// The last events of this thread; `None` if it does not record.
pub fn of_this_thread(last: usize) -> Option<Trace> {
    Some(RING.get()?.trace(last))
}

/// The last events of every thread that records now, with the threads' names. They go on meanwhile.
pub fn of_all_threads(last: usize) -> Vec<(String, Trace)> {
    let rings = RINGS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let named = rings
        .into_iter()
        .filter_map(|ring| Some((ring.name()?, ring)));
    named.map(|(name, ring)| (name, ring.trace(last))).collect()
}

#[cfg(test)]
mod tests;
