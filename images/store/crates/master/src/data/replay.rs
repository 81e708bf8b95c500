//! Bringing tablets back from the segments of another log, in whatever order these come.
//!
//! Of each key the highest version counts. Where that is a tombstone, it is remembered here until the last segment was replayed: the dead object may
//! come later. Copies go to side segments of this shard's log as they are; nothing is shown before the tablets are taken.

use base::bugs::{Bug, is_planted};
use base::ids::TableId;
use base::map::Map;
use log::{NoRoom, Reference};
use wire::entry::{EntryError, Kind, ObjectView, RawEntry, RpcResult, SegmentHeader, Tombstone};
use wire::member::TabletRange;

use crate::data::results::Known;
use crate::data::tablets::holds;
use crate::data::{Found, HashedKey, Store};

/// Entries that are looked at ahead, so that their cache misses overlap.
const BATCH: usize = 16;

/// What was replayed so far of some tablets.
pub struct Replay {
    /// In order.
    pub(crate) tablets: Vec<TabletRange>,
    from_segment: u64,
    /// The highest version of each key that is known to be dead.
    dead: Map<Key, u64>,
    /// All versions that were seen are below this.
    next_version: u64,
    /// Side segments of this shard's log that took something of it, oldest first.
    sides: Vec<u64>,
    /// More may come.
    is_copying: bool,
    stats: ReplayStats,
}

type Key = (TableId, Box<[u8]>);

/// What a replay came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayStats {
    pub segments: u64,
    /// Of all entries, needed or not.
    pub bytes: u64,
    pub objects: u64,
    pub tombstones: u64,
    pub rpc_results: u64,
}

/// Why a replay cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayError {
    /// The segment is damaged at this offset.
    Damaged { offset: usize, error: EntryError },
    /// Memory is full; after [`NoRoom::Cleaning`] the same segment can be replayed again.
    NoRoom(NoRoom),
    /// The hash table, or what is remembered of clients, is full.
    TableFull,
}

impl From<NoRoom> for ReplayError {
    fn from(no_room: NoRoom) -> ReplayError {
        ReplayError::NoRoom(no_room)
    }
}

impl Replay {
    pub fn stats(&self) -> ReplayStats {
        self.stats
    }

    /// Everything that this shard's log holds of the tablets, now and later, lies in this segment and in later ones.
    pub fn from_segment(&self) -> u64 {
        self.from_segment
    }

    /// Side segments of this shard's log that took copies.
    pub(crate) fn sides(&self) -> &[u64] {
        &self.sides
    }

    /// Versions below this were used.
    pub(crate) fn note_versions(&mut self, next_version: u64) {
        self.next_version = self.next_version.max(next_version);
    }

    /// What is replayed next was written after all that was replayed so far: no object comes after its tombstone.
    pub(crate) fn forget_dead(&mut self) {
        self.dead.clear();
    }

    fn holds(&self, place: &HashedKey<'_>) -> bool {
        holds(&self.tablets, place.table_id, place.hash)
    }

    fn dead_version(&self, place: &HashedKey<'_>) -> u64 {
        if self.dead.is_empty() {
            return 0;
        }
        let key = (place.table_id, place.key.into());
        self.dead.get(&key).copied().unwrap_or(0)
    }
}

/// An entry that belongs to the tablets, and where its key lies.
enum Wanted<'a> {
    Object(RawEntry<'a>, ObjectView<'a>, HashedKey<'a>),
    Tombstone(Tombstone<'a>, HashedKey<'a>),
    Result(RawEntry<'a>, RpcResult<'a>),
}

impl Store {
    /// Begins to bring these tablets back. They overlap none that the shard owns, replays or purges.
    pub fn begin_replay(&mut self, mut tablets: Vec<TabletRange>) -> Result<Replay, NoRoom> {
        let from_segment = self.log.begin_copies()?;
        tablets.sort_unstable();
        self.replaying.extend_from_slice(&tablets);
        self.replaying.sort_unstable();
        Ok(Replay {
            tablets,
            from_segment,
            dead: Map::default(),
            next_version: 0,
            sides: Vec::new(),
            is_copying: true,
            stats: ReplayStats::default(),
        })
    }

