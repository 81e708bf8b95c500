//! Objects in the log, and the one place where they change.

use std::collections::VecDeque;

use log::{
    Admission, Change, Cleaning, Durability, Index, Keeps, Log, LogPosition, NoRoom, Origin,
    Reference, Slot,
};
use trace::Event;
use wire::bugs::{Bug, is_planted};
use wire::entry::{Kind, Object, ObjectView, RawEntry, RpcResult, Tombstone};
use wire::hash::key_hash;
use wire::ids::TableId;
use wire::keys::KeysAndValue;
use wire::member::TabletRange;
use wire::rpc::{
    Increment, IncrementResponse, MAX_VALUE_BYTES, RejectRules, RemoveResponse, WriteResponse,
};
use wire::status::Status;

use crate::config::Config;
use crate::results::Results;
use crate::tablets::{Tablets, holds, joined, overlaps};

/// Everything that a shard keeps for its clients.
pub(crate) struct Store {
    pub config: Config,
    pub log: Log,
    pub keeper: Keeper,
    pub tablets: Tablets,
    /// What is being recovered, in order: objects may be there, and nobody is served.
    pub replaying: Vec<TabletRange>,
    purge: Purge,
    /// Removed keys whose slots stay until their tombstones are durable, so that "not found" is not shown too early.
    removed: VecDeque<Removed>,
    pub object_count: u64,
    /// Above every version that an overwritten object got; those of new ones are below the log's own count.
    next_version: u64,
    /// What is written over an object gets this version at least.
    version_floor: u64,
}

/// What refers to entries of the log.
pub(crate) struct Keeper {
    pub index: Index,
    pub results: Results,
}

struct Removed {
    position: LogPosition,
    hash: u64,
    tombstone: Reference,
}

/// The walk over the hash table, and over what clients were answered, that takes out what belongs to dropped tablets.
#[derive(Default)]
struct Purge {
    /// In order; none overlaps another.
    dropped: Vec<TabletRange>,
    next_bucket: usize,
    buckets_left: usize,
    /// The last client that was looked at, or 0; `None` when all were.
    last_client: Option<u64>,
}

/// Slots of a bucket, about: as many records are looked at in one step as objects.
const BUCKET_SLOTS: usize = 7;

/// Where a key lies in the hash space.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub table_id: TableId,
    pub key: &'a [u8],
    pub hash: u64,
}

impl<'a> Place<'a> {
    pub fn of(table_id: TableId, key: &'a [u8]) -> Place<'a> {
        Place {
            table_id,
            key,
            hash: key_hash(table_id, key),
        }
    }
}

/// What a lookup found.
pub(crate) struct Found {
    pub slot: Option<Slot>,
    pub object: Option<Reference>,
    /// 0: there is no object.
    pub version: u64,
    /// What must be durable before this is shown.
    pub seen: LogPosition,
}

/// Which numbered RPC of which client an operation is; its outcome is recorded under that.
#[derive(Clone, Copy)]
pub(crate) struct Numbered {
    pub lease_id: u64,
    pub rpc_id: u64,
    pub ack_id: u64,
}

/// What an operation came to. [`Status::Retry`] means that it had no effect and left no record.
#[derive(Clone, Copy)]
pub(crate) struct Outcome<A> {
    pub response: A,
    /// What must be durable before this is shown.
    pub seen: LogPosition,
}

/// The answer to an operation that may change an object.
pub(crate) trait Answer: Copy {
    fn of(status: Status, version: u64) -> Self;
    fn status(&self) -> Status;
    fn to_bytes(self) -> impl AsRef<[u8]>;
}

impl Answer for WriteResponse {
    fn of(status: Status, version: u64) -> Self {
        WriteResponse { status, version }
    }
    fn status(&self) -> Status {
        self.status
    }
    fn to_bytes(self) -> impl AsRef<[u8]> {
        self.to_bytes()
    }
}

impl Answer for IncrementResponse {
    fn of(status: Status, version: u64) -> Self {
        IncrementResponse {
            status,
            version,
            new_value: [0; 8],
        }
    }
    fn status(&self) -> Status {
        self.status
    }
    fn to_bytes(self) -> impl AsRef<[u8]> {
        self.to_bytes()
    }
}

impl<A: Answer> Outcome<A> {
    /// Nothing happened, and nothing was looked at that a crash could take back.
    pub fn nothing(status: Status) -> Outcome<A> {
        Outcome {
            response: A::of(status, 0),
            seen: LogPosition::START,
        }
    }
}

impl<A: Answer> From<NoRoom> for Outcome<A> {
    fn from(no_room: NoRoom) -> Outcome<A> {
        Outcome::nothing(match no_room {
            NoRoom::Full => Status::NoTableSpace,
            NoRoom::Cleaning => Status::Retry,
        })
    }
}

/// What the record of an RPC takes in the log, at most.
const RESULT_BYTES: usize = RpcResult::entry_bytes_of(IncrementResponse::FIXED_BYTES);

impl Store {
    /// # Panics
    /// If the configuration does not pass [`log::Config::check`].
    pub fn new(config: Config, origin: Origin) -> Store {
        let log = Log::new(config.log(), origin).unwrap_or_else(|error| panic!("{error}"));
        Store {
            config,
            log,
            keeper: Keeper {
                index: Index::new(config.hash_table_bytes),
                results: Results::default(),
            },
            tablets: Tablets::default(),
            replaying: Vec::new(),
            purge: Purge::default(),
            removed: VecDeque::new(),
            object_count: 0,
            next_version: 0,
            version_floor: 0,
        }
    }

