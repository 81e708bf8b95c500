//! Which replicas are believed, and which are missing.

use std::time::Duration;

use crate::common::Harness;
use crate::common::replicated::*;
use coordinator::CoordinatorEvent;
use coordinator::reports::RecoveryEvent;
use wire::member::{OpenFloor, ReplicaFound, shard};

#[test]
fn who_brought_a_tablet_back_and_dies_leaves_two_logs() {
    let (mut store, _, dead) = one_dead_of_four();
    store.wait(100);
    for number in 2..=4 {
        store.finds(number, dead, vec![closed(1), open_head(2, 80, &[1])]);
    }
    for (connection, recover) in &orders(&store.wait(100)) {
        store.done(*connection, recover, 7);
    }
    store.wait(100);
    store.kill(2);
    let second = store.ids[&2];
    let asked = fenced(&store.wait(100));
    let expected = [(103, dead), (104, dead), (103, second), (104, second)];
    assert_eq!(asked, expected);
    for number in 3..=4 {
        store.finds(number, dead, vec![closed(1), open_head(2, 80, &[1])]);
        store.finds(
            number,
            second,
            vec![closed(6), closed(8), open_head(9, 80, &[6, 8])],
        );
    }
    let orders = orders(&store.wait(100));
    assert_eq!(orders.len(), 2);
    let sources: Vec<_> = orders[0]
        .1
        .segments
        .iter()
        .map(|one| (one.log, one.segment_id))
        .collect();
    // What lies in the second's segment 6 is of a time when it had no such tablet.
    assert_eq!(
        sources,
        [(dead.0, 1), (dead.0, 2), (second.0, 8), (second.0, 9)]
    );
}

#[test]
fn what_was_believed_once_is_believed_again_and_nothing_longer() {
    let (mut store, _, dead) = one_dead_of_four();
    store.wait(100);
    for number in 2..=4 {
        store.finds(number, dead, vec![open_head(2, 80, &[])]);
    }
    let first = orders(&store.wait(100));
    for (connection, recover) in &first {
        store.done(*connection, recover, 7);
    }
    store.wait(100);
    // One of those who brought it back dies; a backup has returned with what was never acknowledged.
    store.kill(2);
    let second = store.ids[&2];
    store.wait(100);
    store.finds(3, second, vec![open_head(9, 80, &[])]);
    store.finds(4, second, vec![open_head(9, 80, &[])]);
    store.finds(3, dead, vec![open_head(2, 80, &[])]);
    store.finds(4, dead, vec![open_head(2, 96, &[])]);
    let again = orders(&store.wait(100));
    let of_dead = again[0].1.segments.iter().find(|one| one.log == dead.0);
    let of_dead = of_dead.expect("both logs are sources");
    assert_eq!(
        (of_dead.bytes, &of_dead.backups),
        (80, &vec![store.ids[&3].0])
    );
}

#[test]
fn a_head_with_a_gap_before_it_is_not_believed_even_by_those_who_do_not_read_what_is_missing() {
    let (mut store, _, dead) = one_dead_of_four();
    store.wait(100);
    for number in 2..=4 {
        store.finds(number, dead, vec![open_head(2, 80, &[])]);
    }
    for (connection, recover) in &orders(&store.wait(100)) {
        store.done(*connection, recover, 7);
    }
    store.wait(100);
    store.kill(2);
    let second = store.ids[&2];
    store.wait(100);
    for number in 3..=4 {
        store.finds(number, dead, vec![open_head(2, 80, &[])]);
        // The tablets need segments from 7 on, but 6 is closed nowhere.
        store.finds(number, second, vec![open_head(8, 80, &[6, 7]), closed(7)]);
    }
    assert_eq!(orders(&store.wait(1000)), []);
    store.finds(
        4,
        second,
        vec![open_head(8, 80, &[6, 7]), closed(6), closed(7)],
    );
    let again = orders(&store.wait(100));
    let of_second = again[0].1.segments.iter().filter(|one| one.log == second.0);
    let of_second: Vec<u64> = of_second.map(|one| one.segment_id).collect();
    assert_eq!(of_second, [7, 8]);
}

