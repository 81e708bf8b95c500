//! Tablets that were cut to be moved, and were not, become one again: when, when not, and what a server is told whatever ends meanwhile.

use std::time::Duration;

use crate::balancing::*;
use crate::common::replicated::*;
use crate::common::{Action, CLUSTER, Harness, split_tablet};
use base::bugs::{Bug, plant};
use base::ids::TableId;
use wire::member::{
    BackupReport, Hello, Migrated, MigrationId, TabletMerge, TabletRange, coordinator::Kind, shard,
};

fn merges(actions: &[Action]) -> Vec<(u64, TabletMerge)> {
    let merges = actions.iter().filter_map(|action| match action {
        Action::Send(connection, Kind::MergeTablets(merge)) => Some((*connection, *merge)),
        _ => None,
    });
    merges.collect()
}

/// The owner says what is in each part of its table.
fn tells_all(store: &mut Store, number: u64) {
    for tablet in tablets(store) {
        tells(store, number, tablet, 15 * MIB);
    }
}

/// The same of so little that nothing moves by itself.
fn tells_little(store: &mut Store, number: u64) {
    for tablet in tablets(store) {
        tells(store, number, tablet, 1000);
    }
}

/// The table is cut, to be moved to server 2 in parts, which fails. Gives both parts.
fn with_a_cut(store: &mut Store) -> [TabletRange; 2] {
    tells(store, 1, WHOLE, 30 * MIB);
    let actions = store.wait(1500);
    let [(target, migrate)] = &begun(&actions)[..] else {
        panic!("{actions:?}");
    };
    let failed = Migrated {
        migration_id: migrate.migration_id,
        failure: "the log is full".to_owned(),
        is_full: true,
        ..Migrated::default()
    };
    store.says(target - 100, shard::Kind::Migrated(failed));
    <[_; 2]>::try_from(tablets(store)).expect("two parts")
}

fn stays_two(store: &mut Store, why: &str) {
    let merged = merges(&store.wait(2000));
    assert_eq!(merged, [], "{why}");
    assert_eq!(tablets(store).len(), 2, "{why}");
}

#[test]
fn parts_that_could_not_be_moved_become_one_once_their_server_has_both() {
    let mut store = with_memory(2);
    let [first, second] = with_a_cut(&mut store);
    stays_two(&mut store, "who knows whether the server has cut it yet?");
    tells(&mut store, 1, first, 15 * MIB);
    stays_two(&mut store, "it has said nothing of the second");
    tells(&mut store, 1, second, 15 * MIB);
    let merged = merges(&store.wait(1500));
    assert_eq!(merged.len(), 1);
    assert_eq!((merged[0].0, merged[0].1.tablet), (101, WHOLE));
    assert_eq!(tablets(&store), [WHOLE]);
    assert_eq!(balance(&store).merges, 1);
    // What has failed is left alone for as long as before: it is not cut again at once.
    tells(&mut store, 1, WHOLE, 30 * MIB);
    assert_eq!(begun(&store.wait(2000)), []);
    assert_eq!(begun(&store.wait(10_000)).len(), 1, "but after the pause");
}

#[test]
fn a_build_that_does_not_know_the_order_is_left_alone() {
    let mut store = with_memory(2);
    let old = Hello {
        cluster_id: CLUSTER,
        server_id: store.ids[&1].0,
        merges_tablets: false,
        ..with_replicas("m1", 1)
    };
    store.harness.close(101);
    store.harness.enlist(101, old);
    with_a_cut(&mut store);
    tells_all(&mut store, 1);
    stays_two(&mut store, "an older build");
}

#[test]
fn what_is_known_from_the_session_before_does_not_count() {
    let mut store = with_memory(2);
    with_a_cut(&mut store);
    tells_all(&mut store, 1);
    store.harness.close(101);
    store.resume(1);
    stays_two(&mut store, "a new session");
    tells_all(&mut store, 1);
    assert_eq!(merges(&store.wait(1500)).len(), 1);
}

#[test]
fn boundaries_that_a_client_asked_for_stay() {
    let mut store = with_memory(2);
    let [_, second] = with_a_cut(&mut store);
    let ordered = split_tablet("t", second.start_key_hash);
    store.harness.request(&ordered);
    tells_all(&mut store, 1);
    stays_two(&mut store, "ordered");
    // The same is so for a coordinator that goes on with the state.
    store.harness.restart(Duration::ZERO);
    for number in 1..=2 {
        store.resume(number);
    }
    tells_all(&mut store, 1);
    stays_two(&mut store, "ordered, and noted");
}

#[test]
fn a_migration_that_is_under_way_or_waits_keeps_its_tablet_as_it_is() {
    let mut store = with_memory(3);
    let [first, second] = with_a_cut(&mut store);
    let two = store.ids[&2];
    let under_way = order(&mut store, &to(second.start_key_hash, two)).unwrap();
    let waits = order(&mut store, &to(first.start_key_hash, two)).unwrap();
    assert!(under_way.waits_for.is_empty() && !waits.waits_for.is_empty());
    tells_all(&mut store, 1);
    stays_two(&mut store, "one is under way, and one waits");
    let give_up = |store: &mut Store, id| {
        let harness = &mut store.harness;
        let coordinator = &mut harness.coordinator;
        let done = coordinator.give_up_migration(harness.now, id, 0, &mut harness.out);
        assert_eq!(done, Ok(()));
        harness.take();
    };
    // The one that waits goes first, so that the other one's end does not let it begin.
    give_up(&mut store, waits.id);
    stays_two(&mut store, "one is under way");
    give_up(&mut store, under_way.id);
    assert_eq!(merges(&store.wait(1500)).len(), 1);
}

