//! What waits to be sent on one stream: messages, each of which goes out whole before another begins.
//!
//! Answers may come in any order, so a short one passes long ones that wait: those behind a megabyte would wait as long as that takes. A long message
//! that has begun is passed by none. At most [`PASS_BYTES`] of short ones pass each long one; so a long message waits for what was there when it
//! came, and for that. Messages of either kind keep their order among themselves.

use std::collections::VecDeque;

use base::bugs::{Bug, is_planted};

use crate::buffer::SendBuffer;
use crate::loan::{Lender, Loan};

/// Messages from this length on are long.
pub const LONG_BYTES: usize = 16 << 10;
/// So much of short messages passes a long one at most.
pub const PASS_BYTES: usize = 256 << 10;

/// A long message, or what is left of it.
#[derive(Debug, Default)]
struct Long {
    /// All of it, or what comes before the loan.
    bytes: Vec<u8>,
    loan: Option<Loan>,
    /// Of both.
    sent: usize,
    /// The other side has some of it already, from before it came here.
    has_begun: bool,
    passed_bytes: usize,
}

impl Long {
    fn left(&self) -> usize {
        self.bytes.len() + self.loan.map_or(0, |loan| loan.length) - self.sent
    }

    fn has_begun(&self) -> bool {
        self.has_begun || self.sent > 0
    }

    fn may_be_passed_by(&self, bytes: usize) -> bool {
        let is_bounded =
            self.passed_bytes + bytes <= PASS_BYTES || is_planted(Bug::StarveLongAnswers);
        !self.has_begun() && is_bounded
    }

    /// What is to be sent next of it. `None` if the lender does not have it any more.
    fn rest<'p, 'l: 'p>(&'p self, lend: &Lender<'l>) -> Option<[&'p [u8]; 2]> {
        let head = &self.bytes[self.sent.min(self.bytes.len())..];
        let Some(loan) = self.loan else {
            return Some([head, &[]]);
        };
        let lent = lend(loan.token, loan.length)?;
        let from = self.sent.saturating_sub(self.bytes.len());
        Some([head, lent.get(from..)?])
    }
}

#[derive(Debug)]
enum Item {
    /// Short messages, one behind the other.
    Short(SendBuffer),
    Long(Long),
}

