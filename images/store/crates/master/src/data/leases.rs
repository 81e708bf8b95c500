//! What a shard knows of client leases: the coordinator's time, and its answers.

use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};

use base::time::Time;

/// A lease that is said to last longer is asked about after this: requests carry whatever their clients, or a coordinator
/// whose store is gone, once wrote into them. The coordinator's leases last half of it.
const LONGEST_UNASKED: Duration = Duration::from_secs(3600);
/// Questions about leases that may be outstanding.
const MAX_QUESTIONS: usize = 256;
/// Ended leases that are remembered, so that a client's retry learns of it without another question.
const MAX_ENDED: usize = 1024;

/// Whether a client may do something new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Validity {
    Valid,
    Ended,
    /// The coordinator has to be asked.
    Unknown,
}

#[derive(Default)]
pub(crate) struct Leases {
    /// The latest cluster time that the coordinator told, and when.
    told: Option<(Time, u64)>,
    questions: BTreeSet<u64>,
    ended: BTreeSet<u64>,
    ended_in_order: VecDeque<u64>,
}

impl Leases {
    /// Cluster time, ns: what the coordinator said last, and what passed since. `None` before it said anything.
    pub fn cluster_time_ns(&self, now: Time) -> Option<u64> {
        let (at, cluster_ns) = self.told?;
        Some(cluster_ns.saturating_add(now.0.saturating_sub(at.0)))
    }

    /// The coordinator's time never goes back; our own reckoning may, when it ran ahead.
    pub fn learn_time(&mut self, now: Time, cluster_time_ns: u64) {
        let before = self.told.map_or(0, |(_, cluster_ns)| cluster_ns);
        self.told = Some((now, cluster_time_ns.max(before)));
    }

    /// `expiration_ns`: the latest end of the lease that anybody told.
    pub fn validity(&self, now: Time, lease_id: u64, expiration_ns: u64) -> Validity {
        if lease_id == 0 || self.ended.contains(&lease_id) {
            return Validity::Ended;
        }
        match self.cluster_time_ns(now) {
            Some(cluster_ns) if expiration_ns > cluster_ns => Validity::Valid,
            _ => Validity::Unknown,
        }
    }

    /// When to ask whether a lease has ended that ends at `expiration_ns` by its client's word.
    pub fn ask_at_ns(&self, now: Time, expiration_ns: u64) -> u64 {
        let latest = Time(self.cluster_time_ns(now).unwrap_or(0)) + LONGEST_UNASKED;
        expiration_ns.min(latest.0)
    }

    /// Whether the coordinator should be asked about a lease now: it was not yet, and not too many questions are open.
    pub fn may_ask(&mut self, lease_id: u64) -> bool {
        self.questions.len() < MAX_QUESTIONS && self.questions.insert(lease_id)
    }

    /// An answer came; tells whether it was asked for.
    pub fn answered(&mut self, lease_id: u64) -> bool {
        self.questions.remove(&lease_id)
    }

    /// Ids of leases are not used again, so that an ended one stays ended.
    pub fn remember_ended(&mut self, lease_id: u64) {
        if self.ended.insert(lease_id) {
            self.ended_in_order.push_back(lease_id);
        }
        if self.ended_in_order.len() > MAX_ENDED
            && let Some(oldest) = self.ended_in_order.pop_front()
        {
            self.ended.remove(&oldest);
        }
    }

    /// The coordinator is gone, and with it the questions.
    pub fn forget_questions(&mut self) {
        self.questions.clear();
    }
}
