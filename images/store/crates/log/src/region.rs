//! Memory of a log or of a hash table: the crate's own, or of pages that the process chose and lends for its whole life.

use core::ops::{Deref, DerefMut};

/// Zeroed when it is handed in; of one size all the time.
#[derive(Debug)]
pub enum Region<T: 'static> {
    Own(Vec<T>),
    Lent(&'static mut [T]),
}

impl<T: Copy + Default> Region<T> {
    /// The operating system commits it as it is touched.
    pub fn zeroed(length: usize) -> Region<T> {
        Region::Own(vec![T::default(); length])
    }

    /// The same memory, zeroed again.
    pub fn cleared(self) -> Region<T> {
        match self {
            // New zeroed memory costs nothing until it is touched; filling the old would touch all of it.
            Region::Own(old) => {
                let length = old.len();
                drop(old);
                Region::zeroed(length)
            }
            // There may be no other.
            Region::Lent(memory) => {
                memory.fill(T::default());
                Region::Lent(memory)
            }
        }
    }
}

impl<T> Default for Region<T> {
    fn default() -> Region<T> {
        Region::Own(Vec::new())
    }
}

impl<T> Deref for Region<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match self {
            Region::Own(memory) => memory,
            Region::Lent(memory) => memory,
        }
    }
}

impl<T> DerefMut for Region<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Region::Own(memory) => memory,
            Region::Lent(memory) => memory,
        }
    }
}
