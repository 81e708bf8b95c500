//! A message that is sent in pieces, and kept until the other side has it: here, or, its long end, where it lies anyway.

use transport::{Lender, Loan};

/// A message on its way out.
#[derive(Debug, Default)]
pub struct Outgoing {
    /// All of the message, or what comes before the loan.
    bytes: Vec<u8>,
    loan: Option<Loan>,
    /// All below was sent.
    sent: usize,
    /// The other side takes up to here.
    granted: usize,
    /// What is to be sent once more, from here ...
    again_from: usize,
    /// ... up to here.
    again_to: usize,
}

/// One piece to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub offset: usize,
    pub length: usize,
}

impl Outgoing {
    /// Begins with a message that consists of `parts`, of which `unscheduled` bytes may be sent unasked. `spare` gives room for a long one: memory that
    /// is new costs more than the copy.
    pub fn start(&mut self, parts: &[&[u8]], unscheduled: usize, spare: impl FnOnce() -> Vec<u8>) {
        assert_eq!(self.loan, None, "what was lent is given back first");
        self.bytes.clear();
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if length > unscheduled && self.bytes.capacity() < length {
            self.bytes = spare();
            self.bytes.clear();
        }
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        self.sent = 0;
        self.granted = unscheduled.min(self.bytes.len());
        (self.again_from, self.again_to) = (0, 0);
    }

    /// As [`Outgoing::start`], for a message that consists of `head` and what somebody lends.
    pub fn start_lent(&mut self, head: &[u8], loan: Loan, unscheduled: usize) {
        self.start(&[head], unscheduled, Vec::new);
        self.loan = Some(loan);
        self.granted = unscheduled.min(self.length());
    }

    /// Of the whole message.
    pub fn length(&self) -> usize {
        self.bytes.len() + self.loan.map_or(0, |loan| loan.length)
    }

