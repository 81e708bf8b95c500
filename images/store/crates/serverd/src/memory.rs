//! The memory of objects is committed ahead of its use.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rustix::io::Errno;
use rustix::mm::{Advice, madvise};

use crate::pages::HugePages;

/// Pages of this size spare the processor most of the search for where a page is.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// What is committed in one call: all threads that map or unmap anything wait for that.
const STEP_BYTES: usize = HUGE_PAGE_BYTES;
/// After each step the core is for others, for so many times as long as the step took.
const PAUSES: u32 = 4;

/// Has the kernel commit memory ahead of its use, in huge pages where it can, from a thread in the background: else every
/// request that is the first to touch a page waits for the kernel to clear it, and a container for which there is not as
/// much memory as it was promised dies when it is full rather than when it starts.
///
/// The contents stay as they are, whoever uses the memory meanwhile; memory that is gone is skipped.
///
/// The thread has no lower priority than others: the kernel holds a lock of the whole process meanwhile, and on a busy machine a thread
/// that nobody lets run kept shards waiting for seconds, until they were taken for dead.
pub fn commit_ahead(
    ranges: impl IntoIterator<Item = Range<*const u8>>,
    pages: HugePages,
) -> io::Result<Arc<ToCommit>> {
    let ranges: Vec<_> = ranges
        .into_iter()
        .map(|range| whole_huge_pages(range.start.addr()..range.end.addr()))
        .collect();
    let bytes = ranges.iter().map(|range| range.len() as u64).sum();
    let left = Arc::new(ToCommit(AtomicU64::new(bytes)));
    let told = Arc::clone(&left);
    let commit = move || {
        let result = ranges
            .into_iter()
            .try_for_each(|range| commit(range, pages, &told));
        match result {
            Ok(()) => tracing::debug!("memory is committed"),
            // Kernels before 5.14; the memory is then committed as it is touched.
            Err(error) => tracing::debug!("memory cannot be committed ahead of its use: {error}"),
        }
        told.end();
    };
    std::thread::Builder::new()
        .name("memory".to_owned())
        .spawn(commit)
        .map(|_| left)
}

/// How much memory is still to be committed ahead of its use.
#[derive(Debug)]
pub struct ToCommit(AtomicU64);

impl ToCommit {
    /// 0 once all is, or cannot be.
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn committed(&self, bytes: u64) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn end(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

fn whole_huge_pages(range: Range<usize>) -> Range<usize> {
    let start = range.start.next_multiple_of(HUGE_PAGE_BYTES);
    start..(range.end - range.end % HUGE_PAGE_BYTES).max(start)
}

fn commit(range: Range<usize>, pages: HugePages, left: &ToCommit) -> Result<(), Errno> {
    // A wish: without huge pages, small ones are committed.
    let _ = match pages {
        HugePages::Off => advise(range.clone(), Advice::LinuxNoHugepage),
        HugePages::Transparent => advise(range.clone(), Advice::LinuxHugepage),
        HugePages::Reserved | HugePages::Reserved1G => Ok(()),
    };
    for start in range.clone().step_by(STEP_BYTES) {
        let end = range.end.min(start + STEP_BYTES);
        let begun = Instant::now();
        advise(start..end, Advice::LinuxPopulateWrite)?;
        left.committed((end - start) as u64);
        std::thread::sleep(begun.elapsed() * PAUSES);
    }
    Ok(())
}

#[allow(unsafe_code)]
fn advise(range: Range<usize>, advice: Advice) -> Result<(), Errno> {
    let start = std::ptr::without_provenance_mut(range.start);
    // SAFETY: neither advice changes what any mapping contains or whether it may be written, and where nothing is mapped the
    // kernel answers with an error.
    unsafe { madvise(start, range.len(), advice) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_to_commit_counts_down_to_nothing() {
        let memory = vec![0_u8; 4 * HUGE_PAGE_BYTES];
        let range =
            whole_huge_pages(memory.as_ptr_range().start.addr()..memory.as_ptr_range().end.addr());
        let left = ToCommit(AtomicU64::new(range.len() as u64 + 1));
        assert!(range.len() >= 3 * HUGE_PAGE_BYTES);
        if commit(range, HugePages::Off, &left).is_err() {
            return println!("NOT TESTED: this kernel commits no memory ahead of its use");
        }
        assert_eq!(left.bytes(), 1);
        left.end();
        assert_eq!(left.bytes(), 0);
    }

    #[test]
    fn memory_that_cannot_be_committed_is_not_waited_for() {
        let nowhere = std::ptr::without_provenance::<u8>(HUGE_PAGE_BYTES);
        let nothing_there = nowhere..nowhere.wrapping_add(HUGE_PAGE_BYTES);
        let left = commit_ahead([nothing_there], HugePages::Off).expect("a thread");
        let begun = Instant::now();
        while left.bytes() > 0 {
            assert!(begun.elapsed().as_secs() < 60, "it is waited for");
            std::thread::yield_now();
        }
    }
}
