//! The state of the cleaner: the segment that it is at, whether it goes round in circles, and its counters.

use crate::position::LogPosition;

/// A victim must free at least one part in this many of a segment, or cleaning would go round in circles.
pub(crate) const MIN_GAIN_DIVISOR: u32 = 128;

/// Counters, from the start of the log on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanerStats {
    pub segments_cleaned: u64,
    /// Bytes of entries in the segments that were cleaned.
    pub scanned_bytes: u64,
    /// Bytes of entries that were copied because they were live.
    pub survivor_bytes: u64,
}

#[derive(Default)]
pub(crate) struct Cleaner {
    pub victim: Option<Victim>,
    pub round: Round,
    /// It runs while no more of the segments than this is free; `None`: one in 64.
    pub free_percent: Option<u32>,
    /// None of the segments that were closed early can be cleaned now.
    pub ends_wait: bool,
    pub stats: CleanerStats,
}

/// Notices when cleaning goes round in circles: a log that is nearly full may never have as many free segments as the
/// cleaner would like, and what is dead may only be ends of segments that the next copy leaves unused again.
#[derive(Clone, Copy, Default)]
pub(crate) struct Round {
    /// Segments cleaned since their number grew that are free, or will be.
    pub fruitless: u32,
    pub most_free: usize,
    /// Nothing is begun before [`crate::Log::change_bytes`] has come so far.
    pub rest_until: u64,
}

impl Cleaner {
    pub fn is_idle(&self) -> bool {
        self.victim.is_none()
    }

    /// There is a reason to begin again.
    pub fn wake(&mut self) {
        self.round = Round::default();
    }

    /// Nothing is cleaned for want of free segments before [`crate::Log::change_bytes`] has come so far.
    pub fn rest(&mut self, rest_until: u64) {
        self.round = Round {
            rest_until,
            ..Round::default()
        };
    }
}

/// The segment that is being cleaned.
#[derive(Clone, Copy)]
pub(crate) struct Victim {
    pub number: u32,
    /// Entries before this offset have been dealt with.
    pub offset: u32,
    pub birth: LogPosition,
    /// The side segment to which its last entry went.
    pub last_side_id: u64,
}
