//! Death and recovery: what is asked, ordered and noted, and in which order.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::replicated::*;
use crate::common::{self, Action, Harness, drop_table, hello, removal};
use wire::ids::ServerId;
use wire::member::{
    self, BackupReport, Hello, OpenFloor, Pong, Probed, Recover, Recovered, RecoveryId,
    ReplicaFound, coordinator::Kind, shard,
};

#[test]
fn a_dead_servers_tablet_is_cut_replayed_by_all_and_owned_before_it_is_served() {
    let (mut store, table, dead) = one_dead_of_four();
    let config = store.harness.config(table);
    assert_eq!(config.tablet[0].service_locator, None, "nobody serves it");
    let asked = fenced(&store.wait(100));
    assert_eq!(asked, [(102, dead), (103, dead), (104, dead)]);
    let [two, three, four] = [2, 3, 4].map(|number| store.ids[&number].0);
    store.finds(2, dead, vec![closed(1), open_head(3, 50, &[1, 2])]);
    store.finds(
        3,
        dead,
        vec![closed(1), closed(2), open_head(3, 80, &[1, 2])],
    );
    assert_eq!(
        orders(&store.wait(100)),
        [],
        "the third may have a segment that is missed"
    );
    store.finds(4, dead, vec![closed(2)]);
    let orders = orders(&store.wait(100));
    assert_eq!(orders.len(), 3);
    let mut tablets = Vec::new();
    for (_, recover) in &orders {
        // The longest head alone counts.
        assert_eq!(
            segments(recover),
            [
                (1, vec![three, two]),
                (2, vec![three, four]),
                (3, vec![three])
            ]
        );
        tablets.extend(recover.tablets.clone());
    }
    tablets.sort_unstable();
    assert_eq!(tablets.len(), 3);
    assert_eq!(
        (tablets[0].start_key_hash, tablets[2].end_key_hash),
        (0, u64::MAX)
    );
    assert_eq!(store.wait(1000), [], "each is ordered once");

    let (connection, first) = &orders[0];
    let commit = store.done(*connection, first, 7);
    let recovery_id = first.recovery_id;
    assert_eq!(
        commit,
        [Action::Send(
            *connection,
            Kind::CommitRecovery(RecoveryId { recovery_id })
        )]
    );
    let config = store.harness.config(table);
    let served = config
        .tablet
        .iter()
        .filter(|tablet| tablet.service_locator.is_some());
    assert_eq!(served.count(), 1, "tablets are switched one by one");
    for (connection, recover) in &orders[1..] {
        store.done(*connection, recover, 7);
    }
    store.wait(100);
    let [recovery] = &store.recoveries()[..] else {
        panic!("one recovery is shown");
    };
    assert!(recovery.ended_ns > recovery.began_ns);
    assert_eq!(
        (recovery.tablets_left, recovery.objects, recovery.masters),
        (0, 30, 3)
    );
}

