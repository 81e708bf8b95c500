//! How long balancing leaves alone the tablets and targets of migrations that failed: the longer the more often they did.
//!
//! In memory only: another coordinator tries again at once, and learns as much.

use core::time::Duration;
use std::collections::BTreeMap;

use base::time::Time;
use wire::member::TabletRange;

use crate::balancing::Pauses;

/// Times that the pause doubles, at most: beyond that it is above every limit that makes sense.
const MAX_DOUBLINGS: u32 = 16;

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    last: Time,
}

fn pause_after(failures: &Failures, pauses: Pauses) -> Duration {
    let doublings = failures.count.saturating_sub(1).min(MAX_DOUBLINGS);
    let pause = pauses.first.saturating_mul(1 << doublings);
    pause.min(pauses.longest.max(pauses.first))
}

/// What leaves a tablet, or a server that was to take one, alone now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    Nothing,
    /// A drain does not wait for longer than the first pause: somebody wants the member gone.
    Evenness,
    All,
}

/// Migrations that failed.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    tablets: BTreeMap<TabletRange, Failures>,
    /// By index.
    targets: BTreeMap<u32, Failures>,
}

fn count<K: Ord>(all: &mut BTreeMap<K, Failures>, key: K, now: Time) {
    let failures = all.entry(key).or_insert(Failures {
        count: 0,
        last: now,
    });
    failures.count = failures.count.saturating_add(1);
    failures.last = now;
}

fn hold(failures: Option<&Failures>, now: Time, pauses: Pauses) -> Hold {
    let Some(failures) = failures else {
        return Hold::Nothing;
    };
    let ago = now.since(failures.last);
    if ago < pauses.first {
        Hold::All
    } else if ago < pause_after(failures, pauses) {
        Hold::Evenness
    } else {
        Hold::Nothing
    }
}

impl Backoff {
    pub fn tablet_failed(&mut self, now: Time, tablet: TabletRange) {
        count(&mut self.tablets, tablet, now);
    }

    pub fn target_failed(&mut self, now: Time, index: u32) {
        count(&mut self.targets, index, now);
    }

    /// A success ends what was held against both.
    pub fn moved(&mut self, tablet: &TabletRange, target: u32) {
        self.tablets.remove(tablet);
        self.targets.remove(&target);
    }

    /// A tablet is two now.
    pub fn split(&mut self, whole: &TabletRange, second: &TabletRange) {
        if let Some(failures) = self.tablets.remove(whole) {
            let first = TabletRange {
                end_key_hash: second.start_key_hash - 1,
                ..*whole
            };
            self.tablets
                .extend([(first, failures), (*second, failures)]);
        }
    }

    /// Two tablets are one now, which is left alone for as long as either would be.
    pub fn merge(&mut self, parts: [TabletRange; 2], whole: TabletRange) {
        let parts = parts.map(|part| self.tablets.remove(&part));
        let more = |one: Failures, other: Failures| Failures {
            count: one.count.max(other.count),
            last: one.last.max(other.last),
        };
        if let Some(failures) = parts.into_iter().flatten().reduce(more) {
            self.tablets.insert(whole, failures);
        }
    }

    pub fn of_tablet(&self, now: Time, tablet: &TabletRange, pauses: Pauses) -> Hold {
        hold(self.tablets.get(tablet), now, pauses)
    }

    pub fn of_target(&self, now: Time, index: u32, pauses: Pauses) -> Hold {
        hold(self.targets.get(&index), now, pauses)
    }

    /// How many tablets, and how many targets, are left alone now.
    pub fn held(&self, now: Time, pauses: Pauses) -> (u64, u64) {
        let is_held = |failures: &&Failures| hold(Some(failures), now, pauses) != Hold::Nothing;
        let tablets = self.tablets.values().filter(is_held).count();
        let targets = self.targets.values().filter(is_held).count();
        (tablets as u64, targets as u64)
    }

    /// Forgets tablets that are not there any more, and what has not failed again for as long as it was left alone.
    pub fn forget(&mut self, now: Time, pauses: Pauses, is_there: impl Fn(&TabletRange) -> bool) {
        let is_recent = |failures: &Failures| {
            now.since(failures.last) < pause_after(failures, pauses).saturating_mul(2)
        };
        self.tablets
            .retain(|tablet, failures| is_recent(failures) && is_there(tablet));
        self.targets.retain(|_, failures| is_recent(failures));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: TabletRange = TabletRange {
        table_id: 1,
        start_key_hash: 0,
        end_key_hash: u64::MAX,
    };
    const PAUSES: Pauses = Pauses {
        first: Duration::from_secs(10),
        longest: Duration::from_secs(60),
    };

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_anew_after_a_success() {
        let mut backoff = Backoff::default();
        let mut now = 0;
        for pause in [10, 20, 40, 60, 60] {
            backoff.tablet_failed(at(now), WHOLE);
            backoff.target_failed(at(now), 7);
            let holds = |seconds| {
                let (of_tablet, of_target) = (
                    backoff.of_tablet(at(seconds), &WHOLE, PAUSES),
                    backoff.of_target(at(seconds), 7, PAUSES),
                );
                assert_eq!(of_tablet, of_target);
                of_tablet
            };
            assert_eq!(holds(now + 9), Hold::All);
            assert_eq!(backoff.held(at(now + pause - 1), PAUSES), (1, 1));
            assert_eq!(backoff.held(at(now + pause), PAUSES), (0, 0));
            let last = [Hold::Evenness, Hold::All][usize::from(pause == 10)];
            assert_eq!(holds(now + pause - 1), last);
            assert_eq!(holds(now + pause), Hold::Nothing);
            now += pause;
            backoff.forget(at(now), PAUSES, |_| true);
        }
        backoff.moved(&WHOLE, 7);
        backoff.tablet_failed(at(now), WHOLE);
        let hold = backoff.of_tablet(at(now + 10), &WHOLE, PAUSES);
        assert_eq!(hold, Hold::Nothing);
        backoff.forget(at(now + 20), PAUSES, |_| true);
        assert!(backoff.tablets.is_empty() && backoff.targets.is_empty());
    }

    #[test]
    fn cutting_a_tablet_and_making_one_of_it_again_forgets_nothing() {
        let mut backoff = Backoff::default();
        let second = TabletRange {
            start_key_hash: 100,
            ..WHOLE
        };
        let first = TabletRange {
            end_key_hash: 99,
            ..WHOLE
        };
        for round in 0..4_u64 {
            let now = round * 100;
            backoff.split(&WHOLE, &second);
            backoff.tablet_failed(at(now), second);
            backoff.merge([first, second], WHOLE);
            let pause = (10 << round).min(60);
            let last = backoff.of_tablet(at(now + pause - 1), &WHOLE, PAUSES);
            assert_ne!(last, Hold::Nothing, "round {round}");
            let over = backoff.of_tablet(at(now + pause), &WHOLE, PAUSES);
            assert_eq!(over, Hold::Nothing, "round {round}");
        }
    }
    #[test]
    fn tablets_that_are_gone_are_forgotten() {
        let mut backoff = Backoff::default();
        backoff.tablet_failed(at(0), WHOLE);
        backoff.target_failed(at(0), 7);
        backoff.forget(at(1), PAUSES, |_| false);
        assert_eq!(backoff.held(at(1), PAUSES), (0, 1));
    }
}
