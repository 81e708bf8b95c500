//! The serving lease: until when no recovery can have begun.

use base::bugs::{Bug, is_planted};
use base::time::Time;
use wire::peer::SERVING_LEASE;

use crate::replicator::Replicator;
use crate::segment::Replica;

impl Replicator {
    /// Whether the master may answer requests: the log has a head on its backups, and each backup that a recovery could take the head from has promised
    /// not to give it out.
    ///
    /// `now` must have been read after the request came.
    pub fn is_serving(&self, now: Time) -> bool {
        now < self.serving_until() || is_planted(Bug::SkipServingLease) && !self.is_deposed
    }

    /// See [`Self::is_serving`]; [`Time::ZERO`] while it does not serve at all.
    pub fn serving_until(&self) -> Time {
        if self.is_deposed || self.floor.raised.is_none() {
            return Time::ZERO;
        }
        let is_open = |id: &u64| self.segments.get(id).is_some_and(|head| head.all_open());
        if !self.heads.iter().any(is_open) {
            return Time::ZERO;
        }
        let orphans = self.floor.orphans.iter();
        let orphans = orphans.map(|orphan| self.lease_of(&orphan.replica).max(orphan.lease_from));
        let from = self.candidate_leases().chain(orphans).min();
        from.map_or(Time::ZERO, |from| from + SERVING_LEASE)
    }

    /// From when on each backup keeps the log from recovery whose replica could be taken for the newest head.
    fn candidate_leases(&self) -> impl Iterator<Item = Time> {
        let counting = self.heads.iter().filter(|id| self.floor.lets_count(**id));
        let heads = counting.filter_map(|id| self.segments.get(id));
        let replicas = heads.flat_map(|head| &head.replicas);
        replicas
            .filter(|replica| replica.is_candidate())
            .map(|replica| self.lease_of(replica))
    }

    /// From when on the replica's backup keeps the log from recovery.
    pub(crate) fn lease_of(&self, replica: &Replica) -> Time {
        // Until it has answered, either the request has not come, and no replica is there; or it has, and was a promise.
        let opened = replica.open_sent.unwrap_or(Time::ZERO);
        let backup = self.backups.get(&replica.backup);
        let promised = backup.and_then(|backup| backup.promised);
        promised.filter(|_| replica.is_open()).unwrap_or(opened)
    }
}
