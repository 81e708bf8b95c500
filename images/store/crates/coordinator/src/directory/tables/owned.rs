//! Which tablets each server owns: whatever is about one server's tablets looks at no others.

use std::collections::{BTreeMap, BTreeSet};

/// Owner of a tablet whose server is dead, until another has it back.
pub const NOBODY: u32 = 0;

/// A tablet: its table's id, and its first key hash.
pub(super) type TabletKey = (u64, u64);

/// Tablets by owner. Those of nobody are not listed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Owned(BTreeMap<u32, BTreeSet<TabletKey>>);

impl Owned {
    pub fn count(&self, owner: u32) -> u64 {
        self.0.get(&owner).map_or(0, |places| places.len() as u64)
    }

    /// All owners of at least one tablet.
    pub fn owners(&self) -> impl Iterator<Item = u32> {
        self.0.keys().copied()
    }

    /// Tablets of all these owners, in order.
    pub fn of(&self, owners: &BTreeSet<u32>) -> Vec<TabletKey> {
        let owned = owners.iter().filter_map(|owner| self.0.get(owner));
        let mut places: Vec<TabletKey> = owned.flatten().copied().collect();
        if owners.len() > 1 {
            places.sort_unstable();
        }
        places
    }

    pub fn add(&mut self, owner: u32, place: TabletKey) {
        if owner != NOBODY {
            self.0.entry(owner).or_default().insert(place);
        }
    }

    pub fn remove(&mut self, owner: u32, place: TabletKey) {
        if let Some(places) = self.0.get_mut(&owner) {
            places.remove(&place);
            if places.is_empty() {
                self.0.remove(&owner);
            }
        }
    }

    /// The owner has no tablets any more.
    pub fn remove_all(&mut self, owner: u32) {
        self.0.remove(&owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tablets_of_several_owners_are_in_order() {
        let mut owned = Owned::default();
        for (owner, place) in [
            (2, (1, 0)),
            (1, (1, 9)),
            (2, (2, 0)),
            (1, (1, 5)),
            (NOBODY, (3, 0)),
        ] {
            owned.add(owner, place);
        }
        assert_eq!(owned.owners().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(
            owned.of(&[1, 2, 7].into()),
            [(1, 0), (1, 5), (1, 9), (2, 0)]
        );
        owned.remove(1, (1, 5));
        assert_eq!((owned.count(1), owned.count(2), owned.count(7)), (1, 2, 0));
        owned.remove(1, (1, 9));
        owned.remove_all(2);
        assert_eq!(owned, Owned::default());
    }
}
