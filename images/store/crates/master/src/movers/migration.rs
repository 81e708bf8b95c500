//! Moving a tablet from one living master to another, which replays it as it would a dead one's. docs/migration.md says why it goes like this.

mod incoming;
mod into;
mod out;
mod outgoing;

use base::ids::TableId;
use base::time::Time;
use wire::member::{self, TabletRange, ToCoordinator, shard};

use crate::data::Store;
use crate::data::tablets::overlap;
use crate::effects::ShardEffects;
use crate::movers::settling::Settling;
use crate::reports::{MigrationError, MigrationEvent};
use incoming::Incoming;
use outgoing::Outgoing;

/// Migrations under way: one each way at most.
#[derive(Default)]
pub(crate) struct Migrations {
    outgoing: Option<Outgoing>,
    incoming: Option<Incoming>,
    /// The last one that brought a tablet here to stay.
    committed: u64,
}

impl Migrations {
    /// Whether a tablet overlaps one that is on its way here.
    pub fn overlap(&self, tablet: &TabletRange) -> bool {
        let mut incoming = self.incoming.iter();
        incoming.any(|incoming| overlap(&incoming.tablet, tablet))
    }

    /// How far the one is that brings a tablet here.
    pub fn progress(&self) -> Option<member::MigrationProgress> {
        self.incoming.as_ref().map(Incoming::progress)
    }

    /// What is on its way into this shard's own log.
    pub fn settling(&mut self) -> Option<&mut Settling> {
        self.incoming.as_mut().and_then(Incoming::settling)
    }

    /// The log that all of it was for is gone.
    pub fn clear(&mut self, out: &mut impl ShardEffects) {
        if let Some(incoming) = &mut self.incoming {
            incoming.disconnect(out);
        }
        *self = Migrations::default();
    }
}

/// Why a migration ends here, for the coordinator and for people.
fn failed(migration_id: u64, error: MigrationError, out: &mut impl ShardEffects) {
    let migrated = member::Migrated {
        migration_id,
        failure: error.to_string(),
        is_full: error.is_full(),
        ..member::Migrated::default()
    };
    let migration = migration_id;
    out.report(MigrationEvent::Failed { migration, error }.into());
    send(shard::Kind::Migrated(migrated), out);
}

fn send(kind: shard::Kind, out: &mut impl ShardEffects) {
    out.send_coordinator(ToCoordinator::from(kind));
}

impl Migrations {
    /// All is as if the migration had never begun.
    pub fn give_up(&mut self, store: &mut Store, id: u64, out: &mut impl ShardEffects) {
        let is_incoming = self.incoming.as_ref().is_some_and(|one| one.id == id);
        let is_outgoing = self.outgoing.as_ref().is_some_and(|one| one.id == id);
        if is_incoming {
            self.drop_incoming(store, out);
        }
        if is_outgoing {
            self.end_outgoing(store);
        }
        if is_incoming || is_outgoing {
            out.report(MigrationEvent::GivenUp { migration: id }.into());
        }
    }

    /// Owns what a migration has brought; no if it was not made here.
    pub fn commit(&mut self, store: &mut Store, id: u64, out: &mut impl ShardEffects) -> bool {
        if self.committed == id {
            return true;
        }
        let incoming = self.incoming.as_ref();
        let is_it = incoming.is_some_and(|incoming| incoming.id == id && incoming.is_complete());
        if is_it {
            self.commit_incoming(store, out);
        }
        is_it
    }

    /// A coordinator has let the shard in again, as the owner of these tablets: what has arrived and is among them is committed, and
    /// everything else is given up.
    pub fn resume(
        &mut self,
        store: &mut Store,
        tablets: &[TabletRange],
        out: &mut impl ShardEffects,
    ) {
        self.end_outgoing(store);
        let Some(incoming) = &self.incoming else {
            return;
        };
        let is_mine = |tablet: &TabletRange| overlap(tablet, &incoming.tablet);
        if incoming.is_complete() && tablets.iter().any(is_mine) {
            self.commit_incoming(store, out);
        } else {
            let id = incoming.id;
            self.give_up(store, id, out);
        }
    }

    /// Two tablets are ordered where one is about to leave.
    pub fn split(
        &mut self,
        store: &mut Store,
        table_id: TableId,
        key_hash: u64,
        out: &mut impl ShardEffects,
    ) {
        let outgoing = self.outgoing.as_ref();
        if outgoing.is_some_and(|outgoing| outgoing.would_be_split(table_id, key_hash)) {
            self.fail_outgoing(store, MigrationError::Split, out);
        }
    }

    /// Does what is due for migrations; when to come again though nothing happens.
    pub fn tend(&mut self, store: &mut Store, now: Time, out: &mut impl ShardEffects) -> Time {
        self.tend_outgoing(store, out);
        self.tend_incoming(store, now, out)
    }
}
