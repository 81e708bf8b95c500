//! The member protocol's framing: a preface that says what is spoken, then messages with a length before each.

use crate::buffer::ReceiveBuffer;
use crate::{Frame, StreamError, StreamReader};
use wire::member::{FORMAT_VERSION, MAGIC, MAX_FRAME_BYTES, MAX_HELLO_FRAME_BYTES, PREFACE_BYTES};

/// Length of the length field.
pub const HEADER_BYTES: usize = 4;

/// The oldest format that this build reads.
const OLDEST_VERSION: u16 = 1;

/// What a peer gets that has yet to say who it is: room for a preface and the longest first frame.
const STRANGER_BYTES: usize = PREFACE_BYTES + HEADER_BYTES + MAX_HELLO_FRAME_BYTES;

/// What either side sends first.
pub fn preface() -> [u8; PREFACE_BYTES] {
    let mut preface = [0; PREFACE_BYTES];
    preface[..MAGIC.len()].copy_from_slice(&MAGIC);
    preface[MAGIC.len()..].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    preface
}

/// The length field of a message of `length` bytes.
pub fn header(length: u32) -> [u8; HEADER_BYTES] {
    length.to_le_bytes()
}

/// Reads one direction of a member stream.
#[derive(Debug, Default)]
pub struct MemberReader {
    buffer: ReceiveBuffer,
    version: Option<u16>,
    /// The first frame has yet to come, and is to be short: the peer has not said who it is.
    is_stranger: bool,
}

impl MemberReader {
    /// For a connection that somebody has opened to here: the first frame has to say who that is, and is short.
    pub fn accepted() -> MemberReader {
        MemberReader {
            buffer: ReceiveBuffer::with_capacity(STRANGER_BYTES),
            version: None,
            is_stranger: true,
        }
    }

    fn max_frame_bytes(&self) -> usize {
        match self.is_stranger {
            true => MAX_HELLO_FRAME_BYTES,
            false => MAX_FRAME_BYTES,
        }
    }

    /// The peer's format version, once its preface has come.
    pub fn version(&self) -> Option<u16> {
        self.version
    }

    fn read_preface(&mut self) -> Result<bool, StreamError> {
        let filled = self.buffer.filled();
        let magic = filled.len().min(MAGIC.len());
        if filled[..magic] != MAGIC[..magic] {
            return Err(StreamError::NotAMember);
        }
        let Some(preface) = filled.first_chunk::<PREFACE_BYTES>() else {
            return Ok(false);
        };
        let version = u16::from_le_bytes([preface[PREFACE_BYTES - 2], preface[PREFACE_BYTES - 1]]);
        if !(OLDEST_VERSION..=FORMAT_VERSION).contains(&version) {
            return Err(StreamError::Version(version));
        }
        self.buffer.consume(PREFACE_BYTES);
        self.version = Some(version);
        Ok(true)
    }

    fn announced(&self) -> Option<usize> {
        let header = self.buffer.filled().first_chunk::<HEADER_BYTES>()?;
        Some(u32::from_le_bytes(*header) as usize)
    }
}

impl StreamReader for MemberReader {
    fn space(&mut self) -> &mut [u8] {
        if self.is_stranger {
            return self.buffer.rest();
        }
        let body = match self.version {
            Some(_) => self.announced().unwrap_or(0).min(MAX_FRAME_BYTES),
            None => PREFACE_BYTES,
        };
        self.buffer.space(HEADER_BYTES + body)
    }

    fn announced_bytes(&self) -> usize {
        let announced = self.version.and_then(|_| self.announced());
        announced.map_or(0, |announced| HEADER_BYTES + announced.min(MAX_FRAME_BYTES))
    }

    fn received(&mut self, bytes: usize) {
        self.buffer.received(bytes);
    }

