//! What the coordinator moves by itself, and migrations that wait for each other.

use crate::common::replicated::*;
use crate::common::{self, Action, drop_table};
use base::ids::ServerId;
use coordinator::status::{Balance, Migration};
use coordinator::{
    GiveUpMigrationError, MigrateError, MigrationOrder, MigrationTarget, TabletTable,
};
use wire::member::{
    Migrate, Migrated, MigrationId, Pong, TabletLoad, TabletRange, coordinator::Kind, shard,
};

pub const MIB: u64 = 1 << 20;
pub const WHOLE: TabletRange = TabletRange {
    table_id: 1,
    start_key_hash: 0,
    end_key_hash: u64::MAX,
};

/// Servers, and a table of one tablet at server 1.
pub fn with_memory(members: u64) -> Store {
    let mut store = Store::new(0);
    for number in 1..=members {
        store.start(number, &format!("m{number}"), &[]);
    }
    store.harness.create("t", 1);
    store
}

/// A server tells what is in a tablet.
pub fn tells(store: &mut Store, number: u64, tablet: TabletRange, bytes: u64) {
    let load = TabletLoad {
        tablet,
        bytes,
        objects: bytes / 1000,
        uses: 0,
    };
    let pong = Pong {
        loads: vec![load],
        segments: 14,
        segments_short: if number == 1 { store.short } else { 0 },
        ..Pong::default()
    };
    store.says(number, shard::Kind::Pong(pong));
}

pub fn balance(store: &Store) -> Balance {
    let status = store.harness.coordinator.cluster_status(store.harness.now);
    status.balance
}

pub fn shown(store: &Store) -> Vec<Migration> {
    let status = store.harness.coordinator.cluster_status(store.harness.now);
    status.migrations
}

/// Ranges of the first table.
pub fn tablets(store: &Store) -> Vec<TabletRange> {
    let tables = store.harness.coordinator.tables(0, 1).tables;
    let tablets = tables[0].tablets.iter();
    tablets
        .map(|tablet| TabletRange {
            table_id: tables[0].table_id,
            start_key_hash: tablet.start_key_hash,
            end_key_hash: tablet.end_key_hash,
        })
        .collect()
}

pub fn drains(store: &mut Store, member: &str) {
    let drain = coordinator::Drain {
        name: member.to_owned(),
        expected_cluster_id: 0,
    };
    let harness = &mut store.harness;
    let drained = harness
        .coordinator
        .drain_member(harness.now, &drain, &mut harness.out);
    assert!(drained.is_ok(), "{drained:?}");
    harness.take();
}

pub fn begun(actions: &[Action]) -> Vec<(u64, Migrate)> {
    let begun = actions.iter().filter_map(|action| match action {
        Action::Send(connection, Kind::Migrate(migrate)) => Some((*connection, migrate.clone())),
        _ => None,
    });
    begun.collect()
}

/// Source and target do what they have to.
pub fn carry_out(store: &mut Store, target: u64, source: u64, migration_id: u64) {
    let migrated = Migrated {
        migration_id,
        from_segment: 9,
        ..Migrated::default()
    };
    store.says(target, shard::Kind::Migrated(migrated));
    store.says(source, shard::Kind::Stopped(MigrationId { migration_id }));
}

pub fn to(key_hash: u64, server: ServerId) -> MigrationOrder {
    MigrationOrder {
        table: TabletTable::Name("t".to_owned()),
        key_hash,
        target: MigrationTarget::Server(server),
        bytes_per_second: 7,
        expected_cluster_id: 0,
    }
}

pub fn order(store: &mut Store, order: &MigrationOrder) -> Result<Migration, MigrateError> {
    let harness = &mut store.harness;
    let migration = harness
        .coordinator
        .migrate_tablet(harness.now, order, &mut harness.out);
    harness.take();
    migration
}

