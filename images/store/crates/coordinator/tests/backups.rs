//! The list of backups, and open floors.

mod common;

use common::{Action, Harness, hello, removal};
use wire::ids::ServerId;
use wire::member::{Hello, OpenFloor, coordinator::Kind, shard};

fn with_backup(member: &str, process: u64) -> Hello {
    Hello {
        backup_locator: format!("tcp:host={member},port=12200"),
        domain: format!("chassis of {member}"),
        host_id: format!("host of {member}"),
        ..hello(member, process, 0, 1)
    }
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
    assert_eq!(
        told(&harness.hello(101, with_backup("a", 2))),
        [(100, vec![a]), (101, vec![a])]
    );
    let actions = harness.hello(102, with_backup("b", 3));
    assert_eq!(
        told(&actions),
        [(100, vec![a, b]), (101, vec![a, b]), (102, vec![a, b])]
    );
    // Who only comes back is told, and nobody else.
    harness.close(100);
    assert_eq!(
        told(&harness.hello(103, hello("master", 1, 0, 1))),
        [(103, vec![a, b])]
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
    harness.enlist(100, with_backup("a", 1));
    harness.close(100);
    let (welcome, _) = harness.enlist(101, with_backup("a", 2));
    assert_eq!(ServerId(welcome.server_id).generation(), 1);
    let actions = harness.hello(102, with_backup("b", 3));
    let Some(Action::Send(_, Kind::Backups(list))) = actions
        .iter()
        .find(|action| matches!(action, Action::Send(_, Kind::Backups(_))))
    else {
        panic!("a list of backups is sent: {actions:?}");
    };
    assert_eq!(list.backups[0].server_id, welcome.server_id);
    assert_eq!(list.backups[0].domain, "chassis of a");
    assert_eq!(list.backups[0].host_id, "host of a");
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