    /// Drops everything and starts anew in the same memory.
    pub fn reset(&mut self, origin: Origin, first_version: u64) {
        self.next_version = 0;
        self.version_floor = 0;
        self.log.reset(origin);
        self.log.raise_safe_version(first_version);
        self.keeper.index.clear();
        self.keeper.results.clear();
        self.tablets.clear();
        self.replaying.clear();
        self.purge = Purge::default();
        self.removed.clear();
        self.object_count = 0;
    }

    /// No object here ever had this version or a higher one.
    pub fn next_version(&self) -> u64 {
        self.next_version.max(self.log.safe_version())
    }

    /// Everything that is written from now on gets this version at least.
    pub fn raise_version_floor(&mut self, floor: u64) {
        self.version_floor = self.version_floor.max(floor);
        self.log.raise_safe_version(floor);
    }

    // ---- reading ----

    /// Finds the newest entry of a key.
    #[inline]
    pub fn look_up(&self, place: &Place<'_>) -> Found {
        let slot = self
            .keeper
            .index
            .find(place.hash, |found| is_of_key(&self.log.entry(found), place));
        trace::record(Event::LookedUp, u64::from(slot.is_some()));
        let Some(slot) = slot else {
            return Found {
                slot: None,
                object: None,
                version: 0,
                seen: LogPosition::START,
            };
        };
        let at = self.keeper.index.get(slot);
        let entry = self.log.entry(at);
        let (object, version) = match entry.kind {
            Kind::Object => (Some(at), object_view(&entry).version),
            Kind::Tombstone | Kind::SegmentHeader | Kind::RpcResult | Kind::Digest => (None, 0),
        };
        Found {
            slot: Some(slot),
            object,
            version,
            seen: self.position_seen(at),
        }
    }

    /// The object at a place that [`Self::look_up`] found.
    pub fn object(&self, at: Reference) -> ObjectView<'_> {
        object_view(&self.log.entry(at))
    }

    /// What must be durable before the entry at `at` is shown.
    pub fn position_seen(&self, at: Reference) -> LogPosition {
        match self.config.durability {
            Durability::Unreplicated => LogPosition::START,
            Durability::External => self.log.position_of(at),
        }
    }

    // ---- changing ----

    /// Makes or overwrites an object, with the record of the RPC and the tombstone of what was there in one append.
    pub fn write(
        &mut self,
        place: &Place<'_>,
        rules: &RejectRules,
        content: KeysAndValue<'_>,
        numbered: Option<Numbered>,
    ) -> Outcome<WriteResponse> {
        if content.value().len() > MAX_VALUE_BYTES {
            return Outcome::nothing(Status::RequestTooLarge);
        }
        let found = self.look_up(place);
        if let Err(status) = rules.check(found.version) {
            return self.no_change(status, &found, place, numbered);
        }
        match self.put(place, &found, content) {
            Ok(version) => self.record(Answer::of(Status::Ok, version), place, numbered),
            Err(outcome) => self.not_done(outcome, numbered),
        }
    }

