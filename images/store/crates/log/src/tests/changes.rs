//! What is read of a log while it is written and cleaned.

use super::*;
use wire::entry::Kind;

/// What a reader has found so far.
struct Reader {
    at: LogPosition,
    entries: u64,
    bytes: u64,
    unpins: bool,
}

impl Reader {
    fn read(&mut self, log: &mut Log, most: usize) {
        for (entry, position) in log.appends_from(self.at).take(most) {
            assert!(position > self.at);
            self.at = position;
            if entry.kind != Kind::SegmentHeader {
                self.entries += 1;
                self.bytes += entry.bytes.len() as u64;
            }
        }
        if self.unpins {
            log.unpin_before(self.at);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// Everything that is appended is read, once and in order, whatever the cleaner does.
    #[test]
    fn every_append_is_read_while_it_is_pinned(
        before in proptest::collection::vec(any_step(), 0..200),
        after in proptest::collection::vec((any_step(), 0usize..8), 1..300),
        unpins in any::<bool>(),
        durability in prop_oneof![Just(Durability::External), Just(Durability::Unreplicated)],
    ) {
        let mut store = Store::new(4096, 12, durability);
        let mut replicas = Replicas::default();
        let mut run = |store: &mut Store, step: &Step| match step {
            Step::Write { key, bytes } => {
                let key = format!("key-{}", key % 12).into_bytes();
                let _ = store.write(&key, &vec![1; usize::from(*bytes)]);
            }
            Step::Remove { key } => {
                let _ = store.remove(format!("key-{}", key % 12).as_bytes());
            }
            Step::Clean { budget } => {
                store.clean(usize::from(*budget));
            }
            Step::Durable { part } if durability == Durability::External => {
                replicas.follow(&mut store.log, *part);
            }
            Step::Durable { .. } => {}
        };
        for step in &before {
            run(&mut store, step);
        }
        let appended = store.log.appended();
        let at = store.log.pin_heads();
        let mut reader = Reader { at, entries: 0, bytes: 0, unpins };
        for (step, most) in &after {
            run(&mut store, step);
            reader.read(&mut store.log, *most);
            prop_assert_eq!(store.log.audit(&store.keeper), Ok(()));
        }
        reader.read(&mut store.log, usize::MAX);
        let now = store.log.appended();
        prop_assert_eq!(reader.entries, now.entries - appended.entries);
        prop_assert_eq!(reader.bytes, now.bytes - appended.bytes);
        prop_assert_eq!(reader.at, store.log.head_position());
        store.log.unpin_heads();
        prop_assert!(store.log.appends_from(at).next().is_none());
        prop_assert!(!store.log.pin_hinders());
    }
}

#[test]
fn a_pin_hinders_when_there_is_nothing_else_to_clean() {
    let mut store = Store::new(4096, 12, Durability::Unreplicated);
    store.log.pin_heads();
    let mut writes = 0;
    while store.write(b"key", &[1; 900]).is_ok() {
        writes += 1;
        assert!(!store.log.pin_hinders() || writes > 20, "{writes}");
        store.clean(1 << 20);
    }
    assert!(store.log.pin_hinders(), "after {writes} writes");
    assert_eq!(store.write(b"key", &[1; 900]), Err(NoRoom::Cleaning));
    store.log.unpin_heads();
    store.write_cleaning(b"key", &[1; 900]).unwrap();
}

#[test]
fn a_head_that_is_discarded_is_passed_over() {
    let mut store = Store::new(4096, 12, Durability::External);
    store.write(b"key", b"1").unwrap();
    assert!(store.log.start_new_head());
    let at = store.log.pin_heads();
    assert!(store.log.start_new_head(), "in place of a bare one");
    store.write(b"key", b"2").unwrap();
    let objects = store.log.appends_from(at);
    let objects = objects.filter(|(entry, _)| entry.kind == Kind::Object);
    assert_eq!(objects.count(), 1);
}
