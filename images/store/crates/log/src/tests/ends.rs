//! Segments that are closed before they are full: their unused ends cost room for seconds, not for ever.

use base::bugs::{Bug, plant};
use proptest::prelude::*;

use super::*;

/// Everything gets durable and the cleaner does all that it wants to; it must come to rest.
fn come_to_rest(store: &mut Store, replicas: &mut Replicas) {
    for _ in 0..2000 {
        replicas.follow_all(&mut store.log);
        let cleaning = store.clean(1 << 14);
        replicas.follow_all(&mut store.log);
        if cleaning == Cleaning::Idle && !store.log.wants_cleaning() {
            return;
        }
    }
    panic!("the cleaner does not come to rest");
}

/// What live data may take, in percent of what it may take in a log in which nothing is: as if nobody knew that unused ends come back.
fn room_percent(store: &Store) -> u64 {
    let config = *store.log.config();
    let fresh = Store::new(
        config.segment_bytes,
        config.segment_count,
        config.durability,
    );
    let usage = store.log.usage();
    let room = usage.max_live_bytes - usage.early_end_bytes;
    room * 100 / fresh.log.usage().max_live_bytes
}

/// Writes new keys until the log is full; answers how much is live then.
fn fill_up(store: &mut Store, replicas: &mut Replicas) -> u64 {
    let mut key = 1 << 32;
    loop {
        match store.write(&u64_key(key), &[1; 100]) {
            Ok(_) => key += 1,
            Err(NoRoom::Full) => break,
            Err(NoRoom::Cleaning) => {
                for _ in 0..4 {
                    replicas.follow_all(&mut store.log);
                    store.clean(1 << 16);
                }
            }
        }
    }
    let usage = store.log.usage();
    usage.live_bytes - usage.tombstone_bytes
}

/// As where a backup of the head is restarted again and again under a store that is hardly used.
#[test]
fn a_log_whose_heads_were_closed_early_has_room_for_as_much_as_a_fresh_one() {
    let mut fresh = Store::new(1 << 15, 64, Durability::External);
    let most = fill_up(&mut fresh, &mut Replicas::default());
    let mut store = Store::new(1 << 15, 64, Durability::External);
    let mut replicas = Replicas::default();
    for restart in 0..200_u64 {
        for n in 0..20 {
            let key = u64_key((restart * 20 + n) % 50);
            store.write(&key, &[restart as u8; 100]).expect("room");
        }
        assert!(store.log.start_new_head(), "restart {restart}");
        come_to_rest(&mut store, &mut replicas);
        assert!(room_percent(&store) >= 90, "restart {restart}");
    }
    let live = fill_up(&mut store, &mut replicas);
    assert!(live >= most * 97 / 100, "{live} of {most}");
    assert_eq!(store.log.audit(&store.keeper), Ok(()));
}

/// Where what is closed early is half full of what stays, nothing is dead, and copying is the price.
#[test]
fn heads_that_were_closed_half_full_are_packed_together_once() {
    let mut store = Store::new(1 << 15, 64, Durability::External);
    let mut replicas = Replicas::default();
    store.numbers = false;
    let mut key = 0;
    for _ in 0..40 {
        let start = store.log.head_position().0;
        while store.log.head_position().0 < start + (1 << 14) {
            store.write(&u64_key(key), &[1; 100]).expect("room");
            key += 1;
        }
        assert!(store.log.start_new_head());
        come_to_rest(&mut store, &mut replicas);
        assert!(room_percent(&store) >= 90);
    }
    let stats = store.log.cleaner_stats();
    let live = store.log.usage().live_bytes;
    assert!(stats.survivor_bytes <= 2 * live, "{stats:?}, {live} live");
    // A store that nobody uses does not clean.
    for _ in 0..100 {
        replicas.follow_all(&mut store.log);
        assert_eq!(store.clean(1 << 20), Cleaning::Idle);
    }
    assert_eq!(store.log.cleaner_stats(), stats);
}

/// Ends of segments whose replicas are not closed come back when these are; until then writes go on in what is free, and are told to come again.
#[test]
fn ends_of_segments_that_are_not_safe_yet_wait_and_no_write_is_refused() {
    let mut store = Store::new(1 << 13, 16, Durability::External);
    let mut replicas = Replicas::default();
    let mut key = 0;
    let answer = loop {
        match store.write(&u64_key(key), &[1; 100]) {
            Ok(_) => key += 1,
            Err(answer) => break answer,
        }
        store.log.start_new_head();
        assert_ne!(store.clean(1 << 20), Cleaning::More, "nothing is settled");
    };
    assert_eq!(answer, NoRoom::Cleaning);
    assert_eq!(store.log.cleaner_stats().segments_cleaned, 0);
    come_to_rest(&mut store, &mut replicas);
    assert!(room_percent(&store) >= 90);
    store.write(&u64_key(key), &[1; 100]).expect("room again");
}

