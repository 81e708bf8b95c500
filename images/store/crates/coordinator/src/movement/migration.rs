//! Moving tablets between living masters: who may take part, what each is told when, and from when on the other one is the owner.
//! docs/migration.md says why it goes like this.
//!
//! Nothing is noted of a migration under way. When anything breaks the tablet has the owner that it had, and both sides are told, or find out with
//! their next welcome.

use base::bugs::{Bug, is_planted};
use base::ids::ServerId;
use base::time::Time;
use wire::member::{
    Migrate, MigrateOut, Migrated, MigrationEnded, MigrationId, MigrationProgress, MigrationWanted,
    TabletOrder, TabletRange, ToShard, coordinator,
};
use wire::status::Status;

use crate::CoordinatorEffects;
use crate::directory::tables::{Source, Table};
use crate::movement::Movement;
use crate::movement::migrations::UnderWay;
use crate::movement::resolve::{refused, tablet_to_migrate, target_of, why_cannot_give};
use crate::orders::{MigrateError, MigrationOrder, MigrationTarget, TabletTable};
use crate::registry::members::Server;
use crate::reports::MigrationEvent;
use crate::status::{EventKind, Migration};
use crate::store::Store;

impl Movement {
    /// Begins to move a tablet, if both servers are free; one that is on its way there already goes on.
    pub(crate) fn order(
        &mut self,
        store: &mut Store,
        now: Time,
        order: &MigrationOrder,
        out: &mut impl CoordinatorEffects,
    ) -> Result<Migration, MigrateError> {
        let (tablet, source, table) = tablet_to_migrate(store, order)?;
        let target = target_of(store, &order.target)?;
        if target == source {
            return Err(MigrateError::IsThere {
                server: store.id_of(target),
            });
        }
        let of_tablet = |one: &UnderWay| one.tablet == tablet;
        if let Some(one) = self
            .migrations
            .under_way
            .values()
            .find(|one| of_tablet(one))
            && one.target == target
        {
            return Ok(one.shown.clone());
        }
        self.may_migrate(store, &tablet, source, target)?;
        let servers = (source, target);
        let shown = self.announce(store, now, &tablet, table, servers);
        let begun = shown.clone();
        self.begin(store, tablet, servers, order.bytes_per_second, shown, out);
        Ok(begun)
    }

    /// What an order comes to now: a tablet, its server and the one that gets it. Or why nothing.
    pub(crate) fn find(
        &self,
        store: &Store,
        order: &MigrationOrder,
    ) -> Result<(TabletRange, u32, u32), MigrateError> {
        let (tablet, source, _) = tablet_to_migrate(store, order)?;
        let target = target_of(store, &order.target)?;
        if target == source {
            let server = store.id_of(target);
            return Err(MigrateError::IsThere { server });
        }
        self.may_migrate(store, &tablet, source, target)?;
        Ok((tablet, source, target))
    }

    /// Whether nothing stands against it.
    pub(crate) fn may_migrate(
        &self,
        store: &Store,
        tablet: &TabletRange,
        source: u32,
        target: u32,
    ) -> Result<(), MigrateError> {
        let from = store.connected(source)?;
        let to = store.connected(target)?;
        if let Some(why) = why_cannot_give(store, from) {
            return refused(&why);
        }
        if to.backup_only {
            return refused(&format!(
                "server {} is a backup only and takes no tablets",
                to.id
            ));
        }
        if store.members.is_draining(target) {
            return refused(&format!(
                "server {} (member {:?}) is being drained and takes no tablets",
                to.id, to.member
            ));
        }
        if to.replicas == 0 && from.replicas > 0 {
            return refused(&format!(
                "server {} keeps no copies of what it holds, and server {} does",
                to.id, from.id
            ));
        }
        let mut under_way = self.migrations.under_way.values();
        let in_the_way = under_way
            .find(|one| one.tablet == *tablet || one.source == source || one.target == target);
        let Some(one) = in_the_way else {
            return Ok(());
        };
        let text = match one {
            one if one.tablet == *tablet => format!(
                "the tablet is on its way to server {} already",
                store.id_of(one.target)
            ),
            one if one.source == source => {
                format!("server {} is giving out another tablet", from.id)
            }
            _ => format!("server {} is taking in another tablet", to.id),
        };
        Err(MigrateError::Busy(format!(
            "{text}; one at a time: try again when that has ended"
        )))
    }

