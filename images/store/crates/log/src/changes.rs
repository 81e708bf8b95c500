//! Reading a log while it is written: what is appended to its heads from some moment on, in order.
//!
//! Whoever reads pins the heads: the cleaner, which would take entries elsewhere and drop what is dead, leaves them alone until they are read.

use std::collections::VecDeque;

use wire::entry::RawEntry;

use crate::log::Log;
use crate::pin::Pin;
use crate::position::LogPosition;

/// Entries at the log's heads from a position on, each with the position behind it.
pub struct Appends<'a> {
    log: &'a Log,
    heads: core::iter::Copied<std::collections::vec_deque::Iter<'a, u32>>,
    head: Option<u32>,
    at: LogPosition,
}

impl<'a> Iterator for Appends<'a> {
    type Item = (RawEntry<'a>, LogPosition);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let head = self.head?;
            let segment = &self.log.segments[head as usize];
            let start = segment.position_at(0);
            // The position may be of a head that was discarded, and held nothing.
            let offset = self.at.0.saturating_sub(start.0);
            if offset < u64::from(segment.used_bytes) {
                let entries = self.log.entries_from(head, offset as u32);
                let entry = RawEntry::read(entries).expect("the log holds what it wrote");
                self.at = LogPosition(start.0 + offset + entry.bytes.len() as u64);
                return Some((entry, self.at));
            }
            self.head = self.heads.next();
        }
    }
}

impl Log {
    /// From now on the cleaner leaves alone what is appended; see [`Self::appends_from`]. Answers the present position.
    ///
    /// # Panics
    /// If there is a pin already.
    pub fn pin_heads(&mut self) -> LogPosition {
        assert!(self.pin.is_none(), "the log is pinned already");
        self.pin = Some(Pin {
            heads: VecDeque::new(),
        });
        if let Some(head) = self.head {
            self.note_head(head);
        }
        self.head_position()
    }

    /// The cleaner may have everything again.
    pub fn unpin_heads(&mut self) {
        if let Some(pin) = self.pin.take() {
            for head in pin.heads {
                self.segments[head as usize].is_pinned = false;
            }
            self.look_for_ends();
            self.cleaner.wake();
        }
    }

    /// What lies before `position` is not needed any more.
    pub fn unpin_before(&mut self, position: LogPosition) {
        let Some(pin) = &mut self.pin else {
            return;
        };
        while let Some(&next) = pin.heads.get(1)
            && self.segments[next as usize].position_at(0) <= position
            && let Some(head) = pin.heads.pop_front()
        {
            self.segments[head as usize].is_pinned = false;
            self.cleaner.ends_wait = false;
        }
    }

    /// What was appended at the log's heads from `position` on: one that [`Self::pin_heads`] answered, or that came with an entry, and that
    /// [`Self::unpin_before`] was not told of a later one. Nothing without a pin.
    pub fn appends_from(&self, position: LogPosition) -> Appends<'_> {
        let heads = self.pin.as_ref().map(|pin| pin.heads.iter().copied());
        let mut heads = heads.unwrap_or_default();
        Appends {
            log: self,
            head: heads.next(),
            heads,
            at: position,
        }
    }

    /// Whether writes are refused because the cleaner may not have what is pinned.
    pub fn pin_hinders(&self) -> bool {
        self.pin.is_some()
            && self.free.len() <= self.reserve()
            && self.cleaner.is_idle()
            && self.best_victim().is_none()
            && !self.waits_for_replicas()
            && self.would_clean_pinned()
    }

    pub(crate) fn note_head(&mut self, number: u32) {
        if let Some(pin) = &mut self.pin {
            pin.heads.push_back(number);
            self.segments[number as usize].is_pinned = true;
        }
    }

    pub(crate) fn forget_head(&mut self, number: u32) {
        if let Some(pin) = &mut self.pin {
            pin.heads.retain(|&head| head != number);
        }
    }
}