#[test]
fn old_logs_are_kept_until_what_was_replayed_is_on_backups() {
    let (mut store, _, dead) = one_dead_of_four();
    store.wait(100);
    for number in 2..=4 {
        store.finds(number, dead, vec![open_head(1, 80, &[])]);
    }
    let orders = orders(&store.wait(100));
    for (connection, recover) in &orders {
        store.done(*connection, recover, 7);
    }
    // A backup that comes with replicas of the log keeps them.
    let ancient = ServerId::new(77, 0);
    let actions = store.start(5, "m5", &[dead, ancient]);
    assert_eq!(forgotten(&actions), [(105, vec![ancient.0])]);
    // The server comes back by another connection: it must not give up what is committed and not durable.
    store.harness.close(102);
    let mut same = with_replicas("m2", 2);
    same.cluster_id = common::CLUSTER;
    same.server_id = store.ids[&2].0;
    let (welcome, _) = store.harness.enlist(102, same);
    let of_two = orders.iter().find(|(connection, _)| *connection == 102);
    assert_eq!(welcome.recoveries, [of_two.unwrap().1.recovery_id]);
    assert_eq!(welcome.tablets, of_two.unwrap().1.tablets);

    let mut released = Vec::new();
    for (connection, recover) in &orders {
        let recovery_id = recover.recovery_id;
        let durable = shard::Kind::RecoveryDurable(RecoveryId { recovery_id });
        let actions = store.harness.shard_says(*connection, durable);
        let told = Kind::SourcesReleased(RecoveryId { recovery_id });
        assert_eq!(actions[0], Action::Send(*connection, told));
        released.push(forgotten(&actions));
    }
    assert_eq!(released[..2], [vec![], vec![]]);
    let everywhere = [102, 103, 104, 105].map(|connection| (connection, vec![dead.0]));
    assert_eq!(released[2], everywhere);
}

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
fn a_coordinator_that_starts_goes_on_with_recoveries_where_they_were() {
    let (mut store, table, dead) = one_dead_of_four();
    store.wait(100);
    for number in 2..=4 {
        store.finds(number, dead, vec![open_head(1, 80, &[])]);
    }
    let before = orders(&store.wait(100));
    let (connection, committed) = &before[0];
    store.done(*connection, committed, 7);
    store.harness.restart(Duration::from_secs(1));

    // Those who were not heard of are suspected no sooner than they can be back.
    let actions = store.wait(1000);
    assert_eq!(actions, []);
    for number in 2..=4 {
        let mut same = with_replicas(&format!("m{number}"), number);
        same.cluster_id = common::CLUSTER;
        same.server_id = store.ids[&number].0;
        let (welcome, _) = store.harness.enlist(100 + number, same);
        // What is committed is known; what was not is given up by those who were about it.
        let is_first = 100 + number == *connection;
        let known: &[u64] = if is_first {
            &[committed.recovery_id]
        } else {
            &[]
        };
        assert_eq!(welcome.recoveries, known);
        let report = BackupReport {
            logs: vec![dead.0],
            ..BackupReport::default()
        };
        let actions = store.says(number, shard::Kind::BackupReport(report));
        assert_eq!(forgotten(&actions), [], "the log is needed");
    }
    let asked = fenced(&store.wait(100));
    assert_eq!(asked, [(102, dead), (103, dead), (104, dead)]);
    for number in 2..=4 {
        store.finds(number, dead, vec![open_head(1, 80, &[])]);
    }
    let after = orders(&store.wait(100));
    let ids = |orders: &[(u64, Recover)]| -> Vec<u64> {
        orders.iter().map(|(_, order)| order.recovery_id).collect()
    };
    let newest = ids(&before).into_iter().max();
    assert!(ids(&after).into_iter().min() > newest, "ids are not reused");
    for (connection, recover) in &after {
        store.done(*connection, recover, 9);
    }
    store.wait(100);
    let recoveries = store.recoveries();
    assert_eq!(recoveries.len(), 1);
    assert_eq!(
        (recoveries[0].server_id, recoveries[0].tablets_left),
        (dead.0, 0)
    );
    let config = store.harness.config(table);
    let mut tablets = config.tablet.iter();
    assert!(tablets.all(|tablet| tablet.service_locator.is_some()));
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
        // What the tablets need begins at segment 7, but 6 is closed nowhere.
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
    let said = store
        .harness
        .out
        .log
        .iter()
        .filter(|line| line.contains(&waits));
    assert_eq!(said.count(), 1, "once");
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
    store.harness.out.log.clear();
    assert_eq!(orders(&store.wait(2000)), []);
    let waits = store.recoveries().pop().unwrap().waits_for;
    assert_eq!(waits.matches("of the log of").count(), 3, "{waits}");
    let said = &store.harness.out.log;
    assert_eq!(said.len(), 2, "each group once: {said:?}");
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

#[test]
fn an_order_that_fails_or_whose_master_goes_is_given_to_others() {
    let (mut store, table, dead) = one_dead_of_four();
    store.wait(100);
    for number in 2..=4 {
        store.finds(number, dead, vec![open_head(1, 80, &[])]);
    }
    let first = orders(&store.wait(100));
    let by_connection: BTreeMap<u64, Recover> = first.into_iter().collect();
    // One has no memory: another gets its part at once.
    let full = Recovered {
        recovery_id: by_connection[&102].recovery_id,
        is_full: true,
        failure: "memory is full".to_owned(),
        ..Recovered::default()
    };
    store.says(2, shard::Kind::Recovered(full));
    let again = orders(&store.wait(100));
    assert!(!again.is_empty() && again.iter().all(|(connection, _)| *connection != 102));
    // One fails: after a while.
    let failed = Recovered {
        recovery_id: by_connection[&103].recovery_id,
        failure: "segment 1 cannot be read".to_owned(),
        ..Recovered::default()
    };
    store.says(3, shard::Kind::Recovered(failed));
    assert_eq!(orders(&store.wait(100)), []);
    assert!(
        store.recoveries()[0]
            .waits_for
            .contains("segment 1 cannot be read")
    );
    // One dies.
    store.kill(4);
    let mut waiting: BTreeMap<u64, Vec<Recover>> = BTreeMap::new();
    for (connection, recover) in again.into_iter().chain(orders(&store.wait(2000))) {
        waiting.entry(connection).or_default().push(recover);
    }
    waiting.remove(&104);
    for (connection, recovers) in waiting {
        for recover in recovers {
            store.done(connection, &recover, 1);
        }
    }
    // What an old order brings is not wanted any more.
    assert_eq!(store.done(103, &by_connection[&103], 1), []);
    let served = store.harness.config(table).tablet;
    assert!(
        served.iter().all(|tablet| tablet.service_locator.is_some()),
        "{served:?}"
    );
}

#[test]
fn a_dropped_table_is_not_recovered_and_its_log_not_kept() {
    let (mut store, _, dead) = one_dead_of_four();
    store.harness.create("other", 1);
    store.wait(100);
    for number in 2..=4 {
        store.finds(number, dead, vec![open_head(1, 80, &[])]);
    }
    let orders = orders(&store.wait(100));
    let actions = store.harness.request(&drop_table("t"));
    let given_up = actions
        .iter()
        .filter(|action| matches!(action, Action::Send(_, Kind::GiveUpRecovery(_))));
    assert_eq!(given_up.count(), orders.len());
    assert_eq!(
        forgotten(&actions),
        [102, 103, 104].map(|connection| (connection, vec![dead.0]))
    );
    store.wait(100);
    assert_eq!(store.recoveries()[0].tablets_left, 0);
}

#[test]
fn a_log_without_tablets_is_forgotten_at_once() {
    let mut store = Store::new(3);
    let dead = store.ids[&1];
    let actions = store.kill(1);
    assert_eq!(
        forgotten(&actions),
        [(102, vec![dead.0]), (103, vec![dead.0])]
    );
    assert_eq!(store.recoveries(), []);
}

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

/// On disks with little room, several dead servers are brought back one after the other: each frees the frames that the next one needs.
#[test]
fn recoveries_for_which_no_frames_are_free_wait_for_the_one_before() {
    let mut store = Store::new(4);
    let table = store.harness.create("t", 2);
    let dead = store.harness.owners(table);
    assert_eq!(dead, [store.ids[&1], store.ids[&2]]);
    for number in [3, 4] {
        let report = BackupReport {
            segment_bytes: 8 << 20,
            frames: 1000,
            frames_free: 6,
            ..BackupReport::default()
        };
        store.says(number, shard::Kind::BackupReport(report));
    }
    store.kill(1);
    store.kill(2);
    store.wait(100);
    for (number, log) in [(3, dead[0]), (4, dead[0]), (3, dead[1]), (4, dead[1])] {
        store.finds(number, log, vec![closed(1), open_head(2, 50, &[1])]);
    }
    let first = orders(&store.wait(100));
    assert_eq!(first.len(), 2, "one for each master: {first:?}");
    let waiting = |store: &Store| {
        let recoveries = store.recoveries();
        let waiting = recoveries
            .iter()
            .filter(|one| one.waits_for.contains("too few free frames"));
        waiting.map(|one| one.server_id).collect::<Vec<_>>()
    };
    assert_eq!(waiting(&store), [dead[1].0]);
    for (connection, order) in &first {
        store.done(*connection, order, 2);
    }
    assert_eq!(
        orders(&store.wait(300)),
        [],
        "the old frames are needed still"
    );
    for (connection, order) in &first {
        let durable = RecoveryId {
            recovery_id: order.recovery_id,
        };
        let kind = shard::Kind::RecoveryDurable(durable);
        store.harness.shard_says(*connection, kind);
    }
    assert_eq!(orders(&store.wait(100)).len(), 2);
}
