//! The reply gate: nothing is shown before it is durable.

use core::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use base::ids::ReplyTo;
use log::LogPosition;
use trace::Event;
use wire::rpc::RetryResponse;

use crate::effects::ShardEffects;

/// Bytes of replies that wait at most.
const MAX_HELD_BYTES: usize = 64 << 20;

/// Buffers that are kept for replies to come, and how long they may have become.
const SPARE_BUFFERS: usize = 256;
const SPARE_BYTES: usize = 4096;

/// Holds replies until the log is durable up to the newest entry that they show.
pub(crate) struct Gate {
    /// The one that may go first is on top.
    held: BinaryHeap<Reverse<Held>>,
    held_bytes: usize,
    next: u64,
    max_held: usize,
    spare: Vec<Vec<u8>>,
}

struct Held {
    seen: LogPosition,
    /// Those that see the same go in the order in which they came.
    number: u64,
    to: ReplyTo,
    payload: Vec<u8>,
}

impl Held {
    fn rank(&self) -> (LogPosition, u64) {
        (self.seen, self.number)
    }
}

impl PartialEq for Held {
    fn eq(&self, other: &Held) -> bool {
        self.rank() == other.rank()
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Held) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Held) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl Gate {
    pub fn new(max_held: usize) -> Gate {
        Gate {
            held: BinaryHeap::new(),
            held_bytes: 0,
            next: 0,
            max_held,
            spare: Vec::new(),
        }
    }

    /// Whether a further reply might find no room: the request must not even be begun.
    pub fn is_full(&self) -> bool {
        self.held.len() >= self.max_held || self.held_bytes >= MAX_HELD_BYTES
    }

    pub fn held_count(&self) -> usize {
        self.held.len()
    }

    /// Replies now if the log is durable up to `seen`, else when it is.
    #[inline]
    pub fn reply(
        &mut self,
        durable: LogPosition,
        seen: LogPosition,
        to: ReplyTo,
        parts: &[&[u8]],
        out: &mut impl ShardEffects,
    ) {
        if seen <= durable {
            out.reply(to, parts);
        } else {
            self.hold(seen, to, parts);
        }
    }

    #[cold]
    fn hold(&mut self, seen: LogPosition, to: ReplyTo, parts: &[&[u8]]) {
        let mut payload = self.spare.pop().unwrap_or_default();
        parts
            .iter()
            .for_each(|part| payload.extend_from_slice(part));
        trace::record_at(Event::Held, to.connection, to.nonce);
        self.held_bytes += payload.len();
        self.held.push(Reverse(Held {
            seen,
            number: self.next,
            to,
            payload,
        }));
        self.next += 1;
    }

    /// Sends what waited for positions up to `durable`.
    pub fn open(&mut self, durable: LogPosition, out: &mut impl ShardEffects) {
        while let Some(Reverse(first)) = self.held.peek()
            && first.seen <= durable
            && let Some(Reverse(mut held)) = self.held.pop()
        {
            assert!(self.held_bytes >= held.payload.len());
            self.held_bytes -= held.payload.len();
            trace::record_at(Event::Released, held.to.connection, held.to.nonce);
            out.reply(held.to, &[&held.payload]);
            if self.spare.len() < SPARE_BUFFERS && held.payload.capacity() <= SPARE_BYTES {
                held.payload.clear();
                self.spare.push(held.payload);
            }
        }
    }

    /// What the held replies show may have become durable or not, and nobody here will know: they are not sent, as if their connections had broken.
    /// "Come again" would say that the requests have had no effect, and parts of multi-ops, which have no numbers, could take effect twice.
    pub fn forget(&mut self) {
        self.held.clear();
        self.held_bytes = 0;
    }

    /// What the held replies show is gone for good: their clients shall ask again.
    pub fn give_up(&mut self, out: &mut impl ShardEffects) {
        while let Some(Reverse(held)) = self.held.pop() {
            out.reply(held.to, &[&RetryResponse::to_bytes(100, 200)]);
        }
        self.held_bytes = 0;
    }
}
