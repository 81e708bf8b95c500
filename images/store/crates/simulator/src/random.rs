//! The one source of chance in a simulated run: SplitMix64 from the seed.

use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::SplitMix64;

#[derive(Clone, Debug)]
pub struct Random(SplitMix64);

impl Random {
    fn from_state(state: u64) -> Random {
        Random(SplitMix64::from_seed(state.to_le_bytes()))
    }

    pub fn new(seed: u64) -> Random {
        let mut random = Random::from_state(seed);
        // Neighbouring seeds shall have nothing in common.
        random.fork()
    }

    /// A generator of its own, so that one part of a run does not disturb another.
    pub fn fork(&mut self) -> Random {
        let state = self.next();
        Random::from_state(state)
    }

    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// In the closed range.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        let count = u128::from(most - least) + 1;
        least + (u128::from(self.next()) % count) as u64
    }

    pub fn below(&mut self, count: usize) -> usize {
        self.between(0, count as u64 - 1) as usize
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// True with this probability in a thousand.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.next() % 1000 < per_mille
    }
}
