//! The hash table: from a key's hash to where its newest entry lies, with one cache miss.
//!
//! A bucket is one cache line of eight words. Seven are slots: 16 bits of the key's hash, so that a slot of another key is
//! nearly always passed over without looking at the log, and a 48-bit [`Reference`]; zero is empty. The eighth names the
//! bucket that continues this one, from a bounded pool. The slots of a chain have no gaps before the last one in use.
//!
//! The hash's low 32 bits choose the bucket and bits 32 to 47 go into the slot. The top 16 bits are used for neither: they
//! are nearly the same for all keys of a tablet.

use core::ops::Range;

use crate::position::Reference;
use crate::prefetch::prefetch;
use crate::region::Region;

const BUCKET_WORDS: usize = 8;
const BUCKET_BYTES: usize = 8 * BUCKET_WORDS;
/// The word of a bucket that names the next one.
const CHAIN: usize = BUCKET_WORDS - 1;

/// Finds entries by the hash of their key. It does not know keys: whoever looks something up compares them.
pub struct Index {
    words: Region<u64>,
    /// Where the first bucket starts in `words`, so that buckets are cache lines.
    first_word: usize,
    bucket_count: usize,
    overflow: Overflow,
    slot_count: usize,
}

/// Buckets that continue others; numbered from `bucket_count`.
struct Overflow {
    capacity: usize,
    /// Those below were handed out at least once.
    fresh: usize,
    returned: Vec<u32>,
}

/// A place in the table. Good until the next change of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    home: u32,
    word: usize,
}

/// Neither the bucket of a hash nor the overflow pool has room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexFull;

impl Index {
    /// Least memory of a table.
    pub const MIN_BYTES: usize = 32 * BUCKET_BYTES;

    /// A table of about `bytes`. The operating system commits the memory as it is touched.
    pub fn new(bytes: usize) -> Index {
        Index::in_memory(Region::zeroed(Self::words_for(bytes)))
    }

    /// Words that a table of about `bytes` takes: one bucket more, for all to be cache lines.
    pub fn words_for(bytes: usize) -> usize {
        let total = bytes.clamp(Self::MIN_BYTES, BUCKET_BYTES << 31) / BUCKET_BYTES;
        (total + 1) * BUCKET_WORDS
    }

    /// Has an empty table use this memory, and give its own back.
    ///
    /// # Panics
    /// If it is not as large, or the table is in use.
    pub fn use_memory(&mut self, memory: &'static mut [u64]) {
        assert_eq!(memory.len(), self.words.len(), "a table keeps its size");
        assert!(self.is_empty(), "a table in use stays where it is");
        *self = Index::in_memory(Region::Lent(memory));
    }

    fn in_memory(words: Region<u64>) -> Index {
        let total = words.len() / BUCKET_WORDS - 1;
        // One bucket in eight overflows at most at the load factors that make sense.
        let overflow = total / 8;
        let first_word = words.as_ptr().align_offset(BUCKET_BYTES) % BUCKET_WORDS;
        Index {
            words,
            first_word,
            bucket_count: total - overflow,
            overflow: Overflow {
                capacity: overflow,
                fresh: 0,
                returned: Vec::new(),
            },
            slot_count: 0,
        }
    }

    /// Slots in use.
    pub fn len(&self) -> usize {
        self.slot_count
    }

    pub fn is_empty(&self) -> bool {
        self.slot_count == 0
    }

    /// Buckets that a scan visits.
    pub fn bucket_count(&self) -> usize {
        self.bucket_count
    }

    /// The bucket of a hash. Buckets follow each other as the low 32 bits of hashes do, however many there are.
    pub fn bucket_of(&self, hash: u64) -> usize {
        self.home(hash)
    }

    /// The low 32 bits of the first hash that lies in `bucket` or behind it; 2^32 behind the last bucket.
    pub fn first_hash_of(&self, bucket: usize) -> u64 {
        ((bucket as u64) << 32).div_ceil(self.bucket_count as u64)
    }

