//! Pseudo-random numbers for delays: SplitMix64.

use core::time::Duration;

#[derive(Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in the closed range.
    pub fn delay(&mut self, min: Duration, max: Duration) -> Duration {
        let width = max.saturating_sub(min).as_nanos() as u64;
        let extra = match width.checked_add(1) {
            Some(count) => self.next() % count,
            None => self.next(),
        };
        min + Duration::from_nanos(extra)
    }
}
