//! Recovery of a log: docs/recovery.md.

use prost::Message;

use super::tablets::TabletRange;

/// Answers [`FenceLog`], and follows every further one: what this shard's backup holds of a log. Its master is refused from now on.
#[derive(Clone, PartialEq, Message)]
pub struct LogInventory {
    #[prost(fixed64, tag = "1")]
    pub log: u64,
    #[prost(message, repeated, tag = "2")]
    pub replicas: Vec<ReplicaFound>,
}

/// A replica that a backup holds.
#[derive(Clone, PartialEq, Message)]
pub struct ReplicaFound {
    #[prost(uint64, tag = "1")]
    pub segment_id: u64,
    /// Of a side segment, or a copy made later: says nothing about the head.
    #[prost(bool, tag = "2")]
    pub is_side: bool,
    #[prost(bool, tag = "3")]
    pub is_open: bool,
    #[prost(uint32, tag = "4")]
    pub bytes: u32,
    /// CRC32C over all of them.
    #[prost(fixed32, tag = "5")]
    pub crc: u32,
    /// Why it cannot be read, for people; empty if it can.
    #[prost(string, tag = "6")]
    pub damage: String,
    /// The last digest in an open head; a head always starts with one.
    #[prost(uint64, repeated, tag = "7")]
    pub digest: Vec<u64>,
}

/// Answers [`Recover`]: the tablets are replayed, or cannot be.
#[derive(Clone, PartialEq, Message)]
pub struct Recovered {
    #[prost(uint64, tag = "1")]
    pub recovery_id: u64,
    /// What this server's own log holds of the tablets lies in this segment and later ones.
    #[prost(uint64, tag = "2")]
    pub from_segment: u64,
    /// Why not, for people; empty if all went well.
    #[prost(string, tag = "3")]
    pub failure: String,
    /// Another server may manage, for this one has no memory left.
    #[prost(bool, tag = "4")]
    pub is_full: bool,
    /// Of entries, as they were read from backups.
    #[prost(uint64, tag = "5")]
    pub bytes: u64,
    #[prost(uint64, tag = "6")]
    pub objects: u64,
    #[prost(uint64, tag = "7")]
    pub replay_ns: u64,
}

/// In [`super::shard::Kind::RecoveryDurable`]: what was replayed is on this log's own backups. In the coordinator's messages: see there.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct RecoveryId {
    #[prost(uint64, tag = "1")]
    pub recovery_id: u64,
}

/// Refuse this log's master for ever, and say what is here of it once no promise to it is left; see [`LogInventory`].
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Log {
    #[prost(fixed64, tag = "1")]
    pub log: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Logs {
    #[prost(fixed64, repeated, tag = "1")]
    pub logs: Vec<u64>,
}

/// Bring tablets back: replay the entries of theirs that are in these segments, whatever the order, and answer with [`Recovered`]. They are served
/// after [`super::coordinator::Kind::CommitRecovery`].
#[derive(Clone, PartialEq, Message)]
pub struct Recover {
    #[prost(uint64, tag = "1")]
    pub recovery_id: u64,
    #[prost(message, repeated, tag = "2")]
    pub tablets: Vec<TabletRange>,
    #[prost(message, repeated, tag = "3")]
    pub segments: Vec<SegmentSource>,
    /// Whatever is written to this shard from now on, new or over what is there, gets this version at least; 0: nothing special. Parts of logs were
    /// given up, and versions in them that nobody can read any more must not be used again.
    #[prost(uint64, tag = "4")]
    pub version_floor: u64,
}

/// A segment, and who has it.
#[derive(Clone, PartialEq, Message)]
pub struct SegmentSource {
    #[prost(fixed64, tag = "1")]
    pub log: u64,
    #[prost(uint64, tag = "2")]
    pub segment_id: u64,
    /// Server ids of backups with a replica of this length.
    #[prost(fixed64, repeated, tag = "3")]
    pub backups: Vec<u64>,
    #[prost(uint32, tag = "4")]
    pub bytes: u32,
}
