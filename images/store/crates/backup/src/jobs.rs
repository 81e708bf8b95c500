//! Jobs that are under way, or wait for writes.

use std::collections::BTreeSet;

use base::time::Time;

use crate::job::Job;

/// Jobs that are under way, or wait for writes.
#[derive(Default)]
pub(crate) struct Jobs {
    /// To be started when writes up to this one have ended.
    pub waiting: Vec<(u64, Job)>,
    pub under_way: usize,
    /// When the last one ended, or when the first began.
    pub progress_at: Time,
    /// Frames whose data is being given to peers.
    pub reading: BTreeSet<u32>,
}

impl Jobs {
    /// Since when the storage has completed none of those that are under way.
    pub fn since(&self) -> Option<Time> {
        (self.under_way > 0).then_some(self.progress_at)
    }
}
