//! Writes that are submitted and not completed: how many, since when, and how frames were before them.

use std::collections::VecDeque;

use base::time::Time;

use crate::frame::Frame;

/// Bytes of writes under way, at most, for a new replica to be taken: no master has much more than 4 MiB under way to one backup, so more is waiting only
/// where several meet a device that is slow or has stopped.
const MOST_BYTES: usize = 16 << 20;
/// Replicas that are here take so many times as much.
const TIMES_FOR_KNOWN: usize = 2;

struct Write {
    ticket: u64,
    at: Time,
    bytes: usize,
}

/// A frame before a change whose last write has this ticket.
struct Before {
    ticket: u64,
    frame: Frame,
}

pub(crate) struct Flight {
    /// Of the newest write.
    submitted: u64,
    /// Writes up to this one have ended, well or not.
    ended: u64,
    writes: VecDeque<Write>,
    before: VecDeque<Before>,
    bytes: usize,
    most_bytes: usize,
}

impl Default for Flight {
    fn default() -> Flight {
        Flight {
            submitted: 0,
            ended: 0,
            writes: VecDeque::new(),
            before: VecDeque::new(),
            bytes: 0,
            most_bytes: MOST_BYTES,
        }
    }
}

impl Flight {
    pub fn submitted(&self) -> u64 {
        self.submitted
    }

    /// Whether this write is under way no more.
    pub fn has_ended(&self, ticket: u64) -> bool {
        ticket <= self.ended
    }

    /// The ticket of the next write.
    pub fn submit(&mut self, now: Time, bytes: usize) -> u64 {
        self.submitted += 1;
        self.bytes += bytes;
        self.writes.push_back(Write {
            ticket: self.submitted,
            at: now,
            bytes,
        });
        self.submitted
    }

    /// The newest write was the last of a change to a frame that was like this before.
    pub fn remember(&mut self, frame: Frame) {
        self.before.push_back(Before {
            ticket: self.submitted,
            frame,
        });
    }

    /// All writes up to this one are carried out.
    pub fn written(&mut self, ticket: u64) {
        assert!(
            ticket <= self.submitted,
            "a write ends that was never submitted"
        );
        self.ended = self.ended.max(ticket);
        let written = self
            .writes
            .iter()
            .take_while(|write| write.ticket <= ticket);
        let written = written.count();
        for write in self.writes.drain(..written) {
            self.bytes -= write.bytes;
        }
        let settled = self.before.iter().take_while(|one| one.ticket <= ticket);
        let settled = settled.count();
        self.before.drain(..settled);
    }

    /// Nothing that is under way will be carried out. How the frames were that it was to change, the newest change first.
    pub fn failed(&mut self) -> impl Iterator<Item = Frame> + use<> {
        let before = core::mem::take(&mut self.before);
        self.written(self.submitted);
        before.into_iter().rev().map(|before| before.frame)
    }

    /// Nothing new is taken until something has ended.
    pub fn takes_no_new(&self) -> bool {
        self.bytes >= self.most_bytes
    }

    /// Nothing at all is taken.
    pub fn is_full(&self) -> bool {
        self.bytes >= TIMES_FOR_KNOWN * self.most_bytes
    }

    /// Another bound for what is new than the usual one.
    pub fn bound(&mut self, bytes: usize) {
        self.most_bytes = bytes;
    }

    /// When the oldest write was submitted that has not ended.
    pub fn since(&self) -> Option<Time> {
        self.writes.front().map(|write| write.at)
    }
}
