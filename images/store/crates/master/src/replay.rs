//! Bringing tablets back from the segments of another log, in whatever order these come.
//!
//! Of each key the highest version counts. Where that is a tombstone, it is remembered here until the last segment was replayed: the dead object may
//! come later. Copies go to side segments of this shard's log as they are; nothing is shown before the tablets are taken.

use log::NoRoom;
use wire::entry::{EntryError, Kind, ObjectView, RawEntry, RpcResult, SegmentHeader, Tombstone};
use wire::ids::TableId;
use wire::map::Map;
use wire::member::TabletRange;

use crate::results::Known;
use crate::shard::Shard;
use crate::store::{Place, Store};
use crate::tablets::holds;

/// Entries that are looked at ahead, so that their cache misses overlap.
const BATCH: usize = 16;

/// What was replayed so far of some tablets.
#[derive(Default)]
pub struct Replay {
    tablets: Vec<TabletRange>,
    /// The highest version of each key that is known to be dead.
    dead: Map<Key, u64>,
    /// All versions that were seen are below this.
    next_version: u64,
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

    fn holds(&self, place: &Place<'_>) -> bool {
        holds(&self.tablets, place.table_id, place.hash)
    }

    fn dead_version(&self, place: &Place<'_>) -> u64 {
        if self.dead.is_empty() {
            return 0;
        }
        let key = (place.table_id, place.key.into());
        self.dead.get(&key).copied().unwrap_or(0)
    }
}

/// An entry that belongs to the tablets, and where its key lies.
enum Wanted<'a> {
    Object(RawEntry<'a>, ObjectView<'a>, Place<'a>),
    Tombstone(Tombstone<'a>, Place<'a>),
    Result(RawEntry<'a>, RpcResult<'a>),
}

impl Shard {
    /// Begins to bring these tablets back. They overlap none that the shard owns or replays, and nothing is left here of an earlier time.
    pub fn begin_replay(&mut self, tablets: Vec<TabletRange>) -> Replay {
        self.store.begin_replay(tablets)
    }

    /// Replays a segment, or the part of one that was kept for these tablets. Doing it twice does no harm.
    pub fn replay(&mut self, replay: &mut Replay, segment: &[u8]) -> Result<(), ReplayError> {
        self.store.replay(replay, segment)
    }

    /// All segments were replayed: the shard serves the tablets from now on.
    pub fn end_replay(&mut self, replay: Replay) {
        self.store.end_replay(&replay);
        for tablet in replay.tablets {
            let is_free = self.store.tablets.take(tablet);
            assert!(is_free, "a tablet was recovered that is owned");
        }
    }

    /// Somebody else brings the tablets back: what is here of them goes.
    pub fn give_up_replay(&mut self, replay: Replay) {
        self.store.give_up_replay(&replay);
    }
}

impl Store {
    /// Begins to bring these tablets back. They overlap none that the shard owns, replays or purges.
    pub fn begin_replay(&mut self, tablets: Vec<TabletRange>) -> Replay {
        self.replaying.extend_from_slice(&tablets);
        Replay {
            tablets,
            ..Replay::default()
        }
    }

    /// Replays a segment, or the part of one that was kept for these tablets. Doing it twice does no harm.
    pub fn replay(&mut self, replay: &mut Replay, segment: &[u8]) -> Result<(), ReplayError> {
        let mut offset = 0;
        let mut batch = Vec::with_capacity(BATCH);
        while offset < segment.len() {
            while offset < segment.len() && batch.len() < BATCH {
                let damaged = |error| ReplayError::Damaged { offset, error };
                let entry = RawEntry::read_checked(&segment[offset..]).map_err(damaged)?;
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
                let object = ObjectView::of_body(entry.body)?;
                let place = Place::of(object.table_id, object.primary_key);
                replay
                    .holds(&place)
                    .then_some(Wanted::Object(*entry, object, place))
            }
            Kind::Tombstone => {
                let tombstone: Tombstone<'_> = entry.decode()?;
                let place = Place::of(tombstone.table_id, tombstone.key);
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
                self.replay_tombstone(replay, tombstone, place);
                Ok(())
            }
            Wanted::Result(entry, result) => self.replay_result(replay, entry, result),
        }
    }

    fn replay_object(
        &mut self,
        replay: &mut Replay,
        entry: &RawEntry<'_>,
        object: &ObjectView<'_>,
        place: &Place<'_>,
    ) -> Result<(), ReplayError> {
        replay.next_version = replay.next_version.max(object.version + 1);
        let found = self.look_up(place);
        if object.version <= found.version.max(replay.dead_version(place)) {
            return Ok(());
        }
        if found.slot.is_none() && !self.keeper.index.has_room(place.hash) {
            return Err(ReplayError::TableFull);
        }
        let at = self.log.append_copy(entry)?;
        match (found.slot, found.object) {
            (Some(slot), old) => {
                if let Some(old) = old {
                    self.log.kill(old);
                } else {
                    self.object_count += 1;
                }
                self.keeper.index.set(slot, at);
            }
            (None, _) => {
                let inserted = self.keeper.index.insert(place.hash, at);
                inserted.map_err(|_| ReplayError::TableFull)?;
                self.object_count += 1;
            }
        }
        replay.stats.objects += 1;
        Ok(())
    }

    fn replay_tombstone(
        &mut self,
        replay: &mut Replay,
        tombstone: &Tombstone<'_>,
        place: &Place<'_>,
    ) {
        replay.next_version = replay.next_version.max(tombstone.version + 1);
        let found = self.look_up(place);
        if found.version > tombstone.version {
            return;
        }
        if let (Some(slot), Some(old)) = (found.slot, found.object) {
            self.log.kill(old);
            self.keeper.index.remove(slot);
            self.object_count -= 1;
        }
        let key = (place.table_id, place.key.into());
        let dead = replay.dead.entry(key).or_insert(0);
        *dead = (*dead).max(tombstone.version);
        replay.stats.tombstones += 1;
    }

    fn replay_result(
        &mut self,
        replay: &mut Replay,
        entry: &RawEntry<'_>,
        result: &RpcResult<'_>,
    ) -> Result<(), ReplayError> {
        let (lease_id, rpc_id, ack_id) = (result.lease_id, result.rpc_id, result.ack_id);
        let (results, log) = (&mut self.keeper.results, &mut self.log);
        if results.look_up(lease_id, rpc_id, ack_id, |record| log.kill(record)) != Known::Nothing {
            return Ok(());
        }
        // When the lease ends nobody here knows: the coordinator is asked.
        if !results.has_room(lease_id, rpc_id, self.config.max_result_slots)
            || !results.admit(lease_id, 0, self.config.max_clients)
        {
            return Err(ReplayError::TableFull);
        }
        let at = self.log.append_copy(entry)?;
        self.keeper.results.record(lease_id, rpc_id, ack_id, at);
        replay.stats.rpc_results += 1;
        Ok(())
    }

    /// All segments were replayed: the tablets are whole, and versions of new objects are above everything that was.
    pub fn end_replay(&mut self, replay: &Replay) {
        self.log.raise_safe_version(replay.next_version);
        self.log.close_copies();
        self.replaying
            .retain(|tablet| !replay.tablets.contains(tablet));
    }

    /// Somebody else brings the tablets back, or tries again: what is here of them goes.
    pub fn give_up_replay(&mut self, replay: &Replay) {
        self.log.close_copies();
        self.replaying
            .retain(|tablet| !replay.tablets.contains(tablet));
        for &tablet in &replay.tablets {
            self.drop_tablet(tablet);
        }
    }
}

#[cfg(test)]
mod tests;