#[test]
fn a_tablet_is_cut_and_its_parts_go_to_servers_that_have_less() {
    let mut store = with_memory(3);
    assert_eq!(begun(&store.wait(3000)), []);
    let unknown = balance(&store).waits_for;
    assert!(
        unknown.contains("1 tablets' servers have not said yet"),
        "{unknown}"
    );
    tells(&mut store, 1, WHOLE, 30 * MIB);
    let actions = store.wait(1500);
    let [(103, first)] = &begun(&actions)[..] else {
        panic!("{actions:?}");
    };
    let cut_at = first.tablet.start_key_hash;
    let is_cut = |action: &Action| matches!(action, Action::Send(101, Kind::SplitTablet(split)) if split.key_hash == cut_at);
    let cut = actions.iter().position(is_cut).expect("it is cut");
    let is_out = |action: &Action| matches!(action, Action::Send(101, Kind::MigrateOut(_)));
    assert!(
        cut < actions.iter().position(is_out).unwrap(),
        "in this order"
    );
    assert_eq!(first.tablet.end_key_hash, u64::MAX);
    assert_eq!(cut_at / (1 << 60), 10, "a third of it leaves");
    assert_eq!(first.bytes_per_second, 50_000_000);
    let state = balance(&store);
    assert_eq!(
        (state.doing.as_str(), state.moves_begun),
        ("evens out bytes", 1)
    );
    let reason = shown(&store)[0].reason.clone().unwrap().to_string();
    assert!(
        reason.contains("server 1.0 of m1 has 31457280 bytes"),
        "{reason}"
    );
    carry_out(&mut store, 3, 1, first.migration_id);
    let actions = store.wait(200);
    let [(102, second)] = &begun(&actions)[..] else {
        panic!("{actions:?}");
    };
    carry_out(&mut store, 2, 1, second.migration_id);
    assert_eq!(begun(&store.wait(5000)), []);
    let state = balance(&store);
    assert_eq!((state.doing.as_str(), state.waits_for.as_str()), ("", ""));
    let mut owners = store.harness.owners(base::ids::TableId(1));
    owners.sort();
    assert_eq!(owners, [1, 2, 3].map(|number| store.ids[&number]));
}

#[test]
fn nothing_is_evened_out_while_logs_are_short_of_copies_or_servers_recovered() {
    let mut store = with_memory(3);
    store.short = 3;
    tells(&mut store, 1, WHOLE, 30 * MIB);
    assert_eq!(begun(&store.wait(3000)), []);
    let why = balance(&store).waits_for;
    assert!(
        why.contains("the logs of 1 servers have fewer copies"),
        "{why}"
    );
    store.short = 0;
    store.kill(1);
    assert_eq!(begun(&store.wait(3000)), []);
    let why = balance(&store).waits_for;
    assert!(why.contains("servers are recovered"), "{why}");
}

#[test]
fn a_tablet_that_could_not_move_is_tried_again_after_a_while() {
    let mut store = with_memory(2);
    tells(&mut store, 1, WHOLE, 30 * MIB);
    let actions = store.wait(1500);
    let (_, first) = begun(&actions).remove(0);
    let failed = Migrated {
        migration_id: first.migration_id,
        failure: "out of breath".to_owned(),
        ..Migrated::default()
    };
    store.says(2, shard::Kind::Migrated(failed));
    let left = begun(&store.wait(5000));
    assert!(
        left.iter().all(|(_, other)| other.tablet != first.tablet),
        "{left:?}"
    );
    for (_, other) in left {
        carry_out(&mut store, 2, 1, other.migration_id);
    }
    store.wait(6000);
    assert_eq!(balance(&store).waits_for, "");
}

