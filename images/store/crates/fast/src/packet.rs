//! What is in a datagram: a header of 28 bytes, then a piece of a message or the few words of a control packet.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | CRC32C of everything behind it |
//! | 4 | 1 | format version |
//! | 5 | 1 | kind |
//! | 6 | 1 | slot |
//! | 7 | 1 | flags |
//! | 8 | 8 | session, as the receiver numbers it; 0 where it has none yet |
//! | 16 | 4 | number of the request within the session |
//! | 20 | 4 | length |
//! | 24 | 4 | offset |
//!
//! All numbers are little-endian. What length and offset mean depends on the kind.

use core::fmt;

/// Length of the header.
pub const HEADER_BYTES: usize = 28;
/// The format that this build speaks.
pub const VERSION: u8 = 1;
/// The shortest payload that a port must be able to carry: an IPv4 path guarantees 576 bytes, headers included.
pub const MIN_DATAGRAM_BYTES: usize = 576 - 28;
/// Length of an [`Open`] packet's payload. No answer to it is longer.
pub const OPEN_BYTES: usize = 40;

/// What a packet is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Asks for a session. Payload: [`Open`].
    Open = 1,
    /// Ask again with this cookie. Payload: the cookie.
    Challenge = 2,
    /// There is a session. Payload: [`Opened`].
    Opened = 3,
    /// There is none. `number`: a [`Refusal`]; `length`: the version that is spoken here.
    Refused = 4,
    /// A piece of a request; `length`: of the whole; `offset`: of this piece.
    Request = 5,
    /// A piece of a response, in the same way.
    Response = 6,
    /// The message may be sent up to `offset`.
    Grant = 7,
    /// `length` bytes from `offset` on are missing.
    Resend = 8,
    /// The request is complete, and is being executed.
    Working = 9,
    /// The response is complete: it need not be kept.
    Ack = 10,
    /// Is there still somebody? All requests below `number` have been answered.
    Ping = 11,
    Pong = 12,
    /// The session has ended.
    Close = 13,
    /// There is no such session; `length` and `offset` are the lower and the upper half of the number that was used.
    Reset = 14,
}

impl Kind {
    fn of(byte: u8) -> Option<Kind> {
        const KINDS: [Kind; 14] = [
            Kind::Open,
            Kind::Challenge,
            Kind::Opened,
            Kind::Refused,
            Kind::Request,
            Kind::Response,
            Kind::Grant,
            Kind::Resend,
            Kind::Working,
            Kind::Ack,
            Kind::Ping,
            Kind::Pong,
            Kind::Close,
            Kind::Reset,
        ];
        KINDS.get(usize::from(byte).checked_sub(1)?).copied()
    }
}

/// The sender has waited for too long: say how far you are.
pub const FLAG_RETRY: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub kind: Kind,
    pub slot: u8,
    pub flags: u8,
    pub session: u64,
    pub number: u32,
    pub length: u32,
    pub offset: u32,
}

impl Header {
    pub fn new(kind: Kind, session: u64) -> Header {
        Header {
            kind,
            slot: 0,
            flags: 0,
            session,
            number: 0,
            length: 0,
            offset: 0,
        }
    }

    /// The header's bytes, with the sum over them and `payload`.
    pub fn encode(&self, payload: &[u8]) -> [u8; HEADER_BYTES] {
        self.encode_parts([payload, &[]])
    }

    /// As [`Header::encode`], with a payload that lies in two places.
    pub fn encode_parts(&self, [first, second]: [&[u8]; 2]) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[4] = VERSION;
        bytes[5] = self.kind as u8;
        bytes[6] = self.slot;
        bytes[7] = self.flags;
        bytes[8..16].copy_from_slice(&self.session.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.number.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.length.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.offset.to_le_bytes());
        let mut sum = crc32c::crc32c_append(crc32c::crc32c(&bytes[4..]), first);
        if !second.is_empty() {
            sum = crc32c::crc32c_append(sum, second);
        }
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        bytes
    }
}

/// Why a datagram is none of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Shorter than a header, or than its kind needs.
    Short,
    /// Changed on its way.
    Sum,
    /// Of another version; the sum is right.
    Version(u8),
    /// A kind that this version does not have.
    Kind,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::Short => f.write_str("the datagram is too short"),
            Malformed::Sum => f.write_str("the datagram's checksum is wrong"),
            Malformed::Version(version) => write!(
                f,
                "the datagram has format version {version}, this build speaks {VERSION}"
            ),
            Malformed::Kind => f.write_str("the datagram is of an unknown kind"),
        }
    }
}

