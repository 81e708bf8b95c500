//! Size and promise of a log, and what follows from them: memory that stays free, frames, and the length of digests.

use base::ids::ServerId;
use core::fmt;
use wire::entry::Digest;

use crate::segment::SEGMENT_HEADER_BYTES;

/// Segments that stay free for the cleaner: with one it can copy the live part of any victim, and then has that victim.
pub(crate) const CLEANER_RESERVE: usize = 1;
/// Segments that stay free for removals: they add tombstones before anything gets free.
pub(crate) const REMOVE_RESERVE: usize = 1;
/// Segments of a log with replicas that stay free for a head in place of one that has lost a replica: until there is another head its predecessors
/// cannot be closed everywhere, and nothing gets free.
const HEAD_RESERVE: usize = 1;
/// Segments that never hold data that may stay, beside the reserves: the open head and survivor segments, which may be empty.
pub(crate) const OPEN_SEGMENTS: usize = 2;

/// Size and promise of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// A power of two from 4 KiB to 8 MiB.
    pub segment_bytes: u32,
    /// At least [`Config::MIN_SEGMENTS`].
    pub segment_count: u32,
    pub durability: Durability,
}

/// When an entry counts as durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// As soon as it is in memory: nothing survives a crash anyway.
    Unreplicated,
    /// When [`crate::Log::advance_durable`] says so. The log writes digests, tells what its replicas must follow ([`crate::Log::take_change`]), and
    /// cleans only what [`crate::Log::settle`] was told of.
    External,
}

/// Why a log cannot be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(String);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for ConfigError {}

impl Config {
    pub const MIN_SEGMENTS: u32 = 8;

    pub(crate) fn head_reserve(&self) -> usize {
        match self.durability {
            Durability::Unreplicated => 0,
            Durability::External => HEAD_RESERVE,
        }
    }

    const SEGMENT_BYTES: core::ops::RangeInclusive<u32> = 4 << 10..=8 << 20;

    pub fn check(&self) -> Result<(), ConfigError> {
        let size = self.segment_bytes;
        if !size.is_power_of_two() || !Self::SEGMENT_BYTES.contains(&size) {
            return Err(ConfigError(format!(
                "a segment has {size} bytes; give a power of two from 4096 to 8388608"
            )));
        }
        let header_and_digests = SEGMENT_HEADER_BYTES as usize + 2 * self.max_digest_bytes();
        if header_and_digests + self.max_append_bytes() > size as usize {
            return Err(ConfigError(format!(
                "segments of {size} bytes are too small for the digest of {}: give larger segments",
                self.segment_count
            )));
        }
        if self.segment_count < Self::MIN_SEGMENTS {
            return Err(ConfigError(format!(
                "the log has room for {} segments of {size} bytes; it needs {}: give more memory or smaller segments",
                self.segment_count,
                Self::MIN_SEGMENTS
            )));
        }
        Ok(())
    }

    /// What a log takes.
    pub fn memory_bytes(&self) -> usize {
        self.segment_bytes as usize * self.segment_count as usize
    }

    /// Bytes of entries that one atomic append may take: segments can then be filled to three eighths at the very least.
    pub fn max_append_bytes(&self) -> usize {
        self.segment_bytes as usize / 8 * 5
    }

    /// Segments whose replicas exist at one time, at most: those in memory, and cleaned ones until a digest leaves them out.
    pub fn max_frames(&self) -> u32 {
        self.segment_count + self.max_held()
    }

    /// The cleaner pauses when so many cleaned segments wait for a digest.
    pub(crate) fn max_held(&self) -> u32 {
        self.segment_count / 2 + 2
    }

    /// A digest that names everything that can exist.
    pub(crate) fn max_digest_bytes(&self) -> usize {
        match self.durability {
            Durability::Unreplicated => 0,
            Durability::External => Digest::entry_bytes_of(self.max_frames() as usize),
        }
    }
}

/// Whose log it is; written into every segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    pub cluster_id: u64,
    pub server_id: ServerId,
}