/// The logs of the servers that were added stay full: each migration to one of them is given up at once.
#[test]
fn migrations_that_fail_become_fewer_and_leave_no_tablets_behind() {
    let mut store = with_memory(4);
    tells(&mut store, 1, WHOLE, 30 * MIB);
    let mut failed = 0;
    for _ in 0..88 * 5 {
        // Server 1 says what is in each of its tablets whenever there are others.
        for tablet in tablets(&store) {
            let width = (tablet.end_key_hash - tablet.start_key_hash) >> 32;
            tells(&mut store, 1, tablet, (30 * MIB * width) >> 32);
        }
        for (target, migrate) in begun(&store.wait(200)) {
            failed += 1;
            let full = Migrated {
                migration_id: migrate.migration_id,
                failure: "the log is full".to_owned(),
                is_full: true,
                ..Migrated::default()
            };
            store.says(target - 100, shard::Kind::Migrated(full));
        }
    }
    // What is cut off is one tablet with the rest again soon, and is left alone as a whole: tried after 0, 10, 30 and 70 s.
    assert!((3..=5).contains(&failed), "{failed} migrations in 88 s");
    assert_eq!(tablets(&store), [WHOLE]);
    let state = balance(&store);
    assert_eq!((state.tablets_left_alone, state.servers_left_alone), (1, 1));
    assert!(
        state.waits_for.contains("migrations failed: 1 tablets"),
        "{state:?}"
    );
}

/// Somebody wants the member gone: its tablets are tried again after the first pause each time.
#[test]
fn a_drain_waits_for_the_first_pause_only() {
    let mut store = with_memory(4);
    tells(&mut store, 1, WHOLE, MIB);
    drains(&mut store, "m1");
    let mut failed = 0;
    for _ in 0..88 * 5 {
        for (target, migrate) in begun(&store.wait(200)) {
            failed += 1;
            let full = Migrated {
                migration_id: migrate.migration_id,
                failure: "the log is full".to_owned(),
                ..Migrated::default()
            };
            store.says(target - 100, shard::Kind::Migrated(full));
        }
    }
    assert!((7..=9).contains(&failed), "{failed} migrations in 88 s");
}

#[test]
fn orders_wait_for_each_other_and_begin_in_order() {
    let mut store = with_memory(4);
    store.harness.request(&common::split_tablet("t", 1 << 62));
    store.harness.request(&common::split_tablet("t", 2 << 62));
    let [two, three, four] = [2, 3, 4].map(|number| store.ids[&number]);
    let first = order(&mut store, &to(0, two)).unwrap();
    let second = order(&mut store, &to(1 << 62, two)).unwrap();
    let third = order(&mut store, &to(2 << 62, three)).unwrap();
    assert_eq!(first.waits_for, "");
    assert!(
        second.waits_for.contains("giving out another tablet"),
        "{second:?}"
    );
    let again = order(&mut store, &to((1 << 62) + 5, two)).unwrap();
    assert_eq!(again.id, second.id, "the same one");
    let ids: Vec<u64> = shown(&store).iter().map(|one| one.id).collect();
    assert_eq!(ids, [first.id, second.id, third.id]);
    assert_eq!(begun(&store.wait(2000)), []);
    carry_out(&mut store, 2, 1, first.id);
    let next = begun(&store.wait(100));
    assert_eq!(next[0].1.migration_id, second.id);
    assert_eq!((next.len(), next[0].1.bytes_per_second), (1, 7));
    // Somebody has second thoughts.
    let harness = &mut store.harness;
    let given_up = |harness: &mut common::Harness, id| {
        let coordinator = &mut harness.coordinator;
        let done = coordinator.give_up_migration(harness.now, id, 0, &mut harness.out);
        (done, harness.take())
    };
    assert_eq!(given_up(harness, third.id), (Ok(()), vec![]));
    let (done, told) = given_up(harness, second.id);
    assert_eq!(
        (done, told.len()),
        (Ok(()), 2),
        "source and target are told"
    );
    let unknown = given_up(harness, second.id).0;
    assert_eq!(unknown, Err(GiveUpMigrationError::NotFound(second.id)));
    assert_eq!(begun(&store.wait(2000)), []);
    // What cannot be any more ends.
    let one = order(&mut store, &to(1 << 62, four)).unwrap();
    let other = order(&mut store, &to(2 << 62, four)).unwrap();
    assert_eq!(
        (one.waits_for.is_empty(), other.waits_for.is_empty()),
        (true, false)
    );
    store.harness.request(&drop_table("t"));
    store.wait(2000);
    let last = shown(&store).pop().unwrap();
    assert!(
        last.ended_ns > 0 && last.failure.contains("there is no table"),
        "{last:?}"
    );
}

