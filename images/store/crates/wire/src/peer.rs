//! What masters and recoveries say to backups, and masters to each other.
//!
//! Requests and responses travel in the frames of the client protocol (nonce, length, payload), on a port of their own. A request starts
//! with its kind in one byte, a response with its status in one byte. All integers are little-endian, nothing is padded; bytes
//! after the last field are an error. docs/replication.md says what the messages are for.

mod fields;
mod kinds;
mod migration;

use core::time::Duration;

use crate::member::TabletRange;
use base::ids::ServerId;

use fields::{Fields, replica_bytes};
pub use fields::{Malformed, ReplicaId, Status};
use kinds::{APPEND, FREE, KEEP_ALIVE, LIST, MIGRATE_READ, READ, READ_ENTRIES};
pub use migration::{MigrateRead, Migrating, Phase};

/// A master serves for this long after it sent what all backups of its head have answered.
pub const SERVING_LEASE: Duration = Duration::from_millis(200);
/// A backup keeps a log from recovery for this long after it heard of it: 1.02 times the lease, for clocks that differ by 1 % in their rates.
pub const SERVING_PROMISE: Duration = Duration::from_millis(204);
/// Data in one append, at most: more than any atomic append to a log takes, for these are never cut.
pub const MAX_APPEND_BYTES: usize = 2 << 20;

/// What a segment is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Takes what is new, one after the other.
    Head,
    /// Holds what the cleaner kept or a recovery brought; or is a copy, made later, of a head that was closed long ago. Says nothing about
    /// which head is the newest.
    Side,
}

/// What is asked of a backup; [`MigrateRead`] of the master beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    Append(Append<'a>),
    KeepAlive(KeepAlive),
    Free(Free),
    Read(Read),
    ReadEntries(ReadEntries<'a>),
    List(List),
    MigrateRead(MigrateRead),
}

/// Puts data into a replica. Offset 0 opens it if it is not there. What it holds already is passed over: appends may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Append<'a> {
    pub replica: ReplicaId,
    pub role: Role,
    /// Where in the segment `data` goes: not behind the end of what the replica holds.
    pub offset: u32,
    /// The segment is complete with this.
    pub closes: bool,
    /// CRC32C of the segment from its start to the end of `data`.
    pub crc: u32,
    pub data: &'a [u8],
}

/// Asks for the promise alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    pub log: ServerId,
}

/// The log does not need this replica any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Free {
    pub replica: ReplicaId,
}

/// Asks for a piece of a replica's data; for recoveries, which have fenced the log, and for whoever copies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    pub replica: ReplicaId,
    pub offset: u32,
    /// At most; less comes at the end.
    pub bytes: u32,
}

/// Asks for the entries of a replica that belong to some tablets, a piece at a time; for recoveries. What belongs to no tablet (the segment's
/// header) comes along, digests do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadEntries<'a> {
    pub replica: ReplicaId,
    /// Of an entry: 0, or what the answer before this one said.
    pub offset: u32,
    /// Bytes of entries, at most, but for one entry that is longer alone.
    pub bytes: u32,
    pub tablets: Filter<'a>,
}

/// Tablets, 24 bytes each: table id, first and last key hash. They are in order and none overlaps another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter<'a>(&'a [u8]);

/// Tablets in one filter, at most.
pub const MAX_FILTER_TABLETS: usize = 4096;

/// Which replicas of its log does the backup hold? Asked by a master that finds a backup that was away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List {
    pub log: ServerId,
}

/// Answers [`Append`], [`KeepAlive`] and [`Free`]. With [`Status::Ok`] to the first two, the log is not released for recovery for
/// [`SERVING_PROMISE`] from when the request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: Status,
    /// Bytes of the segment that are held, as safe as the store's durability asks for.
    pub bytes: u32,
}

/// Answers [`Read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    pub status: Status,
    pub data: &'a [u8],
}

/// Answers [`ReadEntries`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entries<'a> {
    pub status: Status,
    /// Where to go on; the length of the replica at its end.
    pub next_offset: u32,
    /// Whole entries, each as it is in the segment.
    pub data: &'a [u8],
}

/// Answers [`List`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    pub status: Status,
    pub replicas: Vec<Listed>,
}

/// One that a backup holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    pub segment_id: u64,
    pub held: Held,
}

/// What a replica is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// Complete, undamaged, and as safe as the store's durability asks for.
    Closed { bytes: u32, crc: u32 },
    /// Of a head that takes appends, or whose end is not safe yet: a recovery may take it for the newest.
    OpenHead,
    /// Damaged, or a part of a side segment: no recovery reads it.
    Nothing,
}

/// Bytes of an append before its data.
pub const APPEND_FIXED_BYTES: usize = 27;

