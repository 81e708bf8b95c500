//! State that outlives the process: whoever changes it has noted that.

use core::borrow::Borrow;
use core::ops::Bound;
use std::collections::{BTreeMap, BTreeSet};

/// A map whose entries are noted. Only what changes an entry marks it, so that no change can be forgotten.
#[derive(Debug)]
pub(crate) struct Journaled<K, V> {
    entries: BTreeMap<K, V>,
    changed: BTreeSet<K>,
}

impl<K: Ord + Clone, V> Journaled<K, V> {
    /// As it was noted.
    pub fn noted(entries: BTreeMap<K, V>) -> Journaled<K, V> {
        Journaled {
            entries,
            changed: BTreeSet::new(),
        }
    }

    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.entries.get(key)
    }

    /// For a change.
    pub fn get_mut<Q: Ord + ToOwned<Owned = K> + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let entry = self.entries.get_mut(key)?;
        self.changed.insert(key.to_owned());
        Some(entry)
    }

    pub fn insert(&mut self, key: K, value: V) -> &V {
        self.changed.insert(key.clone());
        self.entries.remove(&key);
        self.entries.entry(key).or_insert(value)
    }

    pub fn remove<Q: Ord + ToOwned<Owned = K> + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let removed = self.entries.remove(key)?;
        self.changed.insert(key.to_owned());
        Some(removed)
    }

    /// Changes entries: `change` says of each whether it has.
    pub fn change_each(&mut self, mut change: impl FnMut(&mut V) -> bool) {
        for (key, entry) in &mut self.entries {
            if change(entry) {
                self.changed.insert(key.clone());
            }
        }
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.entries.iter()
    }

    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.values()
    }

    /// Entries with greater keys, in order.
    pub fn after(&self, key: K) -> impl Iterator<Item = &V> {
        let behind = (Bound::Excluded(key), Bound::Unbounded);
        self.entries.range(behind).map(|(_, entry)| entry)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn changed(&self) -> impl Iterator<Item = &K> {
        self.changed.iter()
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
        assert_eq!(map.after(1).collect::<Vec<_>>(), [&"d"]);

        map.change_each(|value| {
            let is_it = *value == "d";
            if is_it {
                *value = "e";
            }
            is_it
        });
        assert_eq!(map.take_changed(), BTreeSet::from([3]));
        assert!(map.take_changed().is_empty());
        assert_eq!(map.iter().collect::<Vec<_>>(), [(&1, &"c"), (&3, &"e")]);
    }
}
