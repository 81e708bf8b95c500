//! The log: memory in segments, entries where they lie in it, and exact counts of what is still needed.

use std::collections::VecDeque;

use base::map::Map;
use core::ops::Range;
use wire::entry::{self, RawEntry, SegmentHeader};
use wire::format::FIRST_FORMAT;

use crate::cleaner::Cleaner;
use crate::config::{Config, ConfigError, Durability, Origin};
use crate::copies::Copies;
use crate::ledger::Ledger;
use crate::pin::Pin;
use crate::position::{LogPosition, Reference};
use crate::region::Region;
use crate::segment::{SEGMENT_HEADER_BYTES, Segment, State};

/// How the memory is used, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub capacity_bytes: u64,
    /// Entries that are needed, tombstones included.
    pub live_bytes: u64,
    pub tombstone_bytes: u64,
    /// What live data, tombstones not counted, may take before writes are refused.
    pub max_live_bytes: u64,
    /// Unused ends of segments that were closed before they were full: room for live data once the cleaner has been there.
    pub early_end_bytes: u64,
    /// Segments that hold nothing.
    pub free_bytes: u64,
}

/// What was appended since the process started. What the cleaner copies does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Appended {
    pub entries: u64,
    pub bytes: u64,
}

/// See the crate's documentation. Segments are numbered from 0 by their place in memory.
pub struct Log {
    pub(crate) config: Config,
    origin: Origin,
    /// Of segments that are opened from now on.
    format: u32,
    pub(crate) memory: Region<u8>,
    pub(crate) segments: Vec<Segment>,
    pub(crate) free: Vec<u32>,
    pub(crate) by_id: Map<u64, u32>,
    pub(crate) head: Option<u32>,
    pub(crate) survivor: Option<u32>,
    pub(crate) copies: Copies,
    pub(crate) next_segment_id: u64,
    /// Position at which the next head starts.
    pub(crate) next_start: LogPosition,
    pub(crate) durable: LogPosition,
    /// Ends of appends that are not durable yet. An append is durable as a whole or not at all.
    pub(crate) append_ends: VecDeque<LogPosition>,
    /// What the head held when it was opened, its header and a digest, and the digests that followed before anything else.
    pub(crate) bare_bytes: u32,
    pub(crate) ledger: Ledger,
    safe_version: u64,
    pub(crate) live_bytes: u64,
    pub(crate) tombstone_bytes: u64,
    /// Unused ends of closed segments, of those that were full and of those that were closed early.
    pub(crate) full_end_bytes: u64,
    pub(crate) early_end_bytes: u64,
    /// Segments that were closed early.
    pub(crate) closed_early: u64,
    /// Bytes of entries that [`Log::kill`] was told of.
    pub(crate) killed_bytes: u64,
    pub(crate) appended: Appended,
    pub(crate) cleaner: Cleaner,
    pub(crate) pin: Option<Pin>,
    /// Counts [`Log::reset`]: what was lent before is gone.
    pub(crate) run: u16,
    /// The segment of which the cleaner wants back what is lent.
    pub(crate) recall: Option<u32>,
}

/// No object gets this version: a store does not live to see it.
const MAX_VERSION: u64 = 1 << 63;

impl Log {
    /// An empty log. The operating system commits its memory as it is touched.
    pub fn new(config: Config, origin: Origin) -> Result<Log, ConfigError> {
        config.check()?;
        let bytes = config.memory_bytes();
        Ok(Log::in_memory(Region::zeroed(bytes), config, origin))
    }

    /// Has a log in which there is nothing yet use this memory, and give its own back.
    ///
    /// # Panics
    /// If it is not as large, or the log is in use.
    pub fn use_memory(&mut self, memory: &'static mut [u8]) {
        assert_eq!(memory.len(), self.memory.len(), "a log keeps its size");
        assert_eq!(self.next_segment_id, 1, "a log in use stays where it is");
        self.memory = Region::Lent(memory);
    }

