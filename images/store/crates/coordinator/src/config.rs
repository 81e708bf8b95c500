//! What a coordinator is created with.

use core::time::Duration;

use wire::format::Formats;

use crate::balancing::Balancing;

/// What a coordinator is created with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Random; names this store.
    pub cluster_id: u64,
    /// Upper half of table ids and of client lease ids, so that those of another store are never mistaken for this one's.
    pub cluster_tag: u32,
    pub build_version: String,
    /// How often shards are pinged.
    pub ping_interval: Duration,
    /// A connection on which nothing was heard for this long counts as gone. Whole milliseconds.
    pub silence_timeout: Duration,
    /// A server with replicas that is silent for half of this is suspected to be dead. Then others have this long to reach it.
    pub death_timeout: Duration,
    /// How long the answer to a control operation waits for shards.
    pub control_timeout: Duration,
    /// Serve requests that are for tests and do harm elsewhere: KILL.
    pub allow_test_rpcs: bool,
    /// Cluster time is noted so far ahead: a restart may leave out so much of it. Longer where it takes longer to note something.
    pub time_ahead: Duration,
    pub balancing: Balancing,
    pub limits: Limits,
    /// What this build reads. A new store is of the newest.
    pub formats: Formats,
}

impl Config {
    pub fn new(cluster_id: u64, cluster_tag: u32, build_version: impl Into<String>) -> Config {
        Config {
            cluster_id,
            cluster_tag,
            build_version: build_version.into(),
            ping_interval: Duration::from_millis(200),
            silence_timeout: Duration::from_secs(3),
            death_timeout: Duration::from_secs(1),
            control_timeout: Duration::from_secs(1),
            allow_test_rpcs: false,
            time_ahead: Duration::from_secs(60),
            balancing: Balancing::default(),
            limits: Limits::default(),
            formats: Formats::CURRENT,
        }
    }
}

/// What bounds the coordinator's memory. Beyond a limit requests are refused, or told to come again.
#[derive(Clone, Debug)]
pub struct Limits {
    pub max_members: usize,
    pub max_shards_per_member: u32,
    /// Removed members that are remembered, so that they are never let in again.
    pub max_removed: usize,
    pub max_tables: usize,
    pub max_tablets: usize,
    /// Keeps a table's config within one RPC.
    pub max_tablets_per_table: usize,
    pub max_span: u32,
    /// Parts into which an order may split a table: each new boundary is a message to a server.
    pub max_parts: u32,
    pub max_table_name_bytes: usize,
    pub max_client_leases: usize,
    /// Replies that wait for shards.
    pub max_pending_replies: usize,
    /// Control operations under way.
    pub max_pending_controls: usize,
    /// Of all of them together: inputs, which are copied for every shard, and what shards have answered.
    pub max_control_bytes: usize,
    /// Input of a control operation.
    pub max_control_input_bytes: usize,
    /// Losses that are remembered.
    pub max_losses: usize,
    /// Names of tables that a loss, or a refused removal, lists.
    pub max_names_listed: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_members: 1024,
            max_shards_per_member: 64,
            max_removed: 100_000,
            max_tables: 20_000,
            max_tablets: 100_000,
            max_tablets_per_table: 16_384,
            max_span: 1024,
            max_parts: 4096,
            max_table_name_bytes: 1024,
            max_client_leases: 1_000_000,
            max_pending_replies: 4096,
            max_pending_controls: 64,
            max_control_bytes: 16 << 20,
            max_control_input_bytes: 64 << 10,
            max_losses: 100,
            max_names_listed: 16,
        }
    }
}
