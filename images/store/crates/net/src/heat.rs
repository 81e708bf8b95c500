//! Which connections are read in every round, without asking epoll whether there is something.

use std::time::Duration;

use base::time::Time;

/// More connections than these are cheaper to ask for.
const HOT: usize = 4;
/// After more than [`HOT`] were active at a time, none counts as hot for this long.
const MANY: Duration = Duration::from_millis(1);

/// The few connections, by slot, that messages have come from lately or are expected from.
#[derive(Default)]
pub struct Heat {
    /// The latest last, with the time of their last message.
    hot: Vec<(usize, Time)>,
    /// Until then more connections than [`HOT`] count as active.
    many_until: Time,
}

impl Heat {
    /// A message came from this one, or is expected.
    pub fn heat(&mut self, slot: usize, now: Time) {
        if now < self.many_until {
            return;
        }
        if let Some((_, last)) = self.hot.iter_mut().find(|(hot, _)| *hot == slot) {
            *last = now;
        } else if self.hot.len() < HOT {
            self.hot.push((slot, now));
        } else {
            self.hot.clear();
            self.many_until = now + MANY;
        }
    }

    /// Forgets those that have been silent for so long.
    pub fn cool(&mut self, now: Time, silence: Duration) {
        self.hot.retain(|(_, last)| now.since(*last) < silence);
    }

    /// The connection has ended.
    pub fn forget(&mut self, slot: usize) {
        self.hot.retain(|(hot, _)| *hot != slot);
    }

    pub fn clear(&mut self) {
        self.hot.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.hot.is_empty()
    }

    pub fn len(&self) -> usize {
        self.hot.len()
    }

    /// The slot at a place below [`Heat::len`].
    pub fn at(&self, place: usize) -> Option<usize> {
        self.hot.get(place).map(|(slot, _)| *slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Time {
        Time::ZERO + Duration::from_micros(micros)
    }

    fn slots(heat: &Heat) -> Vec<usize> {
        (0..heat.len()).filter_map(|place| heat.at(place)).collect()
    }

    #[test]
    fn a_few_are_hot_until_they_are_silent_or_gone() {
        let mut heat = Heat::default();
        heat.heat(7, at(10));
        heat.heat(8, at(20));
        heat.heat(7, at(60));
        heat.cool(at(100), Duration::from_micros(50));
        assert_eq!(slots(&heat), [7]);
        heat.forget(7);
        assert!(heat.is_empty());
    }

    #[test]
    fn of_many_none_is_hot_for_a_while() {
        let mut heat = Heat::default();
        (0..HOT + 1).for_each(|slot| heat.heat(slot, at(10)));
        assert!(heat.is_empty());
        heat.heat(1, at(1009));
        assert!(heat.is_empty());
        heat.heat(1, at(1010));
        assert_eq!(slots(&heat), [1]);
    }
}
