//! Where a table lacks boundaries that lie at even distances, and what stands against making them.

use base::bugs::{Bug, is_planted};

use super::{NOBODY, SplitError, Table, Tables, cut};
use crate::table_limit::TableLimit;

/// The boundaries that a table lacks to have one at each of some even distances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvenSplit {
    pub table_id: u64,
    /// Where a tablet becomes two: each is the first key hash of the second one.
    pub new: Vec<u64>,
    /// Boundaries that the store made for itself, and that stay from now on.
    pub own: Vec<u64>,
}

impl Tables {
    /// Finds the boundaries that make so many parts of equal width of a table; its other boundaries stay. Nothing is changed.
    ///
    /// # Errors
    /// A tablet that is to be split has no server, or a limit stands against it.
    pub fn even_split(&self, name: &[u8], parts: usize) -> Result<EvenSplit, SplitError> {
        let table = self.by_name.get(name).and_then(|id| self.by_id.get(id));
        let table = table.ok_or(SplitError::NoTable)?;
        let mut split = EvenSplit {
            table_id: table.id,
            new: Vec::new(),
            own: Vec::new(),
        };
        for (start_key_hash, _) in cut(0, u64::MAX, parts).skip(1) {
            let tablet = table.tablet_of(start_key_hash);
            if tablet.start_key_hash != start_key_hash {
                if tablet.owner == NOBODY {
                    return Err(SplitError::Recovering);
                }
                split.new.push(start_key_hash);
            } else if tablet.is_cut {
                split.own.push(start_key_hash);
            }
        }
        self.has_room_for(table, split.new.len())?;
        if is_planted(Bug::SplitHalfway) {
            split.new.truncate(split.new.len() / 2);
        }
        Ok(split)
    }

    /// Whether a table may have so many more tablets.
    pub(super) fn has_room_for(&self, table: &Table, more: usize) -> Result<(), SplitError> {
        let limits = &self.limits;
        let of_table = table.tablets.len() + more <= limits.max_tablets_per_table;
        if of_table && self.tablet_count + more <= limits.max_tablets {
            return Ok(());
        }
        Err(SplitError::Limit(TableLimit::Split {
            of_table: table.tablets.len(),
            most_of_table: limits.max_tablets_per_table,
            count: self.tablet_count,
            most: limits.max_tablets,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;
    use crate::directory::tables::Cut;

    const HALF: u64 = 1 << 63;
    const QUARTER: u64 = 1 << 62;

    fn tables(span: u32) -> Tables {
        let limits = Limits {
            max_tablets_per_table: 8,
            max_tablets: 10,
            ..Limits::default()
        };
        let mut tables = Tables::new(0, limits);
        tables.create(1, b"a", span, &[&[1]]).expect("a table");
        tables
    }

    fn new_of(tables: &Tables, parts: usize) -> Vec<u64> {
        tables.even_split(b"a", parts).expect("no limit").new
    }

    #[test]
    fn parts_are_of_equal_width_and_those_that_are_there_count() {
        let mut tables = tables(2);
        assert_eq!(new_of(&tables, 1), []);
        assert_eq!(new_of(&tables, 2), []);
        assert_eq!(new_of(&tables, 4), [QUARTER, HALF + QUARTER]);
        tables.split(b"a", QUARTER, Cut::Ordered).expect("split");
        assert_eq!(new_of(&tables, 4), [HALF + QUARTER]);
        let third = u64::MAX / 3 + 1;
        assert_eq!(new_of(&tables, 3), [third, 2 * third]);
        assert_eq!(tables.even_split(b"b", 2), Err(SplitError::NoTable));
    }

    #[test]
    fn boundaries_of_the_stores_own_are_named_and_those_of_others_are_not() {
        let mut tables = tables(1);
        tables.split(b"a", HALF, Cut::Own).expect("split");
        tables.split(b"a", QUARTER, Cut::Ordered).expect("split");
        let split = tables.even_split(b"a", 4).expect("there is room");
        assert_eq!((split.new, split.own), (vec![HALF + QUARTER], vec![HALF]));
    }

    #[test]
    fn limits_count_all_that_is_lacking_and_nothing_is_changed() {
        let mut tables = tables(4);
        assert_eq!(new_of(&tables, 8).len(), 4);
        let refused = tables.even_split(b"a", 9);
        assert!(
            matches!(&refused, Err(SplitError::Limit(limit)) if limit.to_string().contains("4 tablets of at most 8")),
            "{refused:?}"
        );
        tables.create(1, b"b", 3, &[&[1]]).expect("a table");
        let refused = tables.even_split(b"a", 8);
        assert!(
            matches!(&refused, Err(SplitError::Limit(limit)) if limit.to_string().contains("the store 7 of at most 10")),
            "{refused:?}"
        );
        assert_eq!(tables.tablet_count(), 7);
    }

    #[test]
    fn a_tablet_without_a_server_is_not_split_and_need_not_be() {
        let mut tables = tables(2);
        tables.orphan(1, base::ids::ServerId::new(1, 0));
        assert_eq!(tables.even_split(b"a", 4), Err(SplitError::Recovering));
        assert_eq!(new_of(&tables, 2), []);
    }
}
