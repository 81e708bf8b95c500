//! The clock of every driver.

use base::time::Time;
use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds on a clock that is monotone and counts through suspend (CLOCK_BOOTTIME).
///
/// Sampled *after* bytes were received and *before* they are handed over: a process that was stopped in between must not
/// act on an old time.
pub fn now() -> Time {
    let time = clock_gettime(ClockId::Boottime);
    // Both parts are non-negative on this clock.
    Time(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    #[test]
    fn goes_forward() {
        let first = super::now();
        let mut later = super::now();
        while later == first {
            later = super::now();
        }
        assert!(later > first);
    }
}
