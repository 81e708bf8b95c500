//! For how long answers have waited for backups, all together. Which ones wait: [`crate::gate`].

use base::time::Time;

/// Time in which at least one answer waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// Up to `since`.
    before_ns: u64,
    since: Option<Time>,
}

impl Waiting {
    /// Whether one waits now.
    pub fn note(&mut self, now: Time, waits: bool) {
        self.before_ns = self.total_ns(now);
        self.since = waits.then_some(now);
    }

    pub fn total_ns(&self, now: Time) -> u64 {
        let under_way = self.since.map_or(0, |since| now.0.saturating_sub(since.0));
        self.before_ns.saturating_add(under_way)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_time_in_which_somebody_waits_counts() {
        let mut waiting = Waiting::default();
        waiting.note(Time(10), false);
        waiting.note(Time(20), true);
        assert_eq!(waiting.total_ns(Time(25)), 5);
        waiting.note(Time(30), true);
        waiting.note(Time(40), false);
        assert_eq!(waiting.total_ns(Time(99)), 20);
        waiting.note(Time(100), true);
        assert_eq!(waiting.total_ns(Time(101)), 21);
    }
}
