//! What describes a storage and its frames: superblocks and headers, each with a checksum of its own. docs/replication.md
//! has the offsets.

use core::fmt;

use base::ids::ServerId;
use wire::peer::{ReplicaId, Role};

use crate::fences::Fences;
use crate::layout::{MAX_FENCES, SUPERBLOCK_FIXED_BYTES};

/// Of headers. What is behind one may be of another store's format than the superblock says; it says so itself.
const HEADER_FORMAT: u32 = 1;
pub(crate) const SUPERBLOCK_MAGIC: [u8; 8] = *b"rcboxBKP";
const HEADER_MAGIC: [u8; 8] = *b"rcboxFRM";
pub(crate) const HEADER_BYTES: usize = 72;

/// Why a replica's data is not given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// It does not have its checksum.
    Rotten,
    /// It is shorter than what this backup has said to hold.
    Short { bytes: u32, acknowledged_bytes: u32 },
    /// It was open and in the page cache when the kernel went down: its end may be lost.
    Unsynced,
    /// The storage fails to read it.
    Unreadable,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Damage::Rotten => f.write_str("does not have its checksum"),
            Damage::Short {
                bytes,
                acknowledged_bytes,
            } => write!(
                f,
                "has {bytes} sound bytes of {acknowledged_bytes} that were acknowledged"
            ),
            Damage::Unsynced => {
                f.write_str("was open and not synced when the kernel or the machine went down")
            }
            Damage::Unreadable => f.write_str("cannot be read"),
        }
    }
}

/// A header: what a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub cluster_id: u64,
    /// Grows with every writing.
    pub sequence: u64,
    /// `None`: the frame is free.
    pub content: Option<Content>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub replica: ReplicaId,
    pub role: Role,
    pub closed: bool,
    /// The sequence number with which the frame was taken for the replica: headers of one use have it in common.
    pub opened: u64,
    /// Data that is here, and the CRC32C over all of it.
    pub bytes: u32,
    pub crc: u32,
    /// Of that, what the log's owner was told to be safe, when this was written.
    pub acknowledged_bytes: u32,
    pub damage: Option<Damage>,
}

/// What a storage says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    /// The store's, when this was written: what is here may be of this one and of older ones. A build that does not read it leaves the storage alone.
    pub format: u32,
    pub sequence: u64,
    pub cluster_id: u64,
    pub segment_bytes: u32,
    pub frame_count: u32,
    /// Of the kernel that the storage was last opened under.
    pub boot_id: [u8; 16],
    /// Closed in order since.
    pub clean: bool,
    /// Whether acknowledgements waited for syncs.
    pub flushed: bool,
    /// The storage has failed since.
    pub failed: bool,
    pub fences: Fences,
}

/// Fields one behind the other; the checksum of what follows it stands behind the magic.
struct Writer<'a> {
    record: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    /// Into a record of zeros.
    fn new(magic: [u8; 8], format: u32, record: &'a mut [u8]) -> Writer<'a> {
        let mut fields = Writer { record, at: 0 };
        fields.array(magic);
        fields.u32(0);
        fields.u32(format);
        fields
    }
    fn array<const N: usize>(&mut self, value: [u8; N]) {
        self.record[self.at..self.at + N].copy_from_slice(&value);
        self.at += N;
    }
    fn u8(&mut self, value: u8) {
        self.array([value]);
    }
    fn u32(&mut self, value: u32) {
        self.array(value.to_le_bytes());
    }
    fn u64(&mut self, value: u64) {
        self.array(value.to_le_bytes());
    }
    fn finish(self) {
        let crc = crc32c::crc32c(&self.record[12..]);
        self.record[8..12].copy_from_slice(&crc.to_le_bytes());
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }
    fn u8(&mut self) -> Option<u8> {
        Some(self.array::<1>()?[0])
    }
    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.array()?))
    }
    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.array()?))
    }
    fn flag(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

/// The format, if magic and checksum are right; `block` starts at the magic, and the checksum is over `bytes` of it.
fn sound_format(magic: [u8; 8], block: &[u8], bytes: usize) -> Option<u32> {
    let record = block.get(..bytes)?;
    let mut fields = Reader(record);
    let is_sound =
        fields.array() == Some(magic) && fields.u32() == Some(crc32c::crc32c(&record[12..]));
    is_sound.then(|| fields.u32())?
}

impl Header {
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut record = [0; HEADER_BYTES];
        let mut fields = Writer::new(HEADER_MAGIC, HEADER_FORMAT, &mut record);
        fields.u64(self.cluster_id);
        fields.u64(self.sequence);
        if let Some(content) = &self.content {
            content.encode(&mut fields);
        }
        fields.finish();
        record
    }

    /// `None`: it is damaged or was never written.
    pub fn decode(block: &[u8]) -> Option<Header> {
        if sound_format(HEADER_MAGIC, block, HEADER_BYTES)? != HEADER_FORMAT {
            return None;
        }
        let mut fields = Reader(&block[16..HEADER_BYTES]);
        let (cluster_id, sequence) = (fields.u64()?, fields.u64()?);
        let content = match fields.u8()? {
            0 => None,
            1 => Some(Content::decode(false, &mut fields)?),
            2 => Some(Content::decode(true, &mut fields)?),
            _ => return None,
        };
        Some(Header {
            cluster_id,
            sequence,
            content,
        })
    }
}