    /// A migration that has yet to begin.
    pub(crate) fn announce(
        &mut self,
        store: &mut Store,
        now: Time,
        tablet: &TabletRange,
        table: String,
        (source, target): (u32, u32),
    ) -> Migration {
        // Never used again, over all restarts, and different from those of recoveries.
        Migration {
            id: store.ledger.next_id(),
            table_id: tablet.table_id,
            table,
            start_key_hash: tablet.start_key_hash,
            end_key_hash: tablet.end_key_hash,
            source_id: store.id_of(source).0,
            source_member: store.member_of(source),
            target_id: store.id_of(target).0,
            target_member: store.member_of(target),
            began_ns: store.cluster_time_ns(now),
            ..Migration::default()
        }
    }

    pub(crate) fn begin(
        &mut self,
        store: &Store,
        tablet: TabletRange,
        (source, target): (u32, u32),
        bytes_per_second: u64,
        shown: Migration,
        out: &mut impl CoordinatorEffects,
    ) {
        let migration_id = shown.id;
        let event = MigrationEvent::Began {
            migration: migration_id,
            table: shown.table.clone(),
            source: store.id_of(source),
            target: store.id_of(target),
            reason: shown.reason.clone(),
        };
        out.report(event.into());
        let from = store.members.server(source);
        let locator = from.and_then(Server::reading_locator).unwrap_or_default();
        let locator = locator.to_owned();
        let migrate = Migrate {
            migration_id,
            tablet,
            source: shown.source_id,
            locator,
            bytes_per_second,
            version_floor: store.ledger.version_floor,
        };
        let migrate_out = MigrateOut {
            migration_id,
            tablet,
            target: shown.target_id,
        };
        store.tell(target, coordinator::Kind::Migrate(migrate), out);
        store.tell(source, coordinator::Kind::MigrateOut(migrate_out), out);
        let one = UnderWay {
            tablet,
            source,
            target,
            from_segment: None,
            shown,
            asked_by: Vec::new(),
        };
        self.migrations.under_way.insert(migration_id, one);
    }

    /// The target says how far it is.
    pub(crate) fn progress(&mut self, index: u32, progress: &MigrationProgress) {
        let under_way = &mut self.migrations.under_way;
        let one = under_way.get_mut(&progress.migration_id);
        if let Some(one) = one.filter(|one| one.target == index) {
            one.shown.bytes = progress.bytes;
            one.shown.objects = progress.objects;
            one.shown.is_frozen = progress.is_frozen;
        }
    }

    /// The target has all of it; or one of the two cannot go on.
    pub(crate) fn migrated(
        &mut self,
        store: &mut Store,
        now: Time,
        index: u32,
        migrated: &Migrated,
        out: &mut impl CoordinatorEffects,
    ) {
        let migration_id = migrated.migration_id;
        let one = self.migrations.under_way.get_mut(&migration_id);
        // What was given up is not heard of any more: the message that says so is on its way.
        let Some(one) = one.filter(|one| one.concerns(index)) else {
            return;
        };
        let is_target = one.target == index;
        if !migrated.failure.is_empty() || migrated.is_full || !is_target {
            let why = format!("server {}: {}", store.id_of(index), migrated.failure);
            if is_target {
                self.note_not_taken(now, index);
            }
            self.end(store, now, migration_id, &why, None, out);
            return;
        }
        one.shown.bytes = migrated.bytes;
        one.shown.objects = migrated.objects;
        one.shown.is_frozen = true;
        one.from_segment = Some(migrated.from_segment);
        let source = one.source;
        if is_planted(Bug::MoveBeforeStop) {
            drop(self.stopped(store, now, source, MigrationId { migration_id }, out));
        }
        let stop = coordinator::Kind::StopTablet(MigrationId { migration_id });
        store.tell(source, stop, out);
    }