impl core::error::Error for Malformed {}

/// Takes a datagram apart.
pub fn decode(datagram: &[u8]) -> Result<(Header, &[u8]), Malformed> {
    let Some((bytes, payload)) = datagram.split_first_chunk::<HEADER_BYTES>() else {
        return Err(Malformed::Short);
    };
    let word =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    if word(0) != crc32c::crc32c(&datagram[4..]) {
        return Err(Malformed::Sum);
    }
    if bytes[4] != VERSION {
        return Err(Malformed::Version(bytes[4]));
    }
    let header = Header {
        kind: Kind::of(bytes[5]).ok_or(Malformed::Kind)?,
        slot: bytes[6],
        flags: bytes[7],
        session: u64::from(word(8)) | u64::from(word(12)) << 32,
        number: word(16),
        length: word(20),
        offset: word(24),
    };
    Ok((header, payload))
}

/// What a datagram seems to be, for whoever orders a burst of them before any is taken apart. Its sum was not checked: nothing may depend on it but speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Glimpse<'a> {
    /// A whole request, in one piece.
    Request(&'a [u8]),
    /// A piece of a message of several.
    Piece,
    Other,
}

/// See [`Glimpse`].
#[inline]
pub fn glimpse(datagram: &[u8]) -> Glimpse<'_> {
    let Some((header, payload)) = datagram.split_first_chunk::<HEADER_BYTES>() else {
        return Glimpse::Other;
    };
    let kind = header[5];
    if kind != Kind::Request as u8 && kind != Kind::Response as u8 {
        return Glimpse::Other;
    }
    let length = u32::from_le_bytes([header[20], header[21], header[22], header[23]]);
    match length as usize {
        length if length != payload.len() => Glimpse::Piece,
        _ if kind == Kind::Request as u8 => Glimpse::Request(payload),
        _ => Glimpse::Other,
    }
}

/// Why a session was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Refusal {
    /// Its version is not spoken.
    Version = 1,
    /// There are too many sessions.
    Full = 2,
    /// What was asked for makes no sense.
    Invalid = 3,
}

impl Refusal {
    pub fn of(number: u32) -> Refusal {
        match number {
            1 => Refusal::Version,
            2 => Refusal::Full,
            _ => Refusal::Invalid,
        }
    }
}

/// What the side that asks for a session says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// The session's number at the side that asks.
    pub session: u64,
    /// Names this run of the side that asks: a process that was started anew has another one.
    pub incarnation: u64,
    /// As given by a [`Kind::Challenge`], or 0.
    pub cookie: u64,
    /// The longest datagram that it takes, header included.
    pub datagram_bytes: u16,
    /// Requests that it wants to have under way at a time.
    pub slots: u16,
    /// Requests are to be handed over in the order in which they were sent.
    pub is_ordered: bool,
}

impl Open {
    pub fn encode(&self) -> [u8; OPEN_BYTES] {
        let mut bytes = [0; OPEN_BYTES];
        bytes[..8].copy_from_slice(&self.session.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.cookie.to_le_bytes());
        bytes[24..26].copy_from_slice(&self.datagram_bytes.to_le_bytes());
        bytes[26..28].copy_from_slice(&self.slots.to_le_bytes());
        bytes[28] = u8::from(self.is_ordered);
        bytes
    }

    pub fn decode(payload: &[u8]) -> Option<Open> {
        let bytes = payload.first_chunk::<OPEN_BYTES>()?;
        Some(Open {
            session: long(bytes, 0),
            incarnation: long(bytes, 8),
            cookie: long(bytes, 16),
            datagram_bytes: u16::from_le_bytes([bytes[24], bytes[25]]),
            slots: u16::from_le_bytes([bytes[26], bytes[27]]),
            is_ordered: bytes[28] & 1 == 1,
        })
    }
}

/// What the other side answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The session's number at the side that answers.
    pub session: u64,
    /// The longest datagram that both take.
    pub datagram_bytes: u16,
    /// Requests that may be under way at a time.
    pub slots: u16,
}

/// Length of an [`Opened`] packet's payload.
pub const OPENED_BYTES: usize = 12;

