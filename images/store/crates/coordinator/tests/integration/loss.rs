//! What only somebody's word can settle: parts of logs that are gone for ever, and members that are to go.

use std::time::Duration;

use crate::common::replicated::{
    Store, closed, one_dead_of_four, one_dead_with_floor, open_head, orders, segments,
    with_replicas,
};
use crate::common::{self, Harness, hello, removal};
use base::ids::ServerId;
use coordinator::Removal;
use coordinator::orders::{AcceptLossError, Acceptance, RemoveMemberError};
use coordinator::status::{Loss, Recovery};
use wire::member::{BackupReport, Pong, ReplicaFound, shard};

fn the_recovery(store: &Store) -> Recovery {
    let mut recoveries = store.recoveries();
    let recovery = recoveries.pop().expect("one is shown");
    assert_eq!(recoveries, []);
    recovery
}

fn losses(store: &Store) -> Vec<Loss> {
    let harness = &store.harness;
    harness.coordinator.cluster_status(harness.now).losses
}

fn accept(store: &mut Store, server: ServerId, token: &str) -> Result<Loss, AcceptLossError> {
    let acceptance = Acceptance {
        server_id: server.0,
        token: token.to_owned(),
        expected_cluster_id: common::CLUSTER,
    };
    let Store { harness, .. } = store;
    let Harness {
        coordinator,
        out,
        now,
        ..
    } = harness;
    coordinator.accept_loss(*now, &acceptance, out)
}

/// The dead server's log has segments 1 and 2 and the head, 3; nobody has segment 1, and of segment 2 there is the beginning.
fn without_a_segment() -> (Store, ServerId) {
    let (mut store, _, dead) = one_dead_with_floor(3);
    store.wait(100);
    let begun = ReplicaFound {
        is_open: true,
        bytes: 400,
        ..closed(2)
    };
    store.finds(2, dead, vec![open_head(3, 50, &[1, 2]), begun]);
    store.finds(3, dead, vec![open_head(3, 50, &[1, 2])]);
    store.finds(4, dead, vec![]);
    assert_eq!(orders(&store.wait(1000)), [], "it waits");
    (store, dead)
}

#[test]
fn what_was_shown_to_be_missing_can_be_given_up_and_nothing_else() {
    let (mut store, dead) = without_a_segment();
    let recovery = the_recovery(&store);
    assert!(
        recovery.waits_for.starts_with(
            "no backup that answers has segment 1, 2 (server 2.0 has only its first 400 bytes) of the log of server 1.0; "
        ),
        "{}",
        recovery.waits_for
    );
    let [missing] = &recovery.missing[..] else {
        panic!("{recovery:?}");
    };
    assert_eq!(
        (missing.server_id, &missing.segments[..]),
        (dead.0, &[1, 2][..])
    );
    assert!(!missing.lacks_head);
    assert_eq!((missing.segments_left, missing.bytes_left), (2, 450));

    let other = accept(&mut store, ServerId::new(9, 0), &recovery.loss_token);
    assert!(
        matches!(other, Err(AcceptLossError::NoRecovery { .. })),
        "{other:?}"
    );
    let other = accept(&mut store, dead, "00000000");
    assert!(
        matches!(other, Err(AcceptLossError::OtherLoss { .. })),
        "{other:?}"
    );
    // Less is left than was shown.
    store.finds(2, dead, vec![open_head(3, 50, &[1, 2])]);
    let other = accept(&mut store, dead, &recovery.loss_token);
    let Err(AcceptLossError::OtherLoss { token, .. }) = other else {
        panic!("{other:?}");
    };
    assert_eq!(losses(&store), [], "nothing was given up so far");
    store.harness.take();

    let loss = accept(&mut store, dead, &token).expect("it is what the status shows now");
    assert_eq!(
        (&loss.member[..], &loss.tables[..], loss.tablet_count),
        ("m1", &["t".to_owned()][..], 1)
    );
    assert!(
        loss.missing
            .contains("of the log of server 1.0: 2 segments"),
        "{}",
        loss.missing
    );
    assert_eq!(losses(&store), [loss]);
    let ordered = orders(&store.wait(100));
    assert_eq!(ordered.len(), 3);
    for (_, recover) in &ordered {
        assert_eq!(
            segments(recover),
            [(3, vec![store.ids[&3].0, store.ids[&2].0])]
        );
        assert!(
            recover.version_floor > 1 << 39,
            "versions in what was lost are not used again"
        );
    }
    for (connection, recover) in &ordered {
        store.done(*connection, recover, 7);
    }
    store.wait(100);
    assert_eq!(the_recovery(&store).tablets_left, 0);
    let again = accept(&mut store, dead, &token);
    assert!(
        matches!(again, Err(AcceptLossError::NoRecovery { .. })),
        "{again:?}"
    );
}

