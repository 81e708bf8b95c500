//! Time as the pure crates see it: handed in by a driver, never read.

use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// Nanoseconds since an arbitrary start that is the same for one process's lifetime.
///
/// Drivers take it from a clock that is monotone and counts through suspend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    pub const ZERO: Time = Time(0);
    /// Later than any time that a driver hands in: a timer that never fires.
    pub const NEVER: Time = Time(u64::MAX);

    /// The time that passed since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, delay: Duration) -> Time {
        let nanos = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        Time(self.0.saturating_add(nanos))
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, delay: Duration) {
        *self = *self + delay;
    }
}

impl Sub<Time> for Time {
    type Output = Duration;
    fn sub(self, earlier: Time) -> Duration {
        self.since(earlier)
    }
}
