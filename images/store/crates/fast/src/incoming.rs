//! A message that arrives in pieces.

use core::time::Duration;

use base::time::Time;

/// Nobody who may send needs longer for a byte: that is 4 MB in a second. And so much longer for a message in all.
const BYTE_TIME: Duration = Duration::from_nanos(250);
const GRACE: Duration = Duration::from_millis(100);

/// A message in pieces of equal length, but for the last.
#[derive(Debug, Default)]
pub struct Incoming {
    bytes: Vec<u8>,
    length: usize,
    piece_bytes: usize,
    /// One bit for each piece that is here.
    here: Vec<u64>,
    /// All pieces below this one are here.
    first_missing: usize,
    received_bytes: usize,
    /// The sender may send up to here.
    pub granted: usize,
    /// Missing pieces were asked for.
    pub asked_at: Time,
    /// The last piece came.
    pub came_at: Time,
    /// How much longer than it needs the sender has taken so far, while it could send.
    delay: Duration,
    /// The sender was told that it may send more.
    pub granted_at: Time,
}

/// What a piece did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It was here before.
    Again,
    New,
    /// It was the last that was missing.
    Complete,
    /// It does not fit.
    Wrong,
}

impl Incoming {
    /// Begins with a message of `length` bytes; `bytes` is room for it, whose content is of no interest.
    pub fn start(&mut self, length: usize, piece_bytes: usize, granted: usize, mut bytes: Vec<u8>) {
        bytes.clear();
        let pieces = length.div_ceil(piece_bytes);
        self.here.clear();
        self.here.resize(pieces.div_ceil(64), 0);
        self.bytes = bytes;
        self.length = length;
        self.piece_bytes = piece_bytes;
        self.first_missing = 0;
        self.received_bytes = 0;
        self.granted = granted.min(length);
        self.asked_at = Time::ZERO;
    }

    /// The first piece is about to come.
    pub fn began(&mut self, now: Time) {
        (self.came_at, self.granted_at) = (now, now);
        self.delay = Duration::ZERO;
    }

    /// A piece of this length came that was missing.
    pub fn came(&mut self, now: Time, bytes: usize) {
        let took = now.since(self.moved_at());
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.delay = (self.delay + took).saturating_sub(BYTE_TIME * bytes);
        self.came_at = now;
    }

    /// Whether the sender may send more of it.
    pub fn may_come(&self) -> bool {
        self.granted > self.received_bytes
    }

    /// Since when the sender was able to send, and has not.
    pub fn moved_at(&self) -> Time {
        self.came_at.max(self.granted_at)
    }

    /// Whether the sender takes longer than anybody needs.
    pub fn is_slow(&self, now: Time) -> bool {
        self.may_come() && self.delay + now.since(self.moved_at()) > GRACE
    }

    /// Whether a piece is one of a message of `length` bytes of which `granted` may be sent.
    pub fn fits(
        length: usize,
        piece_bytes: usize,
        granted: usize,
        offset: usize,
        piece: &[u8],
    ) -> bool {
        offset.is_multiple_of(piece_bytes)
            && offset < length
            && piece.len() == piece_bytes.min(length - offset)
            && offset + piece.len() <= granted.next_multiple_of(piece_bytes)
    }

    pub fn add(&mut self, offset: usize, piece: &[u8]) -> Added {
        if !Incoming::fits(self.length, self.piece_bytes, self.granted, offset, piece) {
            return Added::Wrong;
        }
        let index = offset / self.piece_bytes;
        let (word, bit) = (index / 64, 1 << (index % 64));
        if self.here[word] & bit != 0 {
            return Added::Again;
        }
        self.here[word] |= bit;
        self.received_bytes += piece.len();
        assert!(self.received_bytes <= self.length, "each piece counts once");
        self.make_room(offset + piece.len());
        // What is granted bounds how far ahead of what has arrived a piece can be.
        if offset == self.bytes.len() {
            self.bytes.extend_from_slice(piece);
        } else {
            let end = offset + piece.len();
            if self.bytes.len() < end {
                self.bytes.resize(end, 0);
            }
            self.bytes[offset..end].copy_from_slice(piece);
        }
        while self.is_here(self.first_missing) {
            self.first_missing += 1;
        }
        match self.received_bytes == self.length {
            true => Added::Complete,
            false => Added::New,
        }
    }

