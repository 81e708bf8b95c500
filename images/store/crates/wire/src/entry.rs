//! Log entries: the format of what a master writes into its log.
//!
//! An entry is a header of [`HEADER_BYTES`], a body, and zeros up to a multiple of [`ALIGNMENT_BYTES`]:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | CRC32C of the bytes from offset 4 to the end of the body |
//! | 4 | 3 | length of the body |
//! | 7 | 1 | kind (low 5 bits) and format of that kind (high 3 bits) |
//!
//! The first entry of a segment is a [`SegmentHeader`]. A kind or format that this build does not know is an error, never
//! skipped. A new kind is one more implementation of [`Entry`]; every `match` on [`Kind`] then asks for its arm.
//!
//! Which format an entry is written in follows from the store's ([`Kind::format_in`]). One log may hold entries of several: each says its own.

use core::fmt;

use base::ids::{ServerId, TableId};
use base::layout::{NEWEST_LAYOUT, NEXT_FORMAT};

pub const HEADER_BYTES: usize = 8;
pub const ALIGNMENT_BYTES: usize = 8;
/// Bodies are shorter than this: their length has 24 bits.
pub const MAX_BODY_BYTES: usize = (1 << 24) - 1;

mod object;

pub use object::{Object, ObjectView};

const KIND_BITS: u32 = 5;

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    SegmentHeader = 1,
    Object = 2,
    Tombstone = 3,
    RpcResult = 4,
    Digest = 5,
}

impl Kind {
    /// The format that entries of this kind have in a store of format `store`; each was another before.
    pub const fn format_in(self, store: u32) -> u8 {
        match self {
            // Only tests have it; builds of this version refuse it.
            Kind::SegmentHeader | Kind::Object | Kind::Tombstone if store >= NEXT_FORMAT => 2,
            Kind::SegmentHeader
            | Kind::Object
            | Kind::Tombstone
            | Kind::RpcResult
            | Kind::Digest => 1,
        }
    }

    fn from_tag(tag: u8) -> Result<(Kind, u8), EntryError> {
        let (number, format) = (tag & ((1 << KIND_BITS) - 1), tag >> KIND_BITS);
        let kind = match number {
            1 => Kind::SegmentHeader,
            2 => Kind::Object,
            3 => Kind::Tombstone,
            4 => Kind::RpcResult,
            5 => Kind::Digest,
            _ => return Err(EntryError::UnknownKind(number)),
        };
        if (1..=kind.format_in(NEWEST_LAYOUT)).contains(&format) {
            Ok((kind, format))
        } else {
            Err(EntryError::UnknownFormat { kind, format })
        }
    }
}

/// Why bytes are no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryError {
    /// The bytes end before the entry does.
    Truncated,
    Checksum,
    UnknownKind(u8),
    UnknownFormat {
        kind: Kind,
        format: u8,
    },
    /// The body of an entry of this kind does not add up.
    Malformed(Kind),
    /// An entry of one kind where another is expected.
    WrongKind(Kind),
}

impl fmt::Display for EntryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EntryError::Truncated => f.write_str("log entry is cut off"),
            EntryError::Checksum => f.write_str("log entry has a wrong checksum"),
            EntryError::UnknownKind(kind) => {
                write!(
                    f,
                    "log entry of unknown kind {kind}: written by a newer version?"
                )
            }
            EntryError::UnknownFormat { kind, format } => write!(
                f,
                "log entry {kind:?} of unknown format {format}: written by a newer version?"
            ),
            EntryError::Malformed(kind) => write!(f, "malformed log entry {kind:?}"),
            EntryError::WrongKind(kind) => write!(f, "unexpected log entry {kind:?}"),
        }
    }
}

impl core::error::Error for EntryError {}

/// One kind of log entry: its layout.
pub trait Entry<'a>: Sized {
    const KIND: Kind;

    /// At most [`MAX_BODY_BYTES`]; the same in all formats.
    fn body_bytes(&self) -> usize;
    /// Writes the body, as it lies in a store of format `store`, into `out`, which has exactly [`Self::body_bytes`].
    fn write_body(&self, store: u32, out: &mut [u8]);
    /// Reads a body of this format of the kind.
    fn read_body(format: u8, body: &'a [u8]) -> Result<Self, EntryError>;

    /// What the entry takes in the log.
    fn entry_bytes(&self) -> usize {
        padded(HEADER_BYTES + self.body_bytes())
    }
}

const fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGNMENT_BYTES)
}

/// Writes an entry, as it lies in a store of format `store`, to the start of `out` and tells how many bytes it took.
///
/// # Panics
/// If `out` is shorter than the entry, or the body longer than [`MAX_BODY_BYTES`]: the log checks both before.
pub fn write<'a, E: Entry<'a>>(entry: &E, store: u32, out: &mut [u8]) -> usize {
    let body_bytes = entry.body_bytes();
    assert!(body_bytes <= MAX_BODY_BYTES);
    let end = HEADER_BYTES + body_bytes;
    let tag = E::KIND as u8 | E::KIND.format_in(store) << KIND_BITS;
    let word = body_bytes as u32 | u32::from(tag) << 24;
    out[4..8].copy_from_slice(&word.to_le_bytes());
    entry.write_body(store, &mut out[HEADER_BYTES..end]);
    let checksum = crc32c::crc32c(&out[4..end]);
    out[..4].copy_from_slice(&checksum.to_le_bytes());
    out[end..padded(end)].fill(0);
    padded(end)
}

/// An entry as it lies in the log, its body not looked into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawEntry<'a> {
    pub kind: Kind,
    /// Of this kind, not the store's.
    pub format: u8,
    pub body: &'a [u8],
    /// Header, body and padding.
    pub bytes: &'a [u8],
}

impl<'a> RawEntry<'a> {
    /// The entry at the start of `bytes`, checksum not looked at: for memory that this process wrote itself.
    pub fn read(bytes: &'a [u8]) -> Result<RawEntry<'a>, EntryError> {
        let header = bytes
            .first_chunk::<HEADER_BYTES>()
            .ok_or(EntryError::Truncated)?;
        let (kind, format) = Kind::from_tag(header[7])?;
        let body_bytes = u32::from_le_bytes([header[4], header[5], header[6], 0]) as usize;
        let end = HEADER_BYTES + body_bytes;
        let bytes = bytes.get(..padded(end)).ok_or(EntryError::Truncated)?;
        Ok(RawEntry {
            kind,
            format,
            body: &bytes[HEADER_BYTES..end],
            bytes,
        })
    }

    /// The entry at the start of `bytes`, with its checksum checked before anything else is believed.
    pub fn read_checked(bytes: &'a [u8]) -> Result<RawEntry<'a>, EntryError> {
        let entry = match RawEntry::read(bytes) {
            Err(EntryError::Truncated) => return Err(EntryError::Truncated),
            Err(unknown) => return Err(Self::checksum_of(bytes).err().unwrap_or(unknown)),
            Ok(entry) => entry,
        };
        Self::checksum_of(bytes)?;
        Ok(entry)
    }

    fn checksum_of(bytes: &[u8]) -> Result<(), EntryError> {
        let header = bytes
            .first_chunk::<HEADER_BYTES>()
            .ok_or(EntryError::Truncated)?;
        let [c0, c1, c2, c3, l0, l1, l2, _] = *header;
        let end = HEADER_BYTES + u32::from_le_bytes([l0, l1, l2, 0]) as usize;
        let covered = bytes.get(4..end).ok_or(EntryError::Truncated)?;
        if crc32c::crc32c(covered) == u32::from_le_bytes([c0, c1, c2, c3]) {
            Ok(())
        } else {
            Err(EntryError::Checksum)
        }
    }

    /// Looks into the body.
    pub fn decode<E: Entry<'a>>(&self) -> Result<E, EntryError> {
        if self.kind == E::KIND {
            E::read_body(self.format, self.body)
        } else {
            Err(EntryError::WrongKind(self.kind))
        }
    }
}

/// Splits `N` little-endian words off the front.
fn words<const N: usize>(body: &[u8], kind: Kind) -> Result<([u64; N], &[u8]), EntryError> {
    let mut rest = body;
    let mut words = [0; N];
    for word in &mut words {
        let (bytes, tail) = rest
            .split_first_chunk::<8>()
            .ok_or(EntryError::Malformed(kind))?;
        *word = u64::from_le_bytes(*bytes);
        rest = tail;
    }
    Ok((words, rest))
}

/// Writes words to the front and answers what is behind them.
fn put_words<const N: usize>(out: &mut [u8], words: [u64; N]) -> &mut [u8] {
    let (front, rest) = out.split_at_mut(8 * N);
    for (bytes, word) in front.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    rest
}

/// Opens a segment and says what log it belongs to.
///
/// | offset in body | size | field |
/// |---|---|---|
/// | 0 | 8 | magic, `rcboxlog` |
/// | 8 | 8 | cluster id |
/// | 16 | 8 | server id |
/// | 24 | 8 | segment id |
/// | 32 | 8 | safe version |
/// | 40 | 4 | size of the segment |
/// | 44 | 4 | format 1: zero; format 2: the store's format |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    pub cluster_id: u64,
    pub server_id: ServerId,
    /// Counts up from 1 within one server id.
    pub segment_id: u64,
    /// No object that is new after this point has a lower version: what tombstones knew about versions outlives them.
    pub safe_version: u64,
    pub segment_bytes: u32,
}

