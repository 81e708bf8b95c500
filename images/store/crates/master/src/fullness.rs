//! Since when requests are refused for want of memory, as the store's status tells it. Not what is refused: [`log::NoRoom`].

use core::time::Duration;

use base::time::Time;
use wire::member::MemoryFull;

/// Refusals further apart than this are two stories: a client that was refused and comes again does so much sooner.
const QUIET: Duration = Duration::from_secs(60);

/// Of the refusals that followed one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Series {
    first: Time,
    last: Time,
}

/// The newest series of refusals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fullness(Option<Series>);

impl Fullness {
    pub fn refused(&mut self, now: Time) {
        let first = self.series(now).map_or(now, |series| series.first);
        self.0 = Some(Series { first, last: now });
    }

    /// `None` if nothing was refused of late.
    pub fn report(&self, now: Time) -> Option<MemoryFull> {
        let millis = |since: Time| u64::try_from(now.since(since).as_millis()).unwrap_or(u64::MAX);
        self.series(now).map(|series| MemoryFull {
            for_ms: millis(series.first),
            last_ms: millis(series.last),
        })
    }

    fn series(&self, now: Time) -> Option<Series> {
        self.0.filter(|series| now.since(series.last) < QUIET)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time(0) + Duration::from_secs(seconds)
    }

    #[test]
    fn a_series_begins_with_its_first_refusal_and_ends_a_minute_after_its_last() {
        let mut fullness = Fullness::default();
        assert_eq!(fullness.report(at(1)), None);
        fullness.refused(at(10));
        fullness.refused(at(69));
        let full = |for_ms, last_ms| Some(MemoryFull { for_ms, last_ms });
        assert_eq!(fullness.report(at(70)), full(60_000, 1_000));
        assert_eq!(fullness.report(at(128)), full(118_000, 59_000));
        assert_eq!(fullness.report(at(129)), None);
        fullness.refused(at(130));
        assert_eq!(fullness.report(at(131)), full(1_000, 1_000));
    }
}
