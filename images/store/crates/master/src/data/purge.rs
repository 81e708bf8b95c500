//! Taking out what belongs to tablets that were given up, some in each tick.

use wire::entry::{Kind, RpcResult};
use wire::member::TabletRange;

use super::entries::{object_view, place_of};
use super::store::Store;
use super::tablets::{holds, joined, overlaps};

/// Slots of a bucket, about: as many records are looked at in one step as objects.
const BUCKET_SLOTS: usize = 7;

impl Store {
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
}
