//! Changes of several commits as one: what comes later counts.

use std::collections::BTreeMap;

use crate::state::{Changes, Pair};

/// For each key what it became: a value, or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    entries: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// Length of the changes that it makes.
    bytes: usize,
}

fn varint_bytes(number: usize) -> usize {
    (number.max(1).ilog2() / 7 + 1) as usize
}

/// Of a field of bytes with a tag below 16; an empty one is left out of a message.
fn field_bytes(length: usize) -> usize {
    match length {
        0 => 0,
        _ => item_bytes(length),
    }
}

/// Of an element of a repeated field.
fn item_bytes(length: usize) -> usize {
    1 + varint_bytes(length) + length
}

fn entry_bytes(key: &[u8], value: Option<&Vec<u8>>) -> usize {
    item_bytes(match value {
        Some(value) => field_bytes(key.len()) + field_bytes(value.len()),
        None => key.len(),
    })
}

impl Batch {
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Length of [`Batch::to_changes`] when it is encoded.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn put(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) {
        let former = self.entries.get(&key);
        let former_bytes = former.map_or(0, |former| entry_bytes(&key, former.as_ref()));
        self.bytes = self.bytes - former_bytes + entry_bytes(&key, value.as_ref());
        self.entries.insert(key, value);
    }

    /// What `later` says counts where both say something.
    pub fn add(&mut self, later: Batch) {
        for (key, value) in later.entries {
            self.put(key, value);
        }
    }

    pub fn apply_to(self, pairs: &mut BTreeMap<Vec<u8>, Vec<u8>>) {
        for (key, value) in self.entries {
            match value {
                Some(value) => drop(pairs.insert(key, value)),
                None => drop(pairs.remove(&key)),
            }
        }
    }

    pub fn to_changes(&self) -> Changes {
        let mut changes = Changes::default();
        for (key, value) in &self.entries {
            match value {
                Some(value) => changes.puts.push(Pair {
                    key: key.clone(),
                    value: value.clone(),
                }),
                None => changes.deletes.push(key.clone()),
            }
        }
        changes
    }
}

/// If they were read from somewhere and contradict themselves, deletes count.
impl From<Changes> for Batch {
    fn from(changes: Changes) -> Batch {
        let mut batch = Batch::default();
        for pair in changes.puts {
            batch.put(pair.key, Some(pair.value));
        }
        for key in changes.deletes {
            batch.put(key, None);
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    #[test]
    fn the_length_is_that_of_the_changes() {
        let mut batch = Batch::default();
        let lengths = [
            0, 1, 2, 50, 62, 127, 128, 129, 16_000, 16_383, 16_384, 16_390,
        ];
        for (number, length) in lengths.iter().enumerate() {
            let value = [None, Some(vec![1; *length])];
            batch.put(vec![7; *length], value[number % 2].clone());
            assert_eq!(batch.bytes(), batch.to_changes().encoded_len());
        }
        for length in lengths.iter().rev() {
            batch.put(vec![7; *length], Some(vec![2; *length / 2]));
            assert_eq!(batch.bytes(), batch.to_changes().encoded_len());
        }
        assert_eq!(Batch::from(batch.to_changes()), batch);
    }

    #[test]
    fn what_comes_later_counts() {
        let put = |value: u8| Some(vec![value]);
        let (mut first, mut second) = (Batch::default(), Batch::default());
        for (key, value) in [(1, put(1)), (2, put(1)), (3, None)] {
            first.put(vec![key], value);
        }
        for (key, value) in [(2, None), (3, put(2))] {
            second.put(vec![key], value);
        }
        first.add(second);
        let mut pairs = BTreeMap::from([(vec![2], vec![0]), (vec![4], vec![0])]);
        first.apply_to(&mut pairs);
        let expected = [(vec![1], vec![1]), (vec![3], vec![2]), (vec![4], vec![0])];
        assert_eq!(pairs, BTreeMap::from(expected));
    }
}