/// The bug that these tests are about, planted: a cleaner that runs only when free segments run out.
#[test]
fn a_cleaner_that_leaves_unused_ends_is_found() {
    plant(Some(Bug::LeaveUnusedEnds));
    let mut store = Store::new(1 << 15, 64, Durability::External);
    let mut replicas = Replicas::default();
    for restart in 0..30_u64 {
        store.write(&u64_key(restart), &[1; 100]).expect("room");
        assert!(store.log.start_new_head());
        come_to_rest(&mut store, &mut replicas);
    }
    plant(None);
    assert!(room_percent(&store) < 60);
}

/// A reader who pins the heads keeps them as they are; when he ends, the cleaner goes over them by itself.
#[test]
fn ends_of_pinned_heads_come_back_when_nothing_pins_them() {
    let mut store = Store::new(1 << 15, 64, Durability::External);
    let mut replicas = Replicas::default();
    store.log.pin_heads();
    for restart in 0..30_u64 {
        store.write(&u64_key(restart), &[1; 100]).expect("room");
        assert!(store.log.start_new_head());
        come_to_rest(&mut store, &mut replicas);
    }
    assert_eq!(store.log.cleaner_stats().segments_cleaned, 0);
    assert!(room_percent(&store) < 60);
    store.log.unpin_heads();
    come_to_rest(&mut store, &mut replicas);
    assert!(room_percent(&store) >= 90);
}

/// After a round that gained no free segment the cleaner rests until something is written or dies; nothing is, in a store that nobody uses.
#[test]
fn ends_come_back_while_the_cleaner_rests() {
    let mut store = Store::new(1 << 15, 64, Durability::External);
    let mut replicas = Replicas::default();
    for restart in 0..30_u64 {
        store.write(&u64_key(restart), &[1; 100]).expect("room");
        assert!(store.log.start_new_head());
    }
    assert!(room_percent(&store) < 60);
    store.log.cleaner.rest(u64::MAX);
    come_to_rest(&mut store, &mut replicas);
    assert!(room_percent(&store) >= 90);
}

#[derive(Clone, Debug)]
enum Event {
    Write { key: u8, bytes: u8 },
    Remove { key: u8 },
    CloseHead,
    CopyElsewhere,
    Clean { budget: u16 },
    Durable { part: u8 },
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (any::<u8>(), any::<u8>()).prop_map(|(key, bytes)| Event::Write { key, bytes }),
        1 => any::<u8>().prop_map(|key| Event::Remove { key }),
        3 => Just(Event::CloseHead),
        1 => Just(Event::CopyElsewhere),
        2 => (1u16..9000).prop_map(|budget| Event::Clean { budget }),
        2 => any::<u8>().prop_map(|part| Event::Durable { part }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// Whatever closed segments early, and whenever: the room is back when the cleaner rests, and it has not copied without end.
    #[test]
    fn room_is_back_whenever_the_cleaner_rests(
        segments in 24u32..80,
        events in proptest::collection::vec(any_event(), 1..400),
    ) {
        let mut store = Store::new(1 << 14, segments, Durability::External);
        let mut replicas = Replicas::default();
        let mut closed_early = 0;
        for event in events {
            match event {
                Event::Write { key, bytes } => {
                    let _ = store.write(&u64_key(key.into()), &vec![key; bytes.into()]);
                }
                Event::Remove { key } => {
                    let _ = store.remove(&u64_key(key.into()));
                }
                Event::CloseHead => closed_early += u64::from(store.log.start_new_head()),
                Event::CopyElsewhere => {
                    if store.log.begin_copies().is_ok() {
                        closed_early += 3;
                        store.log.end_copies();
                        store.log.release_source();
                    }
                }
                Event::Clean { budget } => {
                    store.clean(budget.into());
                }
                Event::Durable { part } => replicas.follow(&mut store.log, part),
            }
        }
        come_to_rest(&mut store, &mut replicas);
        prop_assert!(room_percent(&store) >= 90, "{:?}", store.log.usage());
        prop_assert_eq!(store.log.audit(&store.keeper), Ok(()));
        let stats = store.log.cleaner_stats();
        let written = store.log.appended().bytes;
        let bound = written + (closed_early + 2) * (1 << 14);
        prop_assert!(stats.survivor_bytes <= 2 * bound, "{:?} {}", stats, written);
    }
}
