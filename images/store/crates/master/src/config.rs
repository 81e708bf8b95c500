//! What a shard is told when it is made.

use log::Durability;
use wire::format::Formats;
use wire::member::Settings;

/// Memory of one slot of what is remembered of clients.
pub(crate) const RESULT_SLOT_BYTES: usize = 24;

/// Sizes and promises of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Size of a log segment; a power of two.
    pub segment_bytes: u32,
    /// Memory for the log; rounded down to whole segments, of which it needs 8.
    pub log_bytes: usize,
    pub hash_table_bytes: usize,
    pub durability: Durability,
    /// How the log is replicated, with [`Durability::External`]. `None`: somebody else says what is durable.
    pub replication: Option<Replication>,
    /// Clients whose RPC results are remembered; others are told to retry.
    pub max_clients: usize,
    /// RPC results that are remembered of all clients together, in slots of 24 bytes; a client that would need more is told
    /// to retry.
    pub max_result_slots: usize,
    /// Replies that wait until what they show is durable; further requests are told to retry.
    pub max_held_replies: usize,
    /// Slots of the hash table that one ENUMERATE looks at, about: each may be a cache miss.
    pub enumerated_slots: usize,
    /// An answer to ENUMERATE ends when it has so many bytes of objects; one object may make it longer.
    pub enumerated_bytes: usize,
    /// A piece of a tablet that moves to another shard ends when it has so many bytes of entries, or when so many were looked at in the log.
    pub migrated_bytes: usize,
    /// Values that are so long are lent to a driver that can send them from where they lie. Copying less costs less than a loan.
    pub lend_bytes: usize,
    /// Serve KILL and FILL_WITH_TEST_DATA.
    pub allow_test_rpcs: bool,
    /// What this build reads.
    pub formats: Formats,
}

/// Copies of a log on backups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replication {
    /// Replicas of each segment.
    pub replicas: u8,
    /// With fewer, nothing is durable and so no write is answered.
    pub min_replicas: u8,
    /// Copies that nobody waits for go out in pieces of this size.
    pub copy_bytes: u32,
    /// Replicas that were lost are made again at this rate.
    pub repair_bytes_per_second: u64,
}

const MIB: usize = 1 << 20;
/// What servers lend; see [`Config::lend_bytes`].
const LEND_BYTES: usize = 8 << 10;
/// One part in this many of the memory is for knowing where the results of clients' RPCs are.
const RESULTS_SHARE: usize = 64;

impl Config {
    /// Largest segment; the size of choice where there is memory for enough of them.
    const MAX_SEGMENT_BYTES: usize = 8 * MIB;
    /// With smaller ones the largest objects would not fit.
    const MIN_SEGMENT_BYTES: usize = 2 * MIB;
    /// With fewer segments the reserves of the cleaner would weigh too much.
    const ENOUGH_SEGMENTS: usize = 64;

    /// Divides the memory of a shard between hash table, RPC results and log. The error says what to change.
    pub fn from_memory(total_bytes: usize, hash_table_percent: u32) -> Result<Config, String> {
        if !(1..=90).contains(&hash_table_percent) {
            return Err(format!(
                "the hash table cannot take {hash_table_percent}% of the memory; give 1 to 90 (10 fits objects of 100 bytes)"
            ));
        }
        let hash_table_bytes = total_bytes / 100 * hash_table_percent as usize;
        let results_bytes = total_bytes / RESULTS_SHARE;
        let log_bytes = total_bytes - hash_table_bytes - results_bytes;
        let mut segment_bytes = Self::MAX_SEGMENT_BYTES;
        while log_bytes / segment_bytes < Self::ENOUGH_SEGMENTS
            && segment_bytes > Self::MIN_SEGMENT_BYTES
        {
            segment_bytes /= 2;
        }
        let min_segments = log::Config::MIN_SEGMENTS as usize;
        if log_bytes / segment_bytes < min_segments {
            return Err(format!(
                "{} MiB leave {} MiB for the log of a shard, which needs {} MiB: give it more memory or fewer shards",
                total_bytes / MIB,
                log_bytes / MIB,
                min_segments * segment_bytes / MIB
            ));
        }
        Ok(Config {
            segment_bytes: segment_bytes as u32,
            log_bytes,
            hash_table_bytes,
            durability: Durability::Unreplicated,
            replication: None,
            max_clients: 1 << 16,
            max_result_slots: results_bytes / RESULT_SLOT_BYTES,
            max_held_replies: 1 << 12,
            enumerated_slots: 1024,
            enumerated_bytes: 128 << 10,
            migrated_bytes: 64 << 10,
            lend_bytes: LEND_BYTES,
            allow_test_rpcs: false,
            formats: Formats::CURRENT,
        })
    }