#[test]
fn a_segment_that_was_given_up_stays_so_even_if_its_disk_turns_up_and_the_coordinator_restarts() {
    let (mut store, dead) = without_a_segment();
    let token = the_recovery(&store).loss_token;
    accept(&mut store, dead, &token).unwrap();
    let before = losses(&store);
    store.harness.commit();
    store.harness.restart(Duration::from_secs(1));
    assert_eq!(losses(&store), before);
    for number in 2..=4 {
        store.resume(number);
    }
    store.wait(100);
    let everything = vec![closed(1), closed(2), open_head(3, 50, &[1, 2])];
    store.finds(3, dead, everything.clone());
    store.finds(4, dead, everything);
    store.finds(2, dead, vec![]);
    assert_eq!(
        orders(&store.wait(1000)),
        [],
        "the beginning of segment 2 was left, and is not here"
    );
    let waits = the_recovery(&store).waits_for;
    assert!(
        waits.starts_with("no backup that answers has segment 2"),
        "{waits}"
    );
    let begun = ReplicaFound {
        is_open: true,
        bytes: 400,
        ..closed(2)
    };
    store.finds(2, dead, vec![begun]);
    let ordered = orders(&store.wait(100));
    assert_eq!(ordered.len(), 3);
    let [two, three, four] = [2, 3, 4].map(|number| store.ids[&number].0);
    for (_, recover) in &ordered {
        assert_eq!(segments(recover), [(2, vec![two]), (3, vec![four, three])]);
        assert!(recover.version_floor > 0, "noted, too");
    }
}

#[test]
fn without_a_head_everything_that_can_be_read_is() {
    let (mut store, _, dead) = one_dead_with_floor(9);
    store.wait(100);
    let rotten = ReplicaFound {
        damage: "is rotten".to_owned(),
        ..open_head(9, 90, &[1, 4])
    };
    let begun = |bytes| ReplicaFound {
        is_open: true,
        bytes,
        ..closed(5)
    };
    let part_of_a_copy = ReplicaFound {
        is_side: true,
        ..begun(900)
    };
    store.finds(2, dead, vec![closed(1), begun(100), rotten]);
    store.finds(3, dead, vec![closed(4), begun(300)]);
    store.finds(4, dead, vec![closed(1), part_of_a_copy]);
    assert_eq!(orders(&store.wait(1000)), []);
    let recovery = the_recovery(&store);
    let [missing] = &recovery.missing[..] else {
        panic!("{recovery:?}");
    };
    assert!(missing.lacks_head && missing.segments.is_empty());
    assert_eq!((missing.segments_left, missing.bytes_left), (3, 2300));
    let loss = accept(&mut store, dead, &recovery.loss_token).unwrap();
    assert!(loss.missing.contains("its end"), "{}", loss.missing);
    let ordered = orders(&store.wait(100));
    let [two, three, four] = [2, 3, 4].map(|number| store.ids[&number].0);
    assert_eq!(
        segments(&ordered[0].1),
        [(1, vec![four, two]), (4, vec![three]), (5, vec![three])]
    );
}

#[test]
fn a_head_that_was_believed_once_is_not_replaced_by_a_longer_one() {
    let (mut store, _, dead) = one_dead_of_four();
    store.wait(100);
    store.finds(2, dead, vec![closed(1), open_head(2, 50, &[1])]);
    store.finds(3, dead, vec![closed(1)]);
    store.finds(4, dead, vec![]);
    let ordered = orders(&store.wait(100));
    // One part is served, so the head is chosen; its master dies, and with it the only replica of that head.
    let of_two = ordered.iter().find(|(connection, _)| *connection == 102);
    store.done(102, &of_two.unwrap().1, 7);
    store.harness.commit();
    store.kill(2);
    store.wait(100);
    let later = ReplicaFound {
        bytes: 80,
        ..closed(2)
    };
    for number in [3, 4] {
        store.finds(
            number,
            dead,
            vec![closed(1), later.clone(), open_head(3, 10, &[1, 2])],
        );
        store.finds(number, store.ids[&2], vec![open_head(1, 10, &[])]);
    }
    store.wait(1000);
    let mut recoveries = store.recoveries();
    recoveries.retain(|recovery| !recovery.missing.is_empty());
    let of_dead = &recoveries[0].missing[0];
    assert!(of_dead.lacks_head);
    let text = &of_dead.text;
    let ends =
        "(segment 2, 50 bytes); server 3.0 has 80 bytes of it; server 4.0 has 80 bytes of it";
    assert!(text.ends_with(ends), "{text}");
    assert_eq!(
        (of_dead.segments_left, of_dead.bytes_left),
        (1, 1000),
        "segment 1 alone"
    );
}

