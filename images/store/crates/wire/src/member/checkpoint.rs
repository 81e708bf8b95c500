//! The coordinator's state in volumes of backups: docs/rebuild.md.

use prost::Message;

/// Longest checkpoint that is kept or taken: the state of a hundred thousand tablets takes a tenth of it.
pub const MAX_CHECKPOINT_BYTES: u64 = 256 << 20;

/// Keep this copy of the coordinator's state in place of the one before; a part of it. Parts come in order, each when the one before is answered.
#[derive(Clone, PartialEq, Message)]
pub struct KeepCheckpoint {
    /// Counts the checkpoints of one leader.
    #[prost(uint64, tag = "1")]
    pub number: u64,
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    /// Of the whole.
    #[prost(uint64, tag = "3")]
    pub total_bytes: u64,
    #[prost(bytes = "vec", tag = "4")]
    pub data: Vec<u8>,
}

/// What has become of a [`KeepCheckpoint`].
#[derive(Clone, PartialEq, Message)]
pub struct CheckpointKept {
    #[prost(uint64, tag = "1")]
    pub number: u64,
    /// So many bytes of it are here.
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
    /// All of it is in the volume, as safe as the durability of the backup makes everything.
    #[prost(bool, tag = "3")]
    pub is_kept: bool,
    /// Why it is not kept, for people; empty if all is well. The one before is still there.
    #[prost(string, tag = "4")]
    pub failure: String,
}

/// Answered by [`CheckpointPart`].
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ReadCheckpoint {
    #[prost(uint64, tag = "1")]
    pub offset: u64,
    /// At most; less comes at the end.
    #[prost(uint32, tag = "2")]
    pub bytes: u32,
}

/// A piece of the newest whole checkpoint in a volume.
#[derive(Clone, PartialEq, Message)]
pub struct CheckpointPart {
    /// Of the volume; 0: it belongs to no store.
    #[prost(fixed64, tag = "1")]
    pub cluster_id: u64,
    /// Of the whole; 0: there is none.
    #[prost(uint64, tag = "2")]
    pub total_bytes: u64,
    #[prost(uint64, tag = "3")]
    pub offset: u64,
    #[prost(bytes = "vec", tag = "4")]
    pub data: Vec<u8>,
}
