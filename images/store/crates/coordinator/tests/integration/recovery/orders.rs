//! Who is ordered to replay what, when it is owned and served, and for how long the old logs are kept.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::replicated::*;
use crate::common::{self, Action, drop_table};
use base::ids::ServerId;
use wire::member::{BackupReport, Recover, Recovered, RecoveryId, coordinator::Kind, shard};

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
        // The coordinator knows the commits. Masters give up the parts that they had not committed.
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
    // The result of an old order is not wanted any more.
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
