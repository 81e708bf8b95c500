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
/// The limit where all backups of the head are slow at once.
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
            if let Some(backup) = self.backups.get_mut(&id) {
                backup.avoid(now);
            }
            let is_candidate = |replica: &Replica| replica.role == Role::Head && !replica.is_closed;
            self.lose_replicas(id, is_candidate);
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