    /// Shows the references in a bucket and in those that continue it.
    pub fn bucket(&self, bucket: usize) -> impl Iterator<Item = Reference> + '_ {
        assert!(bucket < self.bucket_count);
        let chain = core::iter::successors(Some(self.bucket_start(bucket)), |&start| {
            self.next_bucket(start)
        });
        let slots = chain.flat_map(|start| &self.words[start..start + CHAIN]);
        slots
            .take_while(|&&slot| slot != 0)
            .map(|&slot| reference_of(slot))
    }

    /// An entry that may be that of `hash`: the first whose slot looks like it. For fetching it ahead of [`Self::find`].
    #[inline]
    pub fn candidate(&self, hash: u64) -> Option<Reference> {
        let start = self.bucket_start(self.home(hash));
        let tag = tag_of(hash);
        let slots = &self.words[start..start + CHAIN];
        let slot = slots
            .iter()
            .find(|&&slot| slot != 0 && slot & TAG_MASK == tag)?;
        Some(reference_of(*slot))
    }

    /// Where the table lies, until [`Self::clear`], or for ever if somebody lent the memory.
    pub fn memory(&self) -> Range<*const u64> {
        self.words.as_ptr_range()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        if self.is_empty() && self.overflow.fresh == 0 {
            return;
        }
        *self = Index::in_memory(std::mem::take(&mut self.words).cleared());
    }

    /// Has the processor fetch the bucket of `hash`: for many lookups in a row.
    pub fn prefetch(&self, hash: u64) {
        prefetch(&self.words[self.bucket_start(self.home(hash))]);
    }

    /// The first slot of `hash` whose entry `matches`.
    #[inline]
    pub fn find(&self, hash: u64, mut matches: impl FnMut(Reference) -> bool) -> Option<Slot> {
        let home = self.home(hash);
        let tag = tag_of(hash);
        let mut start = self.bucket_start(home);
        loop {
            let bucket = &self.words[start..start + BUCKET_WORDS];
            for (at, &slot) in bucket[..CHAIN].iter().enumerate() {
                if slot == 0 {
                    return None;
                }
                if slot & TAG_MASK == tag && matches(reference_of(slot)) {
                    return Some(Slot {
                        home: home as u32,
                        word: start + at,
                    });
                }
            }
            start = self.next_bucket(start)?;
        }
    }

    /// The slot of `hash` that points to `entry`, which was `hint` when it was last looked up.
    #[inline]
    pub fn find_again(&self, hint: Slot, hash: u64, entry: Reference) -> Option<Slot> {
        // One entry has one slot: one that points to it has not moved.
        match self.words[hint.word] != 0 && self.get(hint) == entry {
            true => Some(hint),
            false => self.find(hash, |found| found == entry),
        }
    }

    pub fn get(&self, slot: Slot) -> Reference {
        reference_of(self.words[slot.word])
    }

    /// Points `slot` to another entry of the same key.
    pub fn set(&mut self, slot: Slot, reference: Reference) {
        let word = &mut self.words[slot.word];
        assert_ne!(*word, 0, "a slot that is not in use");
        *word = *word & TAG_MASK | reference.to_bits();
    }

    /// Whether [`Self::insert`] would find room.
    pub fn has_room(&self, hash: u64) -> bool {
        self.has_room_for(core::iter::once(hash))
    }

    /// Whether [`Self::insert`] would find room for all of these together. Slow if the table is nearly full and they are many.
    pub fn has_room_for(&self, hashes: impl Iterator<Item = u64> + Clone) -> bool {
        let spare = self.overflow.spare();
        // Each takes one more bucket at most.
        if hashes.clone().nth(spare).is_none() {
            return true;
        }
        let mut taken = 0;
        for (at, hash) in hashes.clone().enumerate() {
            let home = self.home(hash);
            let earlier = hashes.clone().take(at);
            let before = earlier.filter(|&other| self.home(other) == home).count();
            // Of those that find no vacant slot, every seventh takes a bucket.
            let vacant = self.vacant_slots(home);
            taken += usize::from(before >= vacant && (before - vacant).is_multiple_of(CHAIN));
        }
        taken <= spare
    }

    /// Adds a slot. The same key must not be there already.
    pub fn insert(&mut self, hash: u64, reference: Reference) -> Result<(), IndexFull> {
        let (last, vacant) = self.last_of_chain(self.home(hash));
        let word = match vacant {
            Some(word) => word,
            None => {
                let bucket = self.overflow.take().ok_or(IndexFull)? + self.bucket_count;
                self.words[last + CHAIN] = bucket as u64;
                self.bucket_start(bucket)
            }
        };
        assert_eq!(self.words[word], 0, "a slot that is in use");
        self.words[word] = tag_of(hash) | reference.to_bits();
        self.slot_count += 1;
        Ok(())
    }

    /// Takes a slot away; another slot of its chain may move to its place.
    pub fn remove(&mut self, slot: Slot) {
        let home = slot.home as usize;
        let (mut before_last, mut last) = (None, self.bucket_start(home));
        while let Some(next) = self.next_bucket(last) {
            before_last = Some(last);
            last = next;
        }
        let used = self.words[last..last + CHAIN]
            .iter()
            .rposition(|&word| word != 0)
            .expect("the last bucket of a chain is not empty");
        self.words[slot.word] = self.words[last + used];
        self.words[last + used] = 0;
        assert!(self.slot_count > 0);
        self.slot_count -= 1;
        if let (0, Some(before_last)) = (used, before_last) {
            let bucket = self.words[before_last + CHAIN] as usize;
            self.overflow.give_back(bucket - self.bucket_count);
            self.words[before_last + CHAIN] = 0;
        }
    }

    /// Removes the slots of a bucket, and of those that continue it, for which `keep` says no. A scan of the whole table
    /// calls this for every bucket from 0 to [`Self::bucket_count`].
    pub fn retain(&mut self, bucket: usize, mut keep: impl FnMut(Reference) -> bool) {
        assert!(bucket < self.bucket_count);
        let mut start = self.bucket_start(bucket);
        loop {
            let mut word = start;
            while word < start + CHAIN {
                let slot = self.words[word];
                if slot == 0 {
                    return;
                }
                if keep(reference_of(slot)) {
                    word += 1;
                } else {
                    // What moves here instead is looked at next.
                    self.remove(Slot {
                        home: bucket as u32,
                        word,
                    });
                }
            }
            match self.next_bucket(start) {
                Some(next) => start = next,
                None => return,
            }
        }
    }

    /// Shows every slot's reference.
    pub fn references(&self) -> impl Iterator<Item = Reference> {
        let used = self.bucket_count + self.overflow.fresh;
        let buckets = self.words[self.first_word..].chunks_exact(BUCKET_WORDS);
        let slots = buckets.take(used).flat_map(|bucket| &bucket[..CHAIN]);
        slots
            .filter(|&&slot| slot != 0)
            .map(|&slot| reference_of(slot))
    }

    fn home(&self, hash: u64) -> usize {
        ((u64::from(hash as u32) * self.bucket_count as u64) >> 32) as usize
    }

    fn bucket_start(&self, bucket: usize) -> usize {
        self.first_word + bucket * BUCKET_WORDS
    }

    fn next_bucket(&self, start: usize) -> Option<usize> {
        match self.words[start + CHAIN] {
            0 => None,
            bucket => Some(self.bucket_start(bucket as usize)),
        }
    }

    /// Where the last bucket of a chain starts, and its first empty slot.
    fn last_of_chain(&self, home: usize) -> (usize, Option<usize>) {
        let mut start = self.bucket_start(home);
        while let Some(next) = self.next_bucket(start) {
            start = next;
        }
        let slots = &self.words[start..start + CHAIN];
        let vacant = slots.iter().position(|&slot| slot == 0);
        (start, vacant.map(|at| start + at))
    }

    /// Slots that the last bucket of a chain has left.
    fn vacant_slots(&self, home: usize) -> usize {
        match self.last_of_chain(home) {
            (start, Some(vacant)) => start + CHAIN - vacant,
            (_, None) => 0,
        }
    }
}

