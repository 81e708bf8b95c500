//! A walk over the objects of a range of hashes, some at a time, that misses none which stays: docs/enumeration.md says why.
//!
//! Objects come in the order of the low 32 bits of their hashes, then of the whole hash, then of the key: every hash table has
//! its buckets in that order, whatever its size.

use base::ids::TableId;
use log::LogPosition;
use wire::entry::{Kind, ObjectView, RawEntry};

use crate::data::{Store, object_view, place_of};

/// Buckets by which entries of the log are fetched ahead.
const AHEAD: usize = 2;
/// As many buckets as there are low halves of hashes: what a walk counts in.
pub(crate) const BUCKETS: u64 = 1 << 32;

/// A range of hashes that is not finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unfinished {
    /// Closed range of key hashes.
    pub first: u64,
    pub last: u64,
    /// Objects before this, in the order of [`order_of`], have come.
    pub next: (u64, u64),
    /// Of the objects at `next`, those with smaller keys have come, too.
    pub next_key: Vec<u8>,
}

/// Where one piece of a walk ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Looked at, about: each may be a cache miss.
    pub slots: usize,
    /// Looked at: they lie in memory one behind the other.
    pub buckets: usize,
    /// Written; one object may make it longer.
    pub bytes: usize,
}

/// Where an object comes in the order of the walk.
pub(crate) fn order_of(hash: u64) -> (u64, u64) {
    (hash % BUCKETS, hash)
}

impl Unfinished {
    pub fn new(first: u64, last: u64) -> Unfinished {
        Unfinished {
            first,
            last,
            next: (0, 0),
            next_key: Vec::new(),
        }
    }

    pub fn has_come(&self, order: (u64, u64), key: &[u8]) -> bool {
        (order, key) < (self.next, &self.next_key[..])
    }

    pub fn is_finished(&self) -> bool {
        self.next.0 >= BUCKETS
    }
}

impl Store {
    /// Hands the next objects of a range to `put`, which writes them to `out`, and moves the range on. Gives what must be durable before that
    /// is shown.
    pub fn walk(
        &self,
        table_id: TableId,
        range: &mut Unfinished,
        limits: Limits,
        out: &mut Vec<u8>,
        mut put: impl FnMut(&RawEntry<'_>, &ObjectView<'_>, &mut Vec<u8>),
    ) -> LogPosition {
        let index = &self.keeper.index;
        // All hashes of a range of one hash lie in one bucket.
        let (first, last) = match range.first == range.last {
            true => (range.first % BUCKETS, range.first % BUCKETS),
            false => (range.next.0.min(BUCKETS - 1), BUCKETS - 1),
        };
        let (first_bucket, last_bucket) = (index.bucket_of(first), index.bucket_of(last));
        let mut seen = LogPosition::START;
        let (mut slots, mut found) = (0, Vec::new());
        for bucket in first_bucket..=last_bucket {
            if range.is_finished()
                || slots >= limits.slots
                || bucket - first_bucket >= limits.buckets
                || out.len() >= limits.bytes
            {
                break;
            }
            if bucket + AHEAD <= last_bucket {
                let ahead = index.bucket(bucket + AHEAD);
                ahead.for_each(|at| self.log.prefetch(at));
            }
            found.clear();
            for at in index.bucket(bucket) {
                slots += 1;
                let entry = self.log.entry(at);
                let place = place_of(&entry);
                let order = order_of(place.hash);
                let wanted = place.table_id == table_id
                    && (range.first..=range.last).contains(&place.hash)
                    && !range.has_come(order, place.key);
                if wanted {
                    // That a removed object is missing is shown, too.
                    seen = seen.max(self.position_seen(at));
                    if entry.kind == Kind::Object {
                        found.push((order, place.key, entry));
                    }
                }
            }
            found.sort_unstable_by_key(|&(order, key, _)| (order, key));
            for (order, key, entry) in &found {
                if out.len() >= limits.bytes {
                    (range.next, range.next_key) = (*order, key.to_vec());
                    return seen;
                }
                put(entry, &object_view(entry), out);
            }
            range.next = match bucket < last_bucket {
                true => (index.first_hash_of(bucket + 1), 0),
                false => (BUCKETS, 0),
            };
            range.next_key.clear();
        }
        seen
    }
}

impl Unfinished {
    /// Leaves the hash 0 out as soon as its objects have been returned, which are the first of all: no objects with a cursor of
    /// 0 would mean the end.
    pub(crate) fn leave_zero(&mut self) {
        if self.first == 0 && self.last > 0 && self.next > order_of(0) {
            self.first = 1;
        }
    }
}