impl<'a> Request<'a> {
    pub fn decode(payload: &'a [u8]) -> Result<Request<'a>, Malformed> {
        let mut fields = Fields(payload);
        match fields.u8()? {
            APPEND => Append::decode(fields).map(Request::Append),
            KEEP_ALIVE => {
                let log = fields.server_id()?;
                fields.end(Request::KeepAlive(KeepAlive { log }))
            }
            FREE => {
                let replica = fields.replica()?;
                fields.end(Request::Free(Free { replica }))
            }
            READ => {
                let (replica, offset, bytes) = (fields.replica()?, fields.u32()?, fields.u32()?);
                fields.end(Request::Read(Read {
                    replica,
                    offset,
                    bytes,
                }))
            }
            READ_ENTRIES => {
                let (replica, offset, bytes) = (fields.replica()?, fields.u32()?, fields.u32()?);
                let tablets = Filter::decode(fields.0)?;
                Ok(Request::ReadEntries(ReadEntries {
                    replica,
                    offset,
                    bytes,
                    tablets,
                }))
            }
            LIST => {
                let log = fields.server_id()?;
                fields.end(Request::List(List { log }))
            }
            MIGRATE_READ => MigrateRead::decode(fields).map(Request::MigrateRead),
            kind => Err(Malformed::UnknownKind(kind)),
        }
    }
}

const FILTER_TABLET_BYTES: usize = 24;

impl<'a> Filter<'a> {
    fn decode(bytes: &'a [u8]) -> Result<Filter<'a>, Malformed> {
        if !bytes.len().is_multiple_of(FILTER_TABLET_BYTES) {
            return Err(Malformed::Short);
        }
        if bytes.len() > MAX_FILTER_TABLETS * FILTER_TABLET_BYTES {
            return Err(Malformed::TooLarge);
        }
        let filter = Filter(bytes);
        // Whoever looks for an entry's tablet relies on it.
        if filter.is_ordered() {
            Ok(filter)
        } else {
            Err(Malformed::Unordered)
        }
    }

    fn is_ordered(&self) -> bool {
        let is_range = |tablet: TabletRange| tablet.start_key_hash <= tablet.end_key_hash;
        self.tablets().all(is_range)
            && self.tablets().is_sorted_by(|one, next| {
                (one.table_id, one.end_key_hash) < (next.table_id, next.start_key_hash)
            })
    }

    /// Writes tablets as a filter; at most [`MAX_FILTER_TABLETS`], in order.
    pub fn encode(tablets: &[TabletRange], out: &mut Vec<u8>) {
        for tablet in tablets {
            out.extend_from_slice(&tablet.table_id.to_le_bytes());
            out.extend_from_slice(&tablet.start_key_hash.to_le_bytes());
            out.extend_from_slice(&tablet.end_key_hash.to_le_bytes());
        }
    }

    pub fn tablets(&self) -> impl Iterator<Item = TabletRange> + use<'a> {
        let (tablets, _) = self.0.as_chunks::<FILTER_TABLET_BYTES>();
        tablets.iter().map(|bytes| {
            let (fields, _) = bytes.as_chunks::<8>();
            TabletRange {
                table_id: u64::from_le_bytes(fields[0]),
                start_key_hash: u64::from_le_bytes(fields[1]),
                end_key_hash: u64::from_le_bytes(fields[2]),
            }
        })
    }
}

impl ReadEntries<'_> {
    /// A whole request for entries of these tablets.
    pub fn encode(
        replica: ReplicaId,
        offset: u32,
        bytes: u32,
        tablets: &[TabletRange],
        out: &mut Vec<u8>,
    ) {
        out.push(READ_ENTRIES);
        out.extend_from_slice(&replica_bytes(replica));
        out.extend_from_slice(&offset.to_le_bytes());
        out.extend_from_slice(&bytes.to_le_bytes());
        Filter::encode(tablets, out);
    }
}

impl List {
    pub fn to_bytes(self) -> [u8; 9] {
        let mut out = [LIST; 9];
        out[1..].copy_from_slice(&self.log.0.to_le_bytes());
        out
    }
}

impl<'a> Entries<'a> {
    /// The part before the data.
    pub fn fixed_bytes(status: Status, next_offset: u32) -> [u8; 5] {
        let mut out = [status as u8; 5];
        out[1..].copy_from_slice(&next_offset.to_le_bytes());
        out
    }

