//! Movement alone: no coordinator, no sessions.

use base::bugs::{Bug, plant};
use base::time::Time;
use wire::member::coordinator::Kind;
use wire::member::{Migrated, MigrationId};

use super::{Movement, Terms};
use crate::alone::{self, MOMENT, Said, index};
use crate::orders::{MigrateError, MigrationOrder, MigrationTarget, TabletTable};
use crate::store::Store;

struct Alone {
    store: Store,
    movement: Movement,
    out: Said,
    now: Time,
    table: u64,
}

impl Alone {
    fn new() -> Alone {
        let (store, table) = alone::store(3);
        Alone {
            store,
            movement: Movement::default(),
            out: Said::default(),
            now: Time(2000),
            table,
        }
    }

    fn order(&mut self, key_hash: u64, target: &str) -> Result<u64, MigrateError> {
        let order = MigrationOrder {
            table: TabletTable::Id(self.table),
            key_hash,
            target: MigrationTarget::Member(target.to_owned()),
            bytes_per_second: 0,
            expected_cluster_id: 0,
        };
        let (store, out) = (&mut self.store, &mut self.out);
        let begun = self.movement.order(store, self.now, &order, out)?;
        Ok(begun.id)
    }

    fn owner(&self) -> u32 {
        let table = self.store.tables.get(self.table);
        table.expect("it was made").tablet_of(0).owner
    }

    /// The target has all of the tablet.
    fn has_it(&mut self, id: u64) -> Vec<(u64, Kind)> {
        let migrated = Migrated {
            migration_id: id,
            from_segment: 3,
            ..Migrated::default()
        };
        let at = index(&self.store, 2);
        let (store, out) = (&mut self.store, &mut self.out);
        self.movement.migrated(store, self.now, at, &migrated, out);
        self.out.take()
    }
}

#[test]
fn a_tablet_moves_when_its_server_has_stopped() {
    let mut alone = Alone::new();
    let first = index(&alone.store, 1);
    let id = alone.order(0, "m2").unwrap();
    let said = alone.out.take();
    assert!(matches!(
        &said[..],
        [(102, Kind::Migrate(_)), (101, Kind::MigrateOut(_))]
    ));
    assert!(is_moved_only_when_stopped(&mut alone, id));
    assert_eq!(alone.owner(), index(&alone.store, 2));
    assert_eq!(alone.store.tables.tablets_of(first), 1);
    assert!(alone.movement.migrations.ways().is_empty());

    plant(Some(Bug::MoveBeforeStop));
    let mut alone = Alone::new();
    let id = alone.order(0, "m2").unwrap();
    let is_missed = is_moved_only_when_stopped(&mut alone, id);
    plant(None);
    assert!(!is_missed, "the planted bug is not found");
}

/// Until the source has said that it answers nothing of the tablet any more, it is the source's.
fn is_moved_only_when_stopped(alone: &mut Alone, id: u64) -> bool {
    let source = index(&alone.store, 1);
    let said = alone.has_it(id);
    let is_early = alone.owner() != source || !matches!(&said[..], [(101, Kind::StopTablet(_))]);
    let stopped = MigrationId { migration_id: id };
    let (store, out) = (&mut alone.store, &mut alone.out);
    let logs = alone
        .movement
        .stopped(store, alone.now, source, stopped, out);
    let said = alone.out.take();
    !is_early
        && logs.is_empty()
        && matches!(
            &said[..],
            [(102, Kind::CommitMigration(_)), (101, Kind::DropTablet(_))]
        )
}

#[test]
fn one_at_a_time_and_nobody_moves_what_is_there() {
    let mut alone = Alone::new();
    let id = alone.order(0, "m2").unwrap();
    assert_eq!(alone.order(0, "m2"), Ok(id), "it goes on");
    assert!(matches!(
        alone.order(u64::MAX, "m3"),
        Err(MigrateError::Busy(_))
    ));
    assert!(matches!(
        alone.order(u64::MAX, "m1"),
        Err(MigrateError::IsThere { .. })
    ));
    assert!(matches!(
        alone.order(0, "m9"),
        Err(MigrateError::NotFound(_))
    ));
    // The session of the target ends.
    alone.out.take();
    let target = index(&alone.store, 2);
    let (store, out) = (&alone.store, &mut alone.out);
    alone.movement.give_up_of(store, alone.now, target, out);
    assert!(matches!(
        &alone.out.take()[..],
        [(101, Kind::GiveUpMigration(_))]
    ));
    assert_eq!(alone.owner(), index(&alone.store, 1));
    assert!(alone.order(u64::MAX, "m3").is_ok());
}

#[test]
fn nothing_is_evened_out_while_servers_are_recovered() {
    let mut alone = Alone::new();
    let terms = Terms {
        evens_out: true,
        bytes_per_second: 1,
        recoveries: 1,
    };
    alone.now += MOMENT;
    let (store, out) = (&mut alone.store, &mut alone.out);
    let next = alone.movement.look(store, terms, alone.now, out);
    assert!(next > alone.now && alone.out.take().is_empty());
    let waits_for = alone.movement.balance.shown().waits_for;
    assert!(waits_for.contains("servers are recovered"), "{waits_for}");
}
