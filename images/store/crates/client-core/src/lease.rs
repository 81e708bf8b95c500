//! The client's lease: while it lasts, servers remember the results of this client's requests.

use std::collections::VecDeque;

use core::time::Duration;

use base::time::Time;
use wire::rpc::Lease;

use crate::operation_id::OperationId;

/// Renewed when less than this is left.
const RENEW_BELOW_NS: u64 = 900_000_000_000;
/// Not used when less than this is left.
const USE_ABOVE_NS: u64 = 60_000_000_000;

#[derive(Debug, Default)]
pub struct LeaseAgent {
    held: Option<Held>,
    /// When the renewal that is under way was sent; it may have been sent again since.
    pub requested_at: Option<Time>,
    /// The coordinator asked not to be asked again before this.
    pub not_before: Time,
    /// Operations that wait for a usable lease.
    pub waiting: VecDeque<OperationId>,
}

#[derive(Debug)]
struct Held {
    lease: Lease,
    renew_at: Time,
    unusable_at: Time,
}

impl LeaseAgent {
    /// The lease, if it is good for a while yet.
    pub fn usable(&self, now: Time) -> Option<Lease> {
        self.held
            .as_ref()
            .filter(|held| now < held.unusable_at)
            .map(|held| held.lease)
    }

    /// Whether it is time to ask: a lease is wanted or runs out, and nobody has asked yet.
    pub fn is_renewal_due(&self, now: Time) -> bool {
        let is_wanted = match &self.held {
            Some(held) => now >= held.renew_at,
            None => !self.waiting.is_empty(),
        };
        is_wanted && self.requested_at.is_none() && now >= self.not_before
    }

    /// The coordinator does not know this lease any more: the next one is asked for before anything else is sent.
    pub fn ended(&mut self) {
        if let Some(held) = &mut self.held {
            held.renew_at = Time::ZERO;
            held.unusable_at = Time::ZERO;
        }
    }

    /// The id to renew; 0 asks for a new lease.
    pub fn id(&self) -> u64 {
        self.held.as_ref().map_or(0, |held| held.lease.id)
    }

    /// A lease has come. Its term is counted from when it was asked for, which is before it began: clocks then err on the
    /// safe side. Returns when to renew it.
    pub fn granted(&mut self, now: Time, lease: Lease) -> Time {
        let asked_at = self.requested_at.take().unwrap_or(now);
        let term_ns = lease.expiration_ns.saturating_sub(lease.timestamp_ns);
        let at = |left_ns| asked_at + Duration::from_nanos(term_ns.saturating_sub(left_ns));
        let (renew_at, unusable_at) = (at(RENEW_BELOW_NS), at(USE_ABOVE_NS));
        assert!(
            renew_at <= unusable_at,
            "a lease is renewed while it can be used"
        );
        self.held = Some(Held {
            lease,
            renew_at,
            unusable_at,
        });
        renew_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn is_renewed_at_half_its_term_and_not_used_in_its_last_minute() {
        let mut agent = LeaseAgent::default();
        assert!(!agent.is_renewal_due(Time::ZERO), "nobody wants one");
        agent.waiting.push_back(OperationId(1));
        assert!(agent.is_renewal_due(Time::ZERO));
        assert_eq!((agent.id(), agent.usable(Time::ZERO)), (0, None));
        agent.requested_at = Some(Time(5 * SECOND));
        assert!(!agent.is_renewal_due(Time(6 * SECOND)), "under way");
        let lease = Lease {
            id: 9,
            timestamp_ns: 100 * SECOND,
            expiration_ns: 1900 * SECOND,
        };
        let renew_at = agent.granted(Time(7 * SECOND), lease);
        assert_eq!(renew_at, Time(905 * SECOND));
        assert!(!agent.is_renewal_due(Time(905 * SECOND - 1)));
        assert!(agent.is_renewal_due(Time(905 * SECOND)));
        assert_eq!(agent.usable(Time(1745 * SECOND - 1)), Some(lease));
        assert_eq!(agent.usable(Time(1745 * SECOND)), None);
        assert_eq!(agent.id(), 9, "an old lease is still asked for again");
    }
}
