//! The cleaner: copies what is needed out of segments that are mostly dead, and so gets them free.
//!
//! It works in steps of a given number of bytes, one victim at a time. docs/cleaner.md says why it can always finish.

use base::bugs::{Bug, is_planted};
use wire::entry::{EntryError, Kind, ObjectView, RawEntry, RpcResult, Tombstone};

use crate::cleaner::{CleanerStats, Victim};
use crate::ends::Closing;
use crate::log::Log;
use crate::position::Reference;
use crate::segment::{Segment, State};

/// After a round in vain the cleaner rests until one part in this many of a segment was written or died.
const REST_DIVISOR: u32 = 4;

/// What the cleaner asks, for one kind of entry, of whoever keeps references to such entries.
pub trait Keeps<E> {
    /// Whether the entry at `at` is still needed.
    fn is_live(&self, entry: &E, at: Reference) -> bool;
    /// The entry, which is live, lies at `to` from now on, no longer at `from`.
    fn moved(&mut self, entry: &E, from: Reference, to: Reference);
}

/// Who keeps references into a log. A new kind of entry that somebody refers to is one more [`Keeps`] here.
pub trait Owner: for<'a> Keeps<ObjectView<'a>> + for<'a> Keeps<RpcResult<'a>> {}

impl<T> Owner for T where T: for<'a> Keeps<ObjectView<'a>> + for<'a> Keeps<RpcResult<'a>> {}

/// How a step of the cleaner ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleaning {
    /// There is enough free memory, or nothing worth cleaning.
    Idle,
    /// There is more to do.
    More,
    /// It goes on when more of the log is durable.
    Waiting,
}

impl Log {
    pub fn cleaner_stats(&self) -> CleanerStats {
        self.cleaner.stats
    }

    /// Whether the cleaner should run: it starts when nearly all segments are in use, for the longer it waits the more is
    /// dead, or when segments that were closed early take too much; and ends each victim that it began.
    pub fn wants_cleaning(&self) -> bool {
        self.cleaner.victim.is_some() || self.wants_free() || self.wants_ends()
    }

    /// Whether it should get segments free, and that is not known to be in vain.
    fn wants_free(&self) -> bool {
        self.has_few_free() && !self.is_resting()
    }

    fn has_few_free(&self) -> bool {
        self.free.len() <= self.low_free_count()
    }

    /// The cleaner runs while no more than this is free; `None`: as it does by itself. The more the sooner it runs, and the less is dead then.
    pub fn keep_free(&mut self, percent: Option<u32>) {
        if self.cleaner.free_percent != percent {
            self.cleaner.free_percent = percent;
            self.cleaner.wake();
        }
    }

    /// A whole round of cleaning has gained nothing, and little was written or killed since.
    fn is_resting(&self) -> bool {
        self.change_bytes() < self.cleaner.round.rest_until
    }

    /// Bytes written and bytes killed so far.
    fn change_bytes(&self) -> u64 {
        self.head_position().0 + self.killed_bytes
    }

    /// A victim has been cleaned: goes on, or rests if all segments have been cleaned in vain.
    fn count_victim(&mut self) {
        let free = self.free.len();
        let round = &mut self.cleaner.round;
        if free > round.most_free {
            round.most_free = free;
            round.fruitless = 0;
            return;
        }
        round.fruitless += 1;
        if round.fruitless > self.config.segment_count {
            let rest_bytes = u64::from(self.config.segment_bytes / REST_DIVISOR);
            self.cleaner.rest(self.change_bytes() + rest_bytes);
        }
    }

    /// Does cleaning worth about `budget_bytes` of scanned entries.
    ///
    /// # Panics
    /// If an entry's checksum is wrong: memory is damaged, and going on would spread it.
    pub fn clean(&mut self, owner: &mut impl Owner, budget_bytes: usize) -> Cleaning {
        let mut left = budget_bytes;
        while left > 0 {
            let Some(victim) = self.cleaner.victim else {
                match self.begin_victim() {
                    Cleaning::More => continue,
                    ended => return ended,
                }
            };
            if victim.offset == self.segments[victim.number as usize].used_bytes {
                self.end_victim(victim);
                continue;
            }
            let bytes = self.clean_entry(owner, victim);
            if let Some(victim) = &mut self.cleaner.victim {
                victim.offset += bytes;
            }
            left = left.saturating_sub(bytes as usize);
        }
        if self.wants_cleaning() {
            Cleaning::More
        } else {
            Cleaning::Idle
        }
    }

