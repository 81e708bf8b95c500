//! What must hold of tables at any time.

use super::owned::Owned;
use super::{NOBODY, Table, Tables};

/// Its tablets hold every key once.
fn is_whole(table: &Table) -> bool {
    let mut next = Some(0);
    let mut tablets = table.tablets.iter();
    let are_adjacent = tablets.all(|tablet| {
        let is_next = Some(tablet.start_key_hash) == next;
        next = tablet.end_key_hash.checked_add(1);
        is_next && tablet.start_key_hash <= tablet.end_key_hash
    });
    are_adjacent && next.is_none()
}

impl Tables {
    /// Recounts everything that is counted on the way, and compares.
    ///
    /// # Errors
    /// Says what contradicts what.
    pub(super) fn recount(&self) -> Result<(), String> {
        let (mut tablet_count, mut owned) = (0, Owned::default());
        for table in self.by_id.values() {
            let id = table.id;
            if !is_whole(table) {
                return Err(format!("the tablets of table {id:#x} leave keys out"));
            }
            if self.by_name.get(&table.name) != Some(&id) {
                return Err(format!("table {id:#x} is not found by its name"));
            }
            for tablet in &table.tablets {
                if tablet.owner == NOBODY && tablet.sources.is_empty() {
                    return Err(format!("a tablet of table {id:#x} is lost"));
                }
                owned.add(tablet.owner, (id, tablet.start_key_hash));
            }
            tablet_count += table.tablets.len();
        }
        let is_counted = tablet_count == self.tablet_count && owned == self.owned;
        match is_counted && self.by_name.len() == self.by_id.len() {
            true => Ok(()),
            false => Err(format!(
                "{tablet_count} tablets of {owned:?} were counted as {} of {:?}",
                self.tablet_count, self.owned
            )),
        }
    }
}