    /// Forgets everything and starts a new log, for another origin, in the same memory.
    pub fn reset(&mut self, origin: Origin) {
        let memory = std::mem::take(&mut self.memory);
        let (appended, cleaned, format) = (self.appended, self.cleaner.stats, self.format);
        let run = self.run.wrapping_add(1);
        *self = Log::in_memory(memory, self.config, origin);
        (self.format, self.run) = (format, run);
        // Counters never go back.
        self.appended = appended;
        self.cleaner.stats = cleaned;
    }

    fn in_memory(memory: Region<u8>, config: Config, origin: Origin) -> Log {
        let count = config.segment_count;
        Log {
            memory,
            segments: (0..count).map(|_| Segment::free()).collect(),
            // Popped from the end: memory is first used from its start.
            free: (0..count).rev().collect(),
            by_id: Map::default(),
            head: None,
            survivor: None,
            copies: Copies::default(),
            next_segment_id: 1,
            next_start: LogPosition::START,
            durable: match config.durability {
                Durability::Unreplicated => LogPosition::END,
                Durability::External => LogPosition::START,
            },
            append_ends: VecDeque::new(),
            bare_bytes: 0,
            ledger: Ledger::default(),
            safe_version: 1,
            live_bytes: 0,
            tombstone_bytes: 0,
            full_end_bytes: 0,
            early_end_bytes: 0,
            closed_early: 0,
            killed_bytes: 0,
            appended: Appended::default(),
            cleaner: Cleaner::default(),
            pin: None,
            run: 0,
            recall: None,
            config,
            origin,
            format: FIRST_FORMAT,
        }
    }

    /// The format of segments that are opened from now on: the one in force in the store. A log reads all those that it wrote.
    pub fn set_format(&mut self, format: u32) {
        self.format = format;
    }

    pub fn format(&self) -> u32 {
        self.format
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    // ---- versions ----

    /// The version that the next new object gets; above that of everything that was ever removed here.
    pub fn safe_version(&self) -> u64 {
        self.safe_version
    }

    /// Makes the safe version at least `version`.
    pub fn raise_safe_version(&mut self, version: u64) {
        self.safe_version = self.safe_version.max(version);
    }

    /// Hands out the safe version and counts it up.
    pub fn take_safe_version(&mut self) -> u64 {
        let version = self.safe_version;
        assert!(version < MAX_VERSION, "versions have run out");
        self.safe_version += 1;
        version
    }

    // ---- reading ----

    /// The entry at `reference`.
    #[inline]
    pub fn entry(&self, reference: Reference) -> RawEntry<'_> {
        RawEntry::read(&self.memory[reference.offset()..]).expect("the log holds what it wrote")
    }

    /// Has the processor fetch the start of the entry at `reference`: for many reads in a row.
    #[inline]
    pub fn prefetch(&self, reference: Reference) {
        const LINE_BYTES: usize = 64;
        // Header, table, version, lengths and a key as applications have them lie in two lines.
        for line in 0..2 {
            if let Some(byte) = self.memory.get(reference.offset() + line * LINE_BYTES) {
                crate::prefetch::prefetch(byte);
            }
        }
    }

    /// Whether it lies in memory that somebody lent.
    pub fn is_lent(&self) -> bool {
        matches!(self.memory, Region::Lent(_))
    }

    /// Where all segments lie, for as long as the log lives: for who has the operating system commit it ahead of its use.
    pub fn memory(&self) -> Range<*const u8> {
        self.memory.as_ptr_range()
    }

    /// Position of the log behind the entry at `reference`: who shows it must wait until that is durable.
    pub fn position_of(&self, reference: Reference) -> LogPosition {
        let segment = &self.segments[self.number_of(reference) as usize];
        if segment.start.is_none() {
            return LogPosition::START;
        }
        let end = reference.offset() + self.entry(reference).bytes.len();
        let offset = end - self.offset_of_segment(self.number_of(reference));
        segment.position_at(offset as u32)
    }

