//! Who is a member, and who is not any more: processes that enlist, fall silent, are replaced or removed.

use std::time::Duration;

use crate::common::{self, Action, CLUSTER, Harness, drop_table, hello, removal};
use base::ids::{ServerId, TableId};
use coordinator::orders::{Removal, RemoveMemberError};
use coordinator::status::MemberState;
use wire::member::{self, RefusedReason, coordinator::Kind};

#[test]
fn a_server_id_stays_with_its_process() {
    let mut harness = Harness::new();
    let (first, _) = harness.enlist(100, hello("a", 1, 0, 1));
    assert_eq!((first.cluster_id, first.server_id), (CLUSTER, 1));
    assert_eq!((first.first_version, first.silence_timeout_ms), (1, 3000));
    // The welcome got lost: the process asks again, holding nothing.
    let (again, actions) = harness.enlist(101, hello("a", 1, 0, 1));
    assert_eq!(again.server_id, 1);
    assert_eq!(actions, [Action::Close(100)], "the old connection ends");
    let status = harness.coordinator.cluster_status(harness.now);
    assert_eq!(status.members[0].incarnations, 1);
    assert_eq!(status.losses, []);
}

#[test]
fn a_new_process_supersedes_the_old_one_and_gets_its_tablets_empty() {
    let mut harness = Harness::new();
    harness.enlist(100, hello("a", 1, 0, 1));
    let table = harness.create("t", 1);
    let pong = member::Pong {
        sequence: 1,
        log_live_bytes: 77,
        object_count: 5,
        ..member::Pong::default()
    };
    harness.shard_says(100, member::shard::Kind::Pong(pong));
    harness.close(100);
    let (welcome, before) = harness.enlist(101, hello("a", 2, 0, 1));
    assert_eq!(ServerId(welcome.server_id), ServerId::new(1, 1));
    assert_eq!(welcome.first_version, (1 << 40) + 1);
    assert_eq!(welcome.tablets.len(), 1);
    assert_eq!(before, []);
    assert_eq!(harness.owners(table), [ServerId::new(1, 1)]);
    let status = harness.coordinator.cluster_status(harness.now);
    assert_eq!(status.members[0].incarnations, 2);
    let loss = &status.losses[0];
    assert_eq!(
        (loss.member.as_str(), &loss.server_ids[..], &loss.tables[..]),
        ("a", &[1][..], &["t".to_owned()][..])
    );
    assert_eq!(
        (loss.tablet_count, loss.object_count, loss.live_bytes),
        (1, 5, 77)
    );
    // The old process is never let in again, whether it says what it held or not.
    let mut old = hello("a", 1, 0, 1);
    assert_eq!(
        harness.refused(102, old.clone()).reason(),
        RefusedReason::Superseded
    );
    (old.cluster_id, old.server_id) = (CLUSTER, 1);
    assert_eq!(
        harness.refused(103, old).reason(),
        RefusedReason::Superseded
    );
}

/// A Hello may be long on its way, and its sender dead: nobody takes the place of a process that is there.
#[test]
fn a_connected_process_keeps_its_place() {
    let mut harness = Harness::new();
    harness.enlist(100, hello("a", 1, 0, 2));
    let refused = harness.refused(101, hello("a", 2, 0, 2));
    assert_eq!(refused.reason(), RefusedReason::Invalid);
    assert!(
        refused.text.contains("its own --member"),
        "{}",
        refused.text
    );
    harness.enlist(102, hello("a", 1, 1, 2));
    harness.close(100);
    harness.refused(103, hello("a", 2, 0, 2));
    harness.close(102);
    harness.enlist(104, hello("a", 2, 0, 2));
}

