//! Bringing tablets of a dead server back, as the coordinator orders it: reading the segments of its log from backups, replaying them, and owning
//! the tablets once the coordinator says so. docs/recovery.md says why it goes like this.

mod reader;
mod reading;
mod source;

use core::time::Duration;
use std::collections::VecDeque;

use base::ids::{ServerId, TableId};
use base::time::Time;
use log::{Log, NoRoom};
use trace::Event;
use wire::member::{self, TabletRange, ToCoordinator, shard};
use wire::peer::{Entries, MAX_FILTER_TABLETS, Status};

use crate::data::Store;
use crate::data::replay::{Replay, ReplayError};
use crate::data::tablets::{overlaps, split};
use crate::effects::ShardEffects;
use crate::movers::orders::may_bring_back;
use crate::movers::settling::Settling;
use crate::replicas::known::KnownBackups;
use crate::reports::{NoRoomHere, RecoveryError, RecoveryEvent, SourceError};
use reader::{MAX_PIECES, Piece, Reader, Wanted};
use source::{Failure, Source};

/// Recoveries at once; more are refused.
const MAX_RECOVERIES: usize = 8;
/// Pieces that one tick replays: each takes about half a millisecond, and clients wait meanwhile.
const PIECES_AT_ONCE: usize = 4;
/// Segments that are looked at in search of one that can be read now.
const LOOK_AHEAD: usize = 64;
/// A recovery that found no memory for so long is left to others.
const PATIENCE_FOR_MEMORY: Duration = Duration::from_secs(10);
/// A replay that found no memory is tried again after this.
const MEMORY_PAUSE: Duration = Duration::from_millis(1);

/// Recoveries under way, and those that the shard owes its tablets to.
#[derive(Default)]
pub(crate) struct Recoveries {
    active: Vec<Recovery>,
    unreleased: Vec<Unreleased>,
    reader: Reader,
    /// Whose piece was replayed last.
    turn: usize,
}

/// Tablets that are being brought back.
struct Recovery {
    id: u64,
    /// In order; split as the coordinator orders.
    tablets: Vec<TabletRange>,
    /// The same as they were ordered.
    filter: Vec<TabletRange>,
    /// `None` as long as there is no memory, or something of the tablets is still here from before.
    replay: Option<Replay>,
    /// What nobody was asked for yet, or not successfully; the last first.
    sources: Vec<Source>,
    /// What was read and is not replayed yet: a few pieces in a tick, and none as long as there is no memory.
    kept: VecDeque<(Read, Vec<u8>)>,
    waits_for_purge: bool,
    is_complete: bool,
    began: Time,
    /// Since when it waits for memory.
    starving_since: Option<Time>,
    bytes_read: u64,
}

/// Entries that were read: from whom, of which segment, and where to go on.
struct Read {
    backup: ServerId,
    source: Source,
    next_offset: u32,
}

/// A recovery whose tablets are owned, and that would be made again from the same logs if this server died.
struct Unreleased {
    id: u64,
    settling: Settling,
    is_durable: bool,
}

impl Recoveries {
    fn position(&self, id: u64) -> Option<usize> {
        self.active.iter().position(|recovery| recovery.id == id)
    }

    /// When to replay the next piece.
    fn next_replay(&self, now: Time) -> Time {
        let mut next = Time::NEVER;
        for recovery in &self.active {
            if recovery.starving_since.is_some() {
                next = next.min(now + MEMORY_PAUSE);
            } else if !recovery.kept.is_empty() {
                return now;
            }
        }
        next
    }

    /// Whether clients wait for what is replayed here. Where there is no memory for it, replay waits for the cleaner, which waits for copies.
    pub fn are_replaying(&self) -> bool {
        let mut active = self.active.iter();
        active.any(|one| one.replay.is_some() && !one.is_complete && one.starving_since.is_none())
    }

    /// Recoveries whose sources are still needed.
    pub fn unreleased_count(&self) -> u64 {
        self.unreleased.len() as u64
    }

    /// Whether a tablet overlaps one that is being brought back.
    pub fn overlap(&self, tablet: &TabletRange) -> bool {
        let mut active = self.active.iter();
        active.any(|recovery| overlaps(&recovery.tablets, tablet))
    }

    /// Makes two of a tablet that is being brought back; no if `key_hash` is in none.
    pub fn split(&mut self, table_id: TableId, key_hash: u64) -> bool {
        let mut active = self.active.iter_mut();
        active.any(|recovery| split(&mut recovery.tablets, table_id, key_hash))
    }

