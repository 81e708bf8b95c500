//! What one thread writes, and any may read at any time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::Trace;
use crate::clock::Clock;
use crate::event::Event;

/// Events that a thread remembers: 1 MiB.
pub const EVENTS: usize = 1 << 16;

/// One event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    pub ticks: u64,
    /// Number of an [`Event`]; another build may know more of them than this one.
    pub event: u16,
    /// See [`Event::place`].
    pub place: u16,
    /// See [`Event::arg`].
    pub arg: u32,
}

impl Record {
    pub(crate) fn packed(self) -> u64 {
        u64::from(self.event) << 48 | u64::from(self.place) << 32 | u64::from(self.arg)
    }

    pub(crate) fn unpacked(ticks: u64, packed: u64) -> Record {
        Record {
            ticks,
            event: (packed >> 48) as u16,
            place: (packed >> 32) as u16,
            arg: packed as u32,
        }
    }
}

#[derive(Debug)]
struct Slot {
    ticks: AtomicU64,
    what: AtomicU64,
}

/// One writer, any number of readers, no locks.
///
/// `written` is raised after an event's two words, which are stored with release ordering and loaded with acquire ordering. A reader
/// that has seen a word of event `n` therefore sees `written >= n` afterwards; it copies, looks at `written` again, and leaves out
/// whatever lies in a slot that the writer may have begun to use again. On x86-64 these are plain moves.
pub(crate) struct Ring {
    slots: Box<[Slot; EVENTS]>,
    written: AtomicU64,
    is_used: AtomicBool,
    /// Events before this one are of a thread that had the ring before.
    begin: AtomicU64,
    name: Mutex<String>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ring({:?})", self.name())
    }
}

impl Ring {
    pub fn new() -> Ring {
        let slot = || Slot {
            ticks: AtomicU64::new(0),
            what: AtomicU64::new(0),
        };
        let slots: Box<[Slot]> = (0..EVENTS).map(|_| slot()).collect();
        Ring {
            slots: slots.try_into().expect("as many slots as were asked for"),
            written: AtomicU64::new(0),
            is_used: AtomicBool::new(false),
            begin: AtomicU64::new(0),
            name: Mutex::default(),
        }
    }

    /// Takes it for the calling thread; false if another has it.
    pub fn take(&self, name: &str) -> bool {
        if self.is_used.swap(true, Ordering::AcqRel) {
            return false;
        }
        let written = self.written.load(Ordering::Relaxed);
        self.begin.store(written, Ordering::Release);
        name.clone_into(&mut self.name.lock().unwrap_or_else(PoisonError::into_inner));
        true
    }

    pub fn give_back(&self) {
        self.is_used.store(false, Ordering::Release);
    }

    /// The name of the thread that has it, if one has.
    pub fn name(&self) -> Option<String> {
        let name = self.name.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_used.load(Ordering::Acquire).then(|| name.clone())
    }

    #[inline]
    pub fn put(&self, ticks: u64, event: Event, place: u16, arg: u32) {
        let number = self.written.load(Ordering::Relaxed);
        let slot = &self.slots[number as usize % EVENTS];
        let record = Record {
            ticks,
            event: event as u16,
            place,
            arg,
        };
        slot.ticks.store(record.ticks, Ordering::Release);
        slot.what.store(record.packed(), Ordering::Release);
        self.written.store(number + 1, Ordering::Release);
    }

    /// Of the event before; 0 if there is none.
    #[inline]
    pub fn last_ticks(&self) -> u64 {
        let number = self.written.load(Ordering::Relaxed).wrapping_sub(1);
        self.slots[number as usize % EVENTS]
            .ticks
            .load(Ordering::Relaxed)
    }

    /// Number of the first, and the events, `last` at most.
    fn copy(&self, last: usize) -> (u64, Vec<Record>) {
        let begin = self.begin.load(Ordering::Acquire);
        let end = self.written.load(Ordering::Acquire);
        let kept = last.min(EVENTS) as u64;
        let first = end.saturating_sub(kept).max(begin).min(end);
        let mut events: Vec<Record> = (first..end)
            .map(|number| {
                let slot = &self.slots[number as usize % EVENTS];
                let ticks = slot.ticks.load(Ordering::Acquire);
                Record::unpacked(ticks, slot.what.load(Ordering::Acquire))
            })
            .collect();
        // The writer may be at event `written` now, in the slot of `written - EVENTS`.
        let whole_from = (self.written.load(Ordering::Acquire) + 1).saturating_sub(EVENTS as u64);
        let torn = whole_from.saturating_sub(first).min(events.len() as u64);
        events.drain(..torn as usize);
        (first + torn, events)
    }

    pub fn trace(&self, last: usize) -> Trace {
        let (first, events) = self.copy(last);
        Trace {
            clock: Clock::now(),
            first,
            events,
        }
    }
}