impl Opened {
    pub fn encode(&self) -> [u8; OPENED_BYTES] {
        let mut bytes = [0; OPENED_BYTES];
        bytes[..8].copy_from_slice(&self.session.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.datagram_bytes.to_le_bytes());
        bytes[10..].copy_from_slice(&self.slots.to_le_bytes());
        bytes
    }

    pub fn decode(payload: &[u8]) -> Option<Opened> {
        let bytes = payload.first_chunk::<OPENED_BYTES>()?;
        Some(Opened {
            session: long(bytes, 0),
            datagram_bytes: u16::from_le_bytes([bytes[8], bytes[9]]),
            slots: u16::from_le_bytes([bytes[10], bytes[11]]),
        })
    }
}

fn long(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The format is what others implement: it does not change by accident.
    #[test]
    fn golden_bytes() {
        let header = Header {
            kind: Kind::Response,
            slot: 0x12,
            flags: FLAG_RETRY,
            session: 0x0102_0304_0506_0708,
            number: 0x1112_1314,
            length: 0x2122_2324,
            offset: 0x3132_3334,
        };
        let expected: [u8; HEADER_BYTES] = [
            0xf1, 0xbf, 0x72, 0xca, // sum
            1, 6, 0x12, 1, 8, 7, 6, 5, 4, 3, 2, 1, //
            0x14, 0x13, 0x12, 0x11, 0x24, 0x23, 0x22, 0x21, 0x34, 0x33, 0x32, 0x31,
        ];
        assert_eq!(header.encode(b"abc"), expected);
        let datagram = [&header.encode(b"abc")[..], b"abc"].concat();
        assert_eq!(decode(&datagram), Ok((header, &b"abc"[..])));
        let open = Open {
            session: 1,
            incarnation: 2,
            cookie: 3,
            datagram_bytes: 1472,
            slots: 64,
            is_ordered: true,
        };
        let mut bytes = [0; OPEN_BYTES];
        (bytes[0], bytes[8], bytes[16], bytes[28]) = (1, 2, 3, 1);
        (bytes[24], bytes[25], bytes[26]) = (0xc0, 0x05, 64);
        assert_eq!(open.encode(), bytes);
        assert_eq!(Open::decode(&bytes), Some(open));
        let opened = Opened {
            session: 9,
            datagram_bytes: 1472,
            slots: 64,
        };
        assert_eq!(opened.encode(), [9, 0, 0, 0, 0, 0, 0, 0, 0xc0, 0x05, 64, 0]);
        assert_eq!(Opened::decode(&opened.encode()), Some(opened));
    }

    #[test]
    fn one_wrong_bit_is_noticed() {
        let header = Header::new(Kind::Request, 77);
        let payload = [5; 100];
        let datagram = [&header.encode(&payload)[..], &payload].concat();
        for bit in 0..8 * datagram.len() {
            let mut changed = datagram.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&changed), Err(Malformed::Sum), "bit {bit}");
        }
        assert_eq!(decode(&datagram[..27]), Err(Malformed::Short));
    }

    #[test]
    fn a_glimpse_tells_requests_from_pieces() {
        let datagram = |kind, length| {
            let header = Header {
                length,
                ..Header::new(kind, 1)
            };
            [&header.encode(b"read")[..], b"read"].concat()
        };
        let request = datagram(Kind::Request, 4);
        assert_eq!(glimpse(&request), Glimpse::Request(b"read"));
        assert_eq!(glimpse(&datagram(Kind::Response, 4)), Glimpse::Other);
        assert_eq!(glimpse(&datagram(Kind::Grant, 9)), Glimpse::Other);
        for kind in [Kind::Request, Kind::Response] {
            assert_eq!(glimpse(&datagram(kind, 2000)), Glimpse::Piece);
        }
        assert_eq!(glimpse(&request[..HEADER_BYTES - 1]), Glimpse::Other);
    }

    #[test]
    fn another_version_is_told_from_noise() {
        let mut datagram = Header::new(Kind::Ping, 1).encode(&[]).to_vec();
        datagram[4] = 9;
        assert_eq!(decode(&datagram), Err(Malformed::Sum));
        let sum = crc32c::crc32c(&datagram[4..]);
        datagram[..4].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(decode(&datagram), Err(Malformed::Version(9)));
    }

    #[test]
    fn nothing_that_is_answered_before_an_address_is_proven_is_longer_than_the_question() {
        const { assert!(OPENED_BYTES <= OPEN_BYTES && 8 <= OPEN_BYTES) };
    }
}
