//! The source: it goes on serving, and gives the tablet out a piece at a time, from memory.

use base::bugs::{Bug, is_planted};
use base::ids::{ServerId, TableId};
use log::{Log, LogPosition};
use wire::entry::{Kind, ObjectView, RawEntry, RpcResult, Tombstone};
use wire::member::{self, TabletRange, shard};
use wire::peer::{MigrateRead, Migrating, Phase, Status};

use super::outgoing::{Cursor, Outgoing};
use super::{failed, send};
use crate::data::tablets::{Use, holds};
use crate::data::walk::{Limits, Unfinished};
use crate::data::{HashedKey, Store};
use crate::effects::ShardEffects;
use crate::movers::migration::Migrations;
use crate::reports::{MigrationError, MigrationEvent};

/// Slots of the hash table, or RPC results, that are looked at for one piece, about: each may be a cache miss.
const PIECE_SLOTS: usize = 512;
/// Buckets of the hash table for one piece: 128 KiB of memory, one behind the other.
const PIECE_BUCKETS: usize = 2048;

impl Migrations {
    pub fn migrate_out(
        &mut self,
        store: &mut Store,
        order: member::MigrateOut,
        out: &mut impl ShardEffects,
    ) {
        let (id, tablet) = (order.migration_id, order.tablet);
        let outgoing = self.outgoing.as_ref();
        if outgoing.is_some_and(|outgoing| outgoing.id == id) {
            return;
        }
        if outgoing.is_some() {
            return failed(id, MigrationError::GivesOutAnother, out);
        }
        if !store.tablets.all().contains(&tablet) {
            return failed(id, MigrationError::NotOwned, out);
        }
        let event = MigrationEvent::GivingOut {
            migration: id,
            table_id: TableId(tablet.table_id),
            target: ServerId(order.target),
        };
        out.report(event.into());
        let all = Unfinished::new(tablet.start_key_hash, tablet.end_key_hash);
        self.outgoing = Some(Outgoing {
            id,
            tablet,
            since: store.log.pin_heads(),
            piece: 0,
            at: Cursor::Objects(all.clone()),
            next: Cursor::Objects(all),
            frozen_at: None,
            has_ended: false,
            is_stopped: false,
        });
    }

    /// The next piece of a tablet that leaves. Its entries go to `data`, which is emptied before.
    pub fn read(
        &mut self,
        store: &mut Store,
        most_bytes: usize,
        read: &MigrateRead,
        data: &mut Vec<u8>,
    ) -> Migrating<'static> {
        data.clear();
        let outgoing = self.outgoing.as_mut();
        let Some(outgoing) = outgoing.filter(|outgoing| outgoing.id == read.migration_id) else {
            return Migrating::failure(Status::Missing);
        };
        if read.piece == outgoing.piece + 1 {
            outgoing.piece += 1;
            outgoing.at = outgoing.next.clone();
            if let Cursor::Changes(position) = outgoing.at {
                store.log.unpin_before(position);
            }
        } else if read.piece != outgoing.piece {
            return Migrating::failure(Status::Mismatch);
        }
        if read.freezes && outgoing.frozen_at.is_none() {
            outgoing.frozen_at = Some(store.log.head_position());
            if !is_planted(Bug::WriteAfterFreeze) {
                store.tablets.refuse(outgoing.tablet, Use::Write);
            }
        }
        let most = most_bytes.min(read.bytes as usize);
        outgoing.next = put_piece(store, outgoing, most, data);
        let mut answer = Migrating::failure(Status::Ok);
        if let (Cursor::Changes(_), Cursor::Changes(position)) = (&outgoing.at, &outgoing.next) {
            outgoing.has_ended = outgoing.frozen_at.is_some_and(|end| end <= *position);
            answer.left_bytes = store.log.head_position().0 - position.0;
            answer.phase = if outgoing.has_ended {
                Phase::End
            } else {
                Phase::Changes
            };
            answer.next_version = store.log.safe_version();
        }
        answer
    }

    /// The target has everything and has made it durable: nothing of the tablet is answered here any more.
    pub fn stop_tablet(
        &mut self,
        store: &mut Store,
        migration_id: u64,
        out: &mut impl ShardEffects,
    ) {
        let outgoing = self.outgoing.as_mut();
        let Some(outgoing) = outgoing.filter(|one| one.id == migration_id && one.has_ended) else {
            return failed(migration_id, MigrationError::NotFrozen, out);
        };
        outgoing.is_stopped = true;
        if !is_planted(Bug::ReadAfterStop) {
            store.tablets.refuse(outgoing.tablet, Use::Read);
        }
        store.log.unpin_heads();
        send(
            shard::Kind::Stopped(member::MigrationId { migration_id }),
            out,
        );
    }

    /// Serves everything again that is still owned.
    pub(super) fn end_outgoing(&mut self, store: &mut Store) {
        if self.outgoing.take().is_some() {
            store.tablets.refuse_nothing();
            store.log.unpin_heads();
        }
    }

    pub(super) fn fail_outgoing(
        &mut self,
        store: &mut Store,
        error: MigrationError,
        out: &mut impl ShardEffects,
    ) {
        if let Some(outgoing) = &self.outgoing {
            failed(outgoing.id, error, out);
            self.end_outgoing(store);
        }
    }

    /// A tablet is dropped: if it was about to leave, it has.
    pub fn forget_outgoing(&mut self, store: &mut Store, dropped: &TabletRange) {
        let outgoing = self.outgoing.as_ref();
        if outgoing.is_some_and(|outgoing| crate::data::tablets::overlap(&outgoing.tablet, dropped))
        {
            self.end_outgoing(store);
        }
    }

    /// Writes go first: what waits to be read is given to the cleaner when nothing else is left for it.
    pub(super) fn tend_outgoing(&mut self, store: &mut Store, out: &mut impl ShardEffects) {
        let outgoing = self.outgoing.as_ref();
        if outgoing.is_some_and(|outgoing| !outgoing.is_stopped) && store.log.pin_hinders() {
            self.fail_outgoing(store, MigrationError::SourceFull, out);
        }
    }
}