    pub fn decode(payload: &'a [u8]) -> Result<Entries<'a>, Malformed> {
        let mut fields = Fields(payload);
        let (status, next_offset) = (Status::from_u8(fields.u8()?)?, fields.u32()?);
        Ok(Entries {
            status,
            next_offset,
            data: fields.0,
        })
    }
}

impl Listing {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.status as u8);
        for replica in &self.replicas {
            let (held, bytes, crc) = match replica.held {
                Held::Nothing => (0, 0, 0),
                Held::Closed { bytes, crc } => (1, bytes, crc),
                Held::OpenHead => (2, 0, 0),
            };
            out.extend_from_slice(&replica.segment_id.to_le_bytes());
            out.push(held);
            out.extend_from_slice(&bytes.to_le_bytes());
            out.extend_from_slice(&crc.to_le_bytes());
        }
    }

    pub fn decode(payload: &[u8]) -> Result<Listing, Malformed> {
        let mut fields = Fields(payload);
        let status = Status::from_u8(fields.u8()?)?;
        let mut replicas = Vec::new();
        while !fields.0.is_empty() {
            let (segment_id, held) = (fields.u64()?, fields.u8()?);
            let (bytes, crc) = (fields.u32()?, fields.u32()?);
            let held = match held {
                0 => Held::Nothing,
                1 => Held::Closed { bytes, crc },
                2 => Held::OpenHead,
                value => return Err(Malformed::UnknownValue(value)),
            };
            replicas.push(Listed { segment_id, held });
        }
        Ok(Listing { status, replicas })
    }
}

impl<'a> Append<'a> {
    fn decode(mut fields: Fields<'a>) -> Result<Append<'a>, Malformed> {
        let replica = fields.replica()?;
        let role = match fields.u8()? {
            0 => Role::Head,
            1 => Role::Side,
            value => return Err(Malformed::UnknownValue(value)),
        };
        let closes = match fields.u8()? {
            0 => false,
            1 => true,
            value => return Err(Malformed::UnknownValue(value)),
        };
        let (offset, crc) = (fields.u32()?, fields.u32()?);
        let data = fields.0;
        let end = u32::try_from(data.len())
            .ok()
            .and_then(|length| offset.checked_add(length));
        if data.len() > MAX_APPEND_BYTES || end.is_none() {
            return Err(Malformed::TooLarge);
        }
        Ok(Append {
            replica,
            role,
            offset,
            closes,
            crc,
            data,
        })
    }

    /// The part before the data, which follows it as it is.
    pub fn fixed_bytes(&self) -> [u8; APPEND_FIXED_BYTES] {
        let mut out = [0; APPEND_FIXED_BYTES];
        out[0] = APPEND;
        out[1..9].copy_from_slice(&self.replica.log.0.to_le_bytes());
        out[9..17].copy_from_slice(&self.replica.segment_id.to_le_bytes());
        out[17] = u8::from(self.role == Role::Side);
        out[18] = u8::from(self.closes);
        out[19..23].copy_from_slice(&self.offset.to_le_bytes());
        out[23..].copy_from_slice(&self.crc.to_le_bytes());
        out
    }

    /// Behind the last of the data, in the segment.
    pub fn end(&self) -> u32 {
        self.offset + self.data.len() as u32
    }
}

impl KeepAlive {
    pub fn to_bytes(self) -> [u8; 9] {
        let mut out = [KEEP_ALIVE; 9];
        out[1..].copy_from_slice(&self.log.0.to_le_bytes());
        out
    }
}

impl Free {
    pub fn to_bytes(self) -> [u8; 17] {
        let mut out = [FREE; 17];
        out[1..].copy_from_slice(&replica_bytes(self.replica));
        out
    }
}

impl Read {
    pub fn to_bytes(self) -> [u8; 25] {
        let mut out = [READ; 25];
        out[1..17].copy_from_slice(&replica_bytes(self.replica));
        out[17..21].copy_from_slice(&self.offset.to_le_bytes());
        out[21..].copy_from_slice(&self.bytes.to_le_bytes());
        out
    }
}

impl Answer {
    pub fn to_bytes(self) -> [u8; 5] {
        let mut out = [self.status as u8; 5];
        out[1..].copy_from_slice(&self.bytes.to_le_bytes());
        out
    }

    pub fn decode(payload: &[u8]) -> Result<Answer, Malformed> {
        let mut fields = Fields(payload);
        let (status, bytes) = (Status::from_u8(fields.u8()?)?, fields.u32()?);
        fields.end(Answer { status, bytes })
    }
}

impl<'a> Data<'a> {
    /// The part before the data.
    pub fn fixed_bytes(status: Status) -> [u8; 1] {
        [status as u8]
    }

    pub fn decode(payload: &'a [u8]) -> Result<Data<'a>, Malformed> {
        let mut fields = Fields(payload);
        let status = Status::from_u8(fields.u8()?)?;
        Ok(Data {
            status,
            data: fields.0,
        })
    }
}

#[cfg(test)]
mod tests;
