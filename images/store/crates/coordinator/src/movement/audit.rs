//! What must hold of migrations at any time.

use std::collections::BTreeSet;

use super::Movement;
use crate::store::Store;

impl Movement {
    /// A server gives one tablet away at a time, which it has, and takes one in.
    ///
    /// # Errors
    /// Says what contradicts that.
    pub fn audit(&self, store: &Store) -> Result<(), String> {
        let (mut sources, mut targets) = (BTreeSet::new(), BTreeSet::new());
        for (tablet, (source, target)) in self.migrations.ways() {
            let is_alone = sources.insert(source) && targets.insert(target);
            if source == target || !is_alone {
                return Err(format!("{source} or {target} moves two tablets at a time"));
            }
            let table = store.tables.get(tablet.table_id);
            let owner = table.map(|table| table.tablet_of(tablet.start_key_hash).owner);
            if owner != Some(source) || !store.tables.has(&tablet) {
                return Err(format!("{source} gives {tablet:?} away, which it lacks"));
            }
        }
        Ok(())
    }
}
