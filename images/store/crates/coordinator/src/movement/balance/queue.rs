//! Migrations that somebody has ordered and that wait until both servers are free. In memory only: a new coordinator knows of none.

use std::collections::{BTreeSet, VecDeque};

use base::time::Time;
use wire::member::TabletRange;

use crate::orders::{MigrationOrder, TabletTable};
use crate::status::Migration;

#[derive(Debug, Default)]
pub(crate) struct Queue(pub(in crate::movement) VecDeque<Waiting>);

#[derive(Debug)]
pub(in crate::movement) struct Waiting {
    pub order: MigrationOrder,
    pub shown: Migration,
    /// Since when one of its servers is not connected.
    pub away_since: Option<Time>,
}

impl Queue {
    pub fn shown(&self) -> impl Iterator<Item = &Migration> {
        self.0.iter().map(|one| &one.shown)
    }

    /// Servers that something waits for.
    pub fn servers(&self) -> BTreeSet<u64> {
        let both = |one: &Waiting| [one.shown.source_id, one.shown.target_id];
        self.0.iter().flat_map(both).collect()
    }

    /// Whether one waits for this tablet.
    pub fn concerns(&self, tablet: &TabletRange) -> bool {
        self.0.iter().any(|one| {
            one.order.table == TabletTable::Id(tablet.table_id)
                && (tablet.start_key_hash..=tablet.end_key_hash).contains(&one.order.key_hash)
        })
    }

    /// Takes one out, wherever it is.
    pub fn take(&mut self, migration_id: u64) -> Option<Migration> {
        let at = self.0.iter().position(|one| one.shown.id == migration_id)?;
        self.0.remove(at).map(|one| one.shown)
    }
}
