//! The list of backups, and open floors.

use crate::common::{Action, Harness, hello, removal};
use base::ids::ServerId;
use coordinator::CoordinatorEvent;
use coordinator::reports::MemberEvent;
use wire::member::{BackupReport, Hello, OpenFloor, coordinator::Kind, shard};

fn with_backup(member: &str, process: u64) -> Hello {
    Hello {
        backup_locator: format!("tcp:host={member},port=12200"),
        domain: format!("chassis of {member}"),
        host_id: format!("host of {member}"),
        ..hello(member, process, 0, 1)
    }
}

/// Lets a server in whose backup opens its storage at once.
fn enlist(harness: &mut Harness, connection: u64, hello: Hello) -> Vec<Action> {
    let mut actions = harness.hello(connection, hello);
    actions.extend(report(harness, connection, ""));
    actions
}

fn report(harness: &mut Harness, connection: u64, retired: &str) -> Vec<Action> {
    let report = BackupReport {
        segment_bytes: 8 << 20,
        retired: retired.to_owned(),
        ..BackupReport::default()
    };
    harness.shard_says(connection, shard::Kind::BackupReport(report))
}

/// Who was told of which backups, by their locators.
fn told(actions: &[Action]) -> Vec<(u64, Vec<&str>)> {
    let lists = actions.iter().filter_map(|action| match action {
        Action::Send(connection, Kind::Backups(list)) => {
            let locators = list.backups.iter().map(|backup| backup.locator.as_str());
            Some((*connection, locators.collect()))
        }
        _ => None,
    });
    lists.collect()
}

#[test]
fn everybody_learns_of_backups_that_come_and_go() {
    let (a, b) = ("tcp:host=a,port=12200", "tcp:host=b,port=12200");
    let mut harness = Harness::new();
    assert_eq!(told(&harness.hello(100, hello("master", 1, 0, 1))), []);
    // A backup counts when it has opened its storage.
    assert_eq!(told(&harness.hello(101, with_backup("a", 2))), []);
    assert_eq!(
        told(&report(&mut harness, 101, "")),
        [(100, vec![a]), (101, vec![a])]
    );
    assert_eq!(told(&report(&mut harness, 101, "")), []);
    let actions = enlist(&mut harness, 102, with_backup("b", 3));
    let both = vec![a, b];
    assert_eq!(
        told(&actions),
        [
            (102, vec![a]),
            (100, both.clone()),
            (101, both.clone()),
            (102, both.clone())
        ]
    );
    // Who only comes back is told, and nobody else.
    harness.close(100);
    assert_eq!(
        told(&harness.hello(103, hello("master", 1, 0, 1))),
        [(103, both)]
    );
    // A backup that is out of the coordinator's reach is not lost.
    harness.close(102);
    assert_eq!(told(&harness.take()), []);
    harness
        .coordinator
        .remove_member(harness.now, &removal("b"), &mut harness.out)
        .unwrap();
    assert_eq!(told(&harness.take()), [(103, vec![a]), (101, vec![a])]);
}

#[test]
fn a_new_process_is_another_backup() {
    let mut harness = Harness::new();
    enlist(&mut harness, 100, with_backup("a", 1));
    harness.close(100);
    let (welcome, _) = harness.enlist(101, with_backup("a", 2));
    assert_eq!(ServerId(welcome.server_id).generation(), 1);
    let actions = report(&mut harness, 101, "");
    let [Action::Send(101, Kind::Backups(list))] = &actions[..] else {
        panic!("a list of backups is sent: {actions:?}");
    };
    assert_eq!(list.backups[0].server_id, welcome.server_id);
    assert_eq!(list.backups[0].domain, "chassis of a");
    assert_eq!(list.backups[0].host_id, "host of a");
    assert_eq!(list.backups[0].segment_bytes, 8 << 20);
}

#[test]
fn that_a_storage_has_failed_is_said_once_and_known_to_all() {
    let mut harness = Harness::new();
    enlist(&mut harness, 100, with_backup("a", 1));
    for round in 0..2 {
        let actions = report(&mut harness, 100, "it is full");
        let is_retired = actions.iter().any(
            |action| matches!(action, Action::Send(100, Kind::Backups(list)) if list.backups[0].is_retired),
        );
        assert_eq!(is_retired, round == 0);
    }
    let is_meant = |event: &&CoordinatorEvent| matches!(event, CoordinatorEvent::Member(MemberEvent::BackupRetired { why, .. }) if why == "it is full");
    assert_eq!(harness.out.events.iter().filter(is_meant).count(), 1);
}

#[test]
fn open_floors_only_rise_and_end_with_their_log() {
    let mut harness = Harness::new();
    harness.enlist(100, hello("m", 1, 0, 1));
    let raise = |harness: &mut Harness, connection, segment_id| {
        let message = shard::Kind::RaiseOpenFloor(OpenFloor { segment_id });
        harness.shard_says(connection, message)
    };
    let raised = |connection, segment_id| {
        [Action::Send(
            connection,
            Kind::OpenFloorRaised(OpenFloor { segment_id }),
        )]
    };
    assert_eq!(raise(&mut harness, 100, 1), raised(100, 1));
    assert_eq!(raise(&mut harness, 100, 7), raised(100, 7));
    assert_eq!(raise(&mut harness, 100, 3), raised(100, 7));
    harness.close(100);
    harness.enlist(101, hello("m", 2, 0, 1));
    assert_eq!(raise(&mut harness, 101, 2), raised(101, 2));
}

#[test]
fn that_all_disks_are_full_is_said_when_it_begins() {
    let mut harness = Harness::new();
    enlist(&mut harness, 100, with_backup("a", 1));
    enlist(&mut harness, 101, with_backup("b", 2));
    let mut said = |connection, frames_free| {
        let report = BackupReport {
            frames: 10,
            frames_free,
            ..BackupReport::default()
        };
        harness.shard_says(connection, shard::Kind::BackupReport(report));
        let (frames, backups) = (20, 2);
        let full = CoordinatorEvent::from(MemberEvent::BackupsFull { frames, backups });
        let events = harness.out.events.iter();
        events.filter(|event| **event == full).count()
    };
    assert_eq!(said(100, 0), 0);
    assert_eq!(said(101, 1), 0);
    assert_eq!(said(101, 0), 1);
    assert_eq!(said(100, 0), 1, "once");
    assert_eq!(said(100, 3), 1);
    assert_eq!(said(100, 0), 2, "again");
}
