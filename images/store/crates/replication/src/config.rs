//! What is wanted of a replicator.

use base::ids::ServerId;
use wire::peer::MAX_APPEND_BYTES;

/// What is wanted of a replicator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The server that writes the log.
    pub log: ServerId,
    /// Its machine, which gets no replica.
    pub host: String,
    /// Of the log: a backup with smaller frames gets no replica.
    pub segment_bytes: u32,
    /// Replicas of each segment.
    pub replicas: usize,
    /// With fewer nothing counts as durable.
    pub min_replicas: usize,
    /// Copies of closed segments go out in pieces of this size, so that what somebody waits for is not stuck behind them.
    pub copy_bytes: u32,
    /// Replicas that were lost are made again at this rate, averaged over some milliseconds; at least 1.
    pub repair_bytes_per_second: u64,
    /// For scattering replicas.
    pub seed: u64,
}

/// Data under way to one backup at most, and data under way that nobody waits for: copies of side segments, and replicas that are made again.
const WINDOW_BYTES: u32 = 4 << 20;

// Smaller for small segments, so that simulated stores meet these limits as real ones do.
impl Config {
    pub(crate) fn window_bytes(&self) -> u32 {
        WINDOW_BYTES.min(self.segment_bytes)
    }

    /// Of a head's data in one request, at most: no less than the longest atomic append, which is never cut.
    pub(crate) fn append_bytes(&self) -> u32 {
        (self.segment_bytes / 8 * 5).min(MAX_APPEND_BYTES as u32)
    }
}