    /// What the hash table takes, in words of 8 bytes.
    pub fn hash_table_words(&self) -> usize {
        log::Index::words_for(self.hash_table_bytes)
    }

    /// Of the log.
    pub fn log(&self) -> log::Config {
        let segments = self.log_bytes / self.segment_bytes.max(1) as usize;
        log::Config {
            segment_bytes: self.segment_bytes,
            segment_count: u32::try_from(segments).unwrap_or(u32::MAX),
            durability: self.durability,
        }
    }
}

/// Who a shard is, as it tells the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub member: String,
    pub instance: String,
    /// Random number of this process.
    pub process: u64,
    pub host_id: String,
    pub shard_index: u32,
    pub shard_count: u32,
    /// Service locator for clients.
    pub locator: String,
    /// Where the coordinator is, as the server was told.
    pub coordinator: String,
    pub build_version: String,
    /// Where this shard's backup listens for masters; empty if it has none.
    pub backup_locator: String,
    /// Where it listens for other servers if it has no backup; else empty.
    pub peer_locator: String,
    /// What fails together beyond the host.
    pub domain: String,
}

impl Identity {
    /// Where it listens for other servers, with a backup or without.
    pub fn peers(&self) -> &str {
        match self.backup_locator.as_str() {
            "" => &self.peer_locator,
            with_backup => with_backup,
        }
    }
}

impl Replication {
    /// As it was started with, and as people have it since.
    pub(crate) fn with(self, settings: &Settings) -> Replication {
        let small = |number: u32| u8::try_from(number).unwrap_or(u8::MAX);
        let (replicas, min_replicas) = match (settings.replicas, settings.least_replicas()) {
            (Some(replicas), Some(least)) => (small(replicas), small(least)),
            _ => (self.replicas, self.min_replicas),
        };
        let repair = settings.repair_mbps.map(|mbps| u64::from(mbps) * 1_000_000);
        Replication {
            replicas,
            min_replicas,
            repair_bytes_per_second: repair.unwrap_or(self.repair_bytes_per_second),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_divided_with_enough_segments() {
        let config = Config::from_memory(500 * MIB, 10).unwrap();
        assert_eq!(config.hash_table_bytes, 50 * MIB);
        assert_eq!(config.max_result_slots, 500 * MIB / 64 / 24);
        assert_eq!(config.log_bytes, 450 * MIB - 500 * MIB / 64);
        assert_eq!(config.segment_bytes as usize, 4 * MIB);
        assert_eq!(config.log().check(), Ok(()));
        let large = Config::from_memory(32 << 30, 10).unwrap();
        assert_eq!(large.segment_bytes as usize, 8 * MIB);
    }

    #[test]
    fn too_little_memory_says_how_much_is_needed() {
        let error = Config::from_memory(10 * MIB, 10).unwrap_err();
        assert!(error.contains("needs 16 MiB"), "{error}");
        assert!(Config::from_memory(500 * MIB, 0).is_err());
        assert!(Config::from_memory(19 * MIB, 10).is_ok());
    }

    #[test]
    fn every_segment_holds_the_largest_object() {
        let config = Config::from_memory(19 * MIB, 10).unwrap();
        let largest = wire::rpc::MAX_VALUE_BYTES + 2 * wire::rpc::MAX_KEY_BYTES + 1024;
        assert!(config.log().max_append_bytes() >= largest);
    }
}
