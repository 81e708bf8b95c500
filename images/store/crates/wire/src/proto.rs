//! Protobuf messages that clients parse. They are proto2 with required fields: those are written even when they are zero,
//! or RAMCloud's clients refuse the message.

use prost::Message;

/// The tablets of a table, in GET_TABLE_CONFIG.
#[derive(Clone, PartialEq, Message)]
pub struct TableConfig {
    #[prost(message, repeated, tag = "1")]
    pub tablet: Vec<Tablet>,
}

/// A closed range of key hashes of a table, and who owns it.
#[derive(Clone, PartialEq, Message)]
pub struct Tablet {
    #[prost(uint64, required, tag = "1")]
    pub table_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub start_key_hash: u64,
    #[prost(uint64, required, tag = "3")]
    pub end_key_hash: u64,
    #[prost(enumeration = "TabletState", required, tag = "4")]
    pub state: i32,
    #[prost(fixed64, optional, tag = "5")]
    pub server_id: Option<u64>,
    /// Left out when the server is gone.
    #[prost(string, optional, tag = "6")]
    pub service_locator: Option<String>,
    #[prost(fixed64, optional, tag = "7")]
    pub user_data: Option<u64>,
    #[prost(uint64, required, tag = "8")]
    pub ctime_log_head_id: u64,
    #[prost(uint32, required, tag = "9")]
    pub ctime_log_head_offset: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum TabletState {
    Normal = 0,
    /// Clients ask again, not before 10 ms.
    Recovering = 1,
}

/// The servers of a cluster, in GET_SERVER_LIST.
#[derive(Clone, PartialEq, Message)]
pub struct ServerList {
    #[prost(message, repeated, tag = "1")]
    pub server: Vec<ServerListEntry>,
    #[prost(fixed64, required, tag = "2")]
    pub version_number: u64,
    /// 0: the full list; 1: an update.
    #[prost(int32, required, tag = "3")]
    pub r#type: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct ServerListEntry {
    /// Mask of [`crate::opcode::Service::bit`].
    #[prost(fixed32, required, tag = "1")]
    pub services: u32,
    #[prost(fixed64, required, tag = "2")]
    pub server_id: u64,
    #[prost(string, required, tag = "3")]
    pub service_locator: String,
    #[prost(fixed32, required, tag = "5")]
    pub expected_read_mbytes_per_sec: u32,
    /// 0 up, 1 crashed, 2 to be removed.
    #[prost(fixed32, required, tag = "6")]
    pub status: u32,
    #[prost(fixed64, required, tag = "7")]
    pub replication_id: u64,
}

/// How far an enumeration got, in ENUMERATE. Clients carry it without looking into it.
#[derive(Clone, PartialEq, Message)]
pub struct EnumerationIterator {
    /// Outermost first: each later frame covers a part of what the one before it left undone.
    #[prost(message, repeated, tag = "1")]
    pub frames: Vec<EnumerationFrame>,
}

/// How far an enumeration got under one division of a table into tablets and of a master's hash table into buckets.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct EnumerationFrame {
    #[prost(uint64, required, tag = "1")]
    pub tablet_start_hash: u64,
    #[prost(uint64, required, tag = "2")]
    pub tablet_end_hash: u64,
    #[prost(uint64, required, tag = "3")]
    pub num_buckets: u64,
    /// Objects in buckets below were returned.
    #[prost(uint64, required, tag = "4")]
    pub bucket_index: u64,
    /// Objects in the bucket at `bucket_index` whose hash is below were returned.
    #[prost(uint64, required, tag = "5")]
    pub bucket_next_hash: u64,
}
