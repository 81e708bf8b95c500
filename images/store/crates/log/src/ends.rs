//! Unused ends of closed segments: which of them count against the room for live data, and which the cleaner brings back.
//!
//! A segment that is *full* ends where the next append did not fit: that end is the price of packing, and is lost until enough of the segment is
//! dead. A segment that was *closed early*, for another reason than its size, would have taken more: what is alive in it fits elsewhere together
//! with what is alive in others, so its end costs one more copy and no room.

use base::bugs::{Bug, is_planted};

use crate::cleaner::MIN_GAIN_DIVISOR;
use crate::config::OPEN_SEGMENTS;
use crate::log::Log;
use crate::segment::{SEGMENT_HEADER_BYTES, Segment, State};

/// Part of the usable memory that live data may take. At 100% cleaning would gain nothing; docs/cleaner.md has the sum.
const MAX_LIVE_PERCENT: u64 = 97;
/// The cleaner begins when ends of segments that were closed early are more than this part of the usable memory.
const MAX_EARLY_PERCENT: u64 = 5;

/// Why a segment takes no more entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    /// The next entries do not fit.
    Full,
    /// Its replicas, a recovery, or cleaned segments want it closed.
    Early,
}

/// What unused ends of closed segments take of the room for live data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// What live data may take in a log in which nothing is.
    pub fresh_bytes: u64,
    /// Ends of segments that were full.
    pub full_end_bytes: u64,
    /// Ends of segments that were closed early, but for those of which something is lent.
    pub early_end_bytes: u64,
    /// Of these, those that nothing keeps the cleaner from.
    pub reclaimable_bytes: u64,
    /// Segments that were closed early so far.
    pub closed_early: u64,
    /// What every head keeps free for a digest.
    pub digest_bytes: u64,
}

impl Log {
    /// Slow: for tests and simulation.
    pub fn room(&self) -> Room {
        let is_closed = |segment: &&Segment| segment.state == State::Closed;
        let closed = || self.segments.iter().filter(is_closed);
        let early = || closed().filter(|it| it.closed_early && it.loans == 0);
        let is_reclaimable = |segment: &&Segment| !segment.is_pinned && self.is_safe(segment);
        let end = |segment: &Segment| u64::from(self.config.segment_bytes - segment.used_bytes);
        let reclaimable = match self.holds_too_many() {
            true => 0,
            false => early().filter(is_reclaimable).map(end).sum(),
        };
        Room {
            fresh_bytes: self.nominal_live_bytes(),
            full_end_bytes: self.full_end_bytes,
            early_end_bytes: early().map(end).sum(),
            reclaimable_bytes: reclaimable,
            closed_early: self.closed_early,
            digest_bytes: self.config.max_digest_bytes() as u64,
        }
    }

    pub(crate) fn close(&mut self, number: u32, closing: Closing) {
        let min_gain = self.min_gain_bytes();
        let is_replicated = self.is_replicated();
        let unused = self.room_in(number) as u32;
        let segment = &mut self.segments[number as usize];
        segment.state = State::Closed;
        // Without replicas there is nothing to wait for.
        segment.settled = !is_replicated;
        let comes_back = !is_planted(Bug::EarlyEndsCostRoom);
        segment.closed_early = closing == Closing::Early && unused > min_gain && comes_back;
        let segment_id = segment.id;
        self.closed_early += u64::from(closing == Closing::Early);
        *self.ends_like(number) += u64::from(unused);
        self.look_for_ends();
        self.note_closed(segment_id);
    }

    /// A closed segment goes, and its unused end with it.
    pub(crate) fn forget_end(&mut self, number: u32) {
        let unused = self.room_in(number) as u64;
        *self.ends_like(number) -= unused;
    }

    /// The sum of ends that this segment's belongs to.
    fn ends_like(&mut self, number: u32) -> &mut u64 {
        match self.segments[number as usize].closed_early {
            true => &mut self.early_end_bytes,
            false => &mut self.full_end_bytes,
        }
    }

    /// What live data could take if nothing were lost to packing, tombstones not counted: so much that compaction always gets segments free.
    fn nominal_live_bytes(&self) -> u64 {
        self.usable_bytes() / 100 * MAX_LIVE_PERCENT
    }

    fn usable_bytes(&self) -> u64 {
        let segments =
            u64::from(self.config.segment_count) - (self.reserve() + OPEN_SEGMENTS) as u64;
        segments * u64::from(self.config.segment_bytes - SEGMENT_HEADER_BYTES)
    }

    /// What live data may take.
    pub(crate) fn max_live_bytes(&self) -> u64 {
        self.nominal_live_bytes()
            .saturating_sub(self.full_end_bytes)
    }

    // ---- what the cleaner does about it ----

    /// Whether the cleaner should run although enough segments are free.
    pub(crate) fn wants_ends(&self) -> bool {
        let has_many = self.early_end_bytes > self.usable_bytes() / 100 * MAX_EARLY_PERCENT;
        has_many && !self.cleaner.ends_wait && !is_planted(Bug::LeaveUnusedEnds)
    }

    /// Something may have changed for segments that were closed early.
    pub(crate) fn look_for_ends(&mut self) {
        self.cleaner.ends_wait = false;
    }

    /// The best victim among segments that were closed early; if there is none, nothing is looked for until something changes.
    pub(crate) fn best_victim_for_ends(&mut self) -> Option<u32> {
        let early = self.best_victim_of(|segment| {
            segment.closed_early && !segment.is_pinned && segment.loans == 0
        });
        self.cleaner.ends_wait = early.is_none();
        early
    }

    /// Adds up unused ends anew; see [`Log::audit`].
    pub(crate) fn audit_ends(&self) -> Result<(), String> {
        let sum_of = |closed_early: bool| -> u64 {
            let is_closed =
                |segment: &&Segment| matches!(segment.state, State::Closed | State::Victim);
            let closed = self.segments.iter().filter(is_closed);
            let alike = closed.filter(|segment| segment.closed_early == closed_early);
            alike
                .map(|segment| u64::from(self.config.segment_bytes - segment.used_bytes))
                .sum()
        };
        let counted = (sum_of(false), sum_of(true));
        let kept = (self.full_end_bytes, self.early_end_bytes);
        if counted == kept {
            Ok(())
        } else {
            Err(format!(
                "unused ends of segments (full, closed early): counted {counted:?}, kept {kept:?}"
            ))
        }
    }

    pub(crate) fn min_gain_bytes(&self) -> u32 {
        self.config.segment_bytes / MIN_GAIN_DIVISOR
    }

    /// What cleaning a closed segment is sure to gain.
    pub(crate) fn gain_bytes(&self, segment: &Segment) -> u32 {
        let end = match segment.closed_early {
            true => self.config.segment_bytes - segment.used_bytes,
            false => 0,
        };
        segment.dead_bytes() + end
    }
}
