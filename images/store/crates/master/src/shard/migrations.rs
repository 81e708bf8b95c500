//! MIGRATE_TABLET: a client asks the master that has a tablet; the coordinator, who decides, is asked in turn. It is answered when all is over.

use base::ids::ReplyTo;
use base::time::Time;
use wire::member::{MigrationEnded, MigrationWanted, TabletRange, ToCoordinator, shard};
use wire::rpc::{MigrateTabletRequest, status_bytes};
use wire::status::Status;

use crate::data::Access;
use crate::data::tablets::Use;
use crate::delay::BUSY;
use crate::effects::ShardEffects;
use crate::shard::Shard;

impl Shard {
    pub(crate) fn migrate_tablet(
        &mut self,
        now: Time,
        to: ReplyTo,
        payload: &[u8],
        out: &mut impl ShardEffects,
    ) -> Result<(), Status> {
        let request = MigrateTabletRequest::decode(payload)?;
        if request.new_owner == self.server_id() {
            return Err(Status::RequestFormatError);
        }
        let tablet = TabletRange {
            table_id: request.table_id.0,
            start_key_hash: request.first_key_hash,
            end_key_hash: request.last_key_hash,
        };
        self.store.admit_use(Access {
            table_id: request.table_id,
            hash: request.first_key_hash,
            what: Use::Locate,
        })?;
        if !self.store.tablets.all().contains(&tablet) {
            return Err(Status::UnknownTablet);
        }
        let is_connected = self.membership.is_connected();
        let waits = is_connected.then(|| self.awaited.wait(now, to)).flatten();
        let Some(sequence) = waits else {
            self.come_again(to, BUSY, out);
            return Ok(());
        };
        let wanted = MigrationWanted {
            sequence,
            tablet,
            target: request.new_owner.0,
        };
        let kind = shard::Kind::MigrationWanted(wanted);
        out.send_coordinator(ToCoordinator::from(kind));
        Ok(())
    }

    pub(crate) fn migration_ended(&mut self, ended: MigrationEnded, out: &mut impl ShardEffects) {
        let Some(to) = self.awaited.ended(ended.sequence) else {
            return;
        };
        match Status::try_from(ended.status).unwrap_or(Status::InternalError) {
            Status::Retry => self.come_again(to, BUSY, out),
            status => out.reply(to, &[&status_bytes(status)]),
        }
    }

    /// The coordinator that was asked has forgotten; clients ask again, and find out how it stands.
    pub(crate) fn give_up_awaited(&mut self, out: &mut impl ShardEffects) {
        for to in self.awaited.end_all() {
            self.come_again(to, BUSY, out);
        }
    }
}