#[test]
fn what_is_missing_is_named_until_the_backup_returns() {
    let (mut store, table, dead) = one_dead_of_four();
    store.kill(4);
    store.wait(100);
    store.finds(2, dead, vec![open_head(3, 50, &[1, 2])]);
    let rotten = ReplicaFound {
        damage: "is rotten".to_owned(),
        ..closed(2)
    };
    store.finds(3, dead, vec![rotten]);
    assert_eq!(orders(&store.wait(2000)), []);
    let waits = store.recoveries()[0].waits_for.clone();
    assert_eq!(
        waits,
        "no backup that answers has segment 1, 2 (the replica at server 3.0 is rotten) of the log of server 1.0; \
         members that are not connected (2): m1, m4"
    );
    let reported = RecoveryEvent::Waits {
        server: dead,
        why: waits,
    };
    let reported = CoordinatorEvent::from(reported);
    let events = store.harness.out.events.iter();
    let same = events.filter(|event| **event == reported);
    assert_eq!(same.count(), 1, "once");
    // Its process is another, its disk the same.
    let mut actions = store.start(5, "m4", &[dead]);
    actions.extend(store.wait(100));
    let asked = fenced(&actions);
    assert_eq!(asked, [(105, dead)]);
    store.finds(5, dead, vec![closed(1), closed(2)]);
    let orders = orders(&store.wait(100));
    assert_eq!(orders.len(), 3);
    for (connection, recover) in &orders {
        store.done(*connection, recover, 1);
    }
    assert!(
        store
            .harness
            .config(table)
            .tablet
            .iter()
            .all(|tablet| tablet.service_locator.is_some())
    );
}

#[test]
fn each_group_of_tablets_says_once_why_it_waits() {
    let (mut store, _, first) = one_dead_of_four();
    store.wait(100);
    for number in 2..=4 {
        store.finds(number, first, vec![open_head(1, 80, &[])]);
    }
    for (connection, recover) in &orders(&store.wait(100)) {
        store.done(*connection, recover, 7);
    }
    // Server 2 dies with part of what server 1 had, which is in two logs, and with tablets of its own, which are in one.
    let fresh = store.harness.create("fresh", 3);
    let second = store.ids[&2];
    assert!(store.harness.owners(fresh).contains(&second));
    store.kill(2);
    store.wait(100);
    for number in 3..=4 {
        store.finds(number, first, vec![]);
        store.finds(number, second, vec![open_head(9, 80, &[8])]);
    }
    store.harness.out.events.clear();
    assert_eq!(orders(&store.wait(2000)), []);
    let waits = store.recoveries().pop().unwrap().waits_for;
    assert_eq!(waits.matches("of the log of").count(), 3, "{waits}");
    let events = &store.harness.out.events;
    assert_eq!(events.len(), 2, "each group once: {events:?}");
    let is_wait = |event: &CoordinatorEvent| {
        matches!(
            event,
            CoordinatorEvent::Recovery(RecoveryEvent::Waits { .. })
        )
    };
    assert!(events.iter().all(is_wait), "{events:?}");
    // One of them goes on; the other is said to wait still.
    store.finds(3, second, vec![closed(8), open_head(9, 80, &[8])]);
    let of_fresh = orders(&store.wait(100));
    for (connection, recover) in &of_fresh {
        assert_eq!(recover.tablets[0].table_id, fresh.0);
        store.done(*connection, recover, 7);
    }
    assert!(!of_fresh.is_empty());
    store.wait(100);
    let waits = store.recoveries().pop().unwrap().waits_for;
    assert_eq!(waits.matches("of the log of").count(), 1, "{waits}");
    assert!(waits.contains(&first.to_string()), "{waits}");
}

#[test]
fn open_replicas_below_the_floor_and_damaged_ones_are_no_head() {
    let mut store = Store::new(3);
    store.harness.create("t", 1);
    let dead = store.ids[&1];
    let floor = OpenFloor { segment_id: 5 };
    store.says(1, shard::Kind::RaiseOpenFloor(floor));
    store.kill(1);
    store.wait(100);
    let torn = ReplicaFound {
        damage: "is shorter than what was acknowledged".to_owned(),
        ..open_head(5, 10, &[])
    };
    store.finds(2, dead, vec![open_head(4, 90, &[])]);
    store.finds(3, dead, vec![torn]);
    assert_eq!(orders(&store.wait(1000)), []);
    let waits = store.recoveries()[0].waits_for.clone();
    assert!(
        waits.starts_with(
            "no backup that answers has the head of the log of server 1.0 (segment 5 or a later one); \
             segment 5 at server 3.0 is shorter"
        ),
        "{waits}"
    );
    // Of several that count the oldest is the head.
    store.finds(2, dead, vec![open_head(6, 90, &[5]), open_head(5, 70, &[])]);
    let orders = orders(&store.wait(100));
    assert_eq!(segments(&orders[0].1), [(5, vec![store.ids[&2].0])]);
}

#[test]
fn a_log_that_never_acknowledged_anything_is_empty() {
    let mut harness = Harness::new();
    harness.enlist(101, with_replicas("m1", 1));
    let table = harness.create("t", 1);
    harness.close(101);
    harness.enlist(102, with_replicas("m1", 2));
    let actions = harness.advance(Duration::from_millis(100));
    let [(102, recover)] = &orders(&actions)[..] else {
        panic!("{actions:?}");
    };
    assert_eq!(recover.segments, []);
    assert_eq!(recover.tablets[0].table_id, table.0);
    let status = harness.coordinator.cluster_status(harness.now);
    assert_eq!(status.losses, []);
}
