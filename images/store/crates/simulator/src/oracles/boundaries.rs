//! Watches that boundaries between tablets outlive coordinators, balancing and recoveries once somebody who has ordered them was told that they are there.

use std::collections::{BTreeMap, BTreeSet};

use coordinator::Coordinator;

/// A split by order, as whoever ordered it hears of it: all of the boundaries are on record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    pub table_id: u64,
    pub parts: u32,
}

/// First key hashes of tablets, by the id of the table.
#[derive(Debug, Default)]
pub struct Boundaries(BTreeMap<u64, BTreeSet<u64>>);

impl Boundaries {
    pub fn answered(&mut self, split: Answered) {
        let parts = u64::from(split.parts);
        let width = u64::MAX / parts + 1;
        let its = self.0.entry(split.table_id).or_default();
        its.extend((1..parts).map(|part| part * width));
    }

    /// The store is made again from disks, or its state is an older one: what was ordered lately may be gone, as docs/balancing.md says.
    pub fn forget(&mut self) {
        self.0.clear();
    }

    /// Compares with the tables of whoever leads. Those that were dropped have no boundaries.
    pub fn check(&mut self, leader: &Coordinator) -> Result<(), String> {
        let tables = leader.tables(0, u32::MAX).tables;
        self.0
            .retain(|id, _| tables.iter().any(|table| table.table_id == *id));
        for table in tables {
            let Some(ordered) = self.0.get(&table.table_id) else {
                continue;
            };
            let tablets = table.tablets.iter();
            let has: BTreeSet<u64> = tablets.map(|tablet| tablet.start_key_hash).collect();
            if let Some(missing) = ordered.difference(&has).next() {
                return Err(format!(
                    "table {:?} has no boundary at key hash {missing:#x}, and whoever ordered it was told that it has",
                    table.name
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_table_begin_where_those_of_a_span_do() {
        let mut boundaries = Boundaries::default();
        let table_id = 7;
        boundaries.answered(Answered { table_id, parts: 2 });
        boundaries.answered(Answered { table_id, parts: 4 });
        let half = 1 << 63;
        let quarter = 1 << 62;
        let expected = BTreeSet::from([quarter, half, half + quarter]);
        assert_eq!(boundaries.0[&table_id], expected);
    }
}
