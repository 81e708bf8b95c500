//! Where replicas go.

use std::collections::BTreeMap;

use base::ids::ServerId;
use base::time::Time;

use crate::backup::Backup;
use crate::random::Random;

/// Backups that could take one more replica of a segment.
pub struct Choice<'a> {
    pub backups: &'a BTreeMap<ServerId, Backup>,
    pub own_host: &'a str,
    pub segment_id: u64,
    /// What a frame must hold.
    pub segment_bytes: u32,
    /// Also those that are drained, and may be taken where others are too few.
    pub has_last_resort: bool,
    /// Also those whose machine has a slow one.
    pub has_avoided_hosts: bool,
    pub now: Time,
}

impl Choice<'_> {
    pub fn with_avoided_hosts(self) -> Self {
        Self {
            has_avoided_hosts: true,
            ..self
        }
    }

    pub fn with_last_resort(self) -> Self {
        Self {
            has_last_resort: true,
            ..self
        }
    }

    /// Chooses `count` more, besides those that hold it already; fewer if there are not as many.
    ///
    /// Of two candidates that random picks, the one with fewer replicas of this log is taken: replicas are scattered over all backups, so that all
    /// help in a recovery, and no backup has many more than others. Domains that hold none come first.
    pub fn pick(
        &self,
        mut held: Vec<ServerId>,
        count: usize,
        random: &mut Random,
    ) -> Vec<ServerId> {
        let mut picked = Vec::new();
        while picked.len() < count {
            let candidates = self.candidates(&held);
            if candidates.is_empty() {
                break;
            }
            let a = candidates[random.below(candidates.len())];
            let b = candidates[random.below(candidates.len())];
            let chosen = if b.replica_count < a.replica_count {
                b
            } else {
                a
            };
            held.push(chosen.id());
            picked.push(chosen.id());
        }
        picked
    }

    /// Machines that could hold a replica at all.
    pub fn hosts(&self) -> usize {
        let usable = self.usable();
        let hosts: std::collections::BTreeSet<&str> =
            usable.map(|backup| backup.info.host.as_str()).collect();
        hosts.len()
    }

    fn usable(&self) -> impl Iterator<Item = &Backup> {
        self.backups.values().filter(|backup| {
            backup.takes_replicas(self.now)
                && (self.has_avoided_hosts || !backup.is_host_avoided(self.now))
                && (self.has_last_resort && backup.info.is_last_resort || !backup.info.is_draining)
                && backup.info.host != self.own_host
                && backup.info.segment_bytes >= self.segment_bytes
                && backup.has_place_for(self.segment_id)
        })
    }

    fn candidates(&self, held: &[ServerId]) -> Vec<&Backup> {
        let holders = || held.iter().filter_map(|id| self.backups.get(id));
        let elsewhere: Vec<&Backup> = self
            .usable()
            .filter(|backup| holders().all(|holder| holder.info.host != backup.info.host))
            .filter(|backup| !held.contains(&backup.id()))
            .collect();
        let is_new_domain =
            |backup: &&Backup| holders().all(|holder| holder.info.domain != backup.info.domain);
        let in_new_domains: Vec<&Backup> =
            elsewhere.iter().copied().filter(is_new_domain).collect();
        if in_new_domains.is_empty() {
            elsewhere
        } else {
            in_new_domains
        }
    }
}