    /// Whether cleaning, now or after the log is durable, will get a segment free.
    pub(crate) fn can_clean(&self) -> bool {
        self.cleaner.victim.is_some()
            || self.best_victim().is_some() && !self.is_resting()
            || self.waits_for_replicas()
            || self.copies.kept_bytes > 0
            || self.pin.is_some() && self.would_clean_pinned()
            || self.best_lent_victim().is_some()
    }

    /// Whether there would be a victim if nothing were pinned.
    pub(crate) fn would_clean_pinned(&self) -> bool {
        self.best_victim_of(|segment| segment.is_pinned).is_some()
    }

    /// Whether there may be more to clean when more is durable.
    pub(crate) fn waits_for_replicas(&self) -> bool {
        let is_unsafe =
            |segment: &Segment| segment.state == State::Closed && !self.is_safe(segment);
        self.holds_too_many() || self.segments.iter().any(is_unsafe)
    }

    fn low_free_count(&self) -> usize {
        // One more than new objects leave.
        let segments = self.segments.len();
        let kept_free = match self.cleaner.free_percent {
            None => segments / 64,
            Some(percent) => segments * percent as usize / 100,
        };
        (1 + self.reserve()).max(self.reserve() + kept_free)
    }

    /// Chooses a victim if one is wanted.
    fn begin_victim(&mut self) -> Cleaning {
        if !self.wants_cleaning() {
            return Cleaning::Idle;
        }
        assert!(!self.free.is_empty(), "the cleaner's reserve is gone");
        if self.holds_too_many() {
            self.digest_if_due();
            return Cleaning::Waiting;
        }
        // Ends come back also while it rests: each segment that was closed early is copied once, which cannot go round in circles.
        let wants_free = self.wants_free();
        let best = match wants_free {
            true => self.best_victim(),
            false => self.best_victim_for_ends(),
        };
        match best {
            Some(number) => {
                let segment = &mut self.segments[number as usize];
                assert!(segment.state == State::Closed && segment.settled);
                segment.state = State::Victim;
                self.cleaner.victim = Some(Victim {
                    number,
                    // Nothing has to be read where nothing is alive.
                    offset: if segment.live_bytes == 0 {
                        segment.used_bytes
                    } else {
                        0
                    },
                    birth: segment.mean_birth(),
                    last_side_id: 0,
                });
                Cleaning::More
            }
            // What changes that wakes the cleaner.
            None if !wants_free => Cleaning::Idle,
            None if self.call_back() || self.waits_for_replicas() => Cleaning::Waiting,
            None => Cleaning::Idle,
        }
    }

    /// The closed segment with the most to gain per byte copied, old ones first: what is still alive in an old segment
    /// will probably stay so, while a young one is worth waiting for.
    pub(crate) fn best_victim(&self) -> Option<u32> {
        self.best_victim_of(|segment| {
            let is_lent = segment.loans > 0 && !is_planted(Bug::CleanLent);
            !segment.is_pinned && !is_lent
        })
    }

    /// The same of those of which something is lent.
    pub(crate) fn best_lent_victim(&self) -> Option<u32> {
        self.best_victim_of(|segment| !segment.is_pinned && segment.loans > 0)
    }

    pub(crate) fn best_victim_of(&self, is_meant: impl Fn(&Segment) -> bool) -> Option<u32> {
        let min_gain = self.min_gain_bytes();
        let now = self.head_position().0;
        let size = u64::from(self.config.segment_bytes);
        let worth = |number: u32| {
            let segment = &self.segments[number as usize];
            let live = u64::from(segment.live_bytes);
            let age = now.saturating_sub(segment.mean_birth().0) + size;
            u128::from(size - live) * u128::from(age) / u128::from(size + live)
        };
        let candidates = (0..self.config.segment_count).filter(|&number| {
            let segment = &self.segments[number as usize];
            segment.state == State::Closed
                && is_meant(segment)
                && self.gain_bytes(segment) > min_gain
                && self.is_safe(segment)
        });
        candidates.max_by_key(|&number| worth(number))
    }