    /// Adds to the 8 bytes of an object, as [`Self::write`] does. What is written has the primary key only.
    pub fn increment(
        &mut self,
        place: &Place<'_>,
        rules: &RejectRules,
        by: Increment,
        numbered: Option<Numbered>,
    ) -> Outcome<IncrementResponse> {
        let found = self.look_up(place);
        if let Err(status) = rules.check(found.version) {
            return self.no_change(status, &found, place, numbered);
        }
        let old = match found.object {
            None => [0; 8],
            Some(at) => match <[u8; 8]>::try_from(self.object(at).value) {
                Ok(value) => value,
                Err(_) => return self.no_change(Status::InvalidObject, &found, place, numbered),
            },
        };
        let new_value = by.apply(old);
        let Ok(content) = KeysAndValue::single(place.key, &new_value) else {
            return Outcome::nothing(Status::RequestFormatError);
        };
        match self.put(place, &found, content) {
            Ok(version) => {
                let response = IncrementResponse {
                    status: Status::Ok,
                    version,
                    new_value,
                };
                let numbered = numbered.filter(|_| !is_planted(Bug::RepeatIncrement));
                self.record(response, place, numbered)
            }
            Err(outcome) => self.not_done(outcome, numbered),
        }
    }

    /// Puts an object where `found` was found, and answers its version; room for the record of the RPC is behind it.
    fn put<A: Answer>(
        &mut self,
        place: &Place<'_>,
        found: &Found,
        content: KeysAndValue<'_>,
    ) -> Result<u64, Outcome<A>> {
        self.prepare_write(place, found, &content)?;
        let version = match found.version {
            0 => self.log.take_safe_version(),
            old => (old + 1).max(self.version_floor),
        };
        self.next_version = self.next_version.max(version + 1);
        let object = Object {
            table_id: place.table_id,
            version,
            content,
        };
        let at = self.log.append(&object);
        if let Some(old) = found.object {
            if self.log.needs_tombstone(old) {
                let (table_id, key) = (place.table_id, place.key);
                self.log.append_tombstone(table_id, found.version, key, old);
            }
            self.log.kill(old);
        } else {
            self.object_count += 1;
        }
        match found.slot {
            Some(slot) => self.keeper.index.set(slot, at),
            None => {
                let inserted = self.keeper.index.insert(place.hash, at);
                inserted.expect("`prepare_write` saw room");
            }
        }
        Ok(version)
    }

    fn prepare_write<A: Answer>(
        &mut self,
        place: &Place<'_>,
        found: &Found,
        content: &KeysAndValue<'_>,
    ) -> Result<(), Outcome<A>> {
        let object_bytes = Object::entry_bytes_of(content.encoded_bytes());
        let dying_bytes = found
            .object
            .map_or(0, |old| self.log.entry(old).bytes.len());
        // Counted for new objects too: whatever can be written can then be removed.
        let tombstone_bytes = Tombstone::entry_bytes_of(place.key.len());
        let bytes = object_bytes + tombstone_bytes + RESULT_BYTES;
        if bytes > self.log.config().max_append_bytes() {
            return Err(Outcome::nothing(Status::RequestTooLarge));
        }
        if found.slot.is_none() && !self.keeper.index.has_room(place.hash) {
            return Err(Outcome::nothing(Status::NoTableSpace));
        }
        let growth = object_bytes as i64 - dying_bytes as i64;
        Ok(self.log.prepare(bytes, growth, Admission::Write)?)
    }

    /// Removes an object, with the record of the RPC in the same append.
    pub fn remove(
        &mut self,
        place: &Place<'_>,
        rules: &RejectRules,
        numbered: Option<Numbered>,
    ) -> Outcome<RemoveResponse> {
        let found = self.look_up(place);
        if let Err(status) = rules.check(found.version) {
            return self.no_change(status, &found, place, numbered);
        }
        let (Some(slot), Some(old)) = (found.slot, found.object) else {
            return self.no_change(Status::Ok, &found, place, numbered);
        };
        let bytes = Tombstone::entry_bytes_of(place.key.len()) + RESULT_BYTES;
        if let Err(no_room) = self.log.prepare(bytes, 0, Admission::Remove) {
            return self.not_done(no_room.into(), numbered);
        }
        let (table_id, key) = (place.table_id, place.key);
        let tombstone = self.log.append_tombstone(table_id, found.version, key, old);
        self.log.kill(old);
        self.object_count -= 1;
        if !is_planted(Bug::VersionRestartsAfterRemove) {
            self.log.raise_safe_version(found.version + 1);
        }
        self.vacate(slot, place.hash, tombstone);
        self.record(Answer::of(Status::Ok, found.version), place, numbered)
    }

    /// Takes a removed key's slot away, now or when its tombstone is durable.
    fn vacate(&mut self, slot: Slot, hash: u64, tombstone: Reference) {
        let at_once = self.config.durability == Durability::Unreplicated
            || is_planted(Bug::DropTombstoneEarly);
        if at_once {
            self.keeper.index.remove(slot);
            return;
        }
        self.keeper.index.set(slot, tombstone);
        self.removed.push_back(Removed {
            position: self.log.position_of(tombstone),
            hash,
            tombstone,
        });
    }

