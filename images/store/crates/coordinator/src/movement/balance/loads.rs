//! What is known of each tablet's bytes and of how much it is used: in memory only, as shards tell it.

use std::collections::{BTreeMap, BTreeSet};

use base::ids::ServerId;
use base::time::Time;
use wire::member::{TabletLoad, TabletRange};

/// What a tablet has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub bytes: u64,
    pub objects: u64,
    /// Operations in a second; each report counts as much as all before it.
    pub rate: u64,
    /// Who has told it: another one counts from 0.
    server: ServerId,
    uses: u64,
    told_at: Time,
}

impl Load {
    /// Whether this server has said it in its present session, of the tablet as it is now.
    pub fn is_told_by(&self, server: ServerId) -> bool {
        self.server == server
    }
}

#[derive(Debug, Default)]
pub(crate) struct Loads {
    by_tablet: BTreeMap<TabletRange, Load>,
    /// Tablets whose loads each server has told in its present session, and perhaps others.
    told_by: BTreeMap<ServerId, BTreeSet<TabletRange>>,
}

impl Loads {
    pub fn of(&self, tablet: &TabletRange) -> Option<&Load> {
        self.by_tablet.get(tablet)
    }

    /// A server tells of a tablet that is its own.
    pub fn told(&mut self, now: Time, server: ServerId, told: &TabletLoad) {
        let before = self.by_tablet.get(&told.tablet);
        let rate = match before {
            Some(before) if before.server == server && told.uses >= before.uses => {
                let ns = now.since(before.told_at).as_nanos().max(1);
                let uses = u128::from(told.uses - before.uses);
                let rate = uses * 1_000_000_000 / ns;
                (before.rate + u64::try_from(rate).unwrap_or(u64::MAX / 2)) / 2
            }
            Some(before) => before.rate,
            None => 0,
        };
        let load = Load {
            bytes: told.bytes,
            objects: told.objects,
            rate,
            server,
            uses: told.uses,
            told_at: now,
        };
        self.by_tablet.insert(told.tablet, load);
        self.told_by.entry(server).or_default().insert(told.tablet);
    }

    /// A server comes in again: what it has now, it has yet to say.
    pub fn session_begins(&mut self, server: ServerId) {
        for tablet in self.told_by.remove(&server).unwrap_or_default() {
            let load = self.by_tablet.get_mut(&tablet);
            if let Some(load) = load.filter(|load| load.server == server) {
                load.server = ServerId::INVALID;
            }
        }
    }

    /// A tablet is two now, of which `second` is one: until more is known, each has what its width says.
    pub fn split(&mut self, whole: &TabletRange, second: &TabletRange) {
        let Some(load) = self.by_tablet.remove(whole) else {
            return;
        };
        let width = |range: &TabletRange| u128::from(range.end_key_hash - range.start_key_hash) + 1;
        let of = |amount: u64| (u128::from(amount) * width(second) / width(whole)) as u64;
        let part = Load {
            bytes: of(load.bytes),
            objects: of(load.objects),
            rate: of(load.rate),
            // Its counts are no continuation of these.
            server: ServerId::INVALID,
            ..load
        };
        let rest = Load {
            bytes: load.bytes - part.bytes,
            objects: load.objects - part.objects,
            rate: load.rate - part.rate,
            ..part
        };
        let first = TabletRange {
            end_key_hash: second.start_key_hash - 1,
            ..*whole
        };
        self.by_tablet.insert(first, rest);
        self.by_tablet.insert(*second, part);
    }

    /// Two tablets are one now, of which nobody has said anything yet.
    pub fn merge(&mut self, parts: [TabletRange; 2], whole: TabletRange) {
        let [Some(first), Some(second)] = parts.map(|part| self.by_tablet.remove(&part)) else {
            return;
        };
        let load = Load {
            bytes: first.bytes.saturating_add(second.bytes),
            objects: first.objects.saturating_add(second.objects),
            rate: first.rate.saturating_add(second.rate),
            // Its counts are no continuation of either's.
            server: ServerId::INVALID,
            ..first
        };
        self.by_tablet.insert(whole, load);
    }

    /// Forgets tablets that are not there any more.
    pub fn keep(&mut self, tablets: impl Iterator<Item = TabletRange>) {
        let mut all = std::mem::take(&mut self.by_tablet);
        let kept = tablets.filter_map(|tablet| Some((tablet, all.remove(&tablet)?)));
        self.by_tablet = kept.collect();
        self.told_by.clear();
        for (tablet, load) in &self.by_tablet {
            if load.server != ServerId::INVALID {
                let told = self.told_by.entry(load.server).or_default();
                told.insert(*tablet);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    const WHOLE: TabletRange = TabletRange {
        table_id: 1,
        start_key_hash: 0,
        end_key_hash: u64::MAX,
    };

    fn told(tablet: TabletRange, bytes: u64, uses: u64) -> TabletLoad {
        TabletLoad {
            tablet,
            bytes,
            objects: bytes / 10,
            uses,
        }
    }

    #[test]
    fn rates_follow_what_is_counted_and_survive_a_move_and_a_split() {
        let (mut loads, one, two) = (Loads::default(), ServerId::new(1, 0), ServerId::new(2, 0));
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        let rate = |loads: &Loads| loads.of(&WHOLE).unwrap().rate;
        loads.told(at(1), one, &told(WHOLE, 100, 5_000_000));
        assert_eq!(rate(&loads), 0, "since when these are counted nobody knows");
        loads.told(at(3), one, &told(WHOLE, 100, 5_008_000));
        assert_eq!(rate(&loads), 2000);
        loads.told(at(5), one, &told(WHOLE, 100, 5_008_000));
        assert_eq!(rate(&loads), 1000);
        loads.told(at(6), two, &told(WHOLE, 100, 3));
        assert_eq!(rate(&loads), 1000, "another server counts anew");
        let second = TabletRange {
            start_key_hash: 3 << 62,
            ..WHOLE
        };
        loads.split(&WHOLE, &second);
        let part = loads.of(&second).unwrap();
        assert_eq!((part.bytes, part.objects, part.rate), (25, 2, 250));
        let first = TabletRange {
            end_key_hash: second.start_key_hash - 1,
            ..WHOLE
        };
        let rest = loads.of(&first).unwrap();
        assert_eq!((rest.bytes, rest.objects, rest.rate), (75, 8, 750));
        loads.merge([first, second], WHOLE);
        let whole = loads.of(&WHOLE).unwrap();
        assert_eq!((whole.bytes, whole.objects, whole.rate), (100, 10, 1000));
        assert!(!whole.is_told_by(two), "of the parts");
        loads.told(at(7), two, &told(WHOLE, 100, 3));
        assert!(loads.of(&WHOLE).unwrap().is_told_by(two));
        loads.session_begins(one);
        assert!(loads.of(&WHOLE).unwrap().is_told_by(two));
        loads.session_begins(two);
        let whole = loads.of(&WHOLE).unwrap();
        assert!(!whole.is_told_by(two) && whole.bytes == 100);
        loads.split(&WHOLE, &second);
        loads.keep([second].into_iter());
        assert!(loads.of(&first).is_none() && loads.of(&second).is_some());
    }
}
