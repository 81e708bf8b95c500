//! What must hold of recoveries at any time.

use std::collections::BTreeSet;

use wire::member::TabletRange;

use super::Recoveries;
use crate::directory::tables::NOBODY;
use crate::store::Store;

impl Recoveries {
    /// Looks at everything.
    ///
    /// # Errors
    /// Says what contradicts what.
    pub fn audit_orders(&self, store: &Store) -> Result<(), String> {
        let ordered = self.orders.values().flat_map(|order| &order.tablets);
        let ordered: Vec<TabletRange> = ordered.copied().collect();
        let distinct: BTreeSet<TabletRange> = ordered.iter().copied().collect();
        if distinct.len() != ordered.len() || distinct != self.ordered {
            return Err(format!("these tablets are ordered: {ordered:?}"));
        }
        for (table, tablet) in store.tables.tablets() {
            let mut sources = tablet.sources.iter();
            let unknown = sources.find(|source| self.dead.get(&source.log).is_none());
            if let Some(source) = unknown.filter(|_| tablet.owner == NOBODY) {
                return Err(format!(
                    "nothing is known of log {}, of which a tablet of table {:#x} consists",
                    source.log, table.id
                ));
            }
        }
        Ok(())
    }
}