impl SegmentHeader {
    pub const MAGIC: [u8; 8] = *b"rcboxlog";
    const BODY_BYTES: usize = 48;
}

impl Entry<'_> for SegmentHeader {
    const KIND: Kind = Kind::SegmentHeader;

    fn body_bytes(&self) -> usize {
        Self::BODY_BYTES
    }

    fn write_body(&self, store: u32, out: &mut [u8]) {
        let written_in = match Self::KIND.format_in(store) {
            1 => 0,
            _ => u64::from(store) << 32,
        };
        put_words(
            out,
            [
                u64::from_le_bytes(Self::MAGIC),
                self.cluster_id,
                self.server_id.0,
                self.segment_id,
                self.safe_version,
                u64::from(self.segment_bytes) | written_in,
            ],
        );
    }

    fn read_body(format: u8, body: &[u8]) -> Result<Self, EntryError> {
        let (words, rest) = words::<6>(body, Kind::SegmentHeader)?;
        let [magic, cluster_id, server_id, segment_id, safe_version, last] = words;
        let (segment_bytes, written_in) = (last as u32, last >> 32);
        if magic.to_le_bytes() != Self::MAGIC
            || !rest.is_empty()
            || (format == 1) != (written_in == 0)
        {
            return Err(EntryError::Malformed(Kind::SegmentHeader));
        }
        Ok(SegmentHeader {
            cluster_id,
            server_id: ServerId(server_id),
            segment_id,
            safe_version,
            segment_bytes,
        })
    }
}

/// Says that an object is no more. It must outlive the dead object's segment, or a replay would bring the object back.
///
/// | offset in body | size | field |
/// |---|---|---|
/// | 0 | 8 | table id |
/// | 8 | 8 | version of the dead object |
/// | 16 | 8 | id of the segment that holds the dead object |
/// | 24 | rest | primary key |
///
/// In format 2 the segment's id comes first: as long as before, and misread by whoever does not look at the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tombstone<'a> {
    pub table_id: TableId,
    pub version: u64,
    pub segment_id: u64,
    pub key: &'a [u8],
}

impl<'a> Tombstone<'a> {
    /// What a tombstone takes in the log whose key has `key_bytes`.
    pub const fn entry_bytes_of(key_bytes: usize) -> usize {
        padded(HEADER_BYTES + 24 + key_bytes)
    }
}

impl<'a> Entry<'a> for Tombstone<'a> {
    const KIND: Kind = Kind::Tombstone;

    fn body_bytes(&self) -> usize {
        24 + self.key.len()
    }

    fn write_body(&self, store: u32, out: &mut [u8]) {
        let mut words = [self.table_id.0, self.version, self.segment_id];
        if Self::KIND.format_in(store) > 1 {
            words.rotate_right(1);
        }
        let rest = put_words(out, words);
        rest.copy_from_slice(self.key);
    }

    fn read_body(format: u8, body: &'a [u8]) -> Result<Self, EntryError> {
        let (mut words, key) = words(body, Kind::Tombstone)?;
        if format > 1 {
            words.rotate_left(1);
        }
        let [table_id, version, segment_id] = words;
        if key.is_empty() || key.len() > crate::rpc::MAX_KEY_BYTES {
            return Err(EntryError::Malformed(Kind::Tombstone));
        }
        Ok(Tombstone {
            table_id: TableId(table_id),
            version,
            segment_id,
            key,
        })
    }
}