#[test]
fn who_takes_the_place_of_another_has_to_be_alive() {
    let mut harness = Harness::new();
    harness.enlist(100, hello("a", 1, 0, 1));
    harness.close(100);
    let says_hello = |harness: &mut Harness, connection, process| {
        let message = member::shard::Kind::Hello(hello("a", process, 0, 1));
        let actions = harness.shard_says(connection, message);
        assert!(matches!(&actions[..], [Action::Send(to, Kind::Ping(_))] if *to == connection));
    };
    // A Hello of a dead process, and then the end of its connection.
    says_hello(&mut harness, 101, 2);
    harness.close(101);
    // One that never answers.
    says_hello(&mut harness, 102, 3);
    let mut closed = Vec::new();
    for action in harness.advance(Duration::from_secs(4)) {
        closed.extend(matches!(action, Action::Close(_)).then_some(action));
    }
    assert_eq!(closed, [Action::Close(102)]);
    // The process that was to lose its place comes back meanwhile.
    says_hello(&mut harness, 103, 4);
    harness.enlist(104, hello("a", 1, 0, 1));
    let pong = || member::shard::Kind::Pong(member::Pong::default());
    assert!(matches!(
        &harness.shard_says(103, pong())[..],
        [Action::Send(103, Kind::Refused(_)), Action::Close(103)]
    ));
    let status = harness.coordinator.cluster_status(harness.now);
    assert_eq!(status.members[0].incarnations, 1);
}

#[test]
fn a_process_without_tablets_is_no_loss() {
    let mut harness = Harness::new();
    harness.enlist(100, hello("a", 1, 0, 1));
    harness.close(100);
    harness.enlist(101, hello("a", 2, 0, 1));
    let status = harness.coordinator.cluster_status(harness.now);
    assert_eq!((status.losses.len(), status.losses_dropped), (0, 0));
}

/// A coordinator that took over after the process had ended cannot say that it held nothing.
#[test]
fn what_a_process_held_that_never_reported_is_not_told_as_nothing() {
    let mut harness = Harness::new();
    harness.enlist(100, hello("a", 1, 0, 1));
    harness.create("t", 1);
    let pong = member::Pong {
        object_count: 2,
        ..member::Pong::default()
    };
    harness.shard_says(100, member::shard::Kind::Pong(pong.clone()));
    harness.restart(Duration::from_secs(1));
    harness.enlist(101, hello("a", 2, 0, 1));
    let last = |harness: &Harness| {
        let status = harness.coordinator.cluster_status(harness.now);
        status.losses.last().cloned().expect("there is one")
    };
    let loss = last(&harness);
    assert_eq!((loss.uncounted, loss.object_count), (true, 0));
    assert_eq!(loss.instance, "instance-1");
    // It is noted so, and one that is counted is told apart.
    harness.restart(Duration::from_secs(1));
    assert_eq!(last(&harness), loss);
    let (welcome, _) = harness.enlist(102, hello("a", 3, 0, 1));
    assert!(last(&harness).uncounted, "it has not reported either");
    assert_eq!(ServerId(welcome.server_id), ServerId::new(1, 2));
    harness.shard_says(102, member::shard::Kind::Pong(pong));
    harness.close(102);
    harness.enlist(103, hello("a", 4, 0, 1));
    let loss = last(&harness);
    assert_eq!((loss.uncounted, loss.object_count), (false, 2));
}

#[test]
fn losses_are_bounded_and_counted() {
    let mut harness = Harness::with(|config| config.limits.max_losses = 2);
    harness.enlist(100, hello("a", 1, 0, 1));
    harness.create("t", 1);
    harness.close(100);
    for process in 2..=4 {
        harness.enlist(100 + process, hello("a", process, 0, 1));
        harness.close(100 + process);
    }
    let status = harness.coordinator.cluster_status(harness.now);
    assert_eq!((status.losses.len(), status.losses_dropped), (2, 1));
    assert_eq!(status.losses[0].server_ids, [ServerId::new(1, 1).0]);
}

#[test]
fn until_the_successors_shard_is_there_its_tablets_recover() {
    let mut harness = Harness::new();
    harness.enlist(100, hello("a", 1, 0, 2));
    harness.enlist(101, hello("a", 1, 1, 2));
    let table = harness.create("t", 1);
    harness.close(100);
    harness.close(101);
    harness.enlist(102, hello("a", 2, 0, 2));
    let config = harness.config(table);
    assert_eq!(config.tablet[0].state, 0);
    assert!(config.tablet[0].service_locator.is_some());
    assert_eq!(config.tablet[1].state, 1, "RECOVERING");
    assert_eq!(config.tablet[1].service_locator, None);
    harness.enlist(103, hello("a", 2, 1, 2));
    assert_eq!(harness.config(table).tablet[1].state, 0);
}

