//! Copies of other logs' entries, and what these logs make needed here as long as they may be read again.
//!
//! Until all copies are on replicas of their own, a crash brings back what the other log holds and what this log holds from the segment on that
//! [`Log::begin_copies`] names. An object that died here lies in the other log as well, so no tombstone may go, whatever this log itself would need.

use base::ids::TableId;
use wire::entry::{Entry, RawEntry, Tombstone};

use crate::appending::NoRoom;
use crate::config::Durability;
use crate::ends::Closing;
use crate::log::Log;
use crate::position::{LogPosition, Reference};
use crate::segment::{SEGMENT_HEADER_BYTES, State};

impl Log {
    /// Entries of another log are about to be copied, until [`Self::end_copies`]. From now until [`Self::release_source`] no tombstone goes. What is
    /// returned is the id of the first segment that can hold such a copy, or anything that is appended later. It holds no entry that was purged.
    ///
    /// Several that copy at a time share the head and the side segment, so that many small recoveries take no more segments than a large one.
    pub fn begin_copies(&mut self) -> Result<u64, NoRoom> {
        let first = match self.shared_first() {
            Some(first) => first,
            None => self.renew_open_segments()?,
        };
        self.copies.sources += 1;
        self.copies.copying += 1;
        Ok(first)
    }

    /// The oldest segment that takes anything, if it holds no more than those who copy together may share.
    fn shared_first(&self) -> Option<u64> {
        let open = [self.head, self.copies.open, self.survivor];
        let ids = open.into_iter().flatten();
        let oldest = ids.map(|number| self.segments[number as usize].id).min()?;
        let is_shared = self.copies.sources > 0 && oldest >= self.copies.purged_before;
        is_shared.then_some(oldest)
    }

    /// The open head takes no more; answers the id of the new one.
    fn renew_open_segments(&mut self) -> Result<u64, NoRoom> {
        self.check_free()?;
        // A survivor that ends early may cost the cleaner one segment more, which is in its reserve.
        let open = [self.copies.open.take(), self.survivor.take()];
        for number in open.into_iter().flatten() {
            self.close(number, Closing::Early);
        }
        self.mark_append_end();
        let first = self.next_segment_id;
        self.roll_over(Closing::Early);
        if self.copies.sources == 0 {
            self.copies.first_segment = first;
        }
        Ok(first)
    }

    /// Entries that were purged are dead, and lie in segments that exist now: copies of the same objects may come again, behind them.
    pub fn note_purged(&mut self) {
        self.copies.purged_before = self.next_segment_id;
    }

    /// One of the logs for which [`Self::begin_copies`] was called will not be read again.
    pub fn release_source(&mut self) {
        assert!(self.copies.sources > 0, "more sources end than began");
        self.copies.sources -= 1;
        if self.copies.sources > 0 {
            return;
        }
        for number in 0..self.config.segment_count {
            let bytes = self.segments[number as usize].kept_bytes;
            self.forget_kept(number, bytes);
        }
        self.cleaner.wake();
    }

    /// Copies an entry, as it is, to a side segment. It is needed until [`Self::kill`].
    pub fn append_copy(&mut self, entry: &RawEntry<'_>) -> Result<Reference, NoRoom> {
        let bytes = entry.bytes.len();
        let side = self.side_with_room(bytes, bytes)?;
        Ok(self.copy_to_side(side, entry))
    }

    /// The same for an object that takes the place of the copy of an older one, which it kills; with the tombstone for that, unless both lie in
    /// one segment.
    pub fn append_newer_copy(
        &mut self,
        entry: &RawEntry<'_>,
        dead: &Tombstone<'_>,
        older: Reference,
    ) -> Result<Reference, NoRoom> {
        let growth = entry.bytes.len();
        let side = self.side_with_room(growth + dead.entry_bytes(), growth)?;
        let at = self.copy_to_side(side, entry);
        if self.number_of(older) != side {
            self.write_tombstone_to_side(side, dead, older);
        }
        self.kill(older);
        Ok(at)
    }

    /// Appends the tombstone of the copy of an object to a side segment, and kills that copy.
    pub fn kill_copy(
        &mut self,
        dead: &Tombstone<'_>,
        copy: Reference,
    ) -> Result<Reference, NoRoom> {
        let side = self.side_with_room(dead.entry_bytes(), 0)?;
        let at = self.write_tombstone_to_side(side, dead, copy);
        self.kill(copy);
        Ok(at)
    }

    /// One of those that called [`Self::begin_copies`] has no more to copy. The last one closes the side segment: it could wait for ever to be filled.
    pub fn end_copies(&mut self) {
        assert!(self.copies.copying > 0, "more copying ends than began");
        self.copies.copying -= 1;
        if self.copies.copying == 0 {
            self.close_copies(Closing::Early);
        }
    }

    fn close_copies(&mut self, closing: Closing) {
        if let Some(side) = self.copies.open.take() {
            self.close(side, closing);
        }
    }

