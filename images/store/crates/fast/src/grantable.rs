//! Messages that arrive and wait for a grant, and which of them go first.

use core::time::Duration;
use std::collections::BTreeSet;

use base::time::Time;

use crate::rank::Rank;

/// Messages that are granted at a time: the second fills the gaps that the first leaves.
const GRANTED_AT_A_TIME: usize = 2;
/// Shorter ones overtake a message for so long.
const OVERTAKEN_FOR: Duration = Duration::from_millis(20);

/// Messages that arrive and of which not all is granted.
#[derive(Default)]
pub struct Grantable {
    /// By what is not granted of them yet.
    by_rest: BTreeSet<Rank>,
    /// By when they were granted more.
    by_age: BTreeSet<(Time, u32, u8)>,
}

/// Under what a message is listed.
pub type Listed = (usize, Time);

impl Grantable {
    pub fn insert(&mut self, (rest, granted_at): Listed, index: u32, slot: u8) {
        self.by_rest.insert((rest, index, slot));
        self.by_age.insert((granted_at, index, slot));
    }

    pub fn remove(&mut self, (rest, granted_at): Listed, index: u32, slot: u8) {
        self.by_rest.remove(&(rest, index, slot));
        self.by_age.remove(&(granted_at, index, slot));
    }

    /// Those to be granted now, the first one as much as there is: of which the least is left, but the second is the one that was overtaken for
    /// too long.
    pub fn next(&self, now: Time) -> [Option<(u32, u8)>; GRANTED_AT_A_TIME] {
        let mut next = [None; GRANTED_AT_A_TIME];
        for (place, (_, index, slot)) in next.iter_mut().zip(&self.by_rest) {
            *place = Some((*index, *slot));
        }
        let oldest = self.by_age.first();
        if let Some((granted_at, index, slot)) = oldest
            && now.since(*granted_at) >= OVERTAKEN_FOR
            && !next.contains(&Some((*index, *slot)))
        {
            next[GRANTED_AT_A_TIME - 1] = Some((*index, *slot));
        }
        next
    }
}
