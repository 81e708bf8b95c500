//! All chance in a simulated run: SplitMix64 from the seed. Each purpose has a stream of its own, so that one more draw for one of them changes
//! nothing that others draw.

use std::collections::BTreeMap;

use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::SplitMix64;

#[derive(Clone, Debug)]
pub struct Random(SplitMix64);

impl Random {
    fn from_state(state: u64) -> Random {
        Random(SplitMix64::from_seed(state.to_le_bytes()))
    }

    /// The stream of one purpose in the run of one seed.
    pub fn of(seed: u64, purpose: &str) -> Random {
        // FNV-1a; then no two seeds or purposes that are alike have anything in common.
        let hash = purpose.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3_u64)
        });
        Random::from_state(Random::from_state(seed).next() ^ hash).fork()
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

/// The streams of one seed, by purpose.
#[derive(Debug)]
pub struct Streams {
    seed: u64,
    begun: BTreeMap<&'static str, Random>,
}

impl Streams {
    pub fn new(seed: u64) -> Streams {
        Streams {
            seed,
            begun: BTreeMap::new(),
        }
    }

    /// The stream of a purpose, where earlier draws have left it.
    pub fn of(&mut self, purpose: &'static str) -> &mut Random {
        let seed = self.seed;
        let begun = self.begun.entry(purpose);
        begun.or_insert_with(|| Random::of(seed, purpose))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_do_not_disturb_each_other() {
        let (mut some, mut more) = (Streams::new(7), Streams::new(7));
        for _ in 0..10 {
            more.of("pauses").next();
        }
        for _ in 0..10 {
            assert_eq!(some.of("resets").next(), more.of("resets").next());
        }
        assert_ne!(some.of("pauses").next(), more.of("pauses").next());
    }

    #[test]
    fn seeds_and_purposes_have_nothing_in_common() {
        let mut drawn = std::collections::BTreeSet::new();
        for seed in 0..100 {
            for purpose in ["a", "b", "ab", "ba"] {
                let mut random = Random::of(seed, purpose);
                assert!(
                    (0..10).all(|_| drawn.insert(random.next())),
                    "{seed} {purpose}"
                );
            }
        }
    }
}
