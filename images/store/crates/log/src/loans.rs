//! Entries that are sent from where they lie: lent to a driver until it gives them back.
//!
//! A segment of which something is lent is cleaned last. When only such ones are left to clean, the log calls back what is lent of one
//! ([`Log::take_recall`]): whoever has it copies it. So a slow reader costs memory of its own and never the cleaner's.

use core::ops::Range;

use crate::log::Log;
use crate::segment::State;

/// Bits of a token that are a place in memory. Above them is the run of the log: what was lent before [`Log::reset`] is gone.
const OFFSET_BITS: u32 = 48;

impl Log {
    /// What to call `bytes`, which lie in this log, when they are lent; `None` if they had better be copied.
    ///
    /// # Panics
    /// If they lie elsewhere.
    pub fn token_of(&self, bytes: &[u8]) -> Option<u64> {
        let offset = bytes.as_ptr().addr() - self.memory.as_ptr().addr();
        assert!(offset + bytes.len() <= self.memory.len(), "not of this log");
        let segment = &self.segments[self.segment_at(offset)];
        let is_leaving = segment.state == State::Victim || segment.is_recalled;
        (!is_leaving).then_some(u64::from(self.run) << OFFSET_BITS | offset as u64)
    }

    /// Somebody has what is called so, until [`Log::returned`].
    pub fn lend(&mut self, token: u64) {
        if let Some(offset) = self.offset_of(token) {
            let number = self.segment_at(offset);
            self.segments[number].loans += 1;
        }
    }

    /// What was lent; `None` if the log has forgotten it with all that it held.
    pub fn lent(&self, token: u64, length: usize) -> Option<&[u8]> {
        let offset = self.offset_of(token)?;
        self.memory.get(offset..offset.checked_add(length)?)
    }

    /// It was given back.
    ///
    /// # Panics
    /// If it was not lent.
    pub fn returned(&mut self, token: u64) {
        if let Some(offset) = self.offset_of(token) {
            let number = self.segment_at(offset);
            let segment = &mut self.segments[number];
            assert!(segment.loans > 0, "given back more often than lent");
            segment.loans -= 1;
            if segment.loans == 0 && segment.closed_early {
                self.cleaner.ends_wait = false;
            }
            if segment.is_recalled && segment.loans == 0 {
                self.cleaner.wake();
            }
        }
    }

    /// Tokens of what the cleaner wants to have back now; `None` also if it was given back meanwhile.
    pub fn take_recall(&mut self) -> Option<Range<u64>> {
        let number = self.recall.take()?;
        if self.segments[number as usize].loans == 0 {
            return None;
        }
        let start = u64::from(self.run) << OFFSET_BITS | self.offset_of_segment(number) as u64;
        Some(start..start + u64::from(self.config.segment_bytes))
    }

    /// Calls back what is lent of the best of the segments that only that keeps from being cleaned. False if there is none.
    pub(crate) fn call_back(&mut self) -> bool {
        let Some(number) = self.best_lent_victim() else {
            return false;
        };
        let segment = &mut self.segments[number as usize];
        if !segment.is_recalled {
            segment.is_recalled = true;
            self.recall = Some(number);
        }
        true
    }

    fn offset_of(&self, token: u64) -> Option<usize> {
        let is_of_this_run = token >> OFFSET_BITS == u64::from(self.run);
        is_of_this_run.then_some((token & ((1 << OFFSET_BITS) - 1)) as usize)
    }

    fn segment_at(&self, offset: usize) -> usize {
        offset >> self.config.segment_bytes.trailing_zeros()
    }
}
