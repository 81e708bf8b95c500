//! A head can be replaced at any moment, however full the log is: nothing more becomes durable in one that has lost a replica, so that the cleaner gets
//! nothing free either.

use base::bugs::{Bug, plant};
use proptest::prelude::*;

use super::replicas::Replicas;
use super::*;

#[derive(Clone, Debug)]
enum Event {
    Write {
        key: u8,
        bytes: u16,
    },
    Remove {
        key: u8,
    },
    /// The head has lost a replica.
    ReplaceHead,
    Clean {
        budget: u16,
    },
    Durable {
        part: u8,
    },
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        12 => (0u8..24, 0u16..900).prop_map(|(key, bytes)| Event::Write { key, bytes }),
        2 => (0u8..24).prop_map(|key| Event::Remove { key }),
        3 => Just(Event::ReplaceHead),
        4 => (1u16..9000).prop_map(|budget| Event::Clean { budget }),
        3 => any::<u8>().prop_map(|part| Event::Durable { part }),
    ]
}

/// The first moment at which the head could not be replaced.
fn live(segments: u32, events: &[Event]) -> Result<(), String> {
    let mut store = Store::new(4096, segments, Durability::External);
    let mut replicas = Replicas::default();
    for event in events {
        match *event {
            Event::Write { key, bytes } => {
                let _ = store.write(&u64_key(key.into()), &vec![key; bytes.into()]);
            }
            Event::Remove { key } => {
                let _ = store.remove(&u64_key(key.into()));
            }
            Event::ReplaceHead => {
                store.log.start_new_head();
            }
            Event::Clean { budget } => {
                store.clean(budget.into());
            }
            Event::Durable { part } => replicas.follow(&mut store.log, part),
        }
        store.log.audit_head()?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn a_head_with_data_can_always_be_replaced(
        segments in 8u32..20,
        events in proptest::collection::vec(any_event(), 1..300),
    ) {
        prop_assert_eq!(live(segments, &events), Ok(()));
    }
}

/// The bug that this test is about, planted: a digest counted as data, and the next write stood in a head that could not be replaced.
#[test]
fn a_digest_that_fills_a_bare_head_is_found() {
    let config = ProptestConfig {
        cases: 512,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let events = (8u32..20, proptest::collection::vec(any_event(), 1..300));
    plant(Some(Bug::FillBareHead));
    let found = runner.run(&events, |(segments, events)| {
        live(segments, &events).map_err(proptest::test_runner::TestCaseError::fail)
    });
    plant(None);
    assert!(found.is_err());
}

/// A bare head that has many digests is followed by another one: what is given up with it fits one request.
#[test]
fn digests_in_a_bare_head_are_bounded() {
    let mut store = Store::new(4096, 55, Durability::External);
    let mut replicas = Replicas::default();
    let mut written = 0;
    while store.write(&u64_key(written % 8), &[7; 500]).is_ok() {
        written += 1;
    }
    replicas.follow_all(&mut store.log);
    assert!(store.log.start_new_head());
    store.log.keep_free(Some(100));
    let mut heads = std::collections::BTreeSet::new();
    for _ in 0..100 {
        store.clean(2000);
        replicas.follow_all(&mut store.log);
        assert!(store.log.is_head_bare());
        assert_eq!(store.log.audit_head(), Ok(()));
        let head = store.log.head.expect("a head");
        let head = &store.log.segments[head as usize];
        assert!(head.used_bytes as usize <= store.log.config().max_append_bytes());
        heads.insert(head.id);
    }
    assert!(store.log.cleaner_stats().segments_cleaned > 30);
    assert!(heads.len() > 1, "{heads:?}");
}