/// The second part goes to server 2 and comes back: server 1's log holds of it what was there before, and that must not count.
fn with_other_sources(store: &mut Store) {
    let [_, second] = with_a_cut(store);
    for (from, to_number) in [(1, 2), (2, 1)] {
        let target = store.ids[&to_number];
        let moved = order(store, &to(second.start_key_hash, target)).unwrap();
        carry_out(store, to_number, from, moved.id);
        for number in 1..=2 {
            tells_little(store, number);
        }
        if to_number == 2 {
            stays_two(store, "other owners");
        }
    }
    assert_eq!(store.harness.owners(TableId(1)), [store.ids[&1]; 2]);
}

#[test]
fn tablets_of_other_owners_or_other_sources_stay_two() {
    let mut store = with_memory(2);
    with_other_sources(&mut store);
    stays_two(&mut store, "other sources");
}

/// The bug that the test above is about, planted.
#[test]
fn a_merge_whatever_the_sources_is_found() {
    let mut store = with_memory(2);
    with_other_sources(&mut store);
    plant(Some(Bug::MergeWhateverTheSources));
    let merged = merges(&store.wait(1500));
    plant(None);
    assert_eq!(merged.len(), 1);
}

#[test]
fn a_member_that_drains_keeps_its_tablets_small() {
    let mut store = with_memory(4);
    with_a_cut(&mut store);
    drains(&mut store, "m1");
    tells_all(&mut store, 1);
    stays_two(&mut store, "it drains, and waits for its first pause");
}

/// Two masters, and two backups that are nothing else.
fn with_one_heir() -> Store {
    let mut store = with_memory(2);
    for number in 3..=4 {
        let member = format!("m{number}");
        let hello = Hello {
            backup_only: true,
            replicas: 0,
            ..with_replicas(&member, number)
        };
        store.harness.enlist(100 + number, hello);
        let report = BackupReport {
            segment_bytes: 8 << 20,
            frames: 1000,
            frames_free: 1000,
            ..BackupReport::default()
        };
        store.says(number, shard::Kind::BackupReport(report));
    }
    store
}

#[test]
fn what_one_recovery_has_brought_to_one_server_becomes_one_once_its_sources_are_released() {
    let mut store = with_one_heir();
    with_a_cut(&mut store);
    let dead = store.ids[&1];
    store.kill(1);
    store.wait(100);
    for number in 2..=4 {
        store.finds(number, dead, vec![open_head(1, 80, &[])]);
    }
    let orders = orders(&store.wait(100));
    let [(102, recover)] = &orders[..] else {
        panic!("{orders:?}");
    };
    assert_eq!(recover.tablets.len(), 2);
    store.done(102, recover, 20);
    tells_all(&mut store, 2);
    stays_two(&mut store, "older logs are needed");
    store.durable(102, recover);
    assert_eq!(merges(&store.wait(1500)).len(), 1);
    assert_eq!(store.harness.owners(TableId(1)), [store.ids[&2]]);
}

/// The coordinator's process dies before or after the merge is noted. Either way its server is welcomed with what it has, in one tablet or two.
#[test]
fn a_coordinator_that_dies_at_any_moment_leaves_the_same_keys() {
    for is_noted in [false, true] {
        let mut store = with_memory(2);
        let both = with_a_cut(&mut store);
        tells_all(&mut store, 1);
        // A tick in which it is decided; nothing has left yet.
        let harness = &mut store.harness;
        let is_two =
            |harness: &Harness| harness.coordinator.tables(0, 1).tables[0].tablets.len() == 2;
        for _ in 0..100 {
            if is_two(harness) {
                let (now, out) = (harness.now, &mut harness.out);
                harness.now = harness.coordinator.tick(now, out);
            }
        }
        assert!(!is_two(harness), "nothing was decided");
        if is_noted {
            harness.commit();
        }
        harness.restart(Duration::ZERO);
        let expected = if is_noted { vec![WHOLE] } else { both.to_vec() };
        assert_eq!(tablets(&store), expected);
        let hello = Hello {
            cluster_id: CLUSTER,
            server_id: store.ids[&1].0,
            ..with_replicas("m1", 1)
        };
        let (welcome, _) = store.harness.enlist(101, hello);
        assert_eq!(welcome.tablets, expected);
        store.resume(2);
        // It is made one by what its server says, not by what was said to that before. There is too little to be cut again.
        tells_little(&mut store, 1);
        let merged = merges(&store.wait(1500)).len();
        assert_eq!(merged, usize::from(!is_noted));
        assert_eq!(tablets(&store), [WHOLE]);
    }
}

/// What a client knows of the two halves is right still, and names the same server.
#[test]
fn a_tablet_that_was_made_one_moves_as_one() {
    let mut store = with_memory(2);
    let [_, second] = with_a_cut(&mut store);
    tells_all(&mut store, 1);
    store.wait(1500);
    let two = store.ids[&2];
    let moved = order(&mut store, &to(second.start_key_hash, two)).unwrap();
    assert_eq!((moved.start_key_hash, moved.end_key_hash), (0, u64::MAX));
    carry_out(&mut store, 2, 1, moved.id);
    assert_eq!(store.harness.owners(TableId(1)), [store.ids[&2]]);
    let migration_id = moved.id;
    let late = store.says(1, shard::Kind::Stopped(MigrationId { migration_id }));
    assert_eq!(late, []);
}