#[test]
fn tablets_that_had_come_back_whole_are_a_loss_when_they_have_to_come_back_again() {
    let (mut store, _, dead) = one_dead_of_four();
    store.wait(100);
    let whole = vec![closed(1), open_head(2, 50, &[1])];
    for number in 2..=4 {
        store.finds(number, dead, whole.clone());
    }
    let ordered = orders(&store.wait(100));
    let of_two = ordered.iter().find(|(connection, _)| *connection == 102);
    store.done(102, &of_two.unwrap().1, 7);
    // The other two cannot carry their parts out, for then nobody has segment 1 any more.
    for number in [3, 4] {
        let (connection, recover) = ordered.iter().find(|(on, _)| *on == 100 + number).unwrap();
        store.fail(*connection, recover);
    }
    for number in 2..=4 {
        store.finds(number, dead, vec![open_head(2, 50, &[1])]);
    }
    store.wait(2000);
    let token = the_recovery(&store).loss_token;
    let loss = accept(&mut store, dead, &token).unwrap();
    assert_eq!(loss.tablet_count, 2, "the third has all");
    store.harness.take();
    store.kill(2);
    let again = losses(&store).pop().unwrap();
    assert_eq!(
        (again.tablet_count, &again.server_ids[..]),
        (1, &[dead.0][..])
    );
    store.harness.take();
}

#[test]
fn backups_that_have_yet_to_be_heard_are_named() {
    let (mut store, dead) = without_a_segment();
    store.kill(4);
    store.wait(1000);
    let waits_for = |store: &Store| the_recovery(store).waits_for;
    let is_away = "; members that are not connected (2): m1, m4";
    let text = waits_for(&store);
    assert!(text.ends_with(is_away), "{text}");

    // It is connected, and its disk is not open yet.
    store.harness.enlist(105, with_replicas("m4", 5));
    store.wait(1000);
    let text = waits_for(&store);
    let is_opening = "; members that are not connected (1): m1; members whose backups have not opened their storage yet (1): m4";
    assert!(text.ends_with(is_opening), "{text}");

    // The disk is open, and nobody knows yet what is on it.
    store.says(5, shard::Kind::BackupReport(BackupReport::default()));
    store.wait(1000);
    let text = waits_for(&store);
    let is_silent = "those of servers 4.1";
    assert!(text.ends_with(is_silent), "{text}");
    store.finds(5, dead, vec![closed(1), closed(2)]);
    assert_ne!(
        orders(&store.wait(1000)),
        [],
        "nothing was missing after all"
    );
}

#[test]
fn nothing_can_be_given_up_before_backups_have_said_what_they_hold() {
    let (mut store, _, dead) = one_dead_of_four();
    store.wait(100);
    for number in 2..=3 {
        store.finds(number, dead, vec![]);
    }
    let early = accept(&mut store, dead, "00000000");
    let Err(AcceptLossError::StillAsked { silent, .. }) = &early else {
        panic!("{early:?}");
    };
    assert!(silent.ends_with("those of servers 4.0"), "{silent}");
    store.harness.take();
    store.finds(4, dead, vec![]);
    store.wait(100);
    assert!(the_recovery(&store).missing[0].lacks_head);
}

#[test]
fn nothing_can_be_given_up_where_nothing_is_missing() {
    let (mut store, _, dead) = one_dead_of_four();
    store.wait(100);
    for number in 2..=4 {
        store.finds(number, dead, vec![closed(1), open_head(2, 50, &[1])]);
    }
    let nothing = accept(&mut store, dead, "00000000");
    assert!(
        matches!(nothing, Err(AcceptLossError::NothingMissing { .. })),
        "{nothing:?}"
    );
    let acceptance = Acceptance {
        server_id: dead.0,
        token: String::new(),
        expected_cluster_id: 7,
    };
    let now = store.harness.now;
    let out = &mut store.harness.out;
    let other = store.harness.coordinator.accept_loss(now, &acceptance, out);
    assert!(
        matches!(other, Err(AcceptLossError::OtherStore(_))),
        "{other:?}"
    );
    store.harness.take();
}

// ---- members that are to go ----

fn remove(store: &mut Store, removal: &Removal) -> Result<(), RemoveMemberError> {
    let Store { harness, .. } = store;
    let now = harness.now;
    let result = harness
        .coordinator
        .remove_member(now, removal, &mut harness.out);
    harness.take();
    result
}

