//! Processor time that a shard has used, in either of its threads.

use rustix::thread::{Pid, gettid};
use rustix::time::{ClockId, clock_gettime};

/// See the module.
#[derive(Default)]
pub struct Processor {
    /// The thread that has the shard.
    thread: Option<Pid>,
    /// Time that other threads have used for the shard, less the time that this one had used before.
    apart_ns: i64,
}

impl Processor {
    /// Time that was used for the shard, which the calling thread has.
    pub fn used_ns(&self) -> u64 {
        used_by_this_thread().saturating_add_signed(self.apart_ns)
    }

    /// The calling thread has the shard from now on.
    pub fn change_thread(&mut self) {
        if let Some(before) = self.thread.replace(gettid()) {
            let used = used_by(before).saturating_add_signed(self.apart_ns);
            self.apart_ns = used as i64 - used_by_this_thread() as i64;
        }
    }
}

fn used_by_this_thread() -> u64 {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64
}

/// By another thread of this process; 0 where the kernel does not say.
fn used_by(thread: Pid) -> u64 {
    let path = format!("/proc/self/task/{}/schedstat", thread.as_raw_nonzero());
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let used = text.split_whitespace().next();
    used.and_then(|used| used.parse().ok()).unwrap_or(0)
}
