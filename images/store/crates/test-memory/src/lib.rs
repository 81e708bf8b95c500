//! What a test asks of the allocator, counted for each thread. A program that uses this crate has its allocator. What is too much is for the test to say.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// Bytes held, and the most that were since it was set.
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn hold(bytes: isize) {
    let held = HELD.get() + bytes;
    HELD.set(held);
    PEAK.set(PEAK.get().max(held));
}

// SAFETY: everything is passed on to the system's allocator as it came; counting touches no memory of the caller.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        hold(layout.size() as isize);
        // SAFETY: the caller's promises are the system allocator's requirements.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        hold(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often this thread has asked for memory.
pub fn allocations() -> u64 {
    ALLOCATIONS.get()
}

/// What `act` gives, and the most bytes that this thread held meanwhile beyond those of before.
pub fn peak_of<R>(act: impl FnOnce() -> R) -> (R, usize) {
    let before = HELD.get();
    PEAK.set(before);
    let result = act();
    (result, (PEAK.get() - before) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_counts_and_not_what_is_left() {
        let ((), peak) = peak_of(|| drop(Vec::<u8>::with_capacity(1000)));
        assert_eq!(peak, 1000);
        let before = allocations();
        let (kept, peak) = peak_of(|| (Vec::<u8>::with_capacity(10), [1, 2]));
        assert_eq!((peak, allocations() - before), (10, 1));
        drop(kept);
        let ((), nothing) = peak_of(|| ());
        assert_eq!((nothing, allocations() - before), (0, 1));
    }
}