#[test]
fn fewer_shards_share_all_tablets_and_more_get_new_ids() {
    let mut harness = Harness::new();
    for shard in 0..3 {
        harness.enlist(100 + u64::from(shard), hello("a", 1, shard, 3));
    }
    let table = harness.create("t", 1);
    assert_eq!(
        harness.owners(table),
        [1, 2, 3].map(|index| ServerId::new(index, 0))
    );
    for connection in 100..103 {
        harness.close(connection);
    }
    let (welcome, _) = harness.enlist(110, hello("a", 2, 0, 1));
    assert_eq!(welcome.tablets.len(), 3);
    assert_eq!(harness.owners(table), [ServerId::new(1, 1); 3]);
    harness.close(110);
    harness.enlist(120, hello("a", 3, 0, 4));
    let (welcome, _) = harness.enlist(123, hello("a", 3, 3, 4));
    assert_eq!(ServerId(welcome.server_id), ServerId::new(4, 0));
    let (welcome, _) = harness.enlist(122, hello("a", 3, 2, 4));
    assert_eq!(
        ServerId(welcome.server_id),
        ServerId::new(3, 2),
        "a generation is not given out twice"
    );
}

#[test]
fn what_makes_no_sense_in_a_hello_is_said() {
    let mut harness = Harness::new();
    harness.enlist(100, hello("a", 1, 0, 2));
    type Change = fn(&mut member::Hello);
    let cases: &[(Change, &str)] = &[
        (|hello| hello.member.clear(), "member name is empty"),
        (|hello| hello.member = "m".repeat(254), "254 bytes"),
        (|hello| hello.instance.clear(), "instance is empty"),
        (|hello| hello.shard_count = 0, "makes no sense"),
        (|hello| hello.shard_count = 65, "makes no sense"),
        (|hello| hello.shard_index = 2, "makes no sense"),
        (|hello| hello.shard_count = 3, "with 2 shards before"),
        (|hello| hello.locator = "tcp".to_owned(), "locator"),
        (|hello| hello.locator.clear(), "locator"),
        (|hello| hello.locator = "x".repeat(300), "300 bytes"),
    ];
    for (change, text) in cases {
        let mut message = hello("a", 1, 1, 2);
        change(&mut message);
        let refused = harness.refused(200, message);
        assert_eq!(refused.reason(), RefusedReason::Invalid);
        assert!(
            refused.text.contains(text),
            "{:?} lacks {text:?}",
            refused.text
        );
    }
}

#[test]
fn members_are_bounded() {
    let mut harness = Harness::with(|config| config.limits.max_members = 1);
    harness.enlist(100, hello("a", 1, 0, 1));
    let refused = harness.refused(101, hello("b", 2, 0, 1));
    assert!(refused.text.contains("limit"), "{}", refused.text);
    harness.close(100);
    harness.enlist(102, hello("a", 3, 0, 1));
}

#[test]
fn a_connection_starts_with_one_hello() {
    let mut harness = Harness::new();
    let pong = || member::shard::Kind::Pong(member::Pong::default());
    assert_eq!(harness.shard_says(100, pong()), [Action::Close(100)]);
    harness.enlist(101, hello("a", 1, 0, 1));
    assert_eq!(
        harness.hello(101, hello("a", 1, 0, 1)),
        [Action::Close(101)]
    );
    let status = harness.coordinator.cluster_status(harness.now);
    assert_eq!(status.members[0].state, MemberState::Unreachable);
}

#[test]
fn a_silent_shard_is_unreachable_and_keeps_its_tablets() {
    let mut harness = Harness::new();
    harness.enlist(100, hello("a", 1, 0, 1));
    harness.enlist(101, hello("b", 2, 0, 1));
    let table = harness.create("t", 1);
    let mut closed = Vec::new();
    for _ in 0..40 {
        for action in harness.advance(Duration::from_millis(100)) {
            if let Action::Close(connection) = action {
                closed.push(connection);
            }
        }
        harness.shard_says(101, member::shard::Kind::Pong(member::Pong::default()));
    }
    assert_eq!(closed, [100]);
    let states: Vec<_> = harness
        .coordinator
        .cluster_status(harness.now)
        .members
        .into_iter()
        .map(|member| member.state)
        .collect();
    assert_eq!(states, [MemberState::Unreachable, MemberState::Up]);
    let config = harness.config(table);
    assert_eq!(config.tablet[0].state, 0);
    assert!(config.tablet[0].service_locator.is_some());
}

