//! Disks that take their time: writes, jobs and syncs end late, pass each other, and are told of later still; and all that a disk does stops for a while.

use std::collections::BTreeMap;

use crate::random::{Random, Streams};
use crate::scenario::{MICRO, MILLI};

/// Of a thousand seeds, how many have disks that are late.
const LATE_SEEDS: u64 = 750;
/// How late disks are.
pub struct LateDisks {
    random: Random,
    /// Of a thousand steps, how many take long; `None`: writes and jobs are over at once.
    long_per_mille: Option<u64>,
    /// A bound of the bytes under way to one disk, if there is one below the usual: segments are smaller here.
    most_bytes: Option<usize>,
    /// Until when a shard's disk does nothing.
    stalled_until: BTreeMap<(usize, usize), u64>,
}

impl LateDisks {
    pub fn draw(streams: &mut Streams) -> LateDisks {
        let mut random = streams.of("late disks").fork();
        let is_late = random.chance(LATE_SEEDS);
        let long = *random.pick(&[0, 5, 50]);
        let most_bytes = [None, Some(8 << 10), Some(32 << 10)];
        let most_bytes = *streams.of("writes under way").pick(&most_bytes);
        LateDisks {
            random,
            long_per_mille: is_late.then_some(long),
            most_bytes,
            stalled_until: BTreeMap::new(),
        }
    }

    pub fn are_late(&self) -> bool {
        self.long_per_mille.is_some()
    }

    pub fn most_bytes_under_way(&self) -> Option<usize> {
        self.most_bytes
    }

    /// Of one step.
    pub fn delay(&mut self) -> u64 {
        let is_long = self.random.chance(self.long_per_mille.unwrap_or(0));
        let most = if is_long { 20 * MILLI } else { 30 * MICRO };
        self.random.between(1, most)
    }

    pub fn stall(&mut self, server: usize, shard: usize, until: u64) {
        self.stalled_until.insert((server, shard), until);
    }

    /// 0: it never stalled.
    pub fn stalled_until(&self, server: usize, shard: usize) -> u64 {
        let until = self.stalled_until.get(&(server, shard));
        until.copied().unwrap_or(0)
    }

    /// A number that chooses one of those things that wait at a disk, before it is known how many these are.
    pub fn choice(&mut self) -> usize {
        self.random.below(1 << 16)
    }
}
