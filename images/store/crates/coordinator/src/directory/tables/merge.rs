//! Adjacent tablets of one owner become one again where the store itself has cut them. Boundaries that a client asked for stay.
//!
//! A merge changes nothing but names: a recovery reads the same segments of the same logs for every key as before. Whether the owner can be told, and
//! whether something else is going on with either tablet, is for the caller to know (`movement/merges.rs`).

use base::bugs::{Bug, is_planted};
use wire::member::TabletRange;

use super::{NOBODY, Source, Tables, Tablet};

/// Two adjacent tablets of one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    pub first: TabletRange,
    pub second: TabletRange,
    pub owner: u32,
}

impl Pair {
    pub fn whole(&self) -> TabletRange {
        TabletRange {
            end_key_hash: self.second.end_key_hash,
            ..self.first
        }
    }
}

impl Tables {
    /// Tablets that can become one, in order.
    pub fn mergeable(&self) -> impl Iterator<Item = Pair> {
        self.by_id.values().flat_map(|table| {
            let pairs = table.tablets.windows(2);
            let pairs = pairs.filter(|pair| may_merge(&pair[0], &pair[1]));
            pairs.map(|pair| Pair {
                first: table.range(&pair[0]),
                second: table.range(&pair[1]),
                owner: pair[0].owner,
            })
        })
    }

    /// Makes one tablet of the two. Answers no, and changes nothing, if they are not there any more or must stay two.
    pub fn merge(&mut self, pair: &Pair) -> bool {
        let id = pair.first.table_id;
        let Some(table) = self.by_id.get(&id) else {
            return false;
        };
        let start = pair.first.start_key_hash;
        let at = table
            .tablets
            .partition_point(|tablet| tablet.start_key_hash < start);
        let Some([first, second]) = table.tablets.get(at..at + 2) else {
            return false;
        };
        let ranges = (table.range(first), table.range(second), first.owner);
        if ranges != (pair.first, pair.second, pair.owner) || !may_merge(first, second) {
            return false;
        }
        if let Some(table) = self.by_id.get_mut(&id) {
            table.tablets[at].end_key_hash = pair.second.end_key_hash;
            table.tablets.remove(at + 1);
        }
        self.tablet_count -= 1;
        let gone = (id, pair.second.start_key_hash);
        self.owned.remove(pair.owner, gone);
        true
    }
}

/// Tablets whose sources differ stay two: what the owner's log holds of one of them from before it gave that one up must not come back, and what it
/// holds of the other from then must not be left out. A source that a recovery is still to release goes with exactly the tablets which that brought.
fn may_merge(first: &Tablet, second: &Tablet) -> bool {
    let mut sources = first.sources.iter().chain(&second.sources);
    let are_settled = sources.all(|source: &Source| source.recovery_id == 0);
    let are_alike = first.sources == second.sources || is_planted(Bug::MergeWhateverTheSources);
    let is_one_owner = first.owner == second.owner && first.owner != NOBODY;
    second.is_cut && is_one_owner && are_settled && are_alike
}

#[cfg(test)]
mod tests {
    use base::ids::ServerId;

    use super::*;
    use crate::Limits;
    use crate::directory::tables::Cut;

    fn ranges(tables: &Tables) -> Vec<(u64, u64, u32)> {
        let tablets = tables.get(1).expect("the table").tablets.iter();
        tablets
            .map(|tablet| (tablet.start_key_hash, tablet.end_key_hash, tablet.owner))
            .collect()
    }

    fn source(from_segment: u64, recovery_id: u64) -> Source {
        Source {
            log: ServerId::new(2, 1),
            from_segment,
            recovery_id,
        }
    }

