//! Tablets: what a shard is told to do with them, and what it says of them.

use prost::Message;

/// What a tablet has, as the shard estimates it, and how often keys in it were asked for since the shard took it.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct TabletLoad {
    #[prost(message, required, tag = "1")]
    pub tablet: TabletRange,
    /// Of its objects' entries in the log.
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
    #[prost(uint64, tag = "3")]
    pub objects: u64,
    #[prost(uint64, tag = "4")]
    pub uses: u64,
}

/// The tablet order with this sequence number is carried out.
#[derive(Clone, PartialEq, Message)]
pub struct TabletDone {
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
}

/// A closed range of key hashes of a table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Message)]
pub struct TabletRange {
    #[prost(uint64, tag = "1")]
    pub table_id: u64,
    #[prost(fixed64, tag = "2")]
    pub start_key_hash: u64,
    #[prost(fixed64, tag = "3")]
    pub end_key_hash: u64,
}

/// Take (empty) or drop (with its objects) a tablet. Sequence numbers grow over one session.
#[derive(Clone, PartialEq, Message)]
pub struct TabletOrder {
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    #[prost(message, required, tag = "2")]
    pub tablet: TabletRange,
}

/// Make two tablets of the one that holds `key_hash`, which becomes the first of the second; answered by [`TabletDone`].
#[derive(Clone, PartialEq, Message)]
pub struct TabletSplit {
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    #[prost(uint64, tag = "2")]
    pub table_id: u64,
    #[prost(fixed64, tag = "3")]
    pub key_hash: u64,
}

/// Make one tablet of those that are exactly this range together; answered by [`TabletDone`].
#[derive(Clone, Copy, PartialEq, Message)]
pub struct TabletMerge {
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    #[prost(message, required, tag = "2")]
    pub tablet: TabletRange,
}
