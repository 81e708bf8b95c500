//! The performance counters of a server, as control operation GET_PERF_STATS gives them.

use super::*;

/// Counters since the start of a server. What one that this build keeps does not measure is 0.
///
/// On the wire it is what a C++ compiler on x86-64 makes of a struct: 416 bytes, little-endian, in natural alignment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PerfStats {
    pub thread_id: u32,
    /// When this was collected, in cycles of [`Self::cycles_per_second`] since some start.
    pub collection_time: u64,
    pub cycles_per_second: f64,
    pub read_count: u64,
    pub read_object_bytes: u64,
    pub read_key_bytes: u64,
    pub write_count: u64,
    pub write_object_bytes: u64,
    pub write_key_bytes: u64,
    /// Time spent with requests, as opposed to waiting for them.
    pub dispatch_active_cycles: u64,
    pub worker_active_cycles: u64,
    pub log_bytes_appended: u64,
    /// Time in which an answer waited for backups.
    pub log_sync_cycles: u64,
    pub cleaner_input_memory_bytes: u64,
    pub cleaner_survivor_bytes: u64,
    pub cleaner_active_cycles: u64,
    pub network_input_bytes: u64,
    pub network_output_bytes: u64,
    pub log_size_bytes: u64,
    pub log_used_bytes: u64,
    pub log_free_bytes: u64,
    pub log_live_bytes: u64,
    pub log_max_live_bytes: u64,
    pub log_appendable_bytes: u64,
}

impl PerfStats {
    pub const BYTES: usize = 416;

    /// Every 8-byte field that this build knows, with its offset.
    fn fields(&self) -> [(usize, u64); 23] {
        [
            (8, self.collection_time),
            (16, self.cycles_per_second.to_bits()),
            (24, self.read_count),
            (32, self.read_object_bytes),
            (40, self.read_key_bytes),
            (48, self.write_count),
            (56, self.write_object_bytes),
            (64, self.write_key_bytes),
            (72, self.dispatch_active_cycles),
            (80, self.worker_active_cycles),
            (144, self.log_bytes_appended),
            (160, self.log_sync_cycles),
            (200, self.cleaner_input_memory_bytes),
            (216, self.cleaner_survivor_bytes),
            (224, self.cleaner_active_cycles),
            (304, self.network_input_bytes),
            (312, self.network_output_bytes),
            (320, self.log_size_bytes),
            (328, self.log_used_bytes),
            (336, self.log_free_bytes),
            (344, self.log_live_bytes),
            (352, self.log_max_live_bytes),
            (360, self.log_appendable_bytes),
        ]
    }

    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.thread_id.to_le_bytes());
        for (at, value) in self.fields() {
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    /// Reads the output of the control operation; [`Status::ResponseFormatError`] if it has another length.
    pub fn decode(bytes: &[u8]) -> Result<PerfStats, Status> {
        let bytes: &[u8; Self::BYTES] =
            bytes.try_into().map_err(|_| Status::ResponseFormatError)?;
        let (head, words) = bytes.split_at(8);
        let words = words.as_chunks::<8>().0;
        let word = |at: usize| u64::from_le_bytes(words[at / 8 - 1]);
        Ok(PerfStats {
            thread_id: u32::from_le_bytes([head[0], head[1], head[2], head[3]]),
            collection_time: word(8),
            cycles_per_second: f64::from_bits(word(16)),
            read_count: word(24),
            read_object_bytes: word(32),
            read_key_bytes: word(40),
            write_count: word(48),
            write_object_bytes: word(56),
            write_key_bytes: word(64),
            dispatch_active_cycles: word(72),
            worker_active_cycles: word(80),
            log_bytes_appended: word(144),
            log_sync_cycles: word(160),
            cleaner_input_memory_bytes: word(200),
            cleaner_survivor_bytes: word(216),
            cleaner_active_cycles: word(224),
            network_input_bytes: word(304),
            network_output_bytes: word(312),
            log_size_bytes: word(320),
            log_used_bytes: word(328),
            log_free_bytes: word(336),
            log_live_bytes: word(344),
            log_max_live_bytes: word(352),
            log_appendable_bytes: word(360),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_comes_back_from_where_it_lies() {
        let mut bytes = [0; PerfStats::BYTES];
        for (number, word) in bytes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *word = (number as u64).to_le_bytes();
        }
        let stats = PerfStats::decode(&bytes).unwrap();
        assert_eq!((stats.collection_time, stats.read_count), (1, 3));
        assert_eq!(
            (stats.network_input_bytes, stats.log_appendable_bytes),
            (38, 45)
        );
        let again = stats.to_bytes();
        for (at, value) in stats.fields() {
            assert_eq!(value, at as u64 / 8);
            assert_eq!(again[at..at + 8], bytes[at..at + 8]);
        }
        assert_eq!(PerfStats::decode(&again), Ok(stats));
        assert_eq!(
            PerfStats::decode(&bytes[1..]),
            Err(Status::ResponseFormatError)
        );
    }
}