#[test]
fn a_coordinator_that_was_away_blames_nobody() {
    let mut harness = Harness::new();
    harness.enlist(100, hello("a", 1, 0, 1));
    harness.advance(Duration::from_millis(500));
    harness.now += Duration::from_secs(60);
    let mut out = common::Recorder::default();
    harness.coordinator.tick(harness.now, &mut out);
    assert!(matches!(
        out.actions[..],
        [Action::Send(100, Kind::Ping(_))]
    ));
}

#[test]
fn a_removed_member_owns_nothing_and_never_comes_back() {
    let mut harness = Harness::new();
    harness.enlist(100, hello("a", 1, 0, 1));
    harness.enlist(101, hello("b", 2, 0, 1));
    harness.create("t", 1);
    harness.create("u", 1);
    let now = harness.now;
    let refusal = harness
        .coordinator
        .remove_member(now, &removal("a"), &mut harness.out);
    let Err(RemoveMemberError::OwnsTablets {
        tables,
        tablet_count,
        ..
    }) = refusal
    else {
        panic!("{refusal:?}")
    };
    assert_eq!((tables, tablet_count), (vec!["t".to_owned()], 1));
    let actions = harness.request(&drop_table("t"));
    let [Action::Send(100, Kind::DropTablet(_))] = &actions[..] else {
        panic!("{actions:?}")
    };
    harness
        .coordinator
        .remove_member(now, &removal("a"), &mut harness.out)
        .unwrap();
    assert!(matches!(
        &harness.take()[..],
        // The drop that waited for the removed shard is answered, too.
        [
            Action::Send(100, Kind::Refused(_)),
            Action::Close(100),
            Action::Reply(..)
        ]
    ));
    for message in [hello("a", 1, 0, 1), {
        let mut held = hello("a", 1, 0, 1);
        (held.cluster_id, held.server_id) = (CLUSTER, 1);
        held.instance = "other".to_owned();
        held
    }] {
        assert_eq!(
            harness.refused(102, message).reason(),
            RefusedReason::Superseded
        );
    }
    assert!(matches!(
        harness
            .coordinator
            .remove_member(now, &removal("a"), &mut harness.out),
        Err(RemoveMemberError::NotFound { .. })
    ));
    let (welcome, _) = harness.enlist(103, hello("a", 9, 0, 1));
    assert_eq!(
        ServerId(welcome.server_id),
        ServerId::new(3, 0),
        "a fresh place"
    );
    assert_eq!(harness.create("v", 1), TableId(3));
}

#[test]
fn a_process_that_is_about_to_enlist_can_be_kept_out() {
    let mut harness = Harness::new();
    let now = harness.now;
    let remove = |harness: &mut Harness, instance: &str, expected_cluster_id| {
        let removal = Removal {
            instance: instance.to_owned(),
            expected_cluster_id,
            ..removal("a")
        };
        harness
            .coordinator
            .remove_member(now, &removal, &mut harness.out)
    };
    let another = remove(&mut harness, "instance-1", CLUSTER + 1);
    let Err(RemoveMemberError::OtherStore(other)) = another else {
        panic!("{another:?}");
    };
    assert_eq!(other.cluster_id, CLUSTER);
    for _ in 0..2 {
        assert_eq!(remove(&mut harness, "instance-1", CLUSTER), Ok(()));
    }
    let refused = harness.refused(100, hello("a", 1, 0, 1));
    assert_eq!(refused.reason(), RefusedReason::Superseded);
    // Others of that name, and others of that instance, come in.
    harness.enlist(101, hello("a", 2, 0, 1));
    harness.enlist(102, hello("b", 1, 0, 1));
    // One that is there and one that is on its way, at once.
    assert_eq!(remove(&mut harness, "instance-3", 0), Ok(()));
    harness.take();
    for process in [2, 3] {
        let refused = harness.refused(110 + process, hello("a", process, 0, 1));
        assert_eq!(refused.reason(), RefusedReason::Superseded);
    }
}