    /// Twice as much each time, and never more than the whole message takes.
    fn make_room(&mut self, end: usize) {
        if end > self.bytes.capacity() {
            let wanted = (2 * self.bytes.capacity()).min(self.length).max(end);
            self.bytes.reserve_exact(wanted - self.bytes.len());
        }
    }

    fn is_here(&self, index: usize) -> bool {
        let word = self.here.get(index / 64);
        word.is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    pub fn length(&self) -> usize {
        self.length
    }

    pub fn received_bytes(&self) -> usize {
        self.received_bytes
    }

    /// Memory held.
    pub fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// The whole message, or what there is of one that is given up.
    pub fn take(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.bytes)
    }

    /// How many pieces a piece at `offset` is ahead of the first that is missing.
    pub fn ahead(&self, offset: usize) -> usize {
        (offset / self.piece_bytes).saturating_sub(self.first_missing)
    }

    /// The first bytes that are missing of those that may have been sent, as offset and length; `None` if all are here.
    pub fn first_gap(&self) -> Option<(usize, usize)> {
        let start = self.first_missing * self.piece_bytes;
        if start >= self.granted {
            return None;
        }
        let mut end = self.first_missing;
        while end * self.piece_bytes < self.granted && !self.is_here(end) {
            end += 1;
        }
        Some((start, (end * self.piece_bytes).min(self.granted) - start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_order_gives_the_message(length in 1usize..5000, piece in 1usize..600, order in any::<u64>()) {
            let message: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let mut incoming = Incoming::default();
            incoming.start(length, piece, length, Vec::new());
            let mut offsets: Vec<usize> = (0..length).step_by(piece).collect();
            let count = offsets.len();
            for at in 0..count {
                offsets.swap(at, (order as usize).wrapping_mul(at + 7) % count);
            }
            for (at, &offset) in offsets.iter().enumerate() {
                let end = length.min(offset + piece);
                let added = incoming.add(offset, &message[offset..end]);
                prop_assert_eq!(added, if at + 1 == count { Added::Complete } else { Added::New });
                prop_assert_eq!(incoming.add(offset, &message[offset..end]), Added::Again);
                prop_assert_eq!(incoming.first_gap().is_none(), at + 1 == count);
            }
            prop_assert_eq!(incoming.take(), message);
        }

        #[test]
        fn what_does_not_fit_changes_nothing(offset in any::<u32>(), bytes in 0usize..3000) {
            let mut incoming = Incoming::default();
            incoming.start(2500, 1000, 2000, Vec::new());
            let fits = matches!((offset, bytes), (0 | 1000, 1000));
            let added = incoming.add(offset as usize, &vec![1; bytes]);
            prop_assert_eq!(added != Added::Wrong, fits);
            prop_assert!(incoming.held_bytes() <= 4000);
        }
    }

    #[test]
    fn gaps_end_where_the_grant_does() {
        let mut incoming = Incoming::default();
        incoming.start(10_000, 1000, 5000, Vec::new());
        assert_eq!(incoming.first_gap(), Some((0, 5000)));
        incoming.add(0, &[0; 1000]);
        incoming.add(3000, &[0; 1000]);
        assert_eq!(incoming.first_gap(), Some((1000, 2000)));
        assert_eq!(incoming.ahead(3000), 2);
        incoming.add(1000, &[0; 1000]);
        incoming.add(2000, &[0; 1000]);
        assert_eq!(incoming.first_gap(), Some((4000, 1000)));
        incoming.add(4000, &[0; 1000]);
        assert_eq!(incoming.first_gap(), None);
    }
}
