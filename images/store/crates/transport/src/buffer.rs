//! Byte buffers that grow with what arrives and give memory back.

/// What a buffer keeps when little goes through it.
pub const BASE_BYTES: usize = 64 << 10;

/// A grown buffer is given back after this many rounds that would have fitted in [`BASE_BYTES`].
const SMALL_ROUNDS: u32 = 1024;

/// Less room than this at the end is not worth a system call: move what is left to the front, or grow.
const MIN_SPACE: usize = 4 << 10;

/// Bytes that have been received and not been consumed, in one piece.
#[derive(Debug, Default)]
pub struct ReceiveBuffer {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    small_rounds: u32,
}

impl ReceiveBuffer {
    /// With room for this many bytes from the start; [`Self::rest`] gives it.
    pub fn with_capacity(bytes: usize) -> ReceiveBuffer {
        ReceiveBuffer {
            bytes: vec![0; bytes].into_boxed_slice(),
            ..ReceiveBuffer::default()
        }
    }

    /// What is left of the room that is there; does not grow.
    pub fn rest(&mut self) -> &mut [u8] {
        &mut self.bytes[self.end..]
    }

    /// Received and not consumed.
    pub fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// Room to receive into: at least one byte, and in the end enough for `wanted` bytes counted from the first
    /// unconsumed one. Doubles at most, so that memory follows what has arrived.
    pub fn space(&mut self, wanted: usize) -> &mut [u8] {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
            self.shrink_if_idle(wanted);
        }
        if self.bytes.len() - self.end < MIN_SPACE {
            self.make_room(wanted);
        }
        assert!(self.end < self.bytes.len(), "there is room for a byte");
        &mut self.bytes[self.end..]
    }

    /// The first `count` bytes of [`ReceiveBuffer::space`] are filled.
    pub fn received(&mut self, count: usize) {
        assert!(
            count <= self.bytes.len() - self.end,
            "received more than there was space for"
        );
        self.end += count;
    }

    /// Forgets the first `count` filled bytes.
    pub fn consume(&mut self, count: usize) {
        assert!(
            count <= self.end - self.start,
            "consumed more than there was"
        );
        self.start += count;
    }

    /// Takes a frame of `header` and `length` bytes off the front and gives its payload.
    pub fn take(&mut self, header: usize, length: usize) -> &[u8] {
        self.consume(header + length);
        if length > BASE_BYTES {
            self.small_rounds = 0;
        }
        &self.bytes[self.start - length..self.start]
    }

    /// Gives memory back that what is held here does not need: for when memory is short.
    pub fn give_back(&mut self) {
        let filled = self.end - self.start;
        let enough = match filled {
            0 => 0,
            _ => (filled + 1).next_multiple_of(MIN_SPACE),
        };
        if self.bytes.len() > 2 * enough {
            let mut fitting = vec![0; enough].into_boxed_slice();
            fitting[..filled].copy_from_slice(self.filled());
            *self = ReceiveBuffer {
                bytes: fitting,
                start: 0,
                end: filled,
                small_rounds: 0,
            };
        }
    }

    /// Removes `count` filled bytes from the middle, `at` counted from the first unconsumed one.
    pub fn remove(&mut self, at: usize, count: usize) {
        assert!(
            at + count <= self.end - self.start,
            "removed more than there was"
        );
        let from = self.start + at;
        self.bytes.copy_within(from + count..self.end, from);
        self.end -= count;
    }

    fn make_room(&mut self, wanted: usize) {
        let filled = self.end - self.start;
        // Room to spare behind the frame, so that the next header comes with the same system call.
        let enough = wanted.max(filled) + MIN_SPACE;
        if self.start > 0 && filled + MIN_SPACE <= self.bytes.len() {
            self.bytes.copy_within(self.start..self.end, 0);
        } else {
            let doubled = (2 * self.bytes.len()).max(BASE_BYTES);
            let mut grown =
                vec![0; doubled.min(enough.next_multiple_of(BASE_BYTES))].into_boxed_slice();
            grown[..filled].copy_from_slice(&self.bytes[self.start..self.end]);
            self.bytes = grown;
        }
        self.start = 0;
        self.end = filled;
    }

    fn shrink_if_idle(&mut self, wanted: usize) {
        if self.bytes.len() <= BASE_BYTES {
            return;
        }
        if wanted > BASE_BYTES {
            self.small_rounds = 0;
            return;
        }
        self.small_rounds += 1;
        if self.small_rounds >= SMALL_ROUNDS {
            self.small_rounds = 0;
            self.bytes = vec![0; BASE_BYTES].into_boxed_slice();
        }
    }
}

/// Bytes that wait to be sent.
#[derive(Debug, Default)]
pub struct SendBuffer {
    bytes: Vec<u8>,
    start: usize,
}

