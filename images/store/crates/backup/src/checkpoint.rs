//! The layout of a checkpoint in frames: it is cut into parts, and each lies in a frame as a closed replica of a log that no server has.

use base::ids::ServerId;
use wire::peer::ReplicaId;

/// Whose replicas the parts of checkpoints are: index 0 is no server's.
pub const CHECKPOINT_LOG: ServerId = ServerId(0);

const MAGIC: [u8; 8] = *b"rcboxCHK";
/// Magic; then which part it is, how many there are, length of the whole and CRC32C over it, as `u32`, little-endian.
pub(crate) const HEADER_BYTES: usize = 24;
pub(crate) const MAX_PARTS: usize = 1 << 10;
/// Segment ids of the parts: the checkpoint's number, and the part's behind it.
pub(crate) const PART_BITS: u32 = 16;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Whole {
    pub parts: u32,
    pub bytes: u32,
    pub crc: u32,
}

impl Whole {
    pub fn header(&self, part: u32) -> Vec<u8> {
        let mut header = MAGIC.to_vec();
        for field in [part, self.parts, self.bytes, self.crc] {
            header.extend(field.to_le_bytes());
        }
        header
    }

    /// What part this is of what, and its data.
    pub fn parse(bytes: &[u8]) -> Option<(u32, Whole, &[u8])> {
        let (header, data) = bytes.split_at_checked(HEADER_BYTES)?;
        let fields = header.strip_prefix(&MAGIC)?;
        let field = |at: usize| Some(u32::from_le_bytes(*fields.get(4 * at..)?.first_chunk()?));
        let whole = Whole {
            parts: field(1)?,
            bytes: field(2)?,
            crc: field(3)?,
        };
        Some((field(0)?, whole, data))
    }
}

/// Puts the parts together, in order; `None`: something is missing, or is none of this checkpoint.
pub(crate) fn join_parts(parts: impl Iterator<Item = Option<Vec<u8>>>) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    let mut expected = None;
    for (part, piece) in (0..).zip(parts) {
        let piece = piece?;
        let (found, whole, data) = Whole::parse(&piece)?;
        if found != part || *expected.get_or_insert(whole) != whole {
            return None;
        }
        all.extend_from_slice(data);
        if part + 1 >= whole.parts {
            let is_sound = all.len() == whole.bytes as usize && crc32c::crc32c(&all) == whole.crc;
            return is_sound.then_some(all);
        }
    }
    None
}

pub(crate) fn replica(number: u64, part: u32) -> ReplicaId {
    ReplicaId {
        log: CHECKPOINT_LOG,
        segment_id: number << PART_BITS | u64::from(part),
    }
}
