//! A process's clock: it starts somewhere and runs a little fast or slow.

use base::time::Time;

const MILLION: i128 = 1_000_000;

#[derive(Clone, Copy, Debug)]
pub struct Clock {
    offset: u64,
    /// Parts per million by which it runs fast (or, below 0, slow).
    error_ppm: i64,
}

impl Clock {
    pub fn new(offset: u64, error_ppm: i64) -> Clock {
        Clock { offset, error_ppm }
    }

    /// What the clock shows at this moment of simulated time.
    pub fn at(&self, now: u64) -> Time {
        let error = i128::from(now) * i128::from(self.error_ppm) / MILLION;
        Time((i128::from(self.offset) + i128::from(now) + error) as u64)
    }

    /// The first moment at which the clock shows this or more; [`u64::MAX`] for never.
    pub fn moment(&self, shown: Time) -> u64 {
        if shown == Time::NEVER {
            return u64::MAX;
        }
        let wanted = i128::from(shown.0) - i128::from(self.offset);
        let mut moment = (wanted * MILLION / (MILLION + i128::from(self.error_ppm))).max(0) as u64;
        while self.at(moment) < shown {
            moment += 1;
        }
        moment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_moment_is_the_first_at_which_the_clock_shows_the_time() {
        for error in [-5000, 0, 1, 5000] {
            let clock = Clock::new(77, error);
            for shown in [77, 78, 1_000_000, 999_999_999_999] {
                let moment = clock.moment(Time(shown));
                assert!(clock.at(moment) >= Time(shown));
                assert!(moment == 0 || clock.at(moment - 1) < Time(shown));
            }
        }
        assert_eq!(Clock::new(5, 0).moment(Time::NEVER), u64::MAX);
        assert_eq!(Clock::new(5, 0).moment(Time(1)), 0);
    }
}