    // ---- durability ----

    /// Position behind the newest entry.
    pub fn head_position(&self) -> LogPosition {
        match self.head {
            Some(head) => {
                let segment = &self.segments[head as usize];
                segment.position_at(segment.used_bytes)
            }
            None => LogPosition::START,
        }
    }

    /// Everything before this position is durable.
    pub fn durable_position(&self) -> LogPosition {
        self.durable
    }

    /// With [`Durability::External`]: everything up to `position` is durable now. Positions only grow. One in the middle of
    /// an append counts as that append's start, for entries that were appended together become durable together; one
    /// beyond the head counts as the head's.
    pub fn advance_durable(&mut self, position: LogPosition) {
        assert_eq!(self.config.durability, Durability::External);
        self.mark_append_end();
        let before = self.durable;
        while let Some(&end) = self.append_ends.front()
            && end <= position
        {
            self.append_ends.pop_front();
            self.durable = self.durable.max(end);
        }
        assert!(self.durable >= before, "what was durable stays so");
        assert!(
            self.durable <= self.head_position().max(before),
            "durable, and not written"
        );
        let head_of = |position: LogPosition| position.0 / u64::from(self.config.segment_bytes);
        if head_of(before) != head_of(self.durable) {
            self.look_for_ends();
        }
        self.free_left_out();
    }

    // ---- accounting ----

    pub fn appended(&self) -> Appended {
        self.appended
    }

    pub fn segment_bytes(&self) -> u32 {
        self.config.segment_bytes
    }

    pub fn usage(&self) -> Usage {
        Usage {
            capacity_bytes: self.memory.len() as u64,
            live_bytes: self.live_bytes,
            tombstone_bytes: self.tombstone_bytes,
            max_live_bytes: self.max_live_bytes(),
            early_end_bytes: self.early_end_bytes,
            free_bytes: self.free.len() as u64 * u64::from(self.config.segment_bytes),
        }
    }

    /// Counts a live tombstone of `bytes` in segment `holder` for an object that died in segment `grave`. One that lies in
    /// the same segment goes when that goes, and is never copied: it does not count as live, unless other logs make it needed.
    pub(crate) fn bury(&mut self, grave: u32, holder: u32, bytes: u32) {
        if grave == holder {
            if self.keeps_tombstones_of(holder) {
                self.count_tombstone(holder, bytes);
                self.keep_tombstones(holder, bytes);
            }
            return;
        }
        *self.segments[grave as usize]
            .graves
            .entry(holder)
            .or_insert(0) += bytes;
        self.count_tombstone(holder, bytes);
    }

    pub(crate) fn count_tombstone(&mut self, holder: u32, bytes: u32) {
        let segment = &mut self.segments[holder as usize];
        segment.live_bytes += bytes;
        segment.tombstone_bytes += bytes;
        assert!(segment.tombstone_bytes <= segment.live_bytes);
        assert!(segment.live_bytes <= segment.used_bytes);
        self.live_bytes += u64::from(bytes);
        self.tombstone_bytes += u64::from(bytes);
    }

    /// Takes a count of [`Self::bury`] back.
    pub(crate) fn unbury(&mut self, grave: u32, holder: u32, bytes: u32) {
        let graves = &mut self.segments[grave as usize].graves;
        let count = graves.get_mut(&holder).expect("counted when it was buried");
        assert!(*count >= bytes, "a tombstone has died twice");
        *count -= bytes;
        if *count == 0 {
            graves.remove(&holder);
        }
        self.forget_tombstones(holder, bytes);
    }

    pub(crate) fn forget_tombstones(&mut self, holder: u32, bytes: u32) {
        let segment = &mut self.segments[holder as usize];
        assert!(
            segment.tombstone_bytes >= bytes,
            "more tombstones die than were counted"
        );
        segment.live_bytes -= bytes;
        segment.tombstone_bytes -= bytes;
        self.live_bytes -= u64::from(bytes);
        self.tombstone_bytes -= u64::from(bytes);
    }