    /// The segment that holds the entry at `reference`.
    pub fn segment_id_of(&self, reference: Reference) -> u64 {
        self.segments[self.number_of(reference) as usize].id
    }

    /// The tombstone of the object at `reference`.
    pub fn tombstone_of<'a>(
        &self,
        reference: Reference,
        table_id: TableId,
        version: u64,
        key: &'a [u8],
    ) -> Tombstone<'a> {
        Tombstone {
            table_id,
            version,
            segment_id: self.segment_id_of(reference),
            key,
        }
    }

    /// Whether a segment is closed with all of its replicas, or was and has been cleaned since.
    pub fn is_settled(&self, segment_id: u64) -> bool {
        let number = self.by_id.get(&segment_id);
        number.is_none_or(|&number| self.segments[number as usize].settled)
    }

    /// Starts a new head, which names all settled segments and carries the safe version. Once the position is durable that is returned, a
    /// recovery finds them. `None` if no memory is free.
    pub fn name_segments(&mut self) -> Option<LogPosition> {
        if self.config.durability == Durability::Unreplicated {
            return Some(LogPosition::START);
        }
        self.start_new_head().then(|| self.head_position())
    }

    // ---- tombstones that are kept ----

    /// Whether other logs make tombstones in this segment needed.
    pub(crate) fn keeps_tombstones_of(&self, number: u32) -> bool {
        self.copies.sources > 0 && self.segments[number as usize].id >= self.copies.first_segment
    }

    /// Tombstones that count as live are so only because of other logs from now on.
    pub(crate) fn keep_tombstones(&mut self, holder: u32, bytes: u32) {
        self.segments[holder as usize].kept_bytes += bytes;
        self.copies.kept_bytes += u64::from(bytes);
    }

    pub(crate) fn forget_kept(&mut self, holder: u32, bytes: u32) {
        let segment = &mut self.segments[holder as usize];
        assert!(
            segment.kept_bytes >= bytes,
            "more is given up than was kept"
        );
        segment.kept_bytes -= bytes;
        self.copies.kept_bytes -= u64::from(bytes);
        self.forget_tombstones(holder, bytes);
    }

    // ---- side segments ----

    fn copy_to_side(&mut self, side: u32, entry: &RawEntry<'_>) -> Reference {
        let bytes = entry.bytes.len() as u32;
        let at = self.offset_of_segment(side) + self.segments[side as usize].used_bytes as usize;
        self.memory[at..at + entry.bytes.len()].copy_from_slice(entry.bytes);
        self.count_written(side, bytes);
        self.segments[side as usize].live_bytes += bytes;
        self.live_bytes += u64::from(bytes);
        Reference::of_offset(at)
    }

    fn write_tombstone_to_side(
        &mut self,
        side: u32,
        tombstone: &Tombstone<'_>,
        dead: Reference,
    ) -> Reference {
        let start = self.offset_of_segment(side);
        let at = start + self.segments[side as usize].used_bytes as usize;
        let end = start + self.config.segment_bytes as usize;
        let format = self.segments[side as usize].format;
        let bytes = wire::entry::write(tombstone, format, &mut self.memory[at..end]) as u32;
        self.count_written(side, bytes);
        self.bury(self.number_of(dead), side, bytes);
        Reference::of_offset(at)
    }

    fn count_written(&mut self, side: u32, bytes: u32) {
        let birth = self.head_position();
        let segment = &mut self.segments[side as usize];
        assert_eq!(segment.state, State::Survivor, "copies go to side segments");
        segment.used_bytes += bytes;
        assert!(segment.used_bytes <= self.config.segment_bytes);
        segment.birth_sum += u128::from(bytes) * u128::from(birth.0);
        self.appended.entries += 1;
        self.appended.bytes += u64::from(bytes);
    }

    /// A side segment with room for `bytes` of entries, by `growth` of which live data grows.
    fn side_with_room(&mut self, bytes: usize, growth: usize) -> Result<u32, NoRoom> {
        let grown = self.live_bytes - self.tombstone_bytes + growth as u64;
        let most = (self.config.segment_bytes - SEGMENT_HEADER_BYTES) as usize;
        if grown > self.max_live_bytes() || bytes > most {
            return Err(NoRoom::Full);
        }
        if let Some(side) = self.copies.open.filter(|&side| self.room_in(side) >= bytes) {
            return Ok(side);
        }
        self.check_free()?;
        self.cleaner.wake();
        self.close_copies(Closing::Full);
        let side = self.open(State::Survivor);
        self.copies.open = Some(side);
        Ok(side)
    }

    /// Whether a segment may be taken.
    fn check_free(&self) -> Result<(), NoRoom> {
        if self.free.len() > self.reserve() {
            Ok(())
        } else if self.can_clean() {
            Err(NoRoom::Cleaning)
        } else {
            Err(NoRoom::Full)
        }
    }
}