impl SendBuffer {
    pub fn pending(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    pub fn is_empty(&self) -> bool {
        self.start == self.bytes.len()
    }

    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Gives memory back if nothing waits: for when memory is short.
    pub fn give_back(&mut self) {
        if self.is_empty() {
            *self = SendBuffer::default();
        }
    }

    /// Appends `parts`, but for their first `skip` bytes in all (those that went out directly).
    pub fn push(&mut self, parts: &[&[u8]], skip: usize) {
        let mut skip = skip;
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        assert!(skip <= bytes, "more went out than there was");
        if bytes > BASE_BYTES {
            // Doubling could take twice the memory.
            self.bytes.reserve_exact(bytes.saturating_sub(skip));
        }
        for part in parts {
            let from = skip.min(part.len());
            skip -= from;
            self.bytes.extend_from_slice(&part[from..]);
        }
    }

    /// The first `count` pending bytes are sent.
    pub fn sent(&mut self, count: usize) {
        assert!(
            count <= self.bytes.len() - self.start,
            "sent more than there was"
        );
        self.start += count;
        if self.start < self.bytes.len() {
            // Moved only when at least as much is dropped as is kept: linear in the bytes sent.
            if self.start >= BASE_BYTES && 2 * self.start >= self.bytes.len() {
                self.bytes.drain(..self.start);
                self.start = 0;
            }
            return;
        }
        self.bytes.clear();
        self.start = 0;
        if self.bytes.capacity() > BASE_BYTES {
            self.bytes = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_follows_what_arrived_not_what_was_announced() {
        let mut buffer = ReceiveBuffer::default();
        assert!(buffer.space(8 << 20).len() <= BASE_BYTES);
        assert_eq!(buffer.capacity(), BASE_BYTES);
        let mut total = 0;
        while total < 1 << 20 {
            let room = buffer.space(8 << 20).len();
            assert!(room > 0);
            assert!(
                buffer.capacity() <= 2 * (total + BASE_BYTES),
                "{} for {total}",
                buffer.capacity()
            );
            let count = room.min(10_000);
            buffer.received(count);
            total += count;
        }
        assert_eq!(buffer.filled().len(), total);
    }

    #[test]
    fn what_is_not_needed_is_given_back_at_once() {
        let mut buffer = ReceiveBuffer::default();
        buffer.space(100)[..5].copy_from_slice(b"begin");
        buffer.received(5);
        buffer.give_back();
        assert_eq!(buffer.filled(), b"begin");
        assert!(buffer.capacity() <= MIN_SPACE);
        // It goes on as before.
        buffer.space(100)[..4].copy_from_slice(b"ning");
        buffer.received(4);
        assert_eq!(buffer.filled(), b"beginning");
        buffer.consume(9);
        buffer.give_back();
        assert_eq!(buffer.capacity(), 0);
        assert!(!buffer.space(100).is_empty());
    }

    #[test]
    fn a_grown_buffer_is_given_back() {
        let mut buffer = ReceiveBuffer::default();
        while buffer.capacity() < 1 << 20 {
            let room = buffer.space(1 << 20).len();
            buffer.received(room);
        }
        let filled = buffer.filled().len();
        buffer.consume(filled);
        for _ in 0..SMALL_ROUNDS {
            buffer.space(100);
            buffer.received(100);
            buffer.consume(100);
        }
        buffer.space(100);
        assert_eq!(buffer.capacity(), BASE_BYTES);
    }

    #[test]
    fn what_is_left_moves_to_the_front_and_stays_intact() {
        let mut buffer = ReceiveBuffer::default();
        let mut next_in = 0u8;
        let mut next_out = 0u8;
        for round in 0..10_000 {
            let space = buffer.space(64);
            let count = space.len().min(1 + round % 700);
            for byte in &mut space[..count] {
                *byte = next_in;
                next_in = next_in.wrapping_add(1);
            }
            buffer.received(count);
            let take = buffer.filled().len().min(1 + (round * 7) % 699);
            for byte in &buffer.filled()[..take] {
                assert_eq!(*byte, next_out);
                next_out = next_out.wrapping_add(1);
            }
            buffer.consume(take);
        }
    }

    #[test]
    fn a_send_buffer_skips_what_went_out_directly_and_releases_memory() {
        let mut buffer = SendBuffer::default();
        buffer.push(&[b"abc", b"", b"defg"], 4);
        assert_eq!(buffer.pending(), b"efg");
        buffer.sent(1);
        assert_eq!(buffer.pending(), b"fg");
        buffer.push(&[&vec![7; 4 * BASE_BYTES]], 0);
        buffer.sent(3 * BASE_BYTES);
        assert_eq!(buffer.pending().len(), BASE_BYTES + 2);
        buffer.sent(BASE_BYTES + 2);
        assert!(buffer.is_empty());
        assert!(buffer.capacity() <= BASE_BYTES);
    }
}
