//! What the allocator gives back to the kernel, and when.

/// Blocks from this size on are given to the kernel as soon as they are freed.
const RETURN_BYTES: i32 = 128 << 10;
/// Heaps beside the main one. By default there may be eight for each core, each with a burst's leftovers.
const ARENAS: i32 = 2;

/// Has the allocator give buffers back at once. By default it learns to keep what a burst of large messages took, and a
/// container's memory is counted.
#[allow(unsafe_code)]
pub fn give_back_at_once() {
    // SAFETY: mallopt sets numbers of the allocator, which locks for that; nothing is moved or freed by it.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, RETURN_BYTES);
        libc::mallopt(libc::M_ARENA_MAX, ARENAS);
    }
}
