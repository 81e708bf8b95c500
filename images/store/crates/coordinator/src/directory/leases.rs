//! Client leases: while one lasts, masters keep the results of its holder's RPCs, so that a retried one takes effect once.

mod durable;

use std::collections::BTreeSet;

use crate::journaled::Journaled;

/// Nanoseconds that a lease lasts from its (re)newal. RAMCloud's; its client's arithmetic needs at least 900 s.
pub const TERM_NS: u64 = 1_800_000_000_000;

/// Leases handed out and not yet expired. Times are cluster time in nanoseconds; what is kept is less `shift_ns`.
#[derive(Debug)]
pub struct Leases {
    /// Lease id to its expiration.
    expirations: Journaled<u64, u64>,
    /// The same, in order of expiration.
    by_expiration: BTreeSet<(u64, u64)>,
    next_id: u64,
    /// How much cluster time may have run ahead over restarts: leases end later by as much, whenever they were given.
    shift_ns: u64,
    limit: usize,
}

impl Leases {
    /// `first_id` is given out first; at most `limit` leases are held at a time.
    pub fn new(first_id: u64, limit: usize) -> Leases {
        Leases {
            expirations: Journaled::default(),
            by_expiration: BTreeSet::new(),
            next_id: first_id,
            shift_ns: 0,
            limit,
        }
    }

    /// Prolongs `id`, or gives out a new lease if it is unknown or has expired. Returns (id, expiration), or `None`
    /// while there are too many leases.
    pub fn renew(&mut self, id: u64, cluster_time_ns: u64) -> Option<(u64, u64)> {
        self.expire(cluster_time_ns);
        let expiration = cluster_time_ns
            .saturating_sub(self.shift_ns)
            .saturating_add(TERM_NS);
        let id = if let Some(old) = self.expirations.get(&id).copied() {
            self.by_expiration.remove(&(old, id));
            id
        } else {
            if self.expirations.len() >= self.limit {
                return None;
            }
            let id = self.next_id;
            self.next_id = self.next_id.checked_add(1)?;
            id
        };
        self.expirations.insert(id, expiration);
        self.by_expiration.insert((expiration, id));
        Some((id, self.end_of(expiration)))
    }

    /// When `id` ends; 0 if it has ended or never was.
    pub fn expiration(&self, id: u64, cluster_time_ns: u64) -> u64 {
        let expiration = self.expirations.get(&id);
        let end = expiration.map_or(0, |&expiration| self.end_of(expiration));
        if end > cluster_time_ns { end } else { 0 }
    }

    /// Cluster time of the end of a lease, by what is kept of it.
    fn end_of(&self, expiration: u64) -> u64 {
        expiration.saturating_add(self.shift_ns)
    }

    /// Forgets what has expired.
    pub fn expire(&mut self, cluster_time_ns: u64) {
        while let Some(&(expiration, id)) = self.by_expiration.first() {
            if self.end_of(expiration) > cluster_time_ns {
                break;
            }
            self.by_expiration.pop_first();
            self.expirations.remove(&id);
        }
    }

    /// Leases valid at `cluster_time_ns`.
    pub fn count(&self, cluster_time_ns: u64) -> u64 {
        let expired = self
            .by_expiration
            .iter()
            .take_while(|(expiration, _)| self.end_of(*expiration) <= cluster_time_ns)
            .count();
        (self.by_expiration.len() - expired) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_count_up_and_a_known_lease_is_prolonged() {
        let mut leases = Leases::new(1, 10);
        assert_eq!(leases.renew(0, 5), Some((1, 5 + TERM_NS)));
        assert_eq!(leases.renew(0, 6), Some((2, 6 + TERM_NS)));
        assert_eq!(leases.renew(1, 100), Some((1, 100 + TERM_NS)));
        assert_eq!(leases.count(100), 2);
        assert_eq!(leases.expiration(1, 100), 100 + TERM_NS);
        assert_eq!(
            leases.expiration(2, 6 + TERM_NS),
            0,
            "ends at its expiration"
        );
        assert_eq!(leases.expiration(77, 0), 0);
    }

    #[test]
    fn an_expired_or_unknown_lease_is_replaced_by_a_new_id() {
        let mut leases = Leases::new(1, 10);
        let (id, expiration) = leases.renew(0, 0).unwrap();
        assert_eq!(
            leases.renew(id, expiration),
            Some((2, expiration + TERM_NS))
        );
        assert_eq!(
            leases.renew(999, expiration),
            Some((3, expiration + TERM_NS))
        );
    }

    #[test]
    fn the_count_is_bounded_and_expiry_makes_room() {
        let mut leases = Leases::new(1, 2);
        leases.renew(0, 0).unwrap();
        leases.renew(0, 10).unwrap();
        assert_eq!(leases.renew(0, 20), None);
        assert_eq!(
            leases.renew(2, 20),
            Some((2, 20 + TERM_NS)),
            "renewal needs no room"
        );
        assert_eq!(leases.renew(0, TERM_NS), Some((3, 2 * TERM_NS)));
        assert_eq!(leases.count(TERM_NS), 2);
    }
    #[test]
    fn in_a_store_that_is_made_again_leases_end_later() {
        let mut leases = Leases::new(1, 10);
        leases.renew(0, 7).unwrap();
        leases.leave_out(100);
        leases.begin_again(1000, 50);
        // Cluster time has gone on as well, and shows no more than that.
        assert_eq!(leases.shift_ns(), 1000);
        let end = 7 + 1000 + 50 + TERM_NS;
        assert_eq!(leases.expiration(1, 1007), end);
        leases.expire(end - 1);
        assert_eq!(leases.count(end - 1), 1);
        assert_eq!(leases.renew(0, 1007), Some((102, 1007 + TERM_NS)));
        leases.expire(end);
        assert_eq!(leases.expiration(1, 0), 0);
    }
}