    /// Nothing in the segment could still be taken back by a crash, and no replica of it needs its memory.
    pub(crate) fn is_safe(&self, segment: &Segment) -> bool {
        segment.settled && segment.position_at(segment.used_bytes) <= self.durable
    }

    /// Keeps or drops the next entry of the victim; answers its length.
    fn clean_entry(&mut self, owner: &mut impl Owner, victim: Victim) -> u32 {
        let unreadable = |error| -> ! { damaged(victim.number, victim.offset, error) };
        let entry = RawEntry::read(self.entries_from(victim.number, victim.offset))
            .unwrap_or_else(|error| unreadable(error));
        let bytes = entry.bytes.len() as u32;
        match entry.kind {
            Kind::SegmentHeader | Kind::Digest => {}
            Kind::Tombstone => self.clean_tombstone(victim),
            Kind::Object => {
                let object = ObjectView::of(&entry).unwrap_or_else(|error| unreadable(error));
                let at = self.reference(victim);
                if owner.is_live(&object, at) {
                    let to = self.keep(victim, bytes);
                    let moved = ObjectView::of(&self.entry(to));
                    owner.moved(&moved.expect("just copied"), at, to);
                }
            }
            Kind::RpcResult => {
                let result: RpcResult<'_> =
                    entry.decode().unwrap_or_else(|error| unreadable(error));
                let at = self.reference(victim);
                if owner.is_live(&result, at) {
                    let to = self.keep(victim, bytes);
                    let moved: RpcResult<'_> = self.entry(to).decode().expect("just copied");
                    owner.moved(&moved, at, to);
                }
            }
        }
        self.cleaner.stats.scanned_bytes += u64::from(bytes);
        bytes
    }

    /// A tombstone is needed while the segment of its dead object is there, and is another one; and while other logs make it needed.
    fn clean_tombstone(&mut self, victim: Victim) {
        let entry = self.entry(self.reference(victim));
        let bytes = entry.bytes.len() as u32;
        let tombstone: Tombstone<'_> = entry
            .decode()
            .unwrap_or_else(|error| damaged(victim.number, victim.offset, error));
        let grave = self.by_id.get(&tombstone.segment_id).copied();
        match grave {
            Some(grave) if grave != victim.number => {
                self.unbury(grave, victim.number, bytes);
                let to = self.copy(victim, bytes);
                self.bury(grave, self.number_of(to), bytes);
            }
            _ if self.keeps_tombstones_of(victim.number) => {
                self.forget_kept(victim.number, bytes);
                let to = self.copy(victim, bytes);
                let holder = self.number_of(to);
                match grave {
                    // It is kept from the moment that the victim goes.
                    Some(victim) => self.bury(victim, holder, bytes),
                    None => {
                        self.count_tombstone(holder, bytes);
                        self.keep_tombstones(holder, bytes);
                    }
                }
            }
            _ => {}
        }
    }

    fn reference(&self, victim: Victim) -> Reference {
        Reference::of_offset(self.offset_of_segment(victim.number) + victim.offset as usize)
    }

    /// Copies a live entry that is no tombstone and moves its count along.
    fn keep(&mut self, victim: Victim, bytes: u32) -> Reference {
        let to = self.copy(victim, bytes);
        let survivor = self.number_of(to);
        assert_ne!(
            survivor, victim.number,
            "an entry was copied to where it was"
        );
        let from = &mut self.segments[victim.number as usize];
        assert!(from.live_bytes >= bytes, "more is alive than was counted");
        from.live_bytes -= bytes;
        self.segments[survivor as usize].live_bytes += bytes;
        to
    }

    /// Copies an entry into a survivor segment, its checksum checked on the way.
    fn copy(&mut self, victim: Victim, bytes: u32) -> Reference {
        let Victim {
            number,
            offset,
            birth,
            ..
        } = victim;
        if let Err(error) = RawEntry::read_checked(self.entries_from(number, offset)) {
            damaged(number, offset, error)
        }
        let survivor = self.survivor_with_room(bytes);
        if let Some(victim) = &mut self.cleaner.victim {
            victim.last_side_id = self.segments[survivor as usize].id;
        }
        let from = self.offset_of_segment(number) + offset as usize;
        self.cleaner.stats.survivor_bytes += u64::from(bytes);
        self.copy_to_survivor(survivor, from, bytes, birth)
    }