    /// Records an outcome that changed no object: it must not come out differently when the RPC is repeated.
    fn no_change<A: Answer>(
        &mut self,
        status: Status,
        found: &Found,
        place: &Place<'_>,
        numbered: Option<Numbered>,
    ) -> Outcome<A> {
        let response = A::of(status, found.version);
        if numbered.is_none() {
            return Outcome {
                response,
                seen: found.seen,
            };
        }
        match self.log.prepare(RESULT_BYTES, 0, Admission::Remove) {
            Ok(()) => self.record(response, place, numbered),
            Err(no_room) => self.not_done(no_room.into(), numbered),
        }
    }

    /// An operation that had no effect for want of room. If its client takes that for the outcome, it has to stay so.
    fn not_done<A: Answer>(
        &mut self,
        outcome: Outcome<A>,
        numbered: Option<Numbered>,
    ) -> Outcome<A> {
        if outcome.response.status() == Status::NoTableSpace
            && let Some(numbered) = numbered
        {
            let Numbered {
                lease_id,
                rpc_id,
                ack_id,
            } = numbered;
            let results = &mut self.keeper.results;
            results.record_refusal(lease_id, rpc_id, ack_id);
        }
        outcome
    }

    /// Appends the record of a numbered RPC; the room is there.
    fn record<A: Answer>(
        &mut self,
        response: A,
        place: &Place<'_>,
        numbered: Option<Numbered>,
    ) -> Outcome<A> {
        if let Some(numbered) = numbered {
            let at = self.log.append(&RpcResult {
                lease_id: numbered.lease_id,
                rpc_id: numbered.rpc_id,
                ack_id: numbered.ack_id,
                table_id: place.table_id,
                key_hash: place.hash,
                response: response.to_bytes().as_ref(),
            });
            if is_planted(Bug::ForgetRpcResult) {
                self.log.kill(at);
            } else {
                let Numbered {
                    lease_id,
                    rpc_id,
                    ack_id,
                } = numbered;
                self.keeper.results.record(lease_id, rpc_id, ack_id, at);
            }
        }
        let seen = self.log.head_position();
        trace::record(Event::Appended, seen.0);
        Outcome { response, seen }
    }

    // ---- durability, tablets, background ----

    /// Stands in for replicas where a driver has none: what is closed is safe at once, and nothing has to be copied or freed.
    pub fn settle_closed(&mut self) {
        while let Some(change) = self.log.take_change() {
            if let Change::Closed { segment_id } = change {
                self.log.settle(segment_id);
            }
        }
    }

    /// The log is durable up to `position`: removed keys may be forgotten.
    pub fn advance_durable(&mut self, position: LogPosition) {
        self.log.advance_durable(position);
        self.forget_removed();
    }

    /// Keys whose tombstones are durable need no slot any more.
    pub fn forget_removed(&mut self) {
        while let Some(removed) = self.removed.front()
            && removed.position <= self.log.durable_position()
        {
            let Removed {
                hash, tombstone, ..
            } = *removed;
            self.removed.pop_front();
            // The key may have been made again, or its tablet dropped.
            if let Some(slot) = self.keeper.index.find(hash, |found| found == tombstone) {
                self.keeper.index.remove(slot);
            }
        }
    }

    /// Gives up tablets, which are in order and do not overlap. Their objects and the answers to their RPCs are unreachable at once, and
    /// taken out bit by bit.
    pub fn drop_tablets(&mut self, ranges: &[TabletRange]) {
        self.tablets.drop_within(ranges);
        let mut dropped = std::mem::take(&mut self.purge.dropped);
        dropped.extend_from_slice(ranges);
        self.purge.dropped = joined(dropped);
        self.purge.buckets_left = self.keeper.index.bucket_count();
        self.purge.last_client = Some(0);
    }

    /// Whether something of a dropped tablet may still be there: it must not be taken again before that is gone.
    pub fn is_purging(&self, range: &TabletRange) -> bool {
        overlaps(&self.purge.dropped, range)
    }

    pub fn has_purge(&self) -> bool {
        self.purge.buckets_left > 0 || self.purge.last_client.is_some()
    }

    /// Takes what belongs to dropped tablets out of some buckets, or out of as much of what clients were answered; says whether all is out.
    pub fn purge(&mut self, buckets: usize) -> bool {
        if self.purge.buckets_left > 0 {
            self.purge_objects(buckets);
        } else {
            self.purge_results(buckets * BUCKET_SLOTS);
        }
        let is_done = !self.has_purge();
        if is_done {
            self.purge.dropped.clear();
            self.log.note_purged();
        }
        is_done
    }