    /// The log that all of it was for is gone.
    pub fn clear(&mut self, out: &mut impl ShardEffects) {
        self.reader.close(out);
        *self = Recoveries::default();
    }
}

impl Recovery {
    /// Whether all that was asked for and has come is replayed, and nothing is left to ask for.
    fn is_through(&self) -> bool {
        let is_idle = self.sources.is_empty() && self.kept.is_empty();
        self.replay.is_some() && is_idle && !self.is_complete
    }

    /// The next segment that can be read now, and from whom.
    fn next_source(
        &mut self,
        is_known: impl Fn(ServerId) -> bool,
        has_room: impl Fn(ServerId) -> bool,
    ) -> Result<Option<(Source, ServerId)>, RecoveryError> {
        if self.replay.is_none() || self.starving_since.is_some() {
            return Ok(None);
        }
        let first = self.sources.len().saturating_sub(LOOK_AHEAD);
        for at in (first..self.sources.len()).rev() {
            let source = &mut self.sources[at];
            let mut candidates = source.candidates();
            for &unknown in candidates.iter().filter(|&&backup| !is_known(backup)) {
                source.failed(unknown, Failure::lasting(SourceError::NotNamed));
            }
            candidates.retain(|&backup| is_known(backup));
            if candidates.is_empty() {
                candidates = source.candidates();
            }
            if candidates.is_empty() {
                return Err(source.complaint());
            }
            if let Some(&backup) = candidates
                .iter()
                .find(|&&backup| is_known(backup) && has_room(backup))
            {
                return Ok(Some((self.sources.remove(at), backup)));
            }
        }
        Ok(None)
    }
}

fn send(kind: shard::Kind, out: &mut impl ShardEffects) {
    out.send_coordinator(ToCoordinator::from(kind));
}

fn durable(recovery_id: u64, out: &mut impl ShardEffects) {
    let id = member::RecoveryId { recovery_id };
    send(shard::Kind::RecoveryDurable(id), out);
}

