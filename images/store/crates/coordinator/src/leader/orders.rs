//! Orders of people. The result of each is to be told with [`Leader::defer`].

use base::ids::ReplyTo;
use base::time::Time;
use wire::member::Settings;

use super::{Leader, NOT_YET};
use crate::orders::{
    AcceptLossError, Acceptance, Asked, ControlError, ControlOrder, Drain, DrainError, Finalize,
    FinalizeError, GiveUpMigrationError, MigrateError, MigrationOrder, Removal, RemoveMemberError,
    SettingsError, SettingsOrder, SplitOrder, SplitTableError, Surrender, SurrenderError,
    TableSplit,
};
use crate::status::{Draining, Loss, Migration};

impl<A> Leader<A> {
    /// See [`crate::Coordinator::remove_member`]. The result is to be told with [`Leader::defer`].
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove_member(&mut self, now: Time, removal: &Removal) -> Result<(), RemoveMemberError> {
        let done = self.act(|coordinator, out| coordinator.remove_member(now, removal, out));
        done.unwrap_or_else(|| Err(RemoveMemberError::DoesNotLead(NOT_YET.to_owned())))
    }

    /// See [`crate::Coordinator::drain_member`]. The result is to be told with [`Leader::defer`].
    ///
    /// # Errors
    /// It is not drained.
    pub fn drain_member(&mut self, now: Time, drain: &Drain) -> Result<Draining, DrainError> {
        let done = self.act(|coordinator, out| coordinator.drain_member(now, drain, out));
        done.unwrap_or_else(|| Err(DrainError::DoesNotLead(NOT_YET.to_owned())))
    }

    /// See [`crate::Coordinator::undrain_member`]. The result is to be told with [`Leader::defer`].
    ///
    /// # Errors
    /// It cannot be said of it.
    pub fn undrain_member(&mut self, drain: &Drain) -> Result<(), DrainError> {
        let done = self.act(|coordinator, out| coordinator.undrain_member(drain, out));
        done.unwrap_or_else(|| Err(DrainError::DoesNotLead(NOT_YET.to_owned())))
    }

    /// See [`crate::Coordinator::control_shards`]; the reply comes with [`LeaderEffect::Reply`].
    ///
    /// # Errors
    /// Nobody is asked.
    pub fn control_shards(
        &mut self,
        now: Time,
        order: &ControlOrder,
        to: ReplyTo,
    ) -> Result<Vec<Asked>, ControlError> {
        let done = self.act(|coordinator, out| coordinator.control_shards(now, order, to, out));
        done.unwrap_or(Err(ControlError::NotConnected))
    }

    /// See [`crate::Coordinator::accept_loss`]. The result is to be told with [`Leader::defer`].
    ///
    /// # Errors
    /// It is not accepted.
    pub fn accept_loss(
        &mut self,
        now: Time,
        acceptance: &Acceptance,
    ) -> Result<Loss, AcceptLossError> {
        let done = self.act(|coordinator, out| coordinator.accept_loss(now, acceptance, out));
        done.unwrap_or_else(|| Err(AcceptLossError::DoesNotLead(NOT_YET.to_owned())))
    }

    /// See [`crate::Coordinator::migrate_tablet`]. The result is to be told with [`Leader::defer`].
    ///
    /// # Errors
    /// It is not begun.
    pub fn migrate_tablet(
        &mut self,
        now: Time,
        order: &MigrationOrder,
    ) -> Result<Migration, MigrateError> {
        let done = self.act(|coordinator, out| coordinator.migrate_tablet(now, order, out));
        done.unwrap_or_else(|| Err(MigrateError::DoesNotLead(NOT_YET.to_owned())))
    }

    /// See [`crate::Coordinator::split_table`]. The result is to be told with [`Leader::defer`].
    ///
    /// # Errors
    /// It is not split.
    pub fn split_table(
        &mut self,
        now: Time,
        order: &SplitOrder,
    ) -> Result<TableSplit, SplitTableError> {
        let done = self.act(|coordinator, out| coordinator.split_table(now, order, out));
        done.unwrap_or_else(|| Err(SplitTableError::DoesNotLead(NOT_YET.to_owned())))
    }

    /// See [`crate::Coordinator::finalize_upgrade`]. The result is to be told with [`Leader::defer`].
    ///
    /// # Errors
    /// Somebody does not read the format.
    pub fn finalize_upgrade(&mut self, finalize: &Finalize) -> Result<u32, FinalizeError> {
        let done = self.act(|coordinator, out| coordinator.finalize_upgrade(finalize, out));
        done.unwrap_or_else(|| Err(FinalizeError::DoesNotLead(NOT_YET.to_owned())))
    }

    /// See [`crate::Coordinator::set_settings`]. The result is to be told with [`Leader::defer`].
    ///
    /// # Errors
    /// They are not possible.
    pub fn set_settings(&mut self, order: &SettingsOrder) -> Result<Settings, SettingsError> {
        let done = self.act(|coordinator, out| coordinator.set_settings(order, out));
        done.unwrap_or_else(|| Err(SettingsError::DoesNotLead(NOT_YET.to_owned())))
    }

    /// See [`crate::Coordinator::give_up_migration`]. The result is to be told with [`Leader::defer`].
    ///
    /// # Errors
    /// There is nothing to give up.
    pub fn give_up_migration(
        &mut self,
        now: Time,
        migration_id: u64,
        expected_cluster_id: u64,
    ) -> Result<(), GiveUpMigrationError> {
        let done = self.act(|coordinator, out| {
            coordinator.give_up_migration(now, migration_id, expected_cluster_id, out)
        });
        done.unwrap_or_else(|| Err(GiveUpMigrationError::DoesNotLead(NOT_YET.to_owned())))
    }

    /// See [`crate::Coordinator::give_up_volumes`]. The result is to be told with [`Leader::defer`].
    ///
    /// # Errors
    /// They are not waited for.
    pub fn give_up_volumes(&mut self, surrender: &Surrender) -> Result<(), SurrenderError> {
        let done = self.act(|coordinator, _| coordinator.give_up_volumes(surrender));
        done.unwrap_or_else(|| Err(SurrenderError::DoesNotLead(NOT_YET.to_owned())))
    }
}
