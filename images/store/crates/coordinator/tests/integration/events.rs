//! Events: what is recorded, what is noted in which format, and that they are forgotten.

use std::time::Duration;

use coordinator::status::EventKind;
use coordinator::{Config, Finalize, SettingsOrder};
use prost::{Message, Oneof};
use wire::format::Formats;
use wire::member::{Hello, Migrated, MigrationId, Settings, shard};

use crate::common::replicated::{Store, open_head, orders};
use crate::common::{CLUSTER, Harness, hello, removal};

const OLD: Formats = Formats {
    oldest: 1,
    newest: 1,
};
const NEW: Formats = Formats {
    oldest: 1,
    newest: 2,
};
const EVENT: u8 = 9;

/// What builds know that have no events.
#[derive(Clone, PartialEq, Message)]
struct OlderValue {
    #[prost(oneof = "OlderRecord", tags = "1, 2, 3, 4, 5, 6, 7, 8")]
    record: Option<OlderRecord>,
}

#[derive(Clone, PartialEq, Oneof)]
enum OlderRecord {
    #[prost(bytes = "vec", tag = "1")]
    Meta(Vec<u8>),
    #[prost(bytes = "vec", tag = "2")]
    Member(Vec<u8>),
    #[prost(bytes = "vec", tag = "3")]
    Server(Vec<u8>),
    #[prost(bytes = "vec", tag = "4")]
    Removed(Vec<u8>),
    #[prost(bytes = "vec", tag = "5")]
    Table(Vec<u8>),
    #[prost(bytes = "vec", tag = "6")]
    Lease(Vec<u8>),
    #[prost(bytes = "vec", tag = "7")]
    Loss(Vec<u8>),
    #[prost(bytes = "vec", tag = "8")]
    Log(Vec<u8>),
}

fn texts(store: &Harness) -> Vec<String> {
    let (_, events) = store.coordinator.events(store.now);
    events.into_iter().map(|event| event.text).collect()
}

fn kinds(store: &Harness) -> Vec<u32> {
    let (_, events) = store.coordinator.events(store.now);
    events.into_iter().map(|event| event.kind).collect()
}

fn noted(store: &Harness) -> usize {
    let keys = store.kept.0.keys();
    keys.filter(|key| key[0] == EVENT).count()
}

/// Whether a build that has no events can read every record; otherwise it refuses the whole state.
fn is_readable_by_older_builds(store: &Harness) -> bool {
    let mut values = store.kept.0.values();
    values.all(|value| OlderValue::decode(&value[..]).is_ok_and(|value| value.record.is_some()))
}

fn member_of(formats: Formats, name: &str) -> Hello {
    Hello {
        newest_format: formats.newest,
        ..hello(name, 1, 0, 1)
    }
}

fn remove(store: &mut Harness, name: &str) {
    let (now, out) = (store.now, &mut store.out);
    let removed = store.coordinator.remove_member(now, &removal(name), out);
    assert_eq!(removed, Ok(()));
    store.take();
}

#[test]
fn in_a_format_of_older_builds_events_are_shown_and_not_noted() {
    let mut store = Harness::with(|config| config.formats = OLD);
    store.change_config(|config| config.formats = NEW);
    store.restart(Duration::from_secs(1));
    store.enlist(1, member_of(NEW, "m0"));
    store.enlist(2, member_of(NEW, "m1"));
    remove(&mut store, "m0");
    assert_eq!(texts(&store), ["member \"m0\" was removed from the store"]);
    assert_eq!(noted(&store), 0);
    assert!(is_readable_by_older_builds(&store));
    // There is a way back, on which they are forgotten.
    store.change_config(|config| config.formats = OLD);
    store.restart(Duration::from_secs(1));
    assert_eq!(texts(&store), [""; 0]);
}

#[test]
fn once_a_format_has_events_these_survive_a_change_of_the_leader() {
    let mut store = Harness::with(|config| config.formats = OLD);
    store.change_config(|config| config.formats = NEW);
    store.restart(Duration::from_secs(1));
    store.enlist(1, member_of(NEW, "m0"));
    remove(&mut store, "m0");
    let (now, out) = (store.now, &mut store.out);
    let finalized = store
        .coordinator
        .finalize_upgrade(&Finalize::default(), out);
    assert_eq!(finalized, Ok(2));
    store.take();
    assert_eq!(noted(&store), 2, "what was before that, too");
    assert!(!is_readable_by_older_builds(&store));
    let order = SettingsOrder {
        settings: Settings {
            log_level: Some(3),
            ..Settings::default()
        },
        ..SettingsOrder::default()
    };
    let set = store.coordinator.set_settings(&order, &mut store.out);
    assert!(set.is_ok(), "{set:?}");
    store.take();
    assert_eq!(noted(&store), 3);

    let before = store.coordinator.events(now).1;
    store.restart(Duration::from_secs(1));
    assert_eq!(store.coordinator.events(store.now).1, before);
    assert_eq!(
        texts(&store)[1..],
        [
            "format 2 is in force, in place of 1",
            "settings number 1 are in force"
        ]
    );
    // A build that does not read the format refuses the state by name, before it looks at records.
    let old = Config {
        formats: OLD,
        ..Config::new(CLUSTER, 0, "test")
    };
    let refused = coordinator::Coordinator::restore(old, store.kept.pairs(), store.now);
    assert!(refused.expect_err("newer").to_string().contains("format 2"));

    store.advance(Duration::from_secs(1));
    store.now += Duration::from_secs(7 * 24 * 3600);
    store.advance(Duration::from_secs(1));
    assert_eq!((noted(&store), texts(&store).len()), (0, 0));
}

#[test]
fn deaths_recoveries_and_moves_are_recorded() {
    let mut store = Store::new(4);
    store.harness.create("t", 1);
    store.kill(1);
    store.wait(100);
    for number in 2..=4 {
        store.finds(number, store.ids[&1], vec![open_head(1, 80, &[])]);
    }
    let orders = orders(&store.wait(100));
    for (connection, recover) in &orders {
        store.done(*connection, recover, 7);
        store.durable(*connection, recover);
    }
    store.wait(100);
    let recorded = texts(&store.harness);
    assert_eq!(
        recorded[0],
        "a process of member \"m1\" is dead: servers 1.0"
    );
    assert!(recorded[1].starts_with("recovered server 1.0: 30 objects"));

    let from = orders.iter().find(|(connection, _)| *connection == 102);
    let tablet = from.expect("one for each").1.tablets[0];
    let order = coordinator::MigrationOrder {
        table: coordinator::TabletTable::Name("t".to_owned()),
        key_hash: tablet.start_key_hash,
        target: coordinator::MigrationTarget::Server(store.ids[&3]),
        bytes_per_second: 0,
        expected_cluster_id: 0,
    };
    let harness = &mut store.harness;
    let (now, out) = (harness.now, &mut harness.out);
    let begun = harness.coordinator.migrate_tablet(now, &order, out);
    let migration_id = begun.expect("nothing stands against it").id;
    let migrated = Migrated {
        migration_id,
        from_segment: 9,
        ..Migrated::default()
    };
    store.says(3, shard::Kind::Migrated(migrated));
    store.says(2, shard::Kind::Stopped(MigrationId { migration_id }));
    let moved = texts(&store.harness).pop().expect("the newest");
    assert!(
        moved.ends_with("moved from member \"m2\" to member \"m3\""),
        "{moved}"
    );
    let expected = [
        EventKind::ProcessDead,
        EventKind::RecoveryEnded,
        EventKind::TabletMoved,
    ];
    assert_eq!(kinds(&store.harness), expected.map(|kind| kind as u32));
}