/// Gives out some entries, and says where the next piece begins.
fn put_piece(store: &Store, outgoing: &Outgoing, most: usize, data: &mut Vec<u8>) -> Cursor {
    let tablet = &outgoing.tablet;
    match &outgoing.at {
        Cursor::Objects(range) => {
            let mut range = range.clone();
            let limits = Limits {
                slots: PIECE_SLOTS,
                buckets: PIECE_BUCKETS,
                bytes: most,
            };
            let table_id = TableId(tablet.table_id);
            store.walk(table_id, &mut range, limits, data, |entry, _, data| {
                data.extend_from_slice(entry.bytes);
            });
            if range.is_finished() {
                Cursor::Results(0)
            } else {
                Cursor::Objects(range)
            }
        }
        Cursor::Results(last) => match put_results(store, tablet, *last, most, data) {
            Some(last) => Cursor::Results(last),
            None => Cursor::Changes(outgoing.since),
        },
        Cursor::Changes(position) => {
            Cursor::Changes(put_changes(&store.log, tablet, *position, most, data))
        }
    }
}

/// Gives out what clients after `last` were answered, and first of each up to where the client is done. `None` after the last one.
fn put_results(
    store: &Store,
    tablet: &TabletRange,
    mut last: u64,
    most: usize,
    data: &mut Vec<u8>,
) -> Option<u64> {
    let format = store.log.format();
    let mut looked_at = 0;
    while looked_at < PIECE_SLOTS && data.len() < most {
        let client = store.keeper.results.client_after(last)?;
        last = client.lease_id;
        looked_at += 1 + client.records.len();
        if client.ack_id > 0 {
            put_acknowledgement(tablet, client.lease_id, client.ack_id, format, data);
        }
        for at in client.records {
            let entry = store.log.entry(at);
            if belongs(&entry, tablet) {
                data.extend_from_slice(entry.bytes);
            }
        }
    }
    Some(last)
}

/// A result that its client has acknowledged says no more than that: whoever replays it takes that in. A late copy of an RPC that the target once
/// got, when it had the tablet before, must not take effect.
fn put_acknowledgement(
    tablet: &TabletRange,
    lease_id: u64,
    ack_id: u64,
    format: u32,
    data: &mut Vec<u8>,
) {
    let nothing = RpcResult {
        lease_id,
        rpc_id: ack_id,
        ack_id,
        table_id: TableId(tablet.table_id),
        key_hash: tablet.start_key_hash,
        response: &[0; 4],
    };
    let start = data.len();
    data.resize(start + RpcResult::entry_bytes_of(nothing.response.len()), 0);
    wire::entry::write(&nothing, format, &mut data[start..]);
}

/// Gives out what was appended to the log from a position on; answers where to go on.
fn put_changes(
    log: &Log,
    tablet: &TabletRange,
    from: LogPosition,
    most: usize,
    data: &mut Vec<u8>,
) -> LogPosition {
    let (mut walked, mut next) = (0, from);
    for (entry, position) in log.appends_from(from) {
        if belongs(&entry, tablet) {
            data.extend_from_slice(entry.bytes);
        }
        next = position;
        walked += entry.bytes.len();
        if walked >= most {
            break;
        }
    }
    next
}

fn belongs(entry: &RawEntry<'_>, tablet: &TabletRange) -> bool {
    const WROTE: &str = "the log holds what it wrote";
    let (table_id, hash) = match entry.kind {
        Kind::Object => {
            let object = ObjectView::of(entry).expect(WROTE);
            let place = HashedKey::of(object.table_id, object.primary_key);
            (place.table_id, place.hash)
        }
        Kind::Tombstone => {
            let tombstone: Tombstone<'_> = entry.decode().expect(WROTE);
            let place = HashedKey::of(tombstone.table_id, tombstone.key);
            (place.table_id, place.hash)
        }
        Kind::RpcResult if is_planted(Bug::ForgetMigratedResult) => return false,
        Kind::RpcResult => {
            let result: RpcResult<'_> = entry.decode().expect(WROTE);
            (result.table_id, result.key_hash)
        }
        Kind::SegmentHeader | Kind::Digest => return false,
    };
    holds(core::slice::from_ref(tablet), table_id, hash)
}
