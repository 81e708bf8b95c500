//! What people change while the store runs.

use std::time::Duration;

use crate::common::replicated::with_replicas;
use crate::common::{Action, Harness, hello};
use coordinator::{SettingsError, SettingsOrder, SpecVersion};
use wire::member::{Hello, Pong, Settings, coordinator::Kind, shard};

fn takes(hello: Hello) -> Hello {
    Hello {
        takes_settings: true,
        ..hello
    }
}

fn set(store: &mut Harness, settings: Settings) -> Result<Settings, SettingsError> {
    order(
        store,
        SettingsOrder {
            settings,
            ..SettingsOrder::default()
        },
    )
}

fn order(store: &mut Harness, order: SettingsOrder) -> Result<Settings, SettingsError> {
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
        ..SettingsOrder::default()
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

fn copies(replicas: u32) -> Settings {
    Settings {
        replicas: Some(replicas),
        ..Settings::default()
    }
}

fn by(uid: &str, generation: i64) -> Option<SpecVersion> {
    Some(SpecVersion {
        uid: uid.to_owned(),
        generation,
    })
}

/// A store that was started with two copies, and has three since generation 5 of a specification.
fn with_three_copies() -> Harness {
    let mut store = Harness::new();
    for number in 0..4 {
        store.enlist(number, takes(with_replicas(&format!("m{number}"), number)));
    }
    let raise = SettingsOrder {
        settings: copies(3),
        asked_by: by("spec", 5),
        ..SettingsOrder::default()
    };
    assert_eq!(order(&mut store, raise).unwrap().replicas, Some(3));
    store.take();
    store
}

#[test]
fn an_order_that_leaves_the_number_of_copies_out_keeps_it() {
    let mut store = with_three_copies();
    let wanted = Settings {
        poll_micros: Some(7),
        ..Settings::default()
    };
    let set = set(&mut store, wanted).unwrap();
    assert_eq!((set.replicas, set.poll_micros), (Some(3), Some(7)));
    assert!(told(&store.take()).iter().all(|(_, told)| *told == set));
    store.restart(Duration::from_secs(1));
    assert_eq!(store.coordinator.settings(), set);
}

#[test]
fn fewer_copies_need_a_reason_that_can_be_checked() {
    let mut store = with_three_copies();
    let in_force = store.coordinator.settings();
    let fewer = |asked_by, fewer_than| SettingsOrder {
        settings: copies(2),
        asked_by,
        fewer_than,
        ..SettingsOrder::default()
    };
    let refused = [
        // Of an older build.
        (fewer(None, None), "does not say that this is meant"),
        (
            fewer(by("spec", 6), None),
            "does not say that this is meant",
        ),
        // A member is away, and it believes that there are two.
        (
            fewer(by("spec", 6), Some(2)),
            "expects 2 in force, and replicas 3",
        ),
        // From an old copy of the specification, and of the version that asked for three.
        (
            fewer(by("spec", 4), Some(3)),
            "Fewer copies need a newer generation",
        ),
        (
            fewer(by("spec", 5), Some(3)),
            "generation 5 of it put replicas 3",
        ),
    ];
    store.restart(Duration::from_secs(1));
    for (asked, why) in refused {
        let error = order(&mut store, asked).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert_eq!(store.coordinator.settings(), in_force);
    }
    assert_eq!(told(&store.take()), []);
    let newer = fewer(by("spec", 6), Some(3));
    assert_eq!(order(&mut store, newer).unwrap().replicas, Some(2));
    // A person, and another specification, need not wait for a generation.
    for asked_by in [None, by("another", 1)] {
        order(
            &mut store,
            SettingsOrder {
                settings: copies(3),
                asked_by: by("spec", 7),
                ..SettingsOrder::default()
            },
        )
        .unwrap();
        assert_eq!(
            order(&mut store, fewer(asked_by, Some(3)))
                .unwrap()
                .replicas,
            Some(2)
        );
    }
}

#[test]
fn what_servers_were_started_with_is_not_lowered_by_mistake_either() {
    let mut store = Harness::new();
    store.enlist(1, takes(with_replicas("m0", 1)));
    let error = set(&mut store, copies(1)).unwrap_err().to_string();
    assert!(error.contains("while replicas 2 are in force"), "{error}");
    let meant = |fewer_than| SettingsOrder {
        settings: copies(1),
        fewer_than,
        ..SettingsOrder::default()
    };
    assert!(order(&mut store, meant(Some(1))).is_err());
    assert_eq!(order(&mut store, meant(Some(2))).unwrap().replicas, Some(1));
    // More copies need no reason; a lower least number does.
    assert!(set(&mut store, copies(3)).is_ok());
    let least = Settings {
        min_replicas: Some(1),
        ..copies(3)
    };
    let error = set(&mut store, least).unwrap_err().to_string();
    assert!(
        error.contains("replicas 3 and minReplicas 1, while replicas 3 and minReplicas 2"),
        "{error}"
    );
    // Taking the numbers back is an order for fewer, too.
    let taken_back = |fewer_than| SettingsOrder {
        fewer_than,
        ..SettingsOrder::default()
    };
    assert_eq!(
        order(&mut store, taken_back(None)).unwrap().replicas,
        Some(3)
    );
    assert_eq!(
        order(&mut store, taken_back(Some(3))).unwrap().replicas,
        None
    );
}
