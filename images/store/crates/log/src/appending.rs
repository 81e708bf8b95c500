//! Appending to the head: whether there is room, entries and their tombstones, and the end of what is needed.

use base::ids::TableId;
use wire::entry::{self, Entry, Tombstone};

use crate::config::{CLEANER_RESERVE, Durability, REMOVE_RESERVE};
use crate::ends::Closing;
use crate::log::Log;
use crate::position::Reference;
use crate::segment::State;

/// What an append is for, and so how much memory must stay free behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// New or larger data; refused while memory is full.
    Write,
    /// Makes room in the end, or is needed to answer: goes on in a reserve when memory is full.
    Remove,
}

/// Why an append cannot be made now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// Live data fills the memory: only removing something helps.
    Full,
    /// The cleaner is about to make room.
    Cleaning,
}

impl Log {
    /// Makes sure that `bytes` of entries fit one behind the other into the head, so that the appends that follow cannot
    /// fail and become durable together.
    ///
    /// `growth_bytes` is what live data grows by, tombstones not counted and what dies by this append subtracted.
    ///
    /// # Panics
    /// If `bytes` is above [`crate::Config::max_append_bytes`]: such requests are refused earlier.
    pub fn prepare(
        &mut self,
        bytes: usize,
        growth_bytes: i64,
        admission: Admission,
    ) -> Result<(), NoRoom> {
        assert!(bytes <= self.config.max_append_bytes());
        if admission == Admission::Write && growth_bytes > 0 {
            let grown = self.live_bytes - self.tombstone_bytes + growth_bytes as u64;
            if grown > self.max_live_bytes() {
                return Err(NoRoom::Full);
            }
        }
        if let Some(head) = self.head
            && bytes + self.config.max_digest_bytes() <= self.room_in(head)
        {
            // As long as nothing is in it, a head that loses a replica costs no memory.
            if self.is_head_bare() && self.free.len() <= CLEANER_RESERVE {
                return Err(self.no_room(admission));
            }
            self.mark_append_end();
            return Ok(());
        }
        let reserve = match admission {
            Admission::Write => self.reserve(),
            Admission::Remove => self.reserve() - REMOVE_RESERVE,
        };
        if self.free.len() <= reserve {
            return Err(self.no_room(admission));
        }
        self.mark_append_end();
        self.roll_over(Closing::Full);
        let head = self.head.expect("`roll_over` opens one");
        assert!(bytes <= self.room_in(head), "a fresh head has no room");
        Ok(())
    }

    fn no_room(&mut self, admission: Admission) -> NoRoom {
        if admission == Admission::Remove {
            // An append that makes room in the end is never refused for want of room.
            self.cleaner.wake();
        }
        if self.can_clean() {
            NoRoom::Cleaning
        } else {
            NoRoom::Full
        }
    }

    /// Segments that are not taken for new objects.
    pub(crate) fn reserve(&self) -> usize {
        CLEANER_RESERVE + REMOVE_RESERVE + self.config.head_reserve()
    }

    /// The entries that were appended until now were one append, or several.
    pub(crate) fn mark_append_end(&mut self) {
        if self.config.durability == Durability::External {
            let end = self.head_position();
            if self.append_ends.back() != Some(&end) {
                self.append_ends.push_back(end);
            }
        }
    }

    /// Appends an entry that is needed until [`Self::kill`]; [`Self::prepare`] made room for it.
    pub fn append<'a>(&mut self, entry: &impl Entry<'a>) -> Reference {
        let (reference, bytes) = self.write_to_head(entry);
        let segment = self.segment_of_mut(reference);
        segment.live_bytes += bytes;
        assert!(segment.live_bytes <= segment.used_bytes);
        self.live_bytes += u64::from(bytes);
        reference
    }

    /// Whether an object that was overwritten at `dead` needs a tombstone. It needs none where its successor stands behind
    /// it in the same segment: whoever replays the one replays the other, and both go together.
    pub fn needs_tombstone(&self, dead: Reference) -> bool {
        self.head != Some(self.number_of(dead))
    }

    /// Appends the tombstone of the object at `dead`. It is needed as long as the segment of that object is there.
    pub fn append_tombstone(
        &mut self,
        table_id: TableId,
        version: u64,
        key: &[u8],
        dead: Reference,
    ) -> Reference {
        let grave = self.number_of(dead);
        let tombstone = Tombstone {
            table_id,
            version,
            segment_id: self.segments[grave as usize].id,
            key,
        };
        let (reference, bytes) = self.write_to_head(&tombstone);
        self.bury(grave, self.number_of(reference), bytes);
        reference
    }

    /// The entry at `reference` is needed no more.
    pub fn kill(&mut self, reference: Reference) {
        let bytes = self.entry(reference).bytes.len() as u32;
        let segment = self.segment_of_mut(reference);
        assert!(segment.live_bytes >= bytes, "an entry has died twice");
        segment.live_bytes -= bytes;
        self.live_bytes -= u64::from(bytes);
        self.killed_bytes += u64::from(bytes);
    }

    pub(crate) fn write_to_head<'a>(&mut self, entry: &impl Entry<'a>) -> (Reference, u32) {
        let head = self.head.expect("`prepare` opened a head");
        let segment = &mut self.segments[head as usize];
        assert_eq!(segment.state, State::Head, "appends go to the head");
        let birth = segment.position_at(segment.used_bytes);
        let start = head as usize * self.config.segment_bytes as usize;
        let end = start + self.config.segment_bytes as usize;
        let at = start + segment.used_bytes as usize;
        let bytes = entry::write(entry, segment.format, &mut self.memory[at..end]) as u32;
        segment.used_bytes += bytes;
        segment.birth_sum += u128::from(bytes) * u128::from(birth.0);
        self.appended.entries += 1;
        self.appended.bytes += u64::from(bytes);
        (Reference::of_offset(at), bytes)
    }
}
