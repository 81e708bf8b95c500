//! Protobuf messages that clients parse. They are proto2 with required fields: those are written even when they are zero,
//! or RAMCloud's clients refuse the message.

use prost::Message;

use crate::cost::{Costed, Field};

/// The tablets of a table, in GET_TABLE_CONFIG.
#[derive(Clone, PartialEq, Message)]
pub struct TableConfig {
    #[prost(message, repeated, tag = "1")]
    pub tablet: Vec<Tablet>,
}

impl Costed for TableConfig {
    const FIELDS: &'static [Field] = &[Field::many::<Tablet>(1, &[])];
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

impl Costed for ServerList {
    const FIELDS: &'static [Field] = &[Field::many::<ServerListEntry>(1, &[])];
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

/// Where an enumeration is; opaque to clients, which hand it back as it came. The fields are RAMCloud's, and so is what they
/// say, but for this: a server's hash table goes by the low 32 bits of key hashes, in their order, whatever its size, so that
/// every table counts as one of 2^32 buckets.
#[derive(Clone, PartialEq, Message)]
pub struct EnumerationIterator {
    /// Ranges that are not finished, none overlapping another, in order.
    #[prost(message, repeated, tag = "1")]
    pub frames: Vec<EnumerationFrame>,
}

impl Costed for EnumerationIterator {
    const FIELDS: &'static [Field] = &[Field::many::<EnumerationFrame>(1, &[])];
}

/// How far the enumeration came in a range of key hashes.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct EnumerationFrame {
    #[prost(uint64, required, tag = "1")]
    pub tablet_start_hash: u64,
    #[prost(uint64, required, tag = "2")]
    pub tablet_end_hash: u64,
    #[prost(uint64, required, tag = "3")]
    pub num_buckets: u64,
    /// The first bucket that is not finished.
    #[prost(uint64, required, tag = "4")]
    pub bucket_index: u64,
    /// In that bucket, objects with smaller hashes are finished.
    #[prost(uint64, required, tag = "5")]
    pub bucket_next_hash: u64,
    /// Of objects with this very hash, those with smaller keys are finished. RAMCloud has no such field.
    #[prost(bytes = "vec", optional, tag = "6")]
    pub bucket_next_key: Option<Vec<u8>>,
}

/// Names and numbers, in GET_METRICS.
#[derive(Clone, PartialEq, Message)]
pub struct MetricList {
    #[prost(message, repeated, tag = "1")]
    pub metric: Vec<Metric>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Metric {
    #[prost(string, required, tag = "1")]
    pub name: String,
    #[prost(uint64, required, tag = "2")]
    pub value: u64,
}

/// What a master's tablets were used for, in GET_SERVER_STATISTICS.
#[derive(Clone, PartialEq, Message)]
pub struct ServerStatistics {
    #[prost(message, repeated, tag = "1")]
    pub tabletentry: Vec<TabletStatistics>,
    #[prost(message, required, tag = "2")]
    pub spin_lock_stats: SpinLockStatistics,
}

#[derive(Clone, PartialEq, Message)]
pub struct TabletStatistics {
    #[prost(uint64, required, tag = "1")]
    pub table_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub start_key_hash: u64,
    #[prost(uint64, required, tag = "3")]
    pub end_key_hash: u64,
    #[prost(uint64, optional, tag = "4")]
    pub number_read_and_writes: Option<u64>,
}

/// Always empty: a shard has no lock.
#[derive(Clone, PartialEq, Message)]
pub struct SpinLockStatistics {}

/// How a server was started, in GET_SERVER_CONFIG.
#[derive(Clone, PartialEq, Message)]
pub struct ServerConfig {
    #[prost(string, required, tag = "1")]
    pub coordinator_locator: String,
    #[prost(string, required, tag = "2")]
    pub local_locator: String,
    #[prost(string, required, tag = "3")]
    pub cluster_name: String,
    #[prost(string, required, tag = "4")]
    pub services: String,
    #[prost(bool, required, tag = "5")]
    pub detect_failures: bool,
    #[prost(bool, required, tag = "6")]
    pub pin_memory: bool,
    #[prost(fixed32, required, tag = "7")]
    pub segment_size: u32,
    #[prost(fixed32, required, tag = "8")]
    pub seglet_size: u32,
    #[prost(fixed32, required, tag = "9")]
    pub max_object_data_size: u32,
    #[prost(fixed32, required, tag = "10")]
    pub max_object_key_size: u32,
    #[prost(fixed32, required, tag = "11")]
    pub max_cores: u32,
    #[prost(message, optional, tag = "12")]
    pub master: Option<MasterConfig>,
}

#[derive(Clone, PartialEq, Message)]
pub struct MasterConfig {
    #[prost(fixed64, required, tag = "1")]
    pub log_bytes: u64,
    #[prost(fixed64, required, tag = "2")]
    pub hash_table_bytes: u64,
    #[prost(bool, required, tag = "3")]
    pub disable_log_cleaner: bool,
    #[prost(bool, required, tag = "4")]
    pub disable_in_memory_cleaning: bool,
    #[prost(double, required, tag = "5")]
    pub backup_disk_expansion_factor: f64,
    #[prost(fixed32, required, tag = "6")]
    pub cleaner_write_cost_threshold: u32,
    #[prost(string, required, tag = "7")]
    pub cleaner_balancer: String,
    #[prost(fixed32, required, tag = "8")]
    pub cleaner_thread_count: u32,
    #[prost(fixed32, required, tag = "9")]
    pub num_replicas: u32,
    #[prost(bool, required, tag = "10")]
    pub use_hugepages: bool,
    #[prost(bool, required, tag = "11")]
    pub use_mincopysets: bool,
    #[prost(bool, required, tag = "12")]
    pub use_local_backup: bool,
    #[prost(bool, required, tag = "13")]
    pub use_plusonebackup: bool,
}

/// What happened in a master's log, in GET_LOG_METRICS. The parts about cleaner, seglets and segments are left out.
#[derive(Clone, PartialEq, Message)]
pub struct LogMetrics {
    #[prost(double, required, tag = "1")]
    pub ticks_per_second: f64,
    #[prost(fixed64, required, tag = "2")]
    pub total_sync_calls: u64,
    #[prost(fixed64, required, tag = "3")]
    pub total_sync_ticks: u64,
    #[prost(fixed64, required, tag = "4")]
    pub total_append_calls: u64,
    #[prost(fixed64, required, tag = "5")]
    pub total_append_ticks: u64,
    #[prost(fixed64, required, tag = "6")]
    pub total_no_space_ticks: u64,
    #[prost(fixed64, required, tag = "7")]
    pub total_bytes_appended: u64,
    #[prost(fixed64, required, tag = "8")]
    pub total_metadata_bytes_appended: u64,
}