impl Overflow {
    /// Buckets that are left.
    fn spare(&self) -> usize {
        self.capacity - self.fresh + self.returned.len()
    }

    fn take(&mut self) -> Option<usize> {
        if let Some(bucket) = self.returned.pop() {
            return Some(bucket as usize);
        }
        let bucket = self.fresh;
        self.fresh += usize::from(bucket < self.capacity);
        (bucket < self.capacity).then_some(bucket)
    }

    fn give_back(&mut self, bucket: usize) {
        self.returned.push(bucket as u32);
    }
}

const TAG_MASK: u64 = !0 << Reference::BITS;

/// Bits 32 to 47 of the hash, where a slot has them.
fn tag_of(hash: u64) -> u64 {
    hash << 16 & TAG_MASK
}

fn reference_of(slot: u64) -> Reference {
    Reference::from_bits(slot & !TAG_MASK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn reference(n: usize) -> Reference {
        Reference::of_offset(8 * (n + 1))
    }

    #[test]
    fn buckets_are_cache_lines() {
        let index = Index::new(1 << 16);
        let address = index.words[index.first_word..].as_ptr() as usize;
        assert_eq!(address % 64, 0);
        let last = index.bucket_start(index.bucket_count + index.overflow.capacity);
        assert!(last <= index.words.len());
    }

    #[test]
    fn keys_of_one_tablet_differ_in_their_tags() {
        let tablet = 0x1234_u64 << 48;
        assert_ne!(tag_of(tablet | 1 << 32), tag_of(tablet | 2 << 32));
        let index = Index::new(1 << 20);
        assert_ne!(index.home(tablet | 1 << 31), index.home(tablet));
    }

    #[test]
    fn buckets_go_by_the_low_half_of_the_hash() {
        for bytes in [Index::MIN_BYTES, 100 * BUCKET_BYTES, 1 << 16] {
            let index = Index::new(bytes);
            assert_eq!(index.first_hash_of(0), 0);
            assert_eq!(index.first_hash_of(index.bucket_count()), 1 << 32);
            for bucket in 0..index.bucket_count() {
                let first = index.first_hash_of(bucket);
                assert_eq!(index.bucket_of(first), bucket);
                assert_eq!(index.bucket_of(0xabcd << 32 | first), bucket);
                if bucket > 0 {
                    assert_eq!(index.bucket_of(first - 1), bucket - 1);
                }
            }
        }
    }

    #[test]
    fn is_full_when_the_pool_is_and_usable_again_after_removals() {
        let mut index = Index::new(Index::MIN_BYTES);
        let mut inserted = 0;
        while index.insert(0, reference(inserted)).is_ok() {
            inserted += 1;
        }
        // One bucket and the four of the pool.
        assert_eq!(inserted, 7 * 5);
        assert!(!index.has_room(0));
        assert!(index.has_room(u64::from(u32::MAX)));
        for n in 0..inserted {
            let slot = index.find(0, |found| found == reference(n)).unwrap();
            index.remove(slot);
        }
        assert!(index.is_empty() && index.has_room(0));
        assert_eq!(index.overflow.returned.len(), 4);
    }

    proptest! {
        #[test]
        fn room_for_many_is_room_for_all_of_them(
            before in proptest::collection::vec(0u64..8, 0..230),
            together in proptest::collection::vec(0u64..8, 0..40),
        ) {
            let mut index = Index::new(Index::MIN_BYTES);
            for (n, &key) in before.iter().enumerate() {
                let _ = index.insert(key << 29, reference(n));
            }
            let hashes = together.iter().map(|key| key << 29);
            let room = index.has_room_for(hashes.clone());
            let all = hashes.into_iter().all(|hash| index.insert(hash, reference(0)).is_ok());
            prop_assert_eq!(room, all);
        }

        /// Few distinct hashes, so that chains grow and shrink.
        #[test]
        fn behaves_like_a_map(
            steps in proptest::collection::vec((0u64..40, 0u8..4), 1..400),
        ) {
            let mut index = Index::new(Index::MIN_BYTES);
            let mut model = BTreeMap::<u64, Reference>::new();
            let hash_of = |key: u64| (key % 3) << 30 | (key % 2) << 40;
            let key_at = |model: &BTreeMap<u64, Reference>, key: u64| model.get(&key).copied();
            for (n, (key, action)) in steps.into_iter().enumerate() {
                let expected = key_at(&model, key);
                let slot = index.find(hash_of(key), |found| Some(found) == expected);
                prop_assert_eq!(slot.is_some(), expected.is_some());
                match (slot, action) {
                    (Some(slot), 0) => {
                        index.remove(slot);
                        model.remove(&key);
                    }
                    (Some(slot), _) => {
                        index.set(slot, reference(n));
                        model.insert(key, reference(n));
                    }
                    (None, 0) => {}
                    (None, _) => {
                        let room = index.has_room(hash_of(key));
                        prop_assert_eq!(index.insert(hash_of(key), reference(n)).is_ok(), room);
                        if room {
                            model.insert(key, reference(n));
                        }
                    }
                }
                prop_assert_eq!(index.len(), model.len());
            }
            let mut all: Vec<_> = index.references().collect();
            all.sort();
            let mut expected: Vec<_> = model.values().copied().collect();
            expected.sort();
            prop_assert_eq!(all, expected);

            let keep = |found: Reference| found.offset().is_multiple_of(16);
            for bucket in 0..index.bucket_count() {
                index.retain(bucket, keep);
            }
            model.retain(|_, found| keep(*found));
            prop_assert_eq!(index.len(), model.len());
            for (key, expected) in model {
                prop_assert!(index.find(hash_of(key), |found| found == expected).is_some());
            }
        }
    }
}
