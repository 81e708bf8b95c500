//! Tables that are split into even parts by order: what is done at once, what stands against it, and that nothing joins the parts again.

use std::time::Duration;

use base::bugs::{Bug, plant};
use coordinator::{SplitOrder, SplitTableError, TableSplit, TabletTable};
use wire::member::coordinator::Kind;
use wire::member::{Hello, Migrated, MigrationId, TabletRange, shard};

use crate::balancing::*;
use crate::common::replicated::*;
use crate::common::{Action, CLUSTER, split_tablet};

const QUARTER: u64 = 1 << 62;

fn order_of(parts: u32) -> SplitOrder {
    SplitOrder {
        table: TabletTable::Name("t".to_owned()),
        parts,
        expected_cluster_id: CLUSTER,
    }
}

fn split_by(
    store: &mut Store,
    order: &SplitOrder,
) -> (Result<TableSplit, SplitTableError>, Vec<Action>) {
    let harness = &mut store.harness;
    let coordinator = &mut harness.coordinator;
    let split = coordinator.split_table(harness.now, order, &mut harness.out);
    (split, harness.take())
}

fn split(store: &mut Store, parts: u32) -> Result<TableSplit, SplitTableError> {
    split_by(store, &order_of(parts)).0
}

fn starts(store: &Store) -> Vec<u64> {
    let tablets = tablets(store).into_iter();
    tablets.map(|tablet| tablet.start_key_hash).collect()
}

/// Parts of the table that the owner is told to make.
fn told(actions: &[Action]) -> Vec<(u64, u64)> {
    let told = actions.iter().filter_map(|action| match action {
        Action::Send(connection, Kind::SplitTablet(split)) => Some((*connection, split.key_hash)),
        _ => None,
    });
    told.collect()
}

#[test]
fn a_table_gets_the_boundaries_that_it_lacks_and_its_owner_is_told() {
    let mut store = with_memory(2);
    let (done, actions) = split_by(&mut store, &order_of(4));
    let done = done.expect("nothing stands against it");
    assert_eq!((done.tablets, done.made, done.kept), (4, 3, 0));
    assert_eq!(starts(&store), [0, QUARTER, 2 * QUARTER, 3 * QUARTER]);
    let expected = [(101, QUARTER), (101, 2 * QUARTER), (101, 3 * QUARTER)];
    assert_eq!(told(&actions), expected);
    // Asked again, and for what is there as a part of that.
    for parts in [4, 2] {
        let (again, actions) = split_by(&mut store, &order_of(parts));
        let nothing = TableSplit { made: 0, ..done };
        assert_eq!((again, told(&actions)), (Ok(nothing), vec![]));
    }
    let eight = split(&mut store, 8).expect("nothing stands against it");
    assert_eq!((eight.tablets, eight.made), (8, 4));
}

#[test]
fn an_order_that_cannot_be_carried_out_is_refused_and_changes_nothing() {
    let mut store = with_memory(2);
    for parts in [0, 1, 4097] {
        let refused = split(&mut store, parts).unwrap_err();
        assert_eq!(refused, SplitTableError::Parts { parts, most: 4096 });
        assert!(refused.to_string().contains("2 to 4096"));
    }
    let of = |table, expected_cluster_id| SplitOrder {
        table,
        parts: 2,
        expected_cluster_id,
    };
    for table in [TabletTable::Name("u".to_owned()), TabletTable::Id(99)] {
        let refused = split_by(&mut store, &of(table.clone(), 0)).0.unwrap_err();
        assert!(refused.to_string().starts_with("there is no table"));
        assert_eq!(refused, SplitTableError::NotFound(table));
    }
    let other = of(TabletTable::Name("t".to_owned()), CLUSTER + 1);
    let refused = split_by(&mut store, &other).0;
    assert!(matches!(refused, Err(SplitTableError::OtherStore(_))));
    assert_eq!(tablets(&store), [WHOLE]);
}

#[test]
fn a_table_with_a_dead_server_is_split_when_its_tablets_are_served_again() {
    let mut store = with_memory(3);
    store.kill(1);
    let refused = split(&mut store, 4).unwrap_err();
    assert!(matches!(refused, SplitTableError::Recovering { .. }));
    assert!(refused.to_string().contains("order the split again"));
    assert_eq!(starts(&store), [0], "all of it or nothing");
}

