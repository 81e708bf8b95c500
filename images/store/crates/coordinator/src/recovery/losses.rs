//! What was lost so far.

use std::collections::{BTreeSet, VecDeque};

use crate::status::Loss;

/// The newest losses, by number. Each change of them is noted.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    kept: VecDeque<Loss>,
    /// Older ones that are not kept any more: the number of the first that is.
    dropped: u64,
    changed: BTreeSet<u64>,
}

impl Losses {
    /// As they were noted.
    pub fn noted(kept: VecDeque<Loss>, dropped: u64) -> Losses {
        Losses {
            kept,
            dropped,
            changed: BTreeSet::new(),
        }
    }

    /// Another one; at most so many are kept, the newest.
    pub fn record(&mut self, most: usize, loss: Loss) {
        if self.kept.len() == most {
            self.kept.pop_front();
            self.changed.insert(self.dropped);
            self.dropped += 1;
        }
        self.changed.insert(self.dropped + self.kept.len() as u64);
        self.kept.push_back(loss);
    }

    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    pub fn iter(&self) -> impl Iterator<Item = &Loss> {
        self.kept.iter()
    }

    pub fn numbered(&self) -> impl Iterator<Item = (u64, &Loss)> {
        (self.dropped..).zip(&self.kept)
    }

    pub fn get(&self, number: u64) -> Option<&Loss> {
        let at = number.checked_sub(self.dropped)?;
        self.kept.get(usize::try_from(at).ok()?)
    }

    pub fn is_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Numbers of those that have changed since the last call, or are gone.
    pub fn take_changed(&mut self) -> BTreeSet<u64> {
        core::mem::take(&mut self.changed)
    }
}