    fn survivor_with_room(&mut self, bytes: u32) -> u32 {
        if let Some(survivor) = self.survivor {
            let used = self.segments[survivor as usize].used_bytes;
            if used + bytes <= self.config.segment_bytes {
                return survivor;
            }
            self.close(survivor, Closing::Full);
        }
        let survivor = self.open(State::Survivor);
        self.survivor = Some(survivor);
        survivor
    }

    fn end_victim(&mut self, victim: Victim) {
        let segment = &self.segments[victim.number as usize];
        assert_eq!(segment.state, State::Victim);
        assert_eq!(
            victim.offset, segment.used_bytes,
            "it was not read to its end"
        );
        assert_eq!(
            segment.live_bytes, 0,
            "the count of live bytes of segment {} is wrong",
            segment.id
        );
        let segment_id = segment.id;
        self.forget_end(victim.number);
        self.cleaner.victim = None;
        self.cleaner.stats.segments_cleaned += 1;
        self.note_cleaned(segment_id, victim.last_side_id);
        self.release(victim.number);
        self.close_awaited_side();
        self.digest_if_due();
        self.count_victim();
    }

    /// Recounts what is live, entry by entry, and compares it with the running counts. Slow: for tests and simulation.
    pub fn audit(&self, owner: &impl Owner) -> Result<(), String> {
        let (mut live, mut tombstones) = (0, 0);
        for number in 0..self.config.segment_count {
            let segment = &self.segments[number as usize];
            if segment.state == State::Free {
                continue;
            }
            let counted = self.recount(owner, number)?;
            if counted != (segment.live_bytes, segment.tombstone_bytes) {
                return Err(format!(
                    "segment {} ({:?}): counted (live, tombstones) {counted:?}, kept ({}, {})",
                    segment.id, segment.state, segment.live_bytes, segment.tombstone_bytes
                ));
            }
            live += u64::from(counted.0);
            tombstones += u64::from(counted.1);
        }
        if (live, tombstones) != (self.live_bytes, self.tombstone_bytes) {
            return Err("the sums differ from the segments' counts".to_owned());
        }
        self.audit_ends()?;
        self.audit_head()
    }

    /// Live bytes, and live tombstone bytes, of a segment.
    fn recount(&self, owner: &impl Owner, number: u32) -> Result<(u32, u32), String> {
        let (mut live, mut tombstones, mut offset) = (0, 0, 0);
        // Entries that the cleaner has passed are dead here, whatever their owner says of copies elsewhere.
        if let Some(victim) = self.cleaner.victim
            && victim.number == number
        {
            offset = victim.offset;
        }
        let segment = &self.segments[number as usize];
        while offset < segment.used_bytes {
            let at = || Reference::of_offset(self.offset_of_segment(number) + offset as usize);
            let error = |error: EntryError| format!("segment {} at {offset}: {error}", segment.id);
            let entry = RawEntry::read_checked(self.entries_from(number, offset)).map_err(error)?;
            let bytes = entry.bytes.len() as u32;
            let is_live = match entry.kind {
                Kind::SegmentHeader | Kind::Digest => false,
                Kind::Object => owner.is_live(&ObjectView::of(&entry).map_err(error)?, at()),
                Kind::RpcResult => {
                    owner.is_live(&entry.decode::<RpcResult<'_>>().map_err(error)?, at())
                }
                Kind::Tombstone => {
                    let id = entry.decode::<Tombstone<'_>>().map_err(error)?.segment_id;
                    let grave = self.by_id.get(&id).filter(|&&grave| grave != number);
                    let is_live = grave.is_some() || self.keeps_tombstones_of(number);
                    tombstones += if is_live { bytes } else { 0 };
                    is_live
                }
            };
            live += if is_live { bytes } else { 0 };
            offset += bytes;
        }
        Ok((live, tombstones))
    }
}

#[cold]
fn damaged(segment: u32, offset: u32, error: EntryError) -> ! {
    panic!("memory of the log is damaged, segment number {segment} at {offset}: {error}")
}