    #[test]
    fn only_what_the_store_has_cut_itself_becomes_one() {
        let mut tables = Tables::new(0, Limits::default());
        tables.create(1, b"a", 2, &[&[1]]).expect("a table");
        let half = 1 << 63;
        tables.split(b"a", 100, Cut::Ordered).expect("split");
        tables.split(b"a", 200, Cut::Own).expect("split");
        tables.split(b"a", 300, Cut::Own).expect("split");
        let next = |tables: &Tables| tables.mergeable().next();
        while let Some(pair) = next(&tables) {
            assert!(tables.merge(&pair));
            assert!(!tables.merge(&pair), "once");
        }
        let expected = [(0, 99, 1), (100, half - 1, 1), (half, u64::MAX, 1)];
        assert_eq!(ranges(&tables), expected);
        assert_eq!((tables.tablet_count(), tables.tablets_of(1)), (3, 3));

        // A client asks for the boundary that is there.
        tables.split(b"a", 200, Cut::Own).expect("split");
        assert_eq!(tables.split(b"a", 200, Cut::Ordered), Ok(None));
        assert_eq!(tables.mergeable().count(), 0);
    }

    #[test]
    fn what_was_ordered_stays_wherever_the_store_cuts_beside_it() {
        let mut tables = Tables::new(0, Limits::default());
        tables.create(1, b"a", 1, &[&[1]]).expect("a table");
        tables.split(b"a", 200, Cut::Own).expect("split");
        // The boundary at 200 is the store's still, and the one before it is not.
        tables.split(b"a", 100, Cut::Ordered).expect("split");
        let pair = tables.mergeable().next().expect("a pair");
        assert!(tables.merge(&pair));
        assert_eq!(ranges(&tables), [(0, 99, 1), (100, u64::MAX, 1)]);
        assert_eq!(tables.mergeable().count(), 0);
    }

    #[test]
    fn tablets_stay_two_whose_owner_or_sources_differ() {
        let mut tables = Tables::new(0, Limits::default());
        tables.create(1, b"a", 1, &[&[1]]).expect("a table");
        tables.split(b"a", 100, Cut::Own).expect("split");
        let pair = tables.mergeable().next().expect("a pair");
        tables.hand_over(&pair.second, 1, 2, source(9, 0));
        assert_eq!(tables.mergeable().count(), 0, "owners");
        assert!(!tables.merge(&pair));
        tables.hand_over(&pair.first, 1, 2, source(5, 0));
        assert_eq!(tables.mergeable().count(), 0, "sources");

        // One server brings both back in one recovery, whose sources are needed at first.
        tables.orphan(2, ServerId::new(2, 1));
        assert_eq!(tables.mergeable().count(), 0, "nobody");
        for range in [pair.first, pair.second] {
            tables.adopt(&range, 3, source(20, 7));
        }
        assert_eq!(tables.mergeable().count(), 0, "older logs are needed");
        tables.release_sources(3, 7);
        let pair = tables.mergeable().next().expect("a pair");
        assert!(tables.merge(&pair));
        assert_eq!(ranges(&tables), [(0, u64::MAX, 3)]);
    }

    #[test]
    fn what_a_recovery_has_cut_and_two_servers_have_stays_two() {
        let mut tables = Tables::new(0, Limits::default());
        tables.create(1, b"a", 1, &[&[1]]).expect("a table");
        let whole = TabletRange {
            table_id: 1,
            start_key_hash: 0,
            end_key_hash: u64::MAX,
        };
        tables.orphan(1, ServerId::new(1, 0));
        let parts = tables.cut_orphan(&whole, 4);
        assert_eq!(parts.len(), 4);
        for (part, owner) in parts.iter().zip([2, 2, 3, 2]) {
            tables.adopt(part, owner, source(20, 7));
            tables.release_sources(owner, 7);
        }
        let pairs: Vec<Pair> = tables.mergeable().collect();
        assert_eq!(pairs.len(), 1);
        assert!(tables.merge(&pairs[0]));
        let owners: Vec<u32> = ranges(&tables).iter().map(|(_, _, owner)| *owner).collect();
        assert_eq!(owners, [2, 3, 2]);
    }
}