    /// Replays a segment, or the part of one that was kept for these tablets. Doing it twice does no harm.
    pub fn replay(&mut self, replay: &mut Replay, segment: &[u8]) -> Result<(), ReplayError> {
        let mut offset = 0;
        let mut batch = Vec::with_capacity(BATCH);
        while offset < segment.len() {
            while offset < segment.len() && batch.len() < BATCH {
                let damaged = |error| ReplayError::Damaged { offset, error };
                let entry = RawEntry::read_checked(&segment[offset..]).map_err(damaged)?;
                self.config.formats.check(&entry).map_err(damaged)?;
                if let Some(wanted) = self.look_ahead(replay, &entry).map_err(damaged)? {
                    batch.push(wanted);
                }
                offset += entry.bytes.len();
            }
            for wanted in batch.drain(..) {
                self.replay_entry(replay, &wanted)?;
            }
        }
        replay.stats.segments += 1;
        replay.stats.bytes += segment.len() as u64;
        Ok(())
    }

    /// Reads an entry, and has the processor fetch what replaying it will need.
    fn look_ahead<'a>(
        &mut self,
        replay: &mut Replay,
        entry: &RawEntry<'a>,
    ) -> Result<Option<Wanted<'a>>, EntryError> {
        let wanted = match entry.kind {
            Kind::Object => {
                let object = ObjectView::of(entry)?;
                let place = HashedKey::of(object.table_id, object.primary_key);
                replay
                    .holds(&place)
                    .then_some(Wanted::Object(*entry, object, place))
            }
            Kind::Tombstone => {
                let tombstone: Tombstone<'_> = entry.decode()?;
                let place = HashedKey::of(tombstone.table_id, tombstone.key);
                replay
                    .holds(&place)
                    .then_some(Wanted::Tombstone(tombstone, place))
            }
            Kind::RpcResult => {
                let result: RpcResult<'_> = entry.decode()?;
                holds(&replay.tablets, result.table_id, result.key_hash)
                    .then_some(Wanted::Result(*entry, result))
            }
            Kind::SegmentHeader => {
                let header: SegmentHeader = entry.decode()?;
                replay.next_version = replay.next_version.max(header.safe_version);
                None
            }
            Kind::Digest => None,
        };
        if let Some(Wanted::Object(_, _, place) | Wanted::Tombstone(_, place)) = &wanted {
            self.keeper.index.prefetch(place.hash);
        }
        Ok(wanted)
    }

    fn replay_entry(
        &mut self,
        replay: &mut Replay,
        wanted: &Wanted<'_>,
    ) -> Result<(), ReplayError> {
        match wanted {
            Wanted::Object(entry, object, place) => {
                self.replay_object(replay, entry, object, place)
            }
            Wanted::Tombstone(tombstone, place) => {
                Ok(self.replay_tombstone(replay, tombstone, place)?)
            }
            Wanted::Result(entry, result) => self.replay_result(replay, entry, result),
        }
    }

    fn replay_object(
        &mut self,
        replay: &mut Replay,
        entry: &RawEntry<'_>,
        object: &ObjectView<'_>,
        place: &HashedKey<'_>,
    ) -> Result<(), ReplayError> {
        replay.next_version = replay.next_version.max(object.version + 1);
        let found = self.look_up(place);
        if object.version <= found.version.max(replay.dead_version(place)) {
            return Ok(());
        }
        if found.known.is_none() && !self.keeper.index.has_room(place.hash) {
            return Err(ReplayError::TableFull);
        }
        let at = match found.object {
            Some(older) => {
                let dead = self.tombstone_of(older, &found, place);
                self.log.append_newer_copy(entry, &dead, older)?
            }
            None => self.log.append_copy(entry)?,
        };
        self.object_count += u64::from(found.object.is_none());
        match found.known {
            Some(known) => self.keeper.index.set(known.slot, at),
            None => {
                let inserted = self.keeper.index.insert(place.hash, at);
                inserted.expect("there was room");
            }
        }
        self.note_side(replay, at);
        replay.stats.objects += 1;
        Ok(())
    }

    /// Of a copy that is about to die. Without it the copy would come back from this log, once the other log is gone that says that it is dead.
    fn tombstone_of<'a>(
        &self,
        copy: Reference,
        found: &Found,
        place: &HashedKey<'a>,
    ) -> Tombstone<'a> {
        self.log
            .tombstone_of(copy, place.table_id, found.version, place.key)
    }

    fn note_side(&self, replay: &mut Replay, at: Reference) {
        let side = self.log.segment_id_of(at);
        if replay.sides.last() != Some(&side) {
            replay.sides.push(side);
        }
    }

    fn replay_tombstone(
        &mut self,
        replay: &mut Replay,
        tombstone: &Tombstone<'_>,
        place: &HashedKey<'_>,
    ) -> Result<(), NoRoom> {
        replay.next_version = replay.next_version.max(tombstone.version + 1);
        if is_planted(Bug::DropTombstoneInReplay) {
            return Ok(());
        }
        let found = self.look_up(place);
        if found.version > tombstone.version {
            return Ok(());
        }
        if let (Some(known), Some(copy)) = (found.known, found.object) {
            let dead = self.tombstone_of(copy, &found, place);
            let at = self.log.kill_copy(&dead, copy)?;
            self.note_side(replay, at);
            self.keeper.index.remove(known.slot);
            self.object_count -= 1;
        }
        let key = (place.table_id, place.key.into());
        let dead = replay.dead.entry(key).or_insert(0);
        *dead = (*dead).max(tombstone.version);
        replay.stats.tombstones += 1;
        Ok(())
    }

    fn replay_result(
        &mut self,
        replay: &mut Replay,
        entry: &RawEntry<'_>,
        result: &RpcResult<'_>,
    ) -> Result<(), ReplayError> {
        if is_planted(Bug::ForgetReplayedResult) {
            return Ok(());
        }
        let (lease_id, rpc_id, ack_id) = (result.lease_id, result.rpc_id, result.ack_id);
        let (results, log) = (&mut self.keeper.results, &mut self.log);
        // When the lease ends nobody here knows: the coordinator is asked.
        if !results.admit(lease_id, 0, self.config.max_clients) {
            return Err(ReplayError::TableFull);
        }
        results.acknowledge(lease_id, ack_id, |record| log.kill(record));
        if results.look_up(lease_id, rpc_id, ack_id) != Known::Nothing {
            return Ok(());
        }
        if !results.has_room(lease_id, rpc_id, self.config.max_result_slots) {
            return Err(ReplayError::TableFull);
        }
        let at = self.log.append_copy(entry)?;
        self.keeper.results.record(lease_id, rpc_id, ack_id, at);
        self.note_side(replay, at);
        replay.stats.rpc_results += 1;
        Ok(())
    }

    /// All segments were replayed: versions of new objects are above everything that was. What remembered the dead is not needed any more.
    pub fn complete_replay(&mut self, replay: &mut Replay) {
        if !is_planted(Bug::ReuseVersionAfterReplay) {
            self.log.raise_safe_version(replay.next_version);
        }
        self.end_copies(replay);
        replay.dead = Map::default();
    }

    fn end_copies(&mut self, replay: &mut Replay) {
        if std::mem::take(&mut replay.is_copying) {
            self.log.end_copies();
        }
    }

    /// The shard owns what it has replayed: these tablets, into which those of the replay may have been split.
    pub fn commit_replay(&mut self, replay: &Replay, tablets: &[TabletRange]) {
        self.forget_replaying(replay);
        for &tablet in tablets {
            let is_free = self.tablets.take(tablet);
            assert!(is_free, "a tablet was recovered that is owned");
        }
    }

    /// Somebody else brings the tablets back, or tries again: what is here of them goes.
    pub fn give_up_replay(&mut self, mut replay: Replay) {
        self.end_copies(&mut replay);
        self.forget_replaying(&replay);
        for &tablet in &replay.tablets {
            self.drop_tablets(&[tablet]);
        }
        self.log.release_source();
    }

    fn forget_replaying(&mut self, replay: &Replay) {
        let is_mine = |tablet: &TabletRange| replay.tablets.binary_search(tablet).is_ok();
        self.replaying.retain(|tablet| !is_mine(tablet));
    }
}

#[cfg(test)]
mod tests;
