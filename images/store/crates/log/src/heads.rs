//! One head after the other: the next when one is full, and another in place of one that cannot get all of its replicas.

use crate::config::{CLEANER_RESERVE, Durability};
use crate::ends::Closing;
use crate::log::Log;
use crate::position::LogPosition;
use crate::segment::{Segment, State};

impl Log {
    /// Closes the head and opens the next.
    pub(crate) fn roll_over(&mut self, closing: Closing) {
        self.cleaner.wake();
        if let Some(head) = self.head.take() {
            assert_eq!(self.segments[head as usize].state, State::Head);
            self.close(head, closing);
        }
        let number = self.open(State::Head);
        self.segments[number as usize].start = Some(self.next_start);
        self.next_start = LogPosition(self.next_start.0 + u64::from(self.config.segment_bytes));
        self.head = Some(number);
        self.note_head(number);
        if self.config.durability == Durability::External {
            self.append_digest();
        }
        self.bare_bytes = self.segments[number as usize].used_bytes;
    }

    /// Whether the head holds nothing but its header and digests.
    pub(crate) fn is_head_bare(&self) -> bool {
        let is_bare = |head: u32| self.segments[head as usize].used_bytes == self.bare_bytes;
        self.config.durability == Durability::External && self.head.is_some_and(is_bare)
    }

    /// Closes the head and opens another, because the old one cannot get all of its replicas. One that holds nothing leaves its memory to its
    /// successor. False if no memory is free.
    pub fn start_new_head(&mut self) -> bool {
        if self.is_head_bare() {
            self.discard_head();
        } else if self.free.len() > CLEANER_RESERVE {
            self.mark_append_end();
        } else {
            self.cleaner.wake();
            return false;
        }
        self.roll_over(Closing::Early);
        true
    }

    pub(crate) fn discard_head(&mut self) {
        let Some(number) = self.head.take() else {
            return;
        };
        let id = self.segments[number as usize].id;
        let bytes = self.segment(id).map_or_else(Vec::new, <[u8]>::to_vec);
        let head = &mut self.segments[number as usize];
        assert_eq!(head.live_bytes, 0, "a discarded head holds live data");
        let start = head.start;
        *head = Segment::free();
        while self.append_ends.back().copied() > start {
            self.append_ends.pop_back();
        }
        self.forget_head(number);
        self.by_id.remove(&id);
        self.free.push(number);
        self.note_discarded(id, bytes);
    }

    /// Checks that a head with data can be replaced: a segment is free beside the cleaner's reserve. Nothing more becomes durable in a head that has
    /// lost a replica, and without that the cleaner gets nothing free. While the cleaner copies a victim, it uses its reserve; the victim's memory
    /// is free next.
    pub(crate) fn audit_head(&self) -> Result<(), String> {
        let is_held_up = self.head.is_some()
            && !self.is_head_bare()
            && self.free.len() <= CLEANER_RESERVE
            && self.cleaner.is_idle();
        match self.config.durability == Durability::External && is_held_up {
            true => Err("the head holds data, and no segment is free to replace it".to_owned()),
            false => Ok(()),
        }
    }
}
