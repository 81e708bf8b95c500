//! Messages with numbers, kept until the other side has heard them.

use std::collections::VecDeque;

use base::bugs::{Bug, is_planted};
use wire::member::Numbers;

/// Encoded messages that are kept for one session, at most. When there are more, the oldest go, and the session ends with its connection unless
/// the other side turns out to have heard them.
pub const MAX_UNHEARD_BYTES: usize = 1 << 20;

/// What a message beyond its own bytes takes here.
const OVERHEAD_BYTES: usize = 32;

/// One side's messages of one session.
#[derive(Debug, Default)]
pub(super) struct Numbered {
    /// The number of the last message that was sent here; they count from 1.
    sent: u64,
    /// The number of the last message that was heard of the other side.
    heard: u64,
    /// Messages that the other side may not have heard, the last of them number `sent`.
    unheard: VecDeque<Vec<u8>>,
    unheard_bytes: usize,
}

impl Numbered {
    /// The number of the next message, and what was heard.
    pub fn next(&self, session: u64) -> Numbers {
        Numbers {
            session,
            number: self.sent + 1,
            heard: self.heard,
        }
    }

    /// For a message that is not kept: it is lost with its connection.
    pub fn unnumbered(&self, session: u64) -> Numbers {
        Numbers {
            session,
            number: 0,
            heard: self.heard,
        }
    }

    /// The message with [`Self::next`] is on its way, or will be.
    pub fn keep(&mut self, encoded: Vec<u8>) {
        self.sent += 1;
        self.unheard_bytes += encoded.len() + OVERHEAD_BYTES;
        self.unheard.push_back(encoded);
        while self.unheard_bytes > MAX_UNHEARD_BYTES {
            self.drop_oldest();
        }
    }

    /// A message came: the next one, or one without a number. False if it is another one, or if the other side has heard what was not said.
    pub fn take(&mut self, numbers: &Numbers) -> bool {
        let is_next = numbers.number == 0 || numbers.number == self.heard + 1;
        if numbers.heard > self.sent || !is_next {
            return false;
        }
        self.other_has_heard(numbers.heard);
        self.heard = self.heard.max(numbers.number);
        true
    }

    /// Whether a message with a number has come.
    pub fn has_heard(&self) -> bool {
        self.heard > 0
    }

    /// Of a session that goes on: what is to be sent once more, in order. `None` if something of it is not here any more.
    pub fn resume(&mut self, heard: u64) -> Option<Vec<Vec<u8>>> {
        let first_kept = self.sent + 1 - self.unheard.len() as u64;
        if heard > self.sent || heard + 1 < first_kept {
            return None;
        }
        self.other_has_heard(heard);
        if is_planted(Bug::ForgetUnheard) {
            return Some(Vec::new());
        }
        Some(self.unheard.iter().cloned().collect())
    }

    fn other_has_heard(&mut self, heard: u64) {
        while self.sent - (self.unheard.len() as u64) < heard && !self.unheard.is_empty() {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.unheard.pop_front() {
            self.unheard_bytes -= oldest.len() + OVERHEAD_BYTES;
        }
        assert!(self.unheard.len() as u64 <= self.sent);
        assert!(!self.unheard.is_empty() || self.unheard_bytes == 0);
    }
}
