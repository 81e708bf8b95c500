//! What people change while the store runs.

mod common;

use std::time::Duration;

use common::replicated::with_replicas;
use common::{Action, Harness, hello};
use coordinator::{SettingsError, SettingsOrder};
use wire::member::{Hello, Pong, Settings, coordinator::Kind, shard};

fn takes(hello: Hello) -> Hello {
    Hello {
        takes_settings: true,
        ..hello
    }
}

fn set(store: &mut Harness, settings: Settings) -> Result<Settings, SettingsError> {
    let order = SettingsOrder {
        settings,
        expected_cluster_id: 0,
    };
    store.coordinator.set_settings(&order, &mut store.out)
}

fn told(actions: &[Action]) -> Vec<(u64, Settings)> {
    let told = actions.iter().filter_map(|action| match action {
        Action::Send(connection, Kind::Settings(settings)) => Some((*connection, *settings)),
        _ => None,
    });
    told.collect()
}

#[test]
fn servers_are_told_at_once_or_when_they_come_and_a_restart_forgets_nothing() {
    let mut store = Harness::new();
    let (welcome, _) = store.enlist(1, takes(hello("m0", 1, 0, 1)));
    assert_eq!(welcome.settings, None, "nobody has set anything");
    // Of an older build: it would not know what to do with the message.
    store.enlist(2, hello("m1", 2, 0, 1));

    let wanted = Settings {
        poll_micros: Some(0),
        ..Settings::default()
    };
    let in_force = Settings {
        number: 1,
        ..wanted
    };
    assert_eq!(set(&mut store, wanted), Ok(in_force));
    assert_eq!(told(&store.take()), [(1, in_force)]);
    // The same again changes nothing.
    assert_eq!(set(&mut store, wanted), Ok(in_force));
    assert_eq!(told(&store.take()), []);

    store.restart(Duration::from_secs(1));
    let (welcome, _) = store.enlist(3, takes(hello("m2", 3, 0, 1)));
    assert_eq!(welcome.settings, Some(in_force));
    let back = set(&mut store, Settings::default()).unwrap();
    assert_eq!(back.number, 2, "taking all back is a change, too");
    assert_eq!(told(&store.take()), [(3, back)]);
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let mut store = Harness::new();
    store.enlist(1, takes(hello("m0", 1, 0, 1)));
    let copies = |replicas| Settings {
        replicas: Some(replicas),
        ..Settings::default()
    };
    for (settings, why) in [
        (copies(9), "from 1 to 8"),
        (copies(2), "member \"m0\" runs without copies"),
    ] {
        let error = set(&mut store, settings).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    let order = SettingsOrder {
        settings: Settings::default(),
        expected_cluster_id: 1,
    };
    let refused = store.coordinator.set_settings(&order, &mut store.out);
    assert!(matches!(refused, Err(SettingsError::OtherStore(_))));
    assert_eq!(store.coordinator.settings(), Settings::default());
    assert_eq!(told(&store.take()), []);
}

#[test]
fn the_status_shows_what_servers_say_is_in_force() {
    let mut store = Harness::new();
    store.enlist(1, takes(with_replicas("m0", 1)));
    let wanted = Settings {
        replicas: Some(3),
        ..Settings::default()
    };
    set(&mut store, wanted).unwrap();
    let shown = |store: &Harness| {
        let status = store.coordinator.cluster_status(store.now);
        let shard = &status.members[0].shards[0];
        (status.replicas, shard.replicas, shard.settings)
    };
    assert_eq!(shown(&store), (2, 2, 0));
    let pong = Pong {
        settings: 1,
        replicas: Some(3),
        ..Pong::default()
    };
    store.shard_says(1, shard::Kind::Pong(pong));
    assert_eq!(shown(&store), (3, 3, 1));
    // An older build's says nothing of it.
    store.shard_says(1, shard::Kind::Pong(Pong::default()));
    assert_eq!(shown(&store), (3, 3, 0));
}

#[test]
fn evening_out_can_be_stopped_and_begun() {
    let mut store = Harness::new();
    let is_on = |store: &mut Harness| {
        store.advance(Duration::from_secs(3));
        store.coordinator.cluster_status(store.now).balance.is_on
    };
    assert!(is_on(&mut store));
    let rate = |rebalance_mbps| Settings {
        rebalance_mbps,
        ..Settings::default()
    };
    set(&mut store, rate(Some(0))).unwrap();
    assert!(!is_on(&mut store));
    set(&mut store, rate(Some(10))).unwrap();
    assert!(is_on(&mut store));
}
