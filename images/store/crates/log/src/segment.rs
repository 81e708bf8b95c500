//! Segments: the pieces of fixed size that a log is made of, and what is counted about each.

use base::map::Map;
use wire::format::FIRST_FORMAT;

use crate::position::LogPosition;

/// Bytes of the entry that opens a segment.
pub(crate) const SEGMENT_HEADER_BYTES: u32 = 56;

/// What a segment is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Free,
    /// Takes new entries.
    Head,
    /// Takes entries that the cleaner keeps.
    Survivor,
    /// Full.
    Closed,
    /// The cleaner is copying out of it.
    Victim,
}

/// One segment. `number` of a segment is its place in memory, used again and again; its id never is.
#[derive(Debug)]
pub(crate) struct Segment {
    pub state: State,
    pub id: u64,
    /// The store's when it was opened, and so that of what is written to it. Copies keep the format that they have.
    pub format: u32,
    /// It is closed, and so are all replicas that it shall have.
    pub settled: bool,
    /// It was closed before it was full; see [`crate::ends`].
    pub closed_early: bool,
    /// Somebody still reads it; see [`crate::Log::pin_heads`].
    pub is_pinned: bool,
    /// How often something of it is lent; see [`crate::Log::lend`].
    pub loans: u32,
    /// It is wanted back, and lent no more.
    pub is_recalled: bool,
    /// Bytes of entries, segment header included.
    pub used_bytes: u32,
    /// Bytes of entries that are needed, segment header excluded; exact at all times.
    pub live_bytes: u32,
    /// The part of `live_bytes` that is tombstones.
    pub tombstone_bytes: u32,
    /// The part of that which is needed only because of other logs; see [`crate::Log::begin_copies`].
    pub kept_bytes: u32,
    /// Position of the log at this segment's first byte, for one that was a head; `None` for survivors, whose entries were
    /// durable where they came from.
    pub start: Option<LogPosition>,
    /// Sum over all entries of bytes times the log position at which they were new: the age of what is in here.
    pub birth_sum: u128,
    /// Live tombstones of objects that died in this segment, by the number of the segment that holds them, in bytes. They
    /// die when this segment goes.
    pub graves: Map<u32, u32>,
}

impl Segment {
    pub fn free() -> Segment {
        Segment {
            state: State::Free,
            id: 0,
            format: FIRST_FORMAT,
            settled: false,
            closed_early: false,
            is_pinned: false,
            loans: 0,
            is_recalled: false,
            used_bytes: 0,
            live_bytes: 0,
            tombstone_bytes: 0,
            kept_bytes: 0,
            start: None,
            birth_sum: 0,
            graves: Map::default(),
        }
    }

    /// Position of the log behind the entry that ends at `offset` in this segment.
    pub fn position_at(&self, offset: u32) -> LogPosition {
        match self.start {
            Some(start) => LogPosition(start.0 + u64::from(offset)),
            None => LogPosition::START,
        }
    }

    /// Log position at which the entries here were new, on average.
    pub fn mean_birth(&self) -> LogPosition {
        LogPosition((self.birth_sum / u128::from(self.used_bytes.max(1))) as u64)
    }

    /// Bytes that cleaning this segment would gain: the header of a survivor takes what its own header gives.
    pub fn dead_bytes(&self) -> u32 {
        self.used_bytes - self.live_bytes - SEGMENT_HEADER_BYTES
    }
}
