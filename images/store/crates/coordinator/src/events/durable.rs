//! What of the events is durable: all.

use std::collections::{BTreeMap, BTreeSet};

use super::{Events, MAX_TEXT_BYTES, MOST, cut};
use crate::journaled::Journaled;
use crate::records::{self, Key, Record, Sorted};
use crate::resource::Resource;
use crate::status::Event;

fn event_record((&number, event): (&u64, &Event)) -> Record {
    Record::Event(records::Event {
        number,
        cluster_time_ns: event.cluster_time_ns,
        kind: event.kind,
        text: event.text.clone(),
    })
}

fn event_of(record: records::Event) -> (u64, Event) {
    let event = Event {
        cluster_time_ns: record.cluster_time_ns,
        kind: record.kind,
        text: record.text,
    };
    (record.number, event)
}

impl Resource for Events {
    /// Nothing contradicts a store that was made again without its last events.
    fn is_worth_a_checkpoint(&self) -> bool {
        false
    }

    fn take_changed(&mut self) -> BTreeSet<Key> {
        let changed = self.kept.take_changed().into_iter();
        changed.map(Key::Event).collect()
    }

    fn record(&self, key: &Key) -> Option<Record> {
        match key {
            Key::Event(number) => {
                let event = self.kept.get(number)?;
                Some(event_record((number, event)))
            }
            _ => None,
        }
    }

    fn records(&self) -> Box<dyn Iterator<Item = Record> + '_> {
        Box::new(self.kept.iter().map(event_record))
    }

    fn load(&mut self, sorted: &mut Sorted) -> Result<(), String> {
        let records = core::mem::take(&mut sorted.events).into_iter();
        let kept: BTreeMap<u64, Event> = records.map(event_of).collect();
        self.kept = Journaled::noted(kept);
        // A build with higher bounds may have noted them.
        self.kept.change_each(|event| {
            let is_long = event.text.len() > MAX_TEXT_BYTES;
            cut(&mut event.text);
            is_long
        });
        while self.kept.len() > MOST {
            self.drop_oldest();
        }
        self.audit()
    }

    fn audit(&self) -> Result<(), String> {
        let mut last_ns = 0;
        for (number, event) in self.kept.iter() {
            if event.cluster_time_ns < last_ns || event.text.len() > MAX_TEXT_BYTES {
                return Err(format!("event {number} is impossible: {event:?}"));
            }
            last_ns = event.cluster_time_ns;
        }
        match self.kept.len() {
            0..=MOST => Ok(()),
            count => Err(format!("{count} events are kept, of at most {MOST}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Pair;
    use crate::status::EventKind;

    fn with_two() -> Events {
        let mut events = Events::default();
        events.happened(5, EventKind::ProcessDead, "one".to_owned());
        events.happened(9, EventKind::MemberRemoved, "two".to_owned());
        events
    }

    #[test]
    fn what_was_noted_comes_back() {
        let mut events = with_two();
        let keys: Vec<Key> = events.take_changed().into_iter().collect();
        assert_eq!(keys, [Key::Event(1), Key::Event(2)]);
        let mut sorted = Sorted::default();
        for key in &keys {
            sorted.add(events.record(key).expect("it is there"));
        }
        let mut restored = Events::default();
        assert_eq!(restored.load(&mut sorted), Ok(()));
        assert!(restored.iter().eq(events.iter()));
        assert!(restored.take_changed().is_empty());
        restored.happened(7, EventKind::MemberRemoved, "three".to_owned());
        assert_eq!(restored.take_changed(), [Key::Event(3)].into());
    }

    #[test]
    fn a_record_is_as_it_was() {
        let events = with_two();
        let pair = Pair::from(events.record(&Key::Event(2)).expect("it is there"));
        assert_eq!(pair.key, [9, 0, 0, 0, 0, 0, 0, 0, 2]);
        let value = [&[0x4a, 11, 8, 2, 16, 9, 24, 4, 34, 3][..], b"two"].concat();
        assert_eq!(pair.value, value);
    }

    #[test]
    fn more_than_this_build_keeps_is_cut() {
        let event = |number| records::Event {
            number,
            cluster_time_ns: number,
            kind: 77,
            text: "a".repeat(MAX_TEXT_BYTES + 1),
        };
        let mut sorted = Sorted {
            events: (0..MOST as u64 + 2).map(event).collect(),
            ..Sorted::default()
        };
        let mut events = Events::default();
        assert_eq!(events.load(&mut sorted), Ok(()));
        assert_eq!(events.iter().count(), MOST);
        assert_eq!(events.take_changed().len(), MOST + 2);
        assert!(events.iter().all(|event| event.kind == 77));
    }

    #[test]
    fn an_audit_finds_what_cannot_be() {
        assert_eq!(with_two().audit(), Ok(()));
        let damages: [fn(&mut Events); 3] = [
            |events| events.kept.get_mut(&1).unwrap().cluster_time_ns = 10,
            |events| events.kept.get_mut(&1).unwrap().text = "a".repeat(MAX_TEXT_BYTES + 1),
            |events| {
                for number in 3..=MOST as u64 + 1 {
                    let event = events.kept.get(&2).unwrap().clone();
                    events.kept.insert(number, event);
                }
            },
        ];
        for damage in damages {
            let mut events = with_two();
            damage(&mut events);
            assert!(events.audit().is_err(), "{events:?}");
        }
    }
}