#[test]
fn an_order_whose_server_is_away_for_a_moment_waits_for_it() {
    let mut store = with_memory(3);
    store.harness.request(&common::split_tablet("t", 1 << 62));
    let [two, three] = [2, 3].map(|number| store.ids[&number]);
    let first = order(&mut store, &to(0, two)).unwrap();
    let second = order(&mut store, &to(1 << 62, three)).unwrap();
    store.harness.close(103);
    carry_out(&mut store, 2, 1, first.id);
    assert_eq!(begun(&store.wait(2000)), []);
    let waiting = shown(&store).into_iter().find(|one| one.id == second.id);
    let waits_for = waiting.unwrap().waits_for;
    assert!(waits_for.contains("is not connected"), "{waits_for}");
    let again = order(&mut store, &to(1 << 62, three));
    assert!(
        matches!(again, Err(MigrateError::NotConnected { .. })),
        "a new one is refused: {again:?}"
    );
    store.resume(3);
    let next = begun(&store.wait(3000));
    assert_eq!(next[0].1.migration_id, second.id);
}

#[test]
fn an_order_does_not_wait_for_ever_for_a_server_that_is_away() {
    let mut store = with_memory(3);
    store.harness.request(&common::split_tablet("t", 1 << 62));
    let [two, three] = [2, 3].map(|number| store.ids[&number]);
    let first = order(&mut store, &to(0, two)).unwrap();
    let second = order(&mut store, &to(1 << 62, three)).unwrap();
    store.harness.close(103);
    carry_out(&mut store, 2, 1, first.id);
    let ended = |store: &Store| {
        let all = shown(store);
        let one = all.iter().find(|one| one.id == second.id).unwrap();
        (one.ended_ns > 0).then(|| one.failure.clone())
    };
    store.wait(50_000);
    assert_eq!(ended(&store), None);
    store.wait(15_000);
    let failure = ended(&store).expect("it has ended");
    assert!(failure.contains("is not connected"), "{failure}");
}

#[test]
fn no_more_wait_than_fit() {
    let mut store = with_memory(3);
    let step = u64::MAX / 70;
    for at in 1..70 {
        store.harness.request(&common::split_tablet("t", at * step));
    }
    let two = store.ids[&2];
    let results: Vec<_> = (0..70)
        .map(|at| order(&mut store, &to(at * step, two)))
        .collect();
    let refused: Vec<_> = results.into_iter().filter_map(Result::err).collect();
    assert_eq!(refused.len(), 5, "one is under way, and 64 wait");
    assert!(matches!(&refused[0], MigrateError::Busy(text) if text.contains("64 migrations wait")));
}

#[test]
fn a_member_that_drains_is_emptied_and_gets_nothing_back() {
    let mut store = with_memory(4);
    store.harness.request(&common::split_tablet("t", 1 << 63));
    drains(&mut store, "m1");
    let mut targets = Vec::new();
    // What is on its way is not counted.
    for left in [1, 0] {
        let actions = store.wait(1500);
        let [(target, migrate)] = &begun(&actions)[..] else {
            panic!("{actions:?}");
        };
        targets.push(*target);
        let state = balance(&store);
        assert_eq!(state.doing.contains("empties members that drain"), left > 0);
        assert_eq!(state.tablets_to_evacuate, left);
        carry_out(&mut store, target - 100, 1, migrate.migration_id);
    }
    assert_ne!(targets[0], targets[1], "empty ones are spread, too");
    assert_eq!(begun(&store.wait(5000)), []);
    assert_eq!(balance(&store).tablets_to_evacuate, 0);
    let owners = store.harness.owners(base::ids::TableId(1));
    assert!(!owners.contains(&store.ids[&1]), "{owners:?}");
}
