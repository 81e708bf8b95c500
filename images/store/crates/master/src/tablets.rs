//! Which parts of which tables a shard owns.

use wire::ids::TableId;
use wire::member::TabletRange;

/// The tablets of one shard; none overlaps another.
#[derive(Default)]
pub(crate) struct Tablets {
    /// Sorted by table and start.
    ranges: Vec<TabletRange>,
}

impl Tablets {
    /// Whether the key with this hash is in an owned tablet.
    #[inline]
    pub fn owns(&self, table_id: TableId, hash: u64) -> bool {
        let after = self
            .ranges
            .partition_point(|range| (range.table_id, range.start_key_hash) <= (table_id.0, hash));
        after.checked_sub(1).is_some_and(|at| {
            let range = &self.ranges[at];
            range.table_id == table_id.0 && hash <= range.end_key_hash
        })
    }

    /// Takes a tablet; answers no if it overlaps one that is owned already (having exactly this one is fine).
    pub fn take(&mut self, range: TabletRange) -> bool {
        if self.ranges.contains(&range) {
            return true;
        }
        let free = range.start_key_hash <= range.end_key_hash
            && !self.ranges.iter().any(|owned| overlap(owned, &range));
        if free {
            let at = self.ranges.partition_point(|owned| *owned < range);
            self.ranges.insert(at, range);
        }
        free
    }

    /// Gives up the tablets that lie within `range`.
    pub fn drop_within(&mut self, range: &TabletRange) {
        self.ranges.retain(|owned| {
            !(owned.table_id == range.table_id
                && range.start_key_hash <= owned.start_key_hash
                && owned.end_key_hash <= range.end_key_hash)
        });
    }

    pub fn all(&self) -> &[TabletRange] {
        &self.ranges
    }

    pub fn clear(&mut self) {
        self.ranges.clear();
    }
}

pub(crate) fn overlap(a: &TabletRange, b: &TabletRange) -> bool {
    a.table_id == b.table_id
        && a.start_key_hash <= b.end_key_hash
        && b.start_key_hash <= a.end_key_hash
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(table_id: u64, start_key_hash: u64, end_key_hash: u64) -> TabletRange {
        TabletRange {
            table_id,
            start_key_hash,
            end_key_hash,
        }
    }

    #[test]
    fn ranges_are_closed() {
        let mut tablets = Tablets::default();
        assert!(tablets.take(range(1, 10, 20)));
        assert!(tablets.take(range(1, 21, u64::MAX)));
        assert!(tablets.take(range(3, 0, 5)));
        let owned = |table, hash| tablets.owns(TableId(table), hash);
        assert!(!owned(1, 9) && owned(1, 10) && owned(1, 20) && owned(1, 21));
        assert!(owned(1, u64::MAX) && !owned(2, 15) && owned(3, 0) && !owned(3, 6));
        assert!(!owned(0, 0) && !owned(4, 0));
    }

    #[test]
    fn overlaps_are_refused_and_repeats_are_fine() {
        let mut tablets = Tablets::default();
        assert!(tablets.take(range(1, 10, 20)));
        assert!(tablets.take(range(1, 10, 20)));
        assert!(!tablets.take(range(1, 20, 30)));
        assert!(!tablets.take(range(1, 30, 29)));
        assert_eq!(tablets.all().len(), 1);
        tablets.drop_within(&range(1, 11, 20));
        assert_eq!(tablets.all().len(), 1);
        tablets.drop_within(&range(1, 0, u64::MAX));
        assert!(tablets.all().is_empty());
    }
}
