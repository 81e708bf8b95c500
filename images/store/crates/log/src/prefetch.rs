//! The one thing here that the compiler cannot check.

/// Asks the processor to fetch the cache line of `word` ahead of its use.
#[inline]
#[allow(unsafe_code)]
pub(crate) fn prefetch<T>(word: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of the address behind a reference reads and writes nothing that the program could observe, and
    // SSE, which it needs, is part of x86-64.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(word).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = word;
}
