//! State that outlives the process: whoever changes it has noted that.

use std::collections::{BTreeMap, BTreeSet};

/// A map whose entries are noted. Only what changes an entry marks it, so that no change can be forgotten.
#[derive(Debug)]
pub(crate) struct Journaled<K, V> {
    entries: BTreeMap<K, V>,
    changed: BTreeSet<K>,
}

impl<K: Ord + Copy, V> Journaled<K, V> {
    /// As it was noted.
    pub fn noted(entries: BTreeMap<K, V>) -> Journaled<K, V> {
        Journaled {
            entries,
            changed: BTreeSet::new(),
        }
    }

    pub fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key)
    }

    /// For a change.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let entry = self.entries.get_mut(key)?;
        self.changed.insert(*key);
        Some(entry)
    }

    pub fn insert(&mut self, key: K, value: V) {
        self.entries.insert(key, value);
        self.changed.insert(key);
    }

    pub fn remove(&mut self, key: &K) {
        if self.entries.remove(key).is_some() {
            self.changed.insert(*key);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter()
    }

    pub fn is_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Keys of entries that have changed since the last call, or are gone.
    pub fn take_changed(&mut self) -> BTreeSet<K> {
        core::mem::take(&mut self.changed)
    }
}

impl<K, V> Default for Journaled<K, V> {
    fn default() -> Journaled<K, V> {
        Journaled {
            entries: BTreeMap::new(),
            changed: BTreeSet::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_noted_once() {
        let mut map = Journaled::noted(BTreeMap::from([(1, "a"), (2, "b")]));
        assert!(map.take_changed().is_empty());
        assert_eq!(map.get(&1), Some(&"a"));
        *map.get_mut(&1).unwrap() = "c";
        map.insert(3, "d");
        map.remove(&2);
        map.remove(&9);
        assert_eq!(map.get_mut(&9), None);
        assert_eq!(map.take_changed(), BTreeSet::from([1, 2, 3]));
        assert!(map.take_changed().is_empty());
        assert_eq!(map.iter().collect::<Vec<_>>(), [(&1, &"c"), (&3, &"d")]);
    }
}