/// What a client was, or will be, answered to one of its numbered RPCs: a duplicate of the RPC gets the same answer.
///
/// | offset in body | size | field |
/// |---|---|---|
/// | 0 | 8 | lease id |
/// | 8 | 8 | RPC id |
/// | 16 | 8 | acknowledged up to: the highest RPC id that the client was done with |
/// | 24 | 8 | table id |
/// | 32 | 8 | key hash: with the table id it says which tablet the record goes with |
/// | 40 | rest | the response, 4 bytes at least |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RpcResult<'a> {
    pub lease_id: u64,
    pub rpc_id: u64,
    pub ack_id: u64,
    pub table_id: TableId,
    pub key_hash: u64,
    pub response: &'a [u8],
}

impl<'a> RpcResult<'a> {
    /// What a record takes in the log whose response has `response_bytes`.
    pub const fn entry_bytes_of(response_bytes: usize) -> usize {
        padded(HEADER_BYTES + 40 + response_bytes)
    }
}

impl<'a> Entry<'a> for RpcResult<'a> {
    const KIND: Kind = Kind::RpcResult;

    fn body_bytes(&self) -> usize {
        40 + self.response.len()
    }

    fn write_body(&self, _store: u32, out: &mut [u8]) {
        let rest = put_words(
            out,
            [
                self.lease_id,
                self.rpc_id,
                self.ack_id,
                self.table_id.0,
                self.key_hash,
            ],
        );
        rest.copy_from_slice(self.response);
    }

    fn read_body(_format: u8, body: &'a [u8]) -> Result<Self, EntryError> {
        let (words, response) = words(body, Kind::RpcResult)?;
        let [lease_id, rpc_id, ack_id, table_id, key_hash] = words;
        if response.len() < 4 {
            return Err(EntryError::Malformed(Kind::RpcResult));
        }
        Ok(RpcResult {
            lease_id,
            rpc_id,
            ack_id,
            table_id: TableId(table_id),
            key_hash,
            response,
        })
    }
}

/// Which segments, with the head that the digest stands in, make up the log. The last digest of the head is the one that counts.
///
/// | offset in body | size | field |
/// |---|---|---|
/// | 0 | 8 each | ids of segments, growing |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest<'a> {
    ids: &'a [[u8; 8]],
}

impl<'a> Digest<'a> {
    /// `ids`: little-endian, growing.
    pub fn new(ids: &'a [[u8; 8]]) -> Digest<'a> {
        debug_assert!(is_growing(ids));
        Digest { ids }
    }

    pub fn segment_ids(&self) -> impl ExactSizeIterator<Item = u64> + use<'a> {
        self.ids.iter().map(|id| u64::from_le_bytes(*id))
    }

    /// What a digest of so many segments takes in the log.
    pub const fn entry_bytes_of(segments: usize) -> usize {
        padded(HEADER_BYTES + 8 * segments)
    }
}

fn is_growing(ids: &[[u8; 8]]) -> bool {
    ids.is_sorted_by(|a, b| u64::from_le_bytes(*a) < u64::from_le_bytes(*b))
}

impl<'a> Entry<'a> for Digest<'a> {
    const KIND: Kind = Kind::Digest;

    fn body_bytes(&self) -> usize {
        8 * self.ids.len()
    }

    fn write_body(&self, _store: u32, out: &mut [u8]) {
        out.copy_from_slice(self.ids.as_flattened());
    }

    fn read_body(_format: u8, body: &'a [u8]) -> Result<Self, EntryError> {
        match body.as_chunks() {
            (ids, []) if is_growing(ids) => Ok(Digest { ids }),
            _ => Err(EntryError::Malformed(Kind::Digest)),
        }
    }
}

#[cfg(test)]
mod tests;
