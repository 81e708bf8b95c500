//! Pseudo-random numbers that scatter replicas: SplitMix64.

use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::SplitMix64;

#[derive(Clone, Debug)]
pub struct Random(SplitMix64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(SplitMix64::from_seed(seed.to_le_bytes()))
    }

    fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Less than `count`, which is not 0.
    pub fn below(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }
}
