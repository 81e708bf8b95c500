//! The reply gate: nothing is shown before it is durable.

use std::collections::BTreeMap;

use log::LogPosition;
use wire::ids::ReplyTo;
use wire::rpc::RetryResponse;

use crate::output::Output;

/// Bytes of replies that wait at most.
const MAX_HELD_BYTES: usize = 64 << 20;

/// Holds replies until the log is durable up to the newest entry that they show.
pub(crate) struct Gate {
    held: BTreeMap<(LogPosition, u64), Held>,
    held_bytes: usize,
    next: u64,
    max_held: usize,
}

struct Held {
    to: ReplyTo,
    payload: Vec<u8>,
}

impl Gate {
    pub fn new(max_held: usize) -> Gate {
        Gate {
            held: BTreeMap::new(),
            held_bytes: 0,
            next: 0,
            max_held,
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
        out: &mut impl Output,
    ) {
        if seen <= durable {
            out.reply(to, parts);
        } else {
            self.hold(seen, to, parts);
        }
    }

    #[cold]
    fn hold(&mut self, seen: LogPosition, to: ReplyTo, parts: &[&[u8]]) {
        let payload = parts.concat();
        self.held_bytes += payload.len();
        self.held.insert((seen, self.next), Held { to, payload });
        self.next += 1;
    }

    /// Sends what waited for positions up to `durable`.
    pub fn open(&mut self, durable: LogPosition, out: &mut impl Output) {
        while let Some(first) = self.held.first_entry()
            && first.key().0 <= durable
        {
            let held = first.remove();
            self.held_bytes -= held.payload.len();
            out.reply(held.to, &[&held.payload]);
        }
    }

    /// What the held replies show is gone for good: their clients shall ask again.
    pub fn give_up(&mut self, out: &mut impl Output) {
        for held in std::mem::take(&mut self.held).into_values() {
            out.reply(held.to, &[&RetryResponse::to_bytes(100, 200)]);
        }
        self.held_bytes = 0;
    }
}
