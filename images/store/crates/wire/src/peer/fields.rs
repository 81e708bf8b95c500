//! Fields of messages, one by one; and why bytes are no message.

use core::fmt;

use base::ids::ServerId;

/// A segment's copy: whose log, and which segment of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId {
    /// The server that wrote the log.
    pub log: ServerId,
    pub segment_id: u64,
}

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "segment {} of {}", self.segment_id, self.log)
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Status {
    Ok = 0,
    /// The log is being recovered, or was: its writer is dead, whatever it believes.
    Fenced = 1,
    /// No frame is free.
    Full = 2,
    /// The storage has failed; this backup takes nothing any more.
    Retired = 3,
    /// The replica is not here, or has a gap before the offset: its whole segment must be sent.
    Missing = 4,
    /// The bytes do not have the checksum that came with them, or contradict what is here.
    Mismatch = 5,
}

impl Status {
    pub(super) fn from_u8(value: u8) -> Result<Status, Malformed> {
        use Status::*;
        let all = [Ok, Fenced, Full, Retired, Missing, Mismatch];
        all.get(usize::from(value))
            .copied()
            .ok_or(Malformed::UnknownValue(value))
    }
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    Short,
    Long,
    UnknownKind(u8),
    UnknownValue(u8),
    /// More data than [`super::MAX_APPEND_BYTES`], or beyond any segment; more tablets than [`super::MAX_FILTER_TABLETS`].
    TooLarge,
    /// Tablets overlap, or come in another order than that of tables and key hashes.
    Unordered,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::Short => f.write_str("message is cut off"),
            Malformed::Long => f.write_str("message has bytes after its end"),
            Malformed::UnknownKind(kind) => write!(f, "message of unknown kind {kind}"),
            Malformed::UnknownValue(value) => write!(f, "field has the unknown value {value}"),
            Malformed::TooLarge => f.write_str("message is too large"),
            Malformed::Unordered => f.write_str("tablets are not in order"),
        }
    }
}

impl core::error::Error for Malformed {}

/// Reads the fields of a message, one after the other.
pub struct Fields<'a>(pub &'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(*taken)
    }
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }
    pub fn server_id(&mut self) -> Result<ServerId, Malformed> {
        Ok(ServerId(self.u64()?))
    }
    pub fn replica(&mut self) -> Result<ReplicaId, Malformed> {
        Ok(ReplicaId {
            log: self.server_id()?,
            segment_id: self.u64()?,
        })
    }
    pub fn end<T>(self, message: T) -> Result<T, Malformed> {
        if self.0.is_empty() {
            Ok(message)
        } else {
            Err(Malformed::Long)
        }
    }
}

pub fn replica_bytes(replica: ReplicaId) -> [u8; 16] {
    let mut out = [0; 16];
    out[..8].copy_from_slice(&replica.log.0.to_le_bytes());
    out[8..].copy_from_slice(&replica.segment_id.to_le_bytes());
    out
}