    fn next_frame(&mut self) -> Result<Option<Frame<'_>>, StreamError> {
        if self.version.is_none() && !self.read_preface()? {
            return Ok(None);
        }
        let Some(length) = self.announced() else {
            return Ok(None);
        };
        let longest = self.max_frame_bytes();
        if length > longest {
            return Err(StreamError::TooLong {
                bytes: length,
                longest,
            });
        }
        if self.buffer.filled().len() < HEADER_BYTES + length {
            return Ok(None);
        }
        self.is_stranger = false;
        let payload = self.buffer.take(HEADER_BYTES, length);
        Ok(Some(Frame {
            nonce: 0,
            payload,
            announced_bytes: length,
        }))
    }

    fn give_back(&mut self) {
        // A stranger has little, and needs all of it.
        if !self.is_stranger {
            self.buffer.give_back();
        }
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

    fn feed(reader: &mut MemberReader, bytes: &[u8]) -> Result<Vec<Vec<u8>>, StreamError> {
        let mut got = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let space = reader.space();
            let count = space.len().min(rest.len());
            space[..count].copy_from_slice(&rest[..count]);
            reader.received(count);
            rest = &rest[count..];
            while let Some(frame) = reader.next_frame()? {
                got.push(frame.payload.to_vec());
            }
        }
        Ok(got)
    }

    #[test]
    fn the_preface_has_these_bytes() {
        assert_eq!(preface(), *b"rcbmem\x01\x00");
    }

    proptest! {
        #[test]
        fn any_cut_of_the_stream_gives_the_same_messages(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..2000), 1..20),
            cut in 1usize..3000,
        ) {
            let mut stream = preface().to_vec();
            for message in &messages {
                stream.extend_from_slice(&header(message.len() as u32));
                stream.extend_from_slice(message);
            }
            let mut reader = MemberReader::default();
            let mut got = Vec::new();
            for chunk in stream.chunks(cut) {
                got.extend(feed(&mut reader, chunk).unwrap());
            }
            prop_assert_eq!(got, messages);
            prop_assert_eq!(reader.version(), Some(FORMAT_VERSION));
        }
    }

    #[test]
    fn something_else_is_refused_at_its_first_wrong_byte() {
        assert_eq!(
            feed(&mut MemberReader::default(), b"G"),
            Err(StreamError::NotAMember)
        );
        assert_eq!(
            feed(&mut MemberReader::default(), b"rcbmex"),
            Err(StreamError::NotAMember)
        );
        assert_eq!(
            feed(&mut MemberReader::default(), b"rcbmem\x02\x00"),
            Err(StreamError::Version(2))
        );
        assert_eq!(
            feed(&mut MemberReader::default(), b"rcbmem\x00\x00"),
            Err(StreamError::Version(0))
        );
    }

    #[test]
    fn an_over_long_frame_ends_the_stream() {
        let mut stream = preface().to_vec();
        stream.extend_from_slice(&header(MAX_FRAME_BYTES as u32 + 1));
        assert_eq!(
            feed(&mut MemberReader::default(), &stream),
            Err(StreamError::TooLong {
                bytes: MAX_FRAME_BYTES + 1,
                longest: MAX_FRAME_BYTES
            })
        );
    }

    #[test]
    fn a_stranger_gets_room_for_a_hello_and_no_more() {
        let message = |bytes: usize| [&header(bytes as u32)[..], &vec![7; bytes]].concat();
        let longest = MAX_HELLO_FRAME_BYTES;
        let stream = [&preface()[..], &message(longest), &message(longest + 1)].concat();
        let got = feed(&mut MemberReader::accepted(), &stream).unwrap();
        assert_eq!(
            got.iter().map(Vec::len).collect::<Vec<_>>(),
            [longest, longest + 1]
        );

        let mut stranger = MemberReader::accepted();
        stranger.give_back();
        let announced = [&preface()[..], &header(longest as u32 + 1)].concat();
        let refused = StreamError::TooLong {
            bytes: longest + 1,
            longest,
        };
        assert_eq!(feed(&mut stranger, &announced), Err(refused));
        assert_eq!(stranger.capacity(), STRANGER_BYTES);
    }
}