    /// The source answers nothing of the tablet any more: it is the target's from here on. What is returned are logs that the tablet needs no more.
    pub(crate) fn stopped(
        &mut self,
        store: &mut Store,
        now: Time,
        index: u32,
        stopped: MigrationId,
        out: &mut impl CoordinatorEffects,
    ) -> Vec<ServerId> {
        let migration_id = stopped.migration_id;
        let one = self.migrations.under_way.get(&migration_id);
        let Some(one) = one.filter(|one| one.source == index) else {
            return Vec::new();
        };
        let (Some(from_segment), tablet) = (one.from_segment, one.tablet) else {
            return Vec::new();
        };
        let (source, target) = (one.source, one.target);
        let new = Source {
            log: store.id_of(target),
            from_segment,
            recovery_id: 0,
        };
        let text = moved(&one.shown);
        let old = store.tables.hand_over(&tablet, source, target, new);
        self.conclude(store, now, migration_id, "", out);
        store.record_event(now, EventKind::TabletMoved, text);
        let commit = coordinator::Kind::CommitMigration(MigrationId { migration_id });
        store.tell(target, commit, out);
        order_drop(store, source, tablet, out);
        // What the source had brought back itself nobody needs any more for this tablet.
        old.into_iter().map(|source| source.log).collect()
    }

    /// A client has asked the tablet's master to give it to another one. That may be its second attempt.
    pub(crate) fn wanted(
        &mut self,
        store: &mut Store,
        now: Time,
        index: u32,
        connection: u64,
        wanted: &MigrationWanted,
        out: &mut impl CoordinatorEffects,
    ) {
        let tablet = wanted.tablet;
        let order = MigrationOrder {
            table: TabletTable::Id(tablet.table_id),
            key_hash: tablet.start_key_hash,
            target: MigrationTarget::Server(ServerId(wanted.target)),
            bytes_per_second: 0,
            expected_cluster_id: 0,
        };
        let table = store.tables.get(tablet.table_id);
        let is_there = table.is_some_and(|table| {
            let found = table.tablet_of(tablet.start_key_hash);
            found.owner == index && table.range(found) == tablet
        });
        let begun = match is_there {
            true => self.order(store, now, &order, out),
            false => return answer(connection, wanted.sequence, Status::UnknownTablet, out),
        };
        let status = match begun {
            Ok(migration) => {
                if let Some(one) = self.migrations.under_way.get_mut(&migration.id) {
                    one.asked_by.push((connection, wanted.sequence));
                }
                return;
            }
            Err(MigrateError::Busy(_)) => Status::Retry,
            Err(error) => {
                out.report(MigrationEvent::Refused(error).into());
                Status::InvalidParameter
            }
        };
        answer(connection, wanted.sequence, status, out);
    }

    /// A server's session has ended, another one begins, or it is dead. It is not told: its next welcome says enough, and must not come before
    /// this.
    pub(crate) fn give_up_of(
        &mut self,
        store: &Store,
        now: Time,
        index: u32,
        out: &mut impl CoordinatorEffects,
    ) {
        for id in self.migrations.where_(|one| one.concerns(index)) {
            let is_source = self.migrations.under_way[&id].source == index;
            let why = match is_source {
                true => "the session of the server that has the tablet was interrupted",
                false => "the session of the server that was to have the tablet was interrupted",
            };
            if !is_source {
                self.note_not_taken(now, index);
            }
            self.end(store, now, id, why, Some(index), out);
        }
    }