#[test]
fn a_migration_that_somebody_has_ordered_comes_first_and_one_of_the_stores_own_is_given_up() {
    let mut store = with_memory(3);
    let two = store.ids[&2];
    let migration = order(&mut store, &to(0, two)).expect("it begins");
    let refused = split(&mut store, 4).unwrap_err();
    let SplitTableError::Moving { migration: id, .. } = refused else {
        panic!("{refused}");
    };
    assert_eq!(id, migration.id);
    assert!(
        refused
            .to_string()
            .contains(&format!("rcbox tablet give-up {id}"))
    );
    let harness = &mut store.harness;
    let coordinator = &mut harness.coordinator;
    let ended = coordinator.give_up_migration(harness.now, id, 0, &mut harness.out);
    assert_eq!(ended, Ok(()));
    harness.take();

    tells(&mut store, 1, WHOLE, 30 * MIB);
    let begun = begun(&store.wait(30_000));
    let [(_, migrate)] = &begun[..] else {
        panic!("{begun:?}");
    };
    let moved = migrate.migration_id;
    let (done, actions) = split_by(&mut store, &order_of(16));
    done.expect("the store's own gives way");
    let gives_up = |action: &Action| {
        let id = MigrationId {
            migration_id: moved,
        };
        matches!(action, Action::Send(_, Kind::GiveUpMigration(given_up)) if *given_up == id)
    };
    assert_eq!(actions.iter().filter(|it| gives_up(it)).count(), 2);
}

/// The store cuts its table for itself, at a place of its own choosing, and cannot move the part.
fn with_a_cut(store: &mut Store) -> TabletRange {
    tells(store, 1, WHOLE, 30 * MIB);
    let begun = begun(&store.wait(1500));
    let [(target, migrate)] = &begun[..] else {
        panic!("{begun:?}");
    };
    let failed = Migrated {
        migration_id: migrate.migration_id,
        failure: "the log is full".to_owned(),
        is_full: true,
        ..Migrated::default()
    };
    store.says(target - 100, shard::Kind::Migrated(failed));
    tablets(store)[1]
}

fn tell_all(store: &mut Store, number: u64) {
    for tablet in tablets(store) {
        tells(store, number, tablet, 1000);
    }
}

/// Splits the table in four, lets the coordinator be started anew, and waits until tablets are joined that may be. Gives where tablets begin then.
fn long_after(store: &mut Store) -> Vec<u64> {
    split(store, 4).expect("nothing stands against it");
    store.harness.restart(Duration::ZERO);
    for number in 1..=2 {
        store.resume(number);
    }
    for _ in 0..3 {
        tell_all(store, 1);
        store.wait(2000);
    }
    starts(store)
}

#[test]
fn ordered_boundaries_stay_and_the_stores_own_beside_them_go() {
    let ordered = [0, QUARTER, 2 * QUARTER, 3 * QUARTER];
    let mut store = with_memory(2);
    with_a_cut(&mut store);
    assert_eq!(long_after(&mut store), ordered);

    plant(Some(Bug::ForgetOrderedBoundary));
    let forgotten = long_after(&mut with_memory(2));
    plant(Some(Bug::SplitHalfway));
    let halfway = long_after(&mut with_memory(2));
    plant(None);
    assert_eq!(forgotten, [0], "the planted bug is not found");
    assert_eq!(halfway, [0, QUARTER], "the planted bug is not found");
}

#[test]
fn a_boundary_that_the_store_had_made_for_itself_becomes_an_ordered_one() {
    let mut store = with_memory(2);
    // The store has cut where the order wants it: as if that had been a client, whose boundary is then taken for the store's own by the planted bug.
    store.harness.request(&split_tablet("t", 2 * QUARTER));
    plant(Some(Bug::ForgetOrderedBoundary));
    store.harness.request(&split_tablet("t", 12345));
    store.harness.restart(Duration::ZERO);
    plant(None);
    for number in 1..=2 {
        store.resume(number);
    }
    let done = split(&mut store, 2).expect("nothing stands against it");
    assert_eq!((done.made, done.kept, done.tablets), (0, 1, 3));
    for _ in 0..3 {
        tell_all(&mut store, 1);
        store.wait(2000);
    }
    assert_eq!(starts(&store), [0, 2 * QUARTER]);
}

/// A server that is away learns of it from its Welcome.
#[test]
fn a_server_that_is_away_is_told_when_it_is_back() {
    let mut store = with_memory(2);
    store.harness.close(101);
    let (done, actions) = split_by(&mut store, &order_of(2));
    assert_eq!(done.expect("it is away, and not dead").made, 1);
    assert_eq!(told(&actions), []);
    let same = Hello {
        cluster_id: CLUSTER,
        server_id: store.ids[&1].0,
        ..with_replicas("m1", 1)
    };
    let (welcome, _) = store.harness.enlist(101, same);
    assert_eq!(welcome.tablets.len(), 2);
}