/// What is to be sent next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next<'p> {
    Nothing,
    /// Both parts, one behind the other.
    Parts([&'p [u8]; 2]),
    /// What was lent is gone: the stream cannot go on.
    Gone,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Outbound {
    /// Messages keep their order, whatever their length.
    is_ordered: bool,
    items: VecDeque<Item>,
    pending_bytes: usize,
    /// Memory for the next short messages.
    spare: SendBuffer,
}

impl Outbound {
    /// Of messages whose order matters.
    pub fn ordered() -> Outbound {
        Outbound {
            is_ordered: true,
            ..Outbound::default()
        }
    }

    /// Of answers to requests, which may come in any order.
    pub fn answers() -> Outbound {
        Outbound::default()
    }

    pub fn is_empty(&self) -> bool {
        self.pending_bytes == 0
    }

    /// Length of what waits, lent or not.
    pub fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    /// Whether what is to be sent next is a long message that has not begun, so that short ones may still pass it.
    pub fn is_about_to_begin(&self) -> bool {
        matches!(self.items.front(), Some(Item::Long(long)) if !long.has_begun())
    }

    /// Appends a message that consists of `header` and `parts`, but for its first `skip` bytes: those went out already, which only the first of all
    /// that waits may do.
    pub fn push(&mut self, header: &[u8], parts: &[&[u8]], skip: usize) {
        let bytes = header.len() + parts.iter().map(|part| part.len()).sum::<usize>();
        assert!(skip <= bytes, "more went out than there was");
        assert!(
            skip == 0 || self.is_empty(),
            "a message begins before others are whole"
        );
        let of_header = skip.min(header.len());
        if self.is_ordered || bytes < LONG_BYTES {
            let buffer = self.short_at(bytes);
            buffer.push(&[header], of_header);
            buffer.push(parts, skip - of_header);
        } else if skip < bytes {
            let mut rest = Vec::with_capacity(bytes - skip);
            rest.extend_from_slice(&header[of_header..]);
            let mut skip = skip - of_header;
            for part in parts {
                let from = skip.min(part.len());
                skip -= from;
                rest.extend_from_slice(&part[from..]);
            }
            self.push_long(Long {
                has_begun: rest.len() < bytes,
                bytes: rest,
                ..Long::default()
            });
        }
        self.pending_bytes += bytes - skip;
    }

    /// Appends a message that consists of `head` and what is lent. It is given back by [`Outbound::sent`], [`Outbound::keep`] or
    /// [`Outbound::take_loans`].
    pub fn push_lent(&mut self, head: &[&[u8]], loan: Loan) {
        assert!(!self.is_ordered, "only answers are lent");
        let long = Long {
            bytes: head.concat(),
            loan: Some(loan),
            ..Long::default()
        };
        let bytes = long.left();
        self.push_long(long);
        self.pending_bytes += bytes;
    }

    fn push_long(&mut self, long: Long) {
        // Else what is left of it stands in the way.
        if self.is_empty()
            && let Some(Item::Short(drained)) = self.items.pop_front()
        {
            self.spare = drained;
        }
        self.items.push_back(Item::Long(long));
    }

    /// Where the next short message goes. Of a stream in order, all are short.
    fn short_at(&mut self, bytes: usize) -> &mut SendBuffer {
        let mut at = self.items.len();
        while let Some(Item::Long(long)) = at.checked_sub(1).and_then(|it| self.items.get_mut(it))
            && long.may_be_passed_by(bytes)
        {
            long.passed_bytes += bytes;
            at -= 1;
        }
        if !matches!(
            at.checked_sub(1).map(|it| &self.items[it]),
            Some(Item::Short(_))
        ) {
            let spare = core::mem::take(&mut self.spare);
            self.items.insert(at, Item::Short(spare));
            at += 1;
        }
        match &mut self.items[at - 1] {
            Item::Short(buffer) => buffer,
            Item::Long(_) => unreachable!("it was looked at"),
        }
    }

    /// What is to be sent next.
    pub fn next<'p, 'l: 'p>(&'p self, lend: &Lender<'l>) -> Next<'p> {
        match self.items.front() {
            None => Next::Nothing,
            Some(Item::Short(_)) if self.is_empty() => Next::Nothing,
            Some(Item::Short(buffer)) => Next::Parts([buffer.pending(), &[]]),
            Some(Item::Long(long)) => long.rest(lend).map_or(Next::Gone, Next::Parts),
        }
    }

    /// The first `count` bytes of what was to be sent next are sent. Gives a loan back that is not needed any more.
    pub fn sent(&mut self, count: usize) -> Option<u64> {
        let Some(front) = self.items.front_mut() else {
            assert_eq!(count, 0, "sent more than there was");
            return None;
        };
        match front {
            Item::Short(buffer) => {
                buffer.sent(count);
                self.pending_bytes -= count;
                // The last one stays: there the next short message goes.
                if self.pending_bytes > 0
                    && buffer.is_empty()
                    && let Some(Item::Short(drained)) = self.items.pop_front()
                {
                    self.spare = drained;
                }
                None
            }
            Item::Long(long) => {
                assert!(count <= long.left(), "sent more than there was");
                long.sent += count;
                self.pending_bytes -= count;
                if long.left() > 0 {
                    return None;
                }
                let loan = long.loan.take();
                self.items.pop_front();
                loan.map(|loan| loan.token)
            }
        }
    }

    /// Copies what was lent under tokens that are meant, and gives it back. Gives the tokens.
    pub fn keep(&mut self, is_meant: impl Fn(u64) -> bool, lend: &Lender<'_>) -> Vec<u64> {
        let mut kept = Vec::new();
        for item in &mut self.items {
            if let Item::Long(long) = item
                && let Some(loan) = long.loan.filter(|loan| is_meant(loan.token))
                && let Some(lent) = lend(loan.token, loan.length)
            {
                long.bytes.extend_from_slice(lent);
                long.loan = None;
                kept.push(loan.token);
            }
        }
        kept
    }

    /// Nothing is sent any more: gives all loans back.
    pub fn take_loans(&mut self) -> Vec<u64> {
        let loans = self.items.drain(..).filter_map(|item| match item {
            Item::Short(_) => None,
            Item::Long(long) => long.loan.map(|loan| loan.token),
        });
        let loans = loans.collect();
        self.pending_bytes = 0;
        loans
    }

    /// Memory of all that is not lent.
    pub fn capacity(&self) -> usize {
        let items = self.items.iter().map(|item| match item {
            Item::Short(buffer) => buffer.capacity(),
            Item::Long(long) => long.bytes.capacity(),
        });
        items.sum::<usize>() + self.spare.capacity()
    }

    /// Gives memory back if nothing waits: for when memory is short.
    pub fn give_back(&mut self) {
        if self.is_empty() {
            self.items.clear();
            self.spare = SendBuffer::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use base::bugs::plant;
    use proptest::prelude::*;

    use super::*;

    /// What a lender has: each byte of a loan is its token.
    fn lend_of<'l>(memory: &'l [Vec<u8>]) -> impl Fn(u64, usize) -> Option<&'l [u8]> {
        |token, length| memory.get(token as usize)?.get(..length)
    }

    /// Messages are a length in four bytes, and as many times the number of the message.
    fn message(number: u8, length: usize) -> Vec<u8> {
        let mut bytes = (length as u32).to_le_bytes().to_vec();
        bytes.resize(4 + length, number);
        bytes
    }

    /// The numbers of the messages in a stream, in order.
    fn received(stream: &[u8]) -> Vec<(u8, usize)> {
        let (mut all, mut rest) = (Vec::new(), stream);
        while let Some((length, behind)) = rest.split_first_chunk::<4>() {
            let length = u32::from_le_bytes(*length) as usize;
            let (payload, behind) = behind.split_at(length);
            assert!(payload.windows(2).all(|two| two[0] == two[1]), "mixed up");
            all.push((payload.first().copied().unwrap_or(0), length));
            rest = behind;
        }
        all
    }

    /// The socket takes up to so many bytes.
    fn send(out: &mut Outbound, memory: &[Vec<u8>], most: usize, stream: &mut Vec<u8>) -> Vec<u64> {
        let (lend, mut left, mut returned) = (lend_of(memory), most, Vec::new());
        while let Next::Parts([one, other]) = out.next(&lend) {
            let bytes = [one, other].concat();
            let count = bytes.len().min(left);
            stream.extend_from_slice(&bytes[..count]);
            left -= count;
            returned.extend(out.sent(count));
            if left == 0 {
                break;
            }
        }
        returned
    }

    fn order_of(mut out: Outbound, memory: &[Vec<u8>]) -> Vec<u8> {
        let mut stream = Vec::new();
        send(&mut out, memory, usize::MAX, &mut stream);
        assert!(out.is_empty());
        let received = received(&stream);
        received.into_iter().map(|(number, _)| number).collect()
    }

    #[test]
    fn short_answers_pass_long_ones_that_have_not_begun() {
        let mut out = Outbound::answers();
        for (number, length) in [
            (1, 100),
            (2, LONG_BYTES),
            (3, 10),
            (4, 2 * LONG_BYTES),
            (5, 20),
        ] {
            out.push(&[], &[&message(number, length)], 0);
        }
        assert_eq!(order_of(out, &[]), [1, 3, 5, 2, 4]);
    }

    #[test]
    fn a_message_that_has_begun_is_finished_first() {
        let mut out = Outbound::answers();
        let (memory, mut stream) = ([vec![1; LONG_BYTES]], Vec::new());
        let head = (LONG_BYTES as u32).to_le_bytes();
        let loan = Loan {
            token: 0,
            length: LONG_BYTES,
        };
        out.push_lent(&[&head], loan);
        assert!(out.is_about_to_begin());
        assert!(send(&mut out, &memory, 3, &mut stream).is_empty());
        assert!(!out.is_about_to_begin());
        out.push(&[], &[&message(2, 10)], 0);
        out.push(&[], &[&message(3, LONG_BYTES)], 0);
        out.push(&[], &[&message(4, 10)], 0);
        assert_eq!(send(&mut out, &memory, usize::MAX, &mut stream), [0]);
        let numbers = received(&stream).into_iter().map(|(number, _)| number);
        assert_eq!(numbers.collect::<Vec<_>>(), [1, 2, 4, 3]);
        // The same for one of which the first bytes went out directly.
        let (mut out, long) = (Outbound::answers(), message(1, LONG_BYTES));
        let mut stream = long[..100].to_vec();
        out.push(&long[..4], &[&long[4..90], &long[90..]], 100);
        out.push(&[], &[&message(2, 10)], 0);
        send(&mut out, &[], usize::MAX, &mut stream);
        assert_eq!(received(&stream), [(1, LONG_BYTES), (2, 10)]);
    }

    #[test]
    fn a_stream_whose_order_matters_keeps_it() {
        let mut out = Outbound::ordered();
        for (number, length) in [(1, LONG_BYTES), (2, 1), (3, 4 * LONG_BYTES), (4, 1)] {
            out.push(&[], &[&message(number, length)], 0);
        }
        assert_eq!(order_of(out, &[]), [1, 2, 3, 4]);
    }

    #[test]
    fn what_was_lent_is_copied_given_back_or_missed() {
        let mut out = Outbound::answers();
        let memory = [vec![0; LONG_BYTES], vec![1; LONG_BYTES]];
        let head = (LONG_BYTES as u32).to_le_bytes();
        for token in 0..2 {
            let length = LONG_BYTES;
            out.push_lent(&[&head], Loan { token, length });
        }
        let before = out.capacity();
        assert_eq!(out.keep(|token| token == 1, &lend_of(&memory)), [1]);
        assert!(out.capacity() >= before + LONG_BYTES);
        let mut stream = Vec::new();
        let only_first = &memory[..1];
        assert_eq!(send(&mut out, only_first, usize::MAX, &mut stream), [0]);
        assert_eq!(received(&stream), [(0, LONG_BYTES), (1, LONG_BYTES)]);
        for token in 0..2 {
            let length = LONG_BYTES;
            out.push_lent(&[&head], Loan { token, length });
        }
        assert_eq!(out.next(&lend_of(&[])), Next::Gone);
        assert_eq!(out.take_loans(), [0, 1]);
        assert_eq!((out.pending_bytes(), out.is_empty()), (0, true));
    }

    /// Messages are put in and taken out at random. Order, contents, loans and the bound are checked.
    fn hurries(steps: &[(u8, usize)]) -> Result<(), String> {
        let memory: Vec<Vec<u8>> = (0..=255).map(|token| vec![token; 64 << 10]).collect();
        let (mut out, mut stream) = (Outbound::answers(), Vec::new());
        let (mut pushed, mut lent, mut returned) = (Vec::new(), Vec::new(), Vec::new());
        for (number, (what, size)) in (0..=255).zip(steps) {
            match what {
                0 => {
                    let length = size % 6000;
                    out.push(&[], &[&message(number, length)], 0);
                    pushed.push((number, length));
                }
                1 => {
                    let length = LONG_BYTES + size % 20_000;
                    out.push(&[], &[&message(number, length)], 0);
                    pushed.push((number, length));
                }
                2 => {
                    let (token, length) = (u64::from(number), LONG_BYTES + size % 20_000);
                    out.push_lent(&[&(length as u32).to_le_bytes()], Loan { token, length });
                    pushed.push((number, length));
                    lent.push(token);
                }
                3 => returned.extend(out.keep(|token| token % 2 == 0, &lend_of(&memory))),
                _ => returned.extend(send(&mut out, &memory, size % 40_000, &mut stream)),
            }
        }
        returned.extend(send(&mut out, &memory, usize::MAX, &mut stream));
        returned.sort_unstable();
        if returned != lent || !out.is_empty() {
            return Err(format!("lent {lent:?}, returned {returned:?}"));
        }
        let received = received(&stream);
        for is_long in [false, true] {
            let of_kind = |all: &[(u8, usize)]| -> Vec<(u8, usize)> {
                let all = all.iter().copied();
                all.filter(|(_, length)| (length + 4 >= LONG_BYTES) == is_long)
                    .collect()
            };
            let (came, expected) = (of_kind(&received), of_kind(&pushed));
            // Messages without a byte do not say which they are.
            if came
                .iter()
                .map(|it| it.1)
                .ne(expected.iter().map(|it| it.1))
            {
                return Err(format!("{came:?} came of {expected:?}"));
            }
        }
        for (at, (long, length)) in received.iter().enumerate() {
            if length + 4 < LONG_BYTES {
                continue;
            }
            let passed = received[..at].iter();
            let passed = passed.filter(|(number, length)| number > long && *length > 0);
            let bytes: usize = passed.map(|(_, length)| length + 4).sum();
            if bytes > PASS_BYTES {
                return Err(format!("{bytes} bytes passed message {long}"));
            }
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn every_message_comes_whole_in_its_order_and_in_time(
            steps in proptest::collection::vec((0..7_u8, any::<usize>()), 1..250)
        ) {
            prop_assert_eq!(hurries(&steps), Ok(()));
        }
    }

    /// Short answers without end, while nothing but a little is taken.
    #[test]
    fn a_long_answer_is_not_passed_for_ever() {
        let mut steps = vec![(0, 5999), (1, 0)];
        steps.extend((0..200).map(|step| if step % 3 == 2 { (4, 4000) } else { (0, 5999) }));
        assert_eq!(hurries(&steps), Ok(()));
        plant(Some(Bug::StarveLongAnswers));
        let found = hurries(&steps);
        plant(None);
        assert!(found.is_err(), "the planted bug is not found");
    }
}