    /// Records stay valid wherever they lie, but not in segments that a recovery of the tablet, should it come back here, would not look at.
    fn purge_results(&mut self, count: usize) {
        let Store {
            log,
            keeper,
            tablets,
            replaying,
            purge,
            ..
        } = self;
        let Some(last) = purge.last_client else {
            return;
        };
        purge.last_client = keeper.results.retain_after(last, count, |at| {
            let record: RpcResult<'_> = log.entry(at).decode().expect("a record");
            let (table_id, hash) = (record.table_id, record.key_hash);
            let is_kept = tablets.owns(table_id, hash) || holds(replaying, table_id, hash);
            if !is_kept {
                log.kill(at);
            }
            is_kept
        });
    }

    fn purge_objects(&mut self, buckets: usize) {
        let Store {
            log,
            keeper,
            tablets,
            replaying,
            purge,
            object_count,
            ..
        } = self;
        for _ in 0..buckets.min(purge.buckets_left) {
            keeper.index.retain(purge.next_bucket, |at| {
                let entry = log.entry(at);
                let place = place_of(&entry);
                if tablets.owns(place.table_id, place.hash)
                    || holds(replaying, place.table_id, place.hash)
                {
                    return true;
                }
                if entry.kind == Kind::Object {
                    let version = object_view(&entry).version;
                    log.kill(at);
                    log.raise_safe_version(version + 1);
                    *object_count -= 1;
                }
                false
            });
            purge.next_bucket = (purge.next_bucket + 1) % keeper.index.bucket_count();
            purge.buckets_left -= 1;
        }
    }

    pub fn clean(&mut self, budget_bytes: usize) -> Cleaning {
        self.log.clean(&mut self.keeper, budget_bytes)
    }

    /// See [`Log::audit`].
    pub fn audit(&self) -> Result<(), String> {
        self.log.audit(&self.keeper)?;
        let objects = self.keeper.index.references();
        let count = objects
            .filter(|&at| self.log.entry(at).kind == Kind::Object)
            .count();
        if count as u64 == self.object_count {
            Ok(())
        } else {
            Err(format!(
                "{count} objects in the hash table, {} counted",
                self.object_count
            ))
        }
    }
}

/// Whether an entry that a slot points to is about this key.
fn is_of_key(entry: &RawEntry<'_>, place: &Place<'_>) -> bool {
    match entry.kind {
        Kind::Object => {
            let object = object_view(entry);
            object.primary_key == place.key && object.table_id == place.table_id
        }
        Kind::Tombstone | Kind::SegmentHeader | Kind::RpcResult | Kind::Digest => {
            let tombstone = tombstone_view(entry);
            tombstone.key == place.key && tombstone.table_id == place.table_id
        }
    }
}

pub(crate) fn place_of<'a>(entry: &RawEntry<'a>) -> Place<'a> {
    match entry.kind {
        Kind::Object => {
            let object = object_view(entry);
            Place::of(object.table_id, object.primary_key)
        }
        Kind::Tombstone | Kind::SegmentHeader | Kind::RpcResult | Kind::Digest => {
            let tombstone = tombstone_view(entry);
            Place::of(tombstone.table_id, tombstone.key)
        }
    }
}

pub(crate) fn object_view<'a>(entry: &RawEntry<'a>) -> ObjectView<'a> {
    ObjectView::of_body(entry.body).expect("the log holds what it wrote")
}

fn tombstone_view<'a>(entry: &RawEntry<'a>) -> Tombstone<'a> {
    let tombstone = entry.decode();
    tombstone.expect("slots point to objects and tombstones")
}

impl Keeps<ObjectView<'_>> for Keeper {
    fn is_live(&self, object: &ObjectView<'_>, at: Reference) -> bool {
        let hash = key_hash(object.table_id, object.primary_key);
        self.index.find(hash, |found| found == at).is_some()
    }

    fn moved(&mut self, object: &ObjectView<'_>, from: Reference, to: Reference) {
        let hash = key_hash(object.table_id, object.primary_key);
        let slot = self.index.find(hash, |found| found == from);
        self.index.set(slot.expect("live objects have a slot"), to);
    }
}

impl Keeps<RpcResult<'_>> for Keeper {
    fn is_live(&self, result: &RpcResult<'_>, at: Reference) -> bool {
        self.results.is_at(result.lease_id, result.rpc_id, at)
    }

    fn moved(&mut self, result: &RpcResult<'_>, _from: Reference, to: Reference) {
        self.results.moved(result.lease_id, result.rpc_id, to);
    }
}
