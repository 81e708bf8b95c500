//! Orders of people about tablets that move, or become several.

use base::time::Time;

use crate::orders::{
    GiveUpMigrationError, MigrateError, MigrationOrder, SplitOrder, SplitTableError, TableSplit,
};
use crate::reports::TableEvent;
use crate::status::Migration;
use crate::{Coordinator, CoordinatorEffects};

impl Coordinator {
    /// Begins to move a tablet, or lets it wait until its servers are free; one that is on its way there already goes on. What is returned is how
    /// it stands; [`Coordinator::cluster_status`] shows how it goes on.
    pub fn migrate_tablet(
        &mut self,
        now: Time,
        order: &MigrationOrder,
        out: &mut impl CoordinatorEffects,
    ) -> Result<Migration, MigrateError> {
        self.gated(out, |it, out| it.migrate_now(now, order, out))
    }

    fn migrate_now(
        &mut self,
        now: Time,
        order: &MigrationOrder,
        out: &mut impl CoordinatorEffects,
    ) -> Result<Migration, MigrateError> {
        if let Some(why) = self.refusal() {
            return Err(MigrateError::DoesNotLead(why.to_owned()));
        }
        self.check_store(order.expected_cluster_id)
            .map_err(MigrateError::OtherStore)?;
        match self.movement.order(&mut self.store, now, order, out) {
            Err(MigrateError::Busy(why)) => {
                self.movement.let_wait(&mut self.store, now, order, why)
            }
            done => done,
        }
    }

    /// Ends a migration that waits, or one that is under way: its source has the tablet still.
    ///
    /// # Errors
    /// There is none of that number, or it is another store.
    pub fn give_up_migration(
        &mut self,
        now: Time,
        migration_id: u64,
        expected_cluster_id: u64,
        out: &mut impl CoordinatorEffects,
    ) -> Result<(), GiveUpMigrationError> {
        self.gated(out, |it, out| {
            it.give_up_now(now, migration_id, expected_cluster_id, out)
        })
    }

    fn give_up_now(
        &mut self,
        now: Time,
        migration_id: u64,
        expected_cluster_id: u64,
        out: &mut impl CoordinatorEffects,
    ) -> Result<(), GiveUpMigrationError> {
        const WHY: &str = "somebody has given it up";
        if let Some(why) = self.refusal() {
            return Err(GiveUpMigrationError::DoesNotLead(why.to_owned()));
        }
        self.check_store(expected_cluster_id)
            .map_err(GiveUpMigrationError::OtherStore)?;
        let movement = &mut self.movement;
        match movement.give_up(&self.store, now, migration_id, WHY, out) {
            true => Ok(()),
            false => Err(GiveUpMigrationError::NotFound(migration_id)),
        }
    }
    /// Sees to it that a table has boundaries at even distances, which stay until it is dropped. Servers are told later; nothing waits for that.
    ///
    /// # Errors
    /// It says what stands against it, and what to do.
    pub fn split_table(
        &mut self,
        now: Time,
        order: &SplitOrder,
        out: &mut impl CoordinatorEffects,
    ) -> Result<TableSplit, SplitTableError> {
        self.gated(out, |it, out| it.split_now(now, order, out))
    }

    fn split_now(
        &mut self,
        now: Time,
        order: &SplitOrder,
        out: &mut impl CoordinatorEffects,
    ) -> Result<TableSplit, SplitTableError> {
        if let Some(why) = self.refusal() {
            return Err(SplitTableError::DoesNotLead(why.to_owned()));
        }
        self.check_store(order.expected_cluster_id)
            .map_err(SplitTableError::OtherStore)?;
        let done = self
            .movement
            .split_table(&mut self.store, now, order, out)?;
        if done.made + done.kept > 0 {
            let table = self.store.tables.get(done.table_id);
            let event = TableEvent::Split {
                table: table.map_or_else(String::new, |table| table.display_name()),
                parts: order.parts,
                made: done.made,
                kept: done.kept,
            };
            out.report(event.into());
        }
        Ok(done)
    }
}
