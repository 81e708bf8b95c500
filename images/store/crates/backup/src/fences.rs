//! Whose appends are refused for ever.

use std::collections::BTreeMap;

use base::ids::ServerId;

use crate::layout::MAX_FENCES;

/// For each server index the largest generation that is refused: server ids grow with generations and are never used again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fences(BTreeMap<u32, u32>);

/// A superblock does not hold more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

impl Fences {
    pub fn covers(&self, log: ServerId) -> bool {
        self.0
            .get(&log.index())
            .is_some_and(|&generation| log.generation() <= generation)
    }

    pub fn raise(&mut self, log: ServerId) -> Result<(), TooMany> {
        let room = self.0.len() < MAX_FENCES;
        match self.0.get_mut(&log.index()) {
            Some(generation) => *generation = log.generation().max(*generation),
            None if room => {
                self.0.insert(log.index(), log.generation());
            }
            None => return Err(TooMany),
        }
        assert!(self.covers(log), "a fence is never taken back");
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Index and generation, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        self.0
            .iter()
            .map(|(&index, &generation)| (index, generation))
    }
}

impl FromIterator<(u32, u32)> for Fences {
    fn from_iter<I: IntoIterator<Item = (u32, u32)>>(fences: I) -> Fences {
        Fences(fences.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_incarnations_are_refused_with_a_later_one() {
        let mut fences = Fences::default();
        fences.raise(ServerId::new(3, 5)).unwrap();
        fences.raise(ServerId::new(3, 4)).unwrap();
        assert!(fences.covers(ServerId::new(3, 5)) && fences.covers(ServerId::new(3, 1)));
        assert!(!fences.covers(ServerId::new(3, 6)) && !fences.covers(ServerId::new(4, 1)));
        assert_eq!(fences.iter().collect::<Vec<_>>(), [(3, 5)]);
    }

    #[test]
    fn their_number_is_bounded() {
        let mut fences: Fences = (0..MAX_FENCES as u32).map(|index| (index, 1)).collect();
        assert_eq!(fences.raise(ServerId::new(9999, 1)), Err(TooMany));
        assert_eq!(fences.raise(ServerId::new(7, 2)), Ok(()));
        assert_eq!(fences.len(), MAX_FENCES);
    }
}