    pub(crate) fn give_up_of_table(
        &mut self,
        store: &Store,
        now: Time,
        table: &Table,
        out: &mut impl CoordinatorEffects,
    ) {
        for id in self
            .migrations
            .where_(|one| one.tablet.table_id == table.id)
        {
            self.end(store, now, id, "its table was dropped", None, out);
        }
    }

    /// These servers take no tablets any more.
    pub(crate) fn give_up_to(
        &mut self,
        store: &Store,
        now: Time,
        targets: &[u32],
        why: &str,
        out: &mut impl CoordinatorEffects,
    ) {
        for id in self.migrations.where_(|one| targets.contains(&one.target)) {
            self.end(store, now, id, why, None, out);
        }
    }

    /// All is as if it had never begun. Answers no if there is none of that number.
    pub(crate) fn end(
        &mut self,
        store: &Store,
        now: Time,
        migration_id: u64,
        why: &str,
        untold: Option<u32>,
        out: &mut impl CoordinatorEffects,
    ) -> bool {
        let Some(one) = self.migrations.under_way.get(&migration_id) else {
            return false;
        };
        for index in [one.source, one.target] {
            if untold != Some(index) {
                let give_up = coordinator::Kind::GiveUpMigration(MigrationId { migration_id });
                store.tell(index, give_up, out);
            }
        }
        self.conclude(store, now, migration_id, why, out);
        true
    }

    fn conclude(
        &mut self,
        store: &Store,
        now: Time,
        migration_id: u64,
        failure: &str,
        out: &mut impl CoordinatorEffects,
    ) {
        let Some(one) = self.migrations.under_way.remove(&migration_id) else {
            return;
        };
        self.note_moved(store, now, one.tablet, one.target, failure.is_empty());
        // Who is not connected any more has other connections by now.
        let asked_by = one.asked_by.into_iter();
        for (connection, sequence) in asked_by {
            if store.members.server_of(connection).is_some() {
                let status = if failure.is_empty() {
                    Status::Ok
                } else {
                    Status::Retry
                };
                answer(connection, sequence, status, out);
            }
        }
        let mut shown = one.shown;
        shown.ended_ns = store.cluster_time_ns(now).max(shown.began_ns + 1);
        shown.failure = failure.to_owned();
        let took_ms = (shown.ended_ns - shown.began_ns) / 1_000_000;
        let event = match failure {
            "" => MigrationEvent::Ended {
                migration: migration_id,
                took_ms,
                objects: shown.objects,
                bytes: shown.bytes,
            },
            why => MigrationEvent::GivenUp {
                migration: migration_id,
                took_ms,
                why: why.to_owned(),
            },
        };
        out.report(event.into());
        self.migrations.end(shown);
    }
}

/// For people.
fn moved(shown: &Migration) -> String {
    format!(
        "the tablet of table {:?} that begins with key hash {:#x} moved from member {:?} to member {:?}",
        shown.table, shown.start_key_hash, shown.source_member, shown.target_member
    )
}

/// Nobody waits for the answer: a source that does not hear of this learns it with its next welcome.
fn order_drop(
    store: &mut Store,
    index: u32,
    tablet: TabletRange,
    out: &mut impl CoordinatorEffects,
) {
    let server = store.members.server_mut(index);
    if let Some(link) = server.and_then(|server| server.link.as_mut()) {
        let sequence = link.sequence();
        let order = coordinator::Kind::DropTablet(TabletOrder { sequence, tablet });
        out.send_member(link.connection, ToShard::from(order));
    }
}

fn answer(connection: u64, sequence: u64, status: Status, out: &mut impl CoordinatorEffects) {
    let ended = MigrationEnded {
        sequence,
        status: status.into(),
    };
    let kind = coordinator::Kind::MigrationEnded(ended);
    out.send_member(connection, ToShard::from(kind));
}