fn reasons(store: &mut Store, name: &str) -> Vec<String> {
    match remove(store, &removal(name)) {
        Err(RemoveMemberError::CopiesNeeded { member, reasons }) => {
            assert_eq!(member, name);
            reasons.iter().map(ToString::to_string).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_serves_tablets_is_not_removed_whatever_is_given_up() {
    let mut store = Store::new(3);
    store.harness.create("t", 1);
    store.wait(300);
    for gives_up_copies in [false, true] {
        let removal = Removal {
            gives_up_copies,
            ..removal("m1")
        };
        let refused = remove(&mut store, &removal).unwrap_err();
        let text = refused.to_string();
        assert!(
            text.contains("end its process, wait until the others have brought them back"),
            "{text}"
        );
    }
}

#[test]
fn a_member_whose_copies_may_be_the_last_stays() {
    let (mut store, _, dead) = one_dead_of_four();
    let under_way = reasons(&mut store, "m4");
    assert!(
        under_way[0].contains("the log of server 1.0 (member \"m1\") is being read"),
        "{under_way:?}"
    );
    for number in 2..=4 {
        store.finds(number, dead, vec![]);
    }
    store.wait(1000);
    let waiting = reasons(&mut store, "m4");
    assert!(
        waiting[0].contains("rcbox recovery accept-loss 1.0"),
        "{waiting:?}"
    );
    // The dead one's disk may be the last one as well.
    assert_eq!(reasons(&mut store, "m1")[0], waiting[0]);
    for number in 2..=4 {
        store.finds(number, dead, vec![open_head(1, 80, &[])]);
    }
    let ordered = orders(&store.wait(100));
    for (connection, recover) in &ordered {
        store.done(*connection, recover, 7);
    }
    store.wait(300);
    store.start(5, "m5", &[]);
    store.wait(300);
    let not_durable = reasons(&mut store, "m5");
    assert!(
        not_durable[0].contains("has not all got new copies yet"),
        "{not_durable:?}"
    );
    for (connection, recover) in &ordered {
        store.durable(*connection, recover);
    }
    assert_eq!(remove(&mut store, &removal("m5")), Ok(()));
}

#[test]
fn a_member_stays_while_others_are_short_of_copies_or_would_be() {
    let mut store = Store::new(4);
    store.wait(300);
    // What they said before the backups changed last does not count.
    store.start(5, "m5", &[]);
    let asked_at_once = reasons(&mut store, "m5");
    assert!(
        asked_at_once[0].contains("ask again in a second"),
        "{asked_at_once:?}"
    );
    store.wait(300);
    store.short = 3;
    store.wait(300);
    let short = reasons(&mut store, "m5");
    assert!(
        short[0].contains("3 of 14 segments of the log of server 1.0 (member \"m1\")"),
        "{short:?}"
    );
    let forced = Removal {
        gives_up_copies: true,
        ..removal("m5")
    };
    assert_eq!(remove(&mut store, &forced), Ok(()));
    store.short = 0;
    store.wait(300);
    assert_eq!(remove(&mut store, &removal("m4")), Ok(()));
    store.wait(300);
    let machines = reasons(&mut store, "m3");
    assert!(
        machines[0].contains("server 1.0 (member \"m1\") wants 2 copies on other machines, and there would be 1 machine left"),
        "{machines:?}"
    );
    // One whose backup takes nothing more is not counted on any more.
    let report = BackupReport {
        segment_bytes: 8 << 20,
        frames: 1000,
        frames_free: 1000,
        retired: "its disk has failed".to_owned(),
        ..BackupReport::default()
    };
    store.says(3, shard::Kind::BackupReport(report));
    store.wait(300);
    assert_eq!(remove(&mut store, &removal("m3")), Ok(()));
}

#[test]
fn a_member_stays_while_another_may_be_dead() {
    let mut store = Store::new(4);
    store.wait(300);
    store.harness.close(102);
    let reasons = reasons(&mut store, "m4");
    assert!(
        reasons[0].contains("server 2.0 (member \"m2\") is not connected"),
        "{reasons:?}"
    );
    store.harness.take();
}

#[test]
fn a_member_without_a_backup_keeps_nothing() {
    let mut store = Store::new(3);
    store.wait(300);
    store.short = 3;
    store.wait(300);
    store.harness.enlist(120, hello("alone", 20, 0, 1));
    assert_eq!(remove(&mut store, &removal("alone")), Ok(()));
}

#[test]
fn what_becomes_of_a_deposed_server_is_said_as_it_is() {
    let mut store = Store::new(3);
    let backup_only = wire::member::Hello {
        backup_only: true,
        replicas: 0,
        ..with_replicas("b", 30)
    };
    store.harness.enlist(130, backup_only);
    let pong = shard::Kind::Pong(Pong::default());
    store.harness.shard_says(130, pong);
    let frozen = store.deposed(130);
    assert!(
        frozen.contains(
            "masters make the copies that it kept again at other servers: start this process again"
        ),
        "{frozen}"
    );
    let frozen = store.deposed(103);
    assert!(
        frozen.contains("other servers bring back what it held"),
        "{frozen}"
    );
}
