//! What a shard counts.

/// Counters since the start of the process, and gauges of now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    // Counters.
    pub reads: u64,
    /// Writes that took effect, parts of multi-ops included.
    pub writes: u64,
    pub removes: u64,
    pub increments: u64,
    /// Objects that enumerations returned.
    pub enumerated: u64,
    /// Bytes of values that were read.
    pub read_bytes: u64,
    /// Bytes of the keys that they were asked for by.
    pub read_key_bytes: u64,
    /// Bytes of keys and values that were written.
    pub written_bytes: u64,
    /// Of these, bytes of values.
    pub written_value_bytes: u64,
    pub multi_ops: u64,
    /// Requests of which the client had the answer, or was about to: they were not executed again.
    pub duplicates: u64,
    /// Requests, or parts of one, that were told to come again.
    pub retries: u64,
    /// Requests refused for want of memory.
    pub rejected_full: u64,
    pub segments_cleaned: u64,
    pub cleaner_scanned_bytes: u64,
    pub cleaner_survivor_bytes: u64,
    // Gauges.
    pub objects: u64,
    pub tablets: u64,
    /// Clients whose leases and results are remembered.
    pub clients: u64,
    pub rpc_results: u64,
    pub held_replies: u64,
    pub log_capacity_bytes: u64,
    pub log_live_bytes: u64,
    pub log_tombstone_bytes: u64,
    /// What live data may take before writes are refused.
    pub log_max_live_bytes: u64,
    pub log_free_bytes: u64,
}