    /// What of the message lies here.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn loan(&self) -> Option<Loan> {
        self.loan
    }

    /// Both parts of a piece. `None` if the lender does not have its part any more.
    pub fn parts<'p, 'l: 'p>(&'p self, piece: Piece, lend: &Lender<'l>) -> Option<[&'p [u8]; 2]> {
        let Piece { offset, length } = piece;
        let here = self.bytes.len();
        let head = &self.bytes[offset.min(here)..(offset + length).min(here)];
        if offset + length <= here {
            return Some([head, &[]]);
        }
        let loan = self.loan?;
        let lent = lend(loan.token, loan.length)?;
        let from = offset.max(here) - here;
        Some([head, lent.get(from..offset + length - here)?])
    }

    /// Takes what was lent into memory of its own, and gives the loan back. `None` if there is none, or the lender does not have it any more.
    pub fn keep<'l>(&mut self, lend: &Lender<'l>, spare: Vec<u8>) -> Option<u64> {
        let loan = self.loan?;
        let lent = lend(loan.token, loan.length)?;
        let head = core::mem::replace(&mut self.bytes, spare);
        self.bytes.clear();
        self.bytes.extend_from_slice(&head);
        self.bytes.extend_from_slice(lent);
        self.loan = None;
        Some(loan.token)
    }

    /// Gives a loan back, whose message is of no interest any more.
    pub fn give_back(&mut self) -> Option<u64> {
        self.loan.take().map(|loan| loan.token)
    }

    /// All of it was sent at once.
    pub fn sent_all(&mut self) {
        self.sent = self.length();
    }

    /// The other side takes up to `offset`.
    pub fn grant(&mut self, offset: usize) {
        self.granted = self.granted.max(offset.min(self.length()));
    }

    /// The other side misses these; what was never sent is not sent by this.
    pub fn resend(&mut self, offset: usize, length: usize, piece_bytes: usize) {
        let from = offset - offset % piece_bytes;
        let to = offset.saturating_add(length).min(self.sent);
        if from >= to {
            return;
        }
        if self.again_from < self.again_to {
            self.again_from = self.again_from.min(from);
            self.again_to = self.again_to.max(to);
        } else {
            (self.again_from, self.again_to) = (from, to);
        }
    }

    pub fn has_more(&self) -> bool {
        self.again_from < self.again_to || self.sent < self.granted
    }

    /// How much has not been sent yet: who has the least goes first.
    pub fn remaining(&self) -> usize {
        self.length() - self.sent
    }

    /// Takes the next piece that may be sent.
    pub fn next_piece(&mut self, piece_bytes: usize) -> Option<Piece> {
        assert!(
            self.again_to <= self.sent && self.sent.max(self.granted) <= self.length(),
            "nothing goes out that there is not, nor again that never went"
        );
        if self.again_from < self.again_to {
            let offset = self.again_from;
            let length = piece_bytes.min(self.length() - offset);
            self.again_from += length;
            return Some(Piece { offset, length });
        }
        if self.sent < self.granted {
            let offset = self.sent;
            // A grant may end within a piece; pieces are sent whole.
            let length = piece_bytes.min(self.length() - offset);
            self.sent += length;
            return Some(Piece { offset, length });
        }
        None
    }

    /// Memory held.
    pub fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Forgets the message; keeps room for one of `keep` bytes.
    pub fn clear(&mut self, keep: usize) -> Vec<u8> {
        assert_eq!(self.loan, None, "what was lent is given back first");
        (self.sent, self.granted) = (0, 0);
        (self.again_from, self.again_to) = (0, 0);
        self.bytes.clear();
        if self.bytes.capacity() > keep {
            return core::mem::take(&mut self.bytes);
        }
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_what_is_lent_are_those_of_a_copy() {
        let message: Vec<u8> = (0..100).collect();
        let (head, value) = message.split_at(7);
        let lend = |token: u64, length: usize| (token == 5).then(|| &value[..length]);
        let mut lent = Outgoing::default();
        let loan = Loan {
            token: 5,
            length: value.len(),
        };
        lent.start_lent(head, loan, 30);
        assert_eq!((lent.length(), lent.remaining()), (100, 100));
        lent.grant(100);
        let mut sent = Vec::new();
        while let Some(piece) = lent.next_piece(3) {
            let [first, second] = lent.parts(piece, &lend).expect("it is there");
            assert_eq!(first.len() + second.len(), piece.length);
            sent.extend_from_slice(first);
            sent.extend_from_slice(second);
        }
        assert_eq!(sent, message);
        let first = Piece {
            offset: 6,
            length: 3,
        };
        assert_eq!(lent.parts(first, &|_, _| None), None, "it is gone");
        assert_eq!(lent.keep(&lend, Vec::new()), Some(5));
        assert_eq!((lent.bytes(), lent.loan()), (&message[..], None));
        assert_eq!(lent.keep(&lend, Vec::new()), None);
        assert_eq!(lent.parts(first, &|_, _| None), Some([&message[6..9], &[]]));
    }

    #[test]
    fn only_what_is_granted_goes_out_and_what_is_missed_goes_again() {
        let message: Vec<u8> = (0..100).collect();
        let mut outgoing = Outgoing::default();
        outgoing.start(&[&message[..40], &message[40..]], 30, Vec::new);
        assert_eq!(outgoing.bytes(), message);
        let mut offsets = Vec::new();
        while let Some(piece) = outgoing.next_piece(20) {
            offsets.push((piece.offset, piece.length));
        }
        assert_eq!(offsets, [(0, 20), (20, 20)]);
        assert!(!outgoing.has_more());
        outgoing.resend(70, 100, 20);
        assert!(!outgoing.has_more(), "what was never sent is not missed");
        outgoing.resend(25, 10, 20);
        assert_eq!(
            outgoing.next_piece(20),
            Some(Piece {
                offset: 20,
                length: 20
            })
        );
        outgoing.grant(1000);
        assert_eq!(outgoing.remaining(), 60);
        for offset in [40, 60, 80] {
            assert_eq!(outgoing.next_piece(20), Some(Piece { offset, length: 20 }));
        }
        assert_eq!(outgoing.next_piece(20), None);
        outgoing.grant(5);
        assert!(
            !outgoing.has_more(),
            "a grant is never taken back, nor given twice"
        );
    }
}
