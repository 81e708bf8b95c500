//! When a server is declared dead.

use std::time::Duration;

use crate::common::replicated::*;
use crate::common::{self, Action, Harness, hello, removal};
use base::ids::ServerId;
use wire::member::{self, Hello, Pong, Probed, coordinator::Kind, shard};

#[test]
fn death_needs_two_vantage_points() {
    let mut store = Store::new(4);
    let table = store.harness.create("t", 1);
    // Cut off from the coordinator, and well.
    let asked = probes(&store.harness.close(101));
    assert_eq!(asked.len(), 3);
    let says = |store: &mut Store, (prober, sequence), is_alive| {
        let probed = Probed { sequence, is_alive };
        store
            .harness
            .shard_says(prober, shard::Kind::Probed(probed))
    };
    says(&mut store, asked[0], false);
    says(&mut store, asked[1], true);
    says(&mut store, asked[2], true);
    assert_eq!(store.harness.owners(table), [store.ids[&1]]);
    // They are asked again, until it is back or most of them miss it, too.
    let asked = probes(&store.wait(2500));
    assert!(asked.len() >= 3);
    let last = asked[asked.len() - 3..].to_vec();
    says(&mut store, last[0], false);
    assert_eq!(store.recoveries(), []);
    says(&mut store, last[1], false);
    assert_eq!(store.recoveries().len(), 1);
    // It was alive after all: it is told what happened.
    let mut late = with_replicas("m1", 1);
    late.cluster_id = common::CLUSTER;
    late.server_id = store.ids[&1].0;
    let refused = store.harness.refused(110, late);
    assert!(refused.text.contains("declared dead"), "{}", refused.text);
    // Its member goes on with another process.
    let (welcome, _) = store.harness.enlist(111, with_replicas("m1", 9));
    assert_eq!(
        ServerId(welcome.server_id),
        ServerId::new(store.ids[&1].index(), 1)
    );
}

#[test]
fn silence_is_noticed_and_a_frozen_server_refused_when_it_wakes() {
    let mut store = Store::new(4);
    store.harness.create("t", 1);
    // 101 answers no pings any more.
    let mut asked = Vec::new();
    let frozen_at = store.harness.now;
    for _ in 0..20 {
        let actions = store.harness.advance(Duration::from_millis(100));
        asked.extend(probes(&actions));
        for action in actions {
            if let Action::Send(connection, Kind::Ping(ping)) = action
                && connection != 101
            {
                let pong = Pong {
                    sequence: ping.sequence,
                    ..Pong::default()
                };
                store
                    .harness
                    .shard_says(connection, shard::Kind::Pong(pong));
            }
        }
        if !asked.is_empty() {
            break;
        }
    }
    assert_eq!(asked.len(), 3);
    // Half of the death time-out, two pings apart, and the tenth of a second between two looks.
    let silent_for = store.harness.now.since(frozen_at);
    assert!(
        (Duration::from_millis(400)..=Duration::from_millis(800)).contains(&silent_for),
        "others are asked after {silent_for:?}"
    );
    let mut all = Vec::new();
    for (prober, sequence) in asked {
        let is_alive = false;
        let probed = shard::Kind::Probed(Probed { sequence, is_alive });
        all.extend(store.harness.shard_says(prober, probed));
    }
    let refused = all.iter().any(
        |action| matches!(action, Action::Send(101, Kind::Refused(refused)) if refused.reason() == member::RefusedReason::Superseded),
    );
    assert!(refused && all.contains(&Action::Close(101)));
    assert_eq!(store.recoveries().len(), 1);
}

#[test]
fn when_most_servers_are_silent_the_coordinator_doubts_itself() {
    let mut store = Store::new(4);
    store.harness.create("t", 4);
    let mut declared_at = None;
    for tenth in 0..200 {
        let actions = store.harness.advance(Duration::from_millis(100));
        for action in actions {
            match action {
                // Only the fourth is heard, and it reaches nobody either.
                Action::Send(104, Kind::Ping(ping)) => {
                    let pong = Pong {
                        sequence: ping.sequence,
                        ..Pong::default()
                    };
                    store.harness.shard_says(104, shard::Kind::Pong(pong));
                }
                Action::Send(104, Kind::Probe(probe)) => {
                    let probed = Probed {
                        sequence: probe.sequence,
                        is_alive: false,
                    };
                    store.harness.shard_says(104, shard::Kind::Probed(probed));
                }
                _ => {}
            }
        }
        if declared_at.is_none() && !store.recoveries().is_empty() {
            declared_at = Some(tenth);
        }
    }
    let declared_at = declared_at.expect("in the end they are");
    assert!(declared_at > 90, "after {declared_at} tenths of a second");
}

#[test]
fn who_has_the_only_copy_is_never_declared_dead() {
    let mut harness = Harness::new();
    harness.enlist(101, hello("m1", 1, 0, 1));
    harness.enlist(102, hello("m2", 2, 0, 1));
    harness.create("t", 2);
    let mut actions = harness.close(101);
    actions.extend(harness.advance(Duration::from_secs(20)));
    assert_eq!(probes(&actions), []);
}

#[test]
fn a_backup_alone_takes_no_tablets_and_can_be_declared_dead() {
    let mut store = Store::new(3);
    let alone = Hello {
        replicas: 0,
        backup_only: true,
        ..with_replicas("b", 9)
    };
    store.harness.enlist(109, alone);
    let table = store.harness.create("t", 8);
    let owners = store.harness.owners(table);
    assert!(!owners.contains(&ServerId::new(4, 0)), "{owners:?}");
    let asked = probes(&store.harness.close(109));
    assert_eq!(asked.len(), 3);
    for (prober, sequence) in asked {
        let is_alive = false;
        let probed = shard::Kind::Probed(Probed { sequence, is_alive });
        store.harness.shard_says(prober, probed);
    }
    assert_eq!(store.recoveries(), []);
    // The masters say that they are short of nothing without it.
    store.wait(300);
    let removed = store.harness.coordinator.remove_member(
        store.harness.now,
        &removal("b"),
        &mut store.harness.out,
    );
    removed.unwrap();
}
