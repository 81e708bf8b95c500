//! The client protocol's framing: nonce and length before every payload, in both directions.

use crate::buffer::ReceiveBuffer;
use crate::{Frame, StreamError, StreamReader};
use wire::rpc::MAX_RPC_BYTES;

/// Length of the header before every payload.
pub const TRANSPORT_HEADER_BYTES: usize = 12;

/// The header that goes before a payload of `length` bytes.
pub fn header(nonce: u64, length: u32) -> [u8; TRANSPORT_HEADER_BYTES] {
    let mut header = [0; TRANSPORT_HEADER_BYTES];
    header[..8].copy_from_slice(&nonce.to_le_bytes());
    header[8..].copy_from_slice(&length.to_le_bytes());
    header
}

/// Reads the frames of one direction. Of an over-long frame the first [`MAX_RPC_BYTES`] are kept and the rest is
/// discarded as it comes, as RAMCloud does.
#[derive(Debug, Default)]
pub struct RpcReader {
    buffer: ReceiveBuffer,
    /// Bytes of the frame at the front that were dropped already, beyond those that are kept.
    dropped: usize,
}

/// What the header at the front of the buffer announces.
struct Announced {
    nonce: u64,
    length: usize,
    kept: usize,
}

impl RpcReader {
    fn announced(&self) -> Option<Announced> {
        let header = self
            .buffer
            .filled()
            .first_chunk::<TRANSPORT_HEADER_BYTES>()?;
        let nonce = u64::from_le_bytes(*header.first_chunk()?);
        let length = u32::from_le_bytes(*header.last_chunk()?) as usize;
        Some(Announced {
            nonce,
            length,
            kept: length.min(MAX_RPC_BYTES),
        })
    }

    /// Drops bytes that lie behind what is kept of an over-long frame at the front.
    fn drop_excess(&mut self, announced: &Announced) {
        let excess = announced.length - announced.kept - self.dropped;
        let kept_end = TRANSPORT_HEADER_BYTES + announced.kept;
        let behind = self.buffer.filled().len().saturating_sub(kept_end);
        let drop = excess.min(behind);
        if drop > 0 {
            self.buffer.remove(kept_end, drop);
            self.dropped += drop;
        }
    }
}

impl StreamReader for RpcReader {
    fn space(&mut self) -> &mut [u8] {
        let wanted = self.announced_bytes().max(TRANSPORT_HEADER_BYTES);
        self.buffer.space(wanted)
    }

    fn announced_bytes(&self) -> usize {
        let announced = self.announced();
        announced.map_or(0, |announced| TRANSPORT_HEADER_BYTES + announced.kept)
    }

    fn received(&mut self, bytes: usize) {
        self.buffer.received(bytes);
    }

    fn next_frame(&mut self) -> Result<Option<Frame<'_>>, StreamError> {
        let Some(announced) = self.announced() else {
            return Ok(None);
        };
        if announced.length > announced.kept {
            self.drop_excess(&announced);
        }
        let frame_bytes = TRANSPORT_HEADER_BYTES + announced.kept;
        let complete = self.buffer.filled().len() >= frame_bytes
            && self.dropped == announced.length - announced.kept;
        if !complete {
            return Ok(None);
        }
        self.dropped = 0;
        let payload = self.buffer.take(TRANSPORT_HEADER_BYTES, announced.kept);
        Ok(Some(Frame {
            nonce: announced.nonce,
            payload,
            announced_bytes: announced.length,
        }))
    }

    fn give_back(&mut self) {
        self.buffer.give_back();
    }

    fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    fn held_bytes(&self) -> usize {
        self.buffer.filled().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn feed(reader: &mut impl StreamReader, bytes: &[u8], mut each: impl FnMut(Frame<'_>)) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let space = reader.space();
            let count = space.len().min(rest.len());
            space[..count].copy_from_slice(&rest[..count]);
            reader.received(count);
            rest = &rest[count..];
            while let Some(frame) = reader.next_frame().unwrap() {
                each(frame);
            }
        }
    }

    fn frame_bytes(nonce: u64, payload: &[u8]) -> Vec<u8> {
        [&header(nonce, payload.len() as u32)[..], payload].concat()
    }

    #[test]
    fn the_header_is_nonce_then_length() {
        assert_eq!(
            header(0x0102_0304_0506_0708, 0x0a0b_0c0d),
            [8, 7, 6, 5, 4, 3, 2, 1, 0x0d, 0x0c, 0x0b, 0x0a]
        );
    }

    proptest! {
        #[test]
        fn any_cut_of_the_stream_gives_the_same_frames(
            payloads in prop::collection::vec((any::<u64>(), prop::collection::vec(any::<u8>(), 0..2000)), 1..20),
            cuts in prop::collection::vec(1usize..3000, 1..50),
        ) {
            let stream: Vec<u8> = payloads.iter().flat_map(|(nonce, payload)| frame_bytes(*nonce, payload)).collect();
            let mut reader = RpcReader::default();
            let mut got = Vec::new();
            let mut rest = &stream[..];
            let mut cuts = cuts.iter().cycle();
            while !rest.is_empty() {
                let count = rest.len().min(*cuts.next().unwrap());
                feed(&mut reader, &rest[..count], |frame| got.push((frame.nonce, frame.payload.to_vec())));
                rest = &rest[count..];
            }
            prop_assert_eq!(got, payloads);
        }
    }

    #[test]
    fn an_over_long_frame_keeps_its_first_bytes_and_the_next_frame_is_whole() {
        for excess in [1, 70_000, 3 << 20] {
            let long: Vec<u8> = (0..MAX_RPC_BYTES + excess)
                .map(|at| (at % 251) as u8)
                .collect();
            let stream = [frame_bytes(1, &long), frame_bytes(2, b"next")].concat();
            let mut reader = RpcReader::default();
            let mut got = Vec::new();
            feed(&mut reader, &stream, |frame| {
                got.push((frame.nonce, frame.announced_bytes, frame.payload.to_vec()))
            });
            assert_eq!(got.len(), 2);
            assert_eq!((got[0].0, got[0].1), (1, long.len()));
            assert!(
                got[0].2 == long[..MAX_RPC_BYTES],
                "the first bytes are kept as they were"
            );
            assert_eq!(got[1], (2, 4, b"next".to_vec()));
            assert!(
                reader.capacity() <= MAX_RPC_BYTES + (1 << 20),
                "{}",
                reader.capacity()
            );
        }
    }

    #[test]
    fn a_full_size_frame_is_not_cut() {
        let full = vec![9; MAX_RPC_BYTES];
        let mut reader = RpcReader::default();
        let mut lengths = Vec::new();
        feed(&mut reader, &frame_bytes(5, &full), |frame| {
            lengths.push((frame.payload.len(), frame.announced_bytes))
        });
        assert_eq!(lengths, [(MAX_RPC_BYTES, MAX_RPC_BYTES)]);
    }
}
