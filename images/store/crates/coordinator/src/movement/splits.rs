//! Tablets that become two: by order of a client or of a person, and so that a part can be moved.
//!
//! In this order: the state has two tablets; that is noted; the server is told, and whoever has ordered it. Whatever ends between two of these, the
//! server has the same keys, and its next welcome names the tablets that the state has.

use base::time::Time;
use wire::member::{TabletSplit, ToShard, coordinator};

use crate::CoordinatorEffects;
use crate::directory::tables::{Cut, EvenSplit, SplitError};
use crate::movement::Movement;
use crate::orders::{SplitOrder, SplitTableError, TableSplit, TabletTable};
use crate::store::Store;

impl Movement {
    /// Makes two tablets of one, and tells its owner if that is connected. Then there is a number under which its answer will come.
    pub(crate) fn split(
        &mut self,
        store: &mut Store,
        now: Time,
        name: &[u8],
        key_hash: u64,
        by: Cut,
        out: &mut impl CoordinatorEffects,
    ) -> Result<Option<u64>, SplitError> {
        // Otherwise there is a boundary already.
        let Some(split) = store.tables.split(name, key_hash, by)? else {
            return Ok(None);
        };
        self.balance.was_split(&split.whole, &split.second);
        let table_id = split.whole.table_id;
        self.give_up_of_tablet(store, now, table_id, key_hash, out);
        let number = store.ledger.next_question();
        let owner = store.members.server_mut(split.owner);
        // One that is not connected learns of it from the list of its tablets when it comes back.
        let Some(link) = owner.and_then(|server| server.link.as_mut()) else {
            return Ok(None);
        };
        let sequence = link.sequence();
        link.unanswered.insert(sequence, number);
        let split = TabletSplit {
            sequence,
            table_id,
            key_hash,
        };
        let kind = coordinator::Kind::SplitTablet(split);
        out.send_member(link.connection, ToShard::from(kind));
        Ok(Some(number))
    }

    /// The tablet that holds this hash becomes two.
    fn give_up_of_tablet(
        &mut self,
        store: &Store,
        now: Time,
        table_id: u64,
        key_hash: u64,
        out: &mut impl CoordinatorEffects,
    ) {
        for id in self.migrations.where_(|one| one.holds(table_id, key_hash)) {
            self.end(store, now, id, "its tablet was split", None, out);
        }
    }

    /// Splits a table at even distances, all at once or not at all: the table is one record.
    ///
    /// # Errors
    /// It says what stands against it, and what to do.
    pub(crate) fn split_table(
        &mut self,
        store: &mut Store,
        now: Time,
        order: &SplitOrder,
        out: &mut impl CoordinatorEffects,
    ) -> Result<TableSplit, SplitTableError> {
        let most = store.config.limits.max_parts;
        if !(2..=most).contains(&order.parts) {
            let parts = order.parts;
            return Err(SplitTableError::Parts { parts, most });
        }
        let not_found = || SplitTableError::NotFound(order.table.clone());
        let id = match &order.table {
            TabletTable::Id(id) => Some(*id),
            TabletTable::Name(name) => store.tables.id_of(name.as_bytes()),
        };
        let table = id.and_then(|id| store.tables.get(id));
        let table = table.ok_or_else(not_found)?;
        let (name, display_name) = (table.name.clone(), table.display_name());
        let refused = |error: SplitError| match error {
            SplitError::NoTable => not_found(),
            SplitError::Recovering => SplitTableError::Recovering {
                table: display_name.clone(),
            },
            SplitError::Limit(limit) => SplitTableError::Limit {
                table: display_name.clone(),
                parts: order.parts,
                limit,
            },
        };
        let lacking = store.tables.even_split(&name, order.parts as usize);
        let lacking = lacking.map_err(refused)?;
        if let Some(migration) = self.ordered_migration_of(&lacking) {
            let table = display_name;
            return Err(SplitTableError::Moving { table, migration });
        }
        for &key_hash in lacking.new.iter().chain(&lacking.own) {
            let split = self.split(store, now, &name, key_hash, Cut::Ordered, out);
            split.map_err(refused)?;
        }
        let table = store.tables.get(lacking.table_id);
        Ok(TableSplit {
            table_id: lacking.table_id,
            tablets: table.map_or(0, |table| table.tablets.len() as u64),
            made: lacking.new.len() as u64,
            kept: lacking.own.len() as u64,
        })
    }

    /// A migration that somebody has ordered, of a tablet that is to be split. One that the store has begun by itself is given up for the split.
    fn ordered_migration_of(&self, lacking: &EvenSplit) -> Option<u64> {
        let is_ordered = self.migrations.under_way.iter();
        let mut ordered = is_ordered.filter(|(_, one)| one.shown.reason.is_none());
        let found = ordered.find(|(_, one)| {
            let mut hashes = lacking.new.iter();
            hashes.any(|&key_hash| one.holds(lacking.table_id, key_hash))
        });
        found.map(|(id, _)| *id)
    }
}