/// A number that says nothing about its place among others: SplitMix64's.
fn scatter(seed: u64, number: u64) -> u64 {
    let mut z = seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

// ---- what the coordinator says ----

impl Recoveries {
    pub fn recover(
        &mut self,
        store: &mut Store,
        now: Time,
        order: member::Recover,
        is_taken: impl Fn(&TabletRange) -> bool,
        out: &mut impl ShardEffects,
    ) {
        let id = order.recovery_id;
        let is_known =
            self.position(id).is_some() || self.unreleased.iter().any(|one| one.id == id);
        if is_known {
            return;
        }
        trace::record(Event::RecoveryBegun, id);
        store.raise_version_floor(order.version_floor);
        let mut tablets = order.tablets;
        tablets.sort_unstable();
        if let Err(why) = self.may_recover(store, &tablets, is_taken) {
            return recovery_failed(id, why, out);
        }
        let event = RecoveryEvent::Began {
            recovery: id,
            tablets: tablets.len(),
            segments: order.segments.len(),
        };
        out.report(event.into());
        // Others who read the same log begin elsewhere.
        let mut sources: Vec<(u64, Source)> = order
            .segments
            .iter()
            .map(|segment| (scatter(id, segment.segment_id), Source::new(segment)))
            .collect();
        sources.sort_unstable_by_key(|(place, source)| (*place, source.replica));
        self.active.push(Recovery {
            id,
            filter: tablets.clone(),
            replay: None,
            sources: sources.into_iter().map(|(_, source)| source).collect(),
            kept: VecDeque::new(),
            waits_for_purge: store.has_purge()
                && tablets.iter().any(|tablet| store.is_purging(tablet)),
            tablets,
            is_complete: false,
            began: now,
            starving_since: None,
            bytes_read: 0,
        });
    }

    /// Whether tablets, which are in order, can be brought back here.
    fn may_recover(
        &self,
        store: &Store,
        tablets: &[TabletRange],
        is_taken: impl Fn(&TabletRange) -> bool,
    ) -> Result<(), RecoveryError> {
        if self.active.len() >= MAX_RECOVERIES {
            let recoveries = MAX_RECOVERIES;
            return Err(RecoveryError::Busy { recoveries });
        }
        if tablets.is_empty() || tablets.len() > MAX_FILTER_TABLETS {
            let tablets = tablets.len();
            return Err(RecoveryError::TabletCount { tablets });
        }
        let is_taken = |tablet: &TabletRange| is_taken(tablet) || self.overlap(tablet);
        may_bring_back(store, tablets, is_taken)?;
        Ok(())
    }

    /// Owns what a recovery has brought; no if it was not made here.
    pub fn commit_ordered(
        &mut self,
        store: &mut Store,
        id: u64,
        out: &mut impl ShardEffects,
    ) -> bool {
        self.unreleased.iter().any(|one| one.id == id) || self.commit(store, id, out)
    }

    /// Owns what a recovery has brought; no if it has not.
    fn commit(&mut self, store: &mut Store, id: u64, out: &mut impl ShardEffects) -> bool {
        let Some(at) = self.position(id) else {
            return false;
        };
        if !self.active[at].is_complete {
            return false;
        }
        let recovery = self.active.remove(at);
        let replay = recovery.replay.expect("a complete recovery has replayed");
        store.commit_replay(&replay, &recovery.tablets);
        self.unreleased.push(Unreleased {
            id,
            settling: Settling::new(&replay),
            is_durable: false,
        });
        trace::record(Event::RecoveryServed, id);
        let event = RecoveryEvent::Served {
            recovery: id,
            tablets: recovery.tablets.len(),
        };
        out.report(event.into());
        true
    }

    pub fn give_up(&mut self, store: &mut Store, id: u64, out: &mut impl ShardEffects) {
        if let Some(at) = self.position(id) {
            self.drop_recovery(store, at);
            out.report(RecoveryEvent::GivenUp { recovery: id }.into());
        }
    }

    pub fn sources_released(&mut self, store: &mut Store, id: u64) {
        let unreleased = &mut self.unreleased;
        let released = unreleased.extract_if(.., |one| one.id == id).count();
        for _ in 0..released {
            store.log.release_source();
        }
    }

    /// A coordinator has let the shard in again: of all recoveries these count.
    ///
    /// # Errors
    /// This one was not made here.
    pub fn resume(
        &mut self,
        store: &mut Store,
        counting: &[u64],
        out: &mut impl ShardEffects,
    ) -> Result<(), u64> {
        let active: Vec<u64> = self.active.iter().map(|recovery| recovery.id).collect();
        for id in active {
            if !counting.contains(&id) || !self.commit(store, id, out) {
                self.give_up(store, id, out);
            }
        }
        let unreleased = self.unreleased.iter().map(|one| one.id);
        let unreleased: Vec<u64> = unreleased.collect();
        for &id in unreleased.iter().filter(|id| !counting.contains(id)) {
            self.sources_released(store, id);
        }
        if let Some(&unknown) = counting.iter().find(|id| !unreleased.contains(id)) {
            return Err(unknown);
        }
        for one in self.unreleased.iter().filter(|one| one.is_durable) {
            durable(one.id, out);
        }
        Ok(())
    }
}

impl Recoveries {
    /// Forgets a recovery that is not committed, with all that it has brought.
    fn drop_recovery(&mut self, store: &mut Store, at: usize) {
        let recovery = self.active.remove(at);
        self.reader.forget(recovery.id);
        if let Some(replay) = recovery.replay {
            store.give_up_replay(replay);
        }
    }

    fn fail_recovery(
        &mut self,
        store: &mut Store,
        at: usize,
        error: RecoveryError,
        out: &mut impl ShardEffects,
    ) {
        let id = self.active[at].id;
        self.drop_recovery(store, at);
        recovery_failed(id, error, out);
    }

    /// Recoveries on their way into this shard's own log.
    pub fn settling(&mut self) -> impl Iterator<Item = &mut Settling> {
        self.unreleased.iter_mut().map(|one| &mut one.settling)
    }

    /// Says so where everything that a recovery has brought is durable in this shard's own log.
    pub fn look_for_durable(&mut self, log: &Log, out: &mut impl ShardEffects) {
        for one in &mut self.unreleased {
            let is_durable = one.settling.is_durable(log);
            if is_durable && !std::mem::replace(&mut one.is_durable, true) {
                durable(one.id, out);
            }
        }
    }
}

/// Why a recovery ends here without its tablets, for the coordinator and for people.
fn recovery_failed(id: u64, error: RecoveryError, out: &mut impl ShardEffects) {
    let recovered = member::Recovered {
        recovery_id: id,
        failure: error.to_string(),
        is_full: error.is_full(),
        ..member::Recovered::default()
    };
    let recovery = id;
    out.report(RecoveryEvent::Failed { recovery, error }.into());
    send(shard::Kind::Recovered(recovered), out);
}
