//! Tablets that come from elsewhere or go there: recoveries and migrations, as the coordinator orders them.

use base::time::Time;
use wire::member::{self, TabletRange};
use wire::peer::{MigrateRead, Migrating};

use crate::effects::{Session, ShardEffects};
use crate::movers::settling::name_settled;
use crate::reports::{Brought, MembershipEvent, Refusal};
use crate::shard::Shard;

impl Shard {
    pub(super) fn recover(
        &mut self,
        now: Time,
        order: member::Recover,
        out: &mut impl ShardEffects,
    ) {
        let (migrations, membership) = (&self.migrations, &self.membership);
        let is_taken = |tablet: &TabletRange| {
            migrations.overlap(tablet) || membership.is_about_to_take(tablet)
        };
        let store = &mut self.store;
        self.recoveries.recover(store, now, order, is_taken, out);
    }

    pub(super) fn commit_recovery(&mut self, id: u64, out: &mut impl ShardEffects) -> Session {
        match self.recoveries.commit_ordered(&mut self.store, id, out) {
            true => Session::Continue,
            false => self.is_not_trusted(Brought::Recovery(id), out),
        }
    }

    pub(super) fn migrate_in(
        &mut self,
        now: Time,
        order: member::Migrate,
        out: &mut impl ShardEffects,
    ) {
        let (recoveries, membership) = (&self.recoveries, &self.membership);
        let is_taken = |tablet: &TabletRange| {
            recoveries.overlap(tablet) || membership.is_about_to_take(tablet)
        };
        let store = &mut self.store;
        self.migrations.migrate_in(store, now, order, is_taken, out);
    }

    pub(super) fn commit_migration(&mut self, id: u64, out: &mut impl ShardEffects) -> Session {
        match self.migrations.commit(&mut self.store, id, out) {
            true => Session::Continue,
            false => self.is_not_trusted(Brought::Migration(id), out),
        }
    }

    /// A coordinator has let the shard in again, as the owner of these tablets; of all recoveries these count.
    pub(super) fn resume_movers(
        &mut self,
        counting: &[u64],
        tablets: &[TabletRange],
        out: &mut impl ShardEffects,
    ) -> Session {
        if let Err(unknown) = self.recoveries.resume(&mut self.store, counting, out) {
            return self.is_not_trusted(Brought::Recovery(unknown), out);
        }
        self.migrations.resume(&mut self.store, tablets, out);
        Session::Continue
    }

    /// The coordinator counts on a recovery, or a migration, that was not made here. Nothing that this process holds can be right then.
    fn is_not_trusted(&mut self, what: Brought, out: &mut impl ShardEffects) -> Session {
        let refusal = Refusal::NotMadeHere(what);
        out.report(MembershipEvent::Refused(refusal.clone()).into());
        self.end_service(refusal, out)
    }

    /// The next piece of a tablet that leaves. Its entries go to `data`, which is emptied before.
    pub fn migrate_read(&mut self, read: &MigrateRead, data: &mut Vec<u8>) -> Migrating<'static> {
        let most_bytes = self.config.migrated_bytes;
        self.migrations
            .read(&mut self.store, most_bytes, read, data)
    }

    /// Does what is due for recoveries and migrations; when to come again though nothing happens.
    pub(super) fn tend_movers(&mut self, now: Time, out: &mut impl ShardEffects) -> Time {
        let (store, known) = (&mut self.store, &self.replicas.known);
        let next = self.recoveries.tend(store, known, now, out);
        next.min(self.migrations.tend(store, now, out))
    }

    /// Says so where everything that a recovery or a migration has brought is durable in this shard's own log. Whether there is something to send
    /// to backups.
    pub(super) fn look_for_durable_replays(
        &mut self,
        now: Time,
        out: &mut impl ShardEffects,
    ) -> bool {
        let (recoveries, migrations) = (&mut self.recoveries, &mut self.migrations);
        // Nearly every tick ends here.
        if recoveries.settling().next().is_none() && migrations.settling().is_none() {
            return false;
        }
        // All that are ready share one new head.
        let all = recoveries.settling().chain(migrations.settling());
        let has_named = name_settled(&mut self.store.log, all);
        let log = &self.store.log;
        recoveries.look_for_durable(log, out);
        migrations.look_for_durable(log, now, out);
        has_named
    }
}
