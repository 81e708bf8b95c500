//! Values under numbers that are never reused.

/// A number is `generation << 32 | slot`; a slot's generation goes up when its value is taken out.
#[derive(Debug)]
pub struct Slab<T> {
    slots: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub fn insert(&mut self, value: T) -> u64 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push((1, None));
            (self.slots.len() - 1) as u32
        });
        let (generation, place) = &mut self.slots[slot as usize];
        assert!(place.is_none(), "a slot has one value at a time");
        *place = Some(value);
        u64::from(*generation) << 32 | u64::from(slot)
    }

    fn slot(&self, number: u64) -> Option<usize> {
        let slot = number as u32 as usize;
        let (generation, _) = self.slots.get(slot)?;
        (u64::from(*generation) == number >> 32).then_some(slot)
    }

    pub fn get(&self, number: u64) -> Option<&T> {
        self.slots[self.slot(number)?].1.as_ref()
    }

    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let slot = self.slot(number)?;
        self.slots[slot].1.as_mut()
    }

    pub fn remove(&mut self, number: u64) -> Option<T> {
        let slot = self.slot(number)?;
        let (generation, place) = &mut self.slots[slot];
        let value = place.take()?;
        // A slot whose generations are used up is not given out again.
        if let Some(next) = generation.checked_add(1) {
            *generation = next;
            self.free.push(slot as u32);
        }
        Some(value)
    }

    /// Numbers of all values, in order of their slots.
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        self.slots
            .iter()
            .enumerate()
            .filter(|(_, (_, value))| value.is_some())
            .map(|(slot, (generation, _))| u64::from(*generation) << 32 | slot as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_good_for_one_value_only() {
        let mut slab = Slab::default();
        let first = slab.insert('a');
        assert_eq!(slab.get(first), Some(&'a'));
        assert_eq!(slab.remove(first), Some('a'));
        assert_eq!(slab.remove(first), None);
        let second = slab.insert('b');
        assert_ne!(first, second);
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.get_mut(second), Some(&mut 'b'));
        assert_eq!(slab.len(), 1);
        assert_eq!(slab.numbers().collect::<Vec<_>>(), [second]);
        assert_eq!(slab.get(u64::MAX), None);
    }
}
