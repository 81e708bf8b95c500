//! Backups that are much slower than their peers, and connections on which nothing moves.

use core::time::Duration;

use base::ids::ServerId;
use base::time::Time;
use wire::peer::Role;

use crate::ReplicationEffects;
use crate::backup::Backup;
use crate::replicator::{Replicator, STUCK};
use crate::segment::Replica;

/// A head's backup that lets data wait for longer is replaced, unless its peers are slow as well.
const SLOW: Duration = Duration::from_millis(50);
/// The limit where all backups of the head are slow at once, and that for copies of older heads, which durability waits for as well.
const ALL_SLOW: Duration = Duration::from_secs(1);
/// So many times the median of the head's backups is slow.
const SLOW_FACTOR: u32 = 10;

impl Replicator {
    /// Gives up replicas of heads on backups that are much slower than their peers, and connections on which nothing moves.
    pub(crate) fn look_for_slow_backups(&mut self, now: Time, out: &mut impl ReplicationEffects) {
        let mut stuck = Vec::new();
        for backup in self
            .backups
            .values()
            .filter(|backup| backup.waited(now) >= STUCK)
        {
            out.disconnect_backup(backup.id());
            stuck.push(backup.id());
        }
        for id in stuck {
            self.stuck(now, id);
        }
        for id in self.slow_backups(now) {
            self.avoid(now, id);
            let is_candidate = |replica: &Replica| replica.role == Role::Head && !replica.is_closed;
            self.lose_replicas(id, is_candidate);
            let backup = self.backups.get(&id);
            if backup.is_some_and(|backup| backup.waited(now) > ALL_SLOW) {
                self.lose_copies_of_heads(id);
            }
        }
    }

    /// It gets no replicas for a while, and others of its machine get some only where there are too few elsewhere: backups of a process have one
    /// disk, as a rule, and one network.
    fn avoid(&mut self, now: Time, id: ServerId) {
        let Some(slow) = self.backups.get_mut(&id) else {
            return;
        };
        slow.avoid(now);
        let host = slow.info.host.clone();
        let backups = self.backups.values_mut();
        for backup in backups.filter(|backup| backup.info.host == host) {
            backup.avoid_host(now);
        }
    }

    /// A backup gets no copies of older heads after all: the floor waits for these.
    fn lose_copies_of_heads(&mut self, id: ServerId) {
        let is_lost = |replica: &Replica| replica.backup == id && !replica.is_closed;
        let is_waited_for = |segment_id: &u64| {
            let segment = self.segments.get(segment_id);
            segment.is_some_and(|segment| segment.replicas.iter().any(is_lost))
        };
        let heads = self.heads.iter().copied().filter(is_waited_for);
        for segment_id in heads.collect::<Vec<u64>>() {
            self.lose_replica(segment_id, id);
        }
    }

    /// Backups of heads that let data wait for too long.
    fn slow_backups(&self, now: Time) -> Vec<ServerId> {
        let heads = self.heads.iter().filter_map(|id| self.segments.get(id));
        let replicas = heads.flat_map(|head| &head.replicas);
        let backups = replicas.filter_map(|replica| self.backups.get(&replica.backup));
        if backups.clone().all(|backup| backup.waited(now) <= SLOW) {
            return Vec::new();
        }
        let mut latencies: Vec<Duration> = backups
            .clone()
            .filter_map(|backup| backup.latency)
            .collect();
        latencies.sort_unstable();
        let median = latencies
            .get(latencies.len() / 2)
            .copied()
            .unwrap_or_default();
        let limit = SLOW.max(median * SLOW_FACTOR);
        // If all are slow it is this server that was not awake, or its network.
        let all_slow = backups.clone().all(|backup| backup.waited(now) > limit);
        let limit = if all_slow { limit.max(ALL_SLOW) } else { limit };
        backups
            .filter(|backup| backup.waited(now) > limit)
            .map(Backup::id)
            .collect()
    }
}
