//! Stores without copies: tablets move there too, and what a dead process held is lost wherever it had come from.

use std::time::Duration;

use base::ids::{ServerId, TableId};
use coordinator::status::Migration;
use coordinator::{Drain, MigrateError, MigrationOrder, MigrationTarget, TabletTable};
use wire::member::{
    BackupReport, Hello, Migrated, MigrationId, MigrationWanted, OpenFloor, Pong, Probed,
    TabletRange, coordinator::Kind, shard,
};
use wire::status::Status;

use crate::common::replicated::{fenced, probes, with_replicas};
use crate::common::{Action, Harness, hello};

const WHOLE: TabletRange = TabletRange {
    table_id: 1,
    start_key_hash: 0,
    end_key_hash: u64::MAX,
};

/// A server that keeps no copies and has none made.
fn alone(member: &str, process: u64) -> Hello {
    Hello {
        peer_locator: format!("tcp:host={member},port=12200"),
        ..hello(member, process, 0, 1)
    }
}

/// Servers `a` (on connection 101, as 1.0) and `b` (on 102, as 2.0), and a table that `a` owns.
fn two() -> (Harness, TableId) {
    let mut harness = Harness::new();
    harness.enlist(101, alone("a", 1));
    harness.enlist(102, alone("b", 2));
    let table = harness.create("t", 1);
    assert_eq!(harness.owners(table), [a()]);
    (harness, table)
}

fn a() -> ServerId {
    ServerId::new(1, 0)
}

fn b() -> ServerId {
    ServerId::new(2, 0)
}

fn order(target: ServerId) -> MigrationOrder {
    MigrationOrder {
        table: TabletTable::Name("t".to_owned()),
        key_hash: 7,
        target: MigrationTarget::Server(target),
        bytes_per_second: 0,
        expected_cluster_id: 0,
    }
}

fn begin(harness: &mut Harness, target: ServerId) -> Result<Migration, MigrateError> {
    let order = order(target);
    harness
        .coordinator
        .migrate_tablet(harness.now, &order, &mut harness.out)
}

/// The target has all of it: the source is told to stop.
fn has_all(harness: &mut Harness, connection: u64, migration_id: u64) -> Vec<Action> {
    let migrated = Migrated {
        migration_id,
        from_segment: 3,
        ..Migrated::default()
    };
    harness.shard_says(connection, shard::Kind::Migrated(migrated))
}

fn stopped(harness: &mut Harness, connection: u64, migration_id: u64) -> Vec<Action> {
    let stopped = shard::Kind::Stopped(MigrationId { migration_id });
    harness.shard_says(connection, stopped)
}

/// The table goes from `a` to `b`.
fn moved() -> (Harness, TableId) {
    let (mut harness, table) = two();
    let id = begin(&mut harness, b())
        .expect("nothing stands against it")
        .id;
    harness.take();
    has_all(&mut harness, 102, id);
    stopped(&mut harness, 101, id);
    assert_eq!(harness.owners(table), [b()]);
    (harness, table)
}

fn losses(harness: &Harness) -> Vec<(String, u64)> {
    let status = harness.coordinator.cluster_status(harness.now);
    let losses = status.losses.into_iter();
    losses
        .map(|loss| (loss.member, loss.tablet_count))
        .collect()
}

#[test]
fn a_tablet_is_read_at_the_port_for_other_servers() {
    let (mut harness, _) = two();
    begin(&mut harness, b()).expect("nothing stands against it");
    let sent = harness.take();
    let [
        Action::Send(102, Kind::Migrate(migrate)),
        Action::Send(101, Kind::MigrateOut(out)),
    ] = &sent[..]
    else {
        panic!("{sent:?}");
    };
    assert_eq!(migrate.locator, "tcp:host=a,port=12200");
    assert_eq!([migrate.tablet, out.tablet], [WHOLE; 2]);
}

#[test]
fn a_client_that_asks_the_master_is_answered_when_it_is_there() {
    let (mut harness, table) = two();
    let wanted = MigrationWanted {
        sequence: 4,
        tablet: WHOLE,
        target: b().0,
    };
    let begun = harness.shard_says(101, shard::Kind::MigrationWanted(wanted));
    let id = begun.iter().find_map(|action| match action {
        Action::Send(102, Kind::Migrate(migrate)) => Some(migrate.migration_id),
        _ => None,
    });
    let id = id.expect("it has begun");
    has_all(&mut harness, 102, id);
    let end = stopped(&mut harness, 101, id);
    let answered = end.iter().any(|action| {
        matches!(action, Action::Send(101, Kind::MigrationEnded(ended))
            if ended.sequence == 4 && ended.status == u32::from(Status::Ok))
    });
    assert!(answered, "{end:?}");
    assert_eq!(harness.owners(table), [b()]);
}