impl Content {
    /// Of the data; how much of it was acknowledged is told again and again.
    pub fn says_the_same_as(&self, other: &Content) -> bool {
        let of_data = |content: &Content| Content {
            acknowledged_bytes: 0,
            ..*content
        };
        of_data(self) == of_data(other)
    }

    fn encode(&self, fields: &mut Writer<'_>) {
        fields.u8(1 + u8::from(self.closed));
        fields.u8(u8::from(self.role == Role::Side));
        fields.u8(match self.damage {
            None => 0,
            Some(Damage::Rotten) => 1,
            Some(Damage::Short { .. }) => 2,
            Some(Damage::Unsynced) => 3,
            Some(Damage::Unreadable) => 4,
        });
        fields.u8(0);
        fields.u32(self.bytes);
        fields.u32(self.crc);
        fields.u32(self.acknowledged_bytes);
        fields.u64(self.replica.log.0);
        fields.u64(self.replica.segment_id);
        fields.u64(self.opened);
    }

    fn decode(closed: bool, fields: &mut Reader<'_>) -> Option<Content> {
        let role = if fields.flag()? {
            Role::Side
        } else {
            Role::Head
        };
        let damage = fields.u8()?;
        fields.u8()?;
        let (bytes, crc, acknowledged_bytes) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let replica = ReplicaId {
            log: ServerId(fields.u64()?),
            segment_id: fields.u64()?,
        };
        let damage = match damage {
            0 => None,
            1 => Some(Damage::Rotten),
            2 => Some(Damage::Short {
                bytes,
                acknowledged_bytes,
            }),
            3 => Some(Damage::Unsynced),
            4 => Some(Damage::Unreadable),
            _ => return None,
        };
        Some(Content {
            replica,
            role,
            closed,
            opened: fields.u64()?,
            bytes,
            crc,
            acknowledged_bytes,
            damage,
        })
    }
}

impl Superblock {
    pub fn encode(&self) -> Vec<u8> {
        assert!(
            self.fences.len() <= MAX_FENCES,
            "more fences than a superblock holds"
        );
        let mut record = vec![0; SUPERBLOCK_FIXED_BYTES + 8 * self.fences.len()];
        let mut fields = Writer::new(SUPERBLOCK_MAGIC, self.format, &mut record);
        fields.u64(self.cluster_id);
        fields.u64(self.sequence);
        fields.u32(self.segment_bytes);
        fields.u32(self.frame_count);
        fields.array(self.boot_id);
        fields.u8(u8::from(self.clean));
        fields.u8(u8::from(self.flushed));
        fields.u8(u8::from(self.failed));
        fields.u8(0);
        fields.u32(self.fences.len() as u32);
        for (index, generation) in self.fences.iter() {
            fields.u32(index);
            fields.u32(generation);
        }
        fields.finish();
        record
    }

    /// `None`: it is damaged, was never written, or is of a format that has it lie otherwise.
    pub fn decode(block: &[u8]) -> Option<Superblock> {
        let count = block
            .get(SUPERBLOCK_FIXED_BYTES - 4..)
            .and_then(|rest| Reader(rest).u32())? as usize;
        if count > MAX_FENCES {
            return None;
        }
        let bytes = SUPERBLOCK_FIXED_BYTES + count * 8;
        let format = sound_format(SUPERBLOCK_MAGIC, block, bytes)?;
        let mut fields = Reader(&block[16..bytes]);
        let (cluster_id, sequence) = (fields.u64()?, fields.u64()?);
        let (segment_bytes, frame_count) = (fields.u32()?, fields.u32()?);
        let boot_id = fields.array()?;
        let (clean, flushed, failed) = (fields.flag()?, fields.flag()?, fields.flag()?);
        fields.u8()?;
        let count = fields.u32()?;
        let fences = (0..count).map(|_| Some((fields.u32()?, fields.u32()?)));
        Some(Superblock {
            format,
            sequence,
            cluster_id,
            segment_bytes,
            frame_count,
            boot_id,
            clean,
            flushed,
            failed,
            fences: fences.collect::<Option<Fences>>()?,
        })
    }

    /// The format that a block says it has, if it is a superblock of any.
    pub fn format_of(block: &[u8]) -> Option<u32> {
        let mut fields = Reader(block);
        (fields.array()? == SUPERBLOCK_MAGIC).then_some(())?;
        fields.u32()?;
        fields.u32()
    }
}