    // ---- segments ----

    pub(crate) fn number_of(&self, reference: Reference) -> u32 {
        (reference.offset() >> self.config.segment_bytes.trailing_zeros()) as u32
    }

    pub(crate) fn offset_of_segment(&self, number: u32) -> usize {
        number as usize * self.config.segment_bytes as usize
    }

    pub(crate) fn room_in(&self, number: u32) -> usize {
        (self.config.segment_bytes - self.segments[number as usize].used_bytes) as usize
    }

    pub(crate) fn segment_of_mut(&mut self, reference: Reference) -> &mut Segment {
        let number = self.number_of(reference);
        &mut self.segments[number as usize]
    }

    /// Takes a free segment and writes its header.
    pub(crate) fn open(&mut self, state: State) -> u32 {
        let number = self.free.pop().expect("the reserves keep one free");
        let header = SegmentHeader {
            cluster_id: self.origin.cluster_id,
            server_id: self.origin.server_id,
            segment_id: self.next_segment_id,
            safe_version: self.safe_version,
            segment_bytes: self.config.segment_bytes,
        };
        self.next_segment_id += 1;
        let start = self.offset_of_segment(number);
        let bytes = entry::write(&header, self.format, &mut self.memory[start..]) as u32;
        assert_eq!(bytes, SEGMENT_HEADER_BYTES);
        let segment = &mut self.segments[number as usize];
        assert!(segment.state == State::Free && segment.graves.is_empty());
        *segment = Segment {
            state,
            id: header.segment_id,
            format: self.format,
            used_bytes: bytes,
            ..Segment::free()
        };
        let other = self.by_id.insert(header.segment_id, number);
        assert_eq!(other, None, "ids of segments are not used again");
        self.note_opened(header.segment_id, state);
        number
    }

    /// Gives a cleaned segment back; the tombstones of what died in it die with it, unless other logs make them needed.
    pub(crate) fn release(&mut self, number: u32) {
        let segment = &mut self.segments[number as usize];
        assert_eq!(segment.live_bytes, 0, "a released segment holds live data");
        assert!(
            !segment.is_pinned,
            "somebody still reads a released segment"
        );
        let removed = self.by_id.remove(&segment.id);
        assert_eq!(removed, Some(number), "a released segment was not in use");
        let graves = std::mem::take(&mut segment.graves);
        *segment = Segment::free();
        for (holder, bytes) in graves {
            if self.keeps_tombstones_of(holder) {
                self.keep_tombstones(holder, bytes);
            } else {
                self.forget_tombstones(holder, bytes);
            }
        }
        self.free.push(number);
    }

    /// Copies an entry, about as old as `birth` says, to the end of a survivor segment, which has room for it.
    pub(crate) fn copy_to_survivor(
        &mut self,
        survivor: u32,
        from: usize,
        bytes: u32,
        birth: LogPosition,
    ) -> Reference {
        let start = self.offset_of_segment(survivor);
        let segment = &mut self.segments[survivor as usize];
        assert_eq!(segment.state, State::Survivor);
        assert!(segment.used_bytes + bytes <= self.config.segment_bytes);
        let to = start + segment.used_bytes as usize;
        segment.used_bytes += bytes;
        segment.birth_sum += u128::from(bytes) * u128::from(birth.0);
        self.memory.copy_within(from..from + bytes as usize, to);
        Reference::of_offset(to)
    }

    /// The memory of a segment from `offset` to the end of its entries.
    pub(crate) fn entries_from(&self, number: u32, offset: u32) -> &[u8] {
        let start = self.offset_of_segment(number);
        let end = start + self.segments[number as usize].used_bytes as usize;
        &self.memory[start + offset as usize..end]
    }
}