#[test]
fn an_older_build_has_no_port_and_can_only_take() {
    let (mut harness, table) = two();
    harness.enlist(103, hello("old", 3, 0, 1));
    let old = ServerId::new(3, 0);
    let id = begin(&mut harness, old).expect("it can take").id;
    harness.take();
    has_all(&mut harness, 103, id);
    stopped(&mut harness, 101, id);
    assert_eq!(harness.owners(table), [old]);
    let refused = begin(&mut harness, b())
        .expect_err("it cannot give")
        .to_string();
    for part in ["server 3.0", "older build (test)", "upgrade that member"] {
        assert!(refused.contains(part), "{refused}");
    }
    // A coordinator that takes over knows as much before anybody has said hello again.
    harness.restart(Duration::from_millis(100));
    for (member, is_refused) in [("old", true), ("a", false)] {
        let drain = Drain {
            name: member.to_owned(),
            expected_cluster_id: 0,
        };
        let now = harness.now;
        let drained = harness
            .coordinator
            .drain_member(now, &drain, &mut harness.out);
        let text = drained.err().map(|error| error.to_string());
        assert_eq!(text.is_some(), is_refused, "{text:?}");
        assert!(text.is_none_or(|text| text.contains("upgrade that member")));
    }
}

#[test]
fn until_it_is_noted_the_source_has_it_and_then_the_target() {
    // The target dies first: its next process gets nothing, and nothing is lost.
    let (mut harness, table) = two();
    let id = begin(&mut harness, b())
        .expect("nothing stands against it")
        .id;
    has_all(&mut harness, 102, id);
    harness.close(102);
    assert_eq!(stopped(&mut harness, 101, id), []);
    let (welcome, _) = harness.enlist(112, alone("b", 12));
    assert_eq!(
        (welcome.tablets, harness.owners(table)),
        (vec![], vec![a()])
    );
    assert_eq!(losses(&harness), []);

    // The source dies first: what it held is lost, though the target had a copy that nobody may show.
    let (mut harness, table) = two();
    let id = begin(&mut harness, b())
        .expect("nothing stands against it")
        .id;
    has_all(&mut harness, 102, id);
    let told = harness.close(101);
    let give_up = Kind::GiveUpMigration(MigrationId { migration_id: id });
    assert!(told.contains(&Action::Send(102, give_up)), "{told:?}");
    let (welcome, _) = harness.enlist(111, alone("a", 11));
    assert_eq!(welcome.tablets, [WHOLE]);
    assert_eq!(harness.owners(table), [ServerId::new(1, 1)]);
    assert_eq!(losses(&harness), [("a".to_owned(), 1)]);

    // Afterwards the source may die, and with the target all of it is lost.
    let (mut harness, table) = moved();
    harness.close(101);
    harness.enlist(111, alone("a", 11));
    assert_eq!(
        (harness.owners(table), losses(&harness)),
        (vec![b()], vec![])
    );
    harness.close(102);
    let (welcome, _) = harness.enlist(112, alone("b", 12));
    assert_eq!(welcome.tablets, [WHOLE]);
    assert_eq!(losses(&harness), [("b".to_owned(), 1)]);
}

/// The source had given out higher versions than the target's next process would begin with.
#[test]
fn versions_of_what_is_lost_are_not_used_again() {
    let (mut harness, _) = two();
    let high = 9 << 40;
    for connection in [101, 102] {
        let pong = Pong {
            sequence: 1,
            next_version: high,
            ..Pong::default()
        };
        harness.shard_says(connection, shard::Kind::Pong(pong));
        if connection == 101 {
            let id = begin(&mut harness, b())
                .expect("nothing stands against it")
                .id;
            has_all(&mut harness, 102, id);
            stopped(&mut harness, 101, id);
        }
    }
    harness.close(102);
    let (lost, _) = harness.enlist(112, alone("b", 12));
    assert!(lost.first_version >= high, "{lost:?}");
    // The same process again, and one after it, from another coordinator.
    harness.restart(Duration::from_millis(100));
    let (again, _) = harness.enlist(113, alone("b", 12));
    assert_eq!(again.first_version, lost.first_version);
    let given = Pong {
        sequence: 1,
        next_version: lost.first_version + 50,
        ..Pong::default()
    };
    harness.shard_says(113, shard::Kind::Pong(given));
    harness.close(113);
    let (next, _) = harness.enlist(114, alone("b", 14));
    assert!(next.first_version >= lost.first_version + 50, "{next:?}");
    // What others write over objects that they have goes on one by one.
    assert_eq!(next.version_floor, 0);
}

/// A process with copies takes the place of one without that had got a tablet: its own log is all that a recovery reads.
#[test]
fn what_was_lost_is_looked_for_in_no_log() {
    let (mut harness, table) = moved();
    harness.close(102);
    for (connection, member, process) in [(112, "b", 12), (103, "c", 3)] {
        harness.enlist(connection, with_replicas(member, process));
        let report = BackupReport {
            segment_bytes: 8 << 20,
            frames: 1000,
            frames_free: 1000,
            ..BackupReport::default()
        };
        harness.shard_says(connection, shard::Kind::BackupReport(report));
        let floor = OpenFloor { segment_id: 1 };
        harness.shard_says(connection, shard::Kind::RaiseOpenFloor(floor));
    }
    let second = ServerId::new(2, 1);
    assert_eq!(harness.owners(table), [second]);
    for (prober, sequence) in probes(&harness.close(112)) {
        let is_alive = false;
        let probed = Probed { sequence, is_alive };
        harness.shard_says(prober, shard::Kind::Probed(probed));
    }
    let asked = fenced(&harness.advance(Duration::from_millis(100)));
    assert_eq!(asked, [(103, second)], "and not {}", b());
}
