//! Backups that are to leave the store. What they have goes on to count, and is copied to others as what was lost would be; it is freed when as many
//! replicas as are wanted are complete elsewhere. Something new is put there only where the others are too few, and only as long as the coordinator
//! says that this may be: docs/drain.md.

use std::collections::BTreeSet;

use base::bugs::{Bug, is_planted};
use base::ids::ServerId;

use crate::backup::Backup;
use crate::replicator::Replicator;
use crate::segment::{Replica, Segment};

impl Replicator {
    /// For each of a backup's replicas another one is wanted.
    pub(crate) fn copy_elsewhere(&mut self, id: ServerId) {
        let segments = self.segments.iter();
        let there = segments.filter(|(_, segment)| segment.replica(id).is_some());
        self.unfinished
            .extend(there.map(|(segment_id, _)| segment_id));
    }

    pub(crate) fn is_draining(&self, id: ServerId) -> bool {
        let backup = self.backups.get(&id);
        backup.is_some_and(|backup| backup.info.is_draining)
    }

    pub(crate) fn is_on_draining(&self, segment_id: u64) -> bool {
        let segment = self.segments.get(&segment_id);
        let mut replicas = segment.into_iter().flat_map(|segment| &segment.replicas);
        replicas.any(|replica| self.is_draining(replica.backup))
    }

    /// Replicas on backups that stay, one on each machine: a copy may be made beside the one that it replaces, and that one stay after all. Complete
    /// ones come first.
    pub(crate) fn staying<'a>(&'a self, segment: &'a Segment) -> Vec<&'a Replica> {
        let (complete, partial): (Vec<&Replica>, Vec<&Replica>) = segment
            .replicas
            .iter()
            .filter(|replica| !self.is_draining(replica.backup))
            .partition(|replica| replica.is_closed);
        let mut hosts = BTreeSet::new();
        let mut is_first = |replica: &&Replica| {
            let backup = self.backups.get(&replica.backup);
            backup.is_some_and(|backup| hosts.insert(backup.info.host.as_str()))
        };
        let staying = complete.into_iter().chain(partial);
        staying.filter(|replica| is_first(replica)).collect()
    }

    /// Those of them that are complete, on backups that can be reached and have said so.
    pub(crate) fn safe<'a>(&'a self, segment: &'a Segment) -> Vec<&'a Replica> {
        let is_ready = |id: &ServerId| self.backups.get(id).is_some_and(Backup::is_ready);
        let mut staying = self.staying(segment);
        staying.retain(|replica| replica.is_closed && is_ready(&replica.backup));
        staying
    }

    /// Whether a settled segment has all the replicas that are wanted, where they are wanted, and no others.
    pub(crate) fn is_finished(&self, segment: &Segment) -> bool {
        let staying = self.staying(segment).len();
        staying == self.config.replicas && staying == segment.replicas.len()
    }

    /// Of a settled segment that is safe elsewhere, frees the replicas on backups that are drained, and those that were made in vain because a backup
    /// stays after all.
    pub(crate) fn leave_draining(&mut self, segment_id: u64) {
        let Some(segment) = self.segments.get(&segment_id) else {
            return;
        };
        if !segment.is_settled || self.is_finished(segment) {
            return;
        }
        let mut kept = match is_planted(Bug::FreeDrainedReplicaEarly) {
            true => self.staying(segment),
            false => self.safe(segment),
        };
        if kept.len() < self.config.replicas {
            return;
        }
        kept.truncate(self.config.replicas);
        let is_kept = |id: ServerId| kept.iter().any(|replica| replica.backup == id);
        let replicas = segment.replicas.iter().map(|replica| replica.backup);
        let freed: Vec<ServerId> = replicas.filter(|id| !is_kept(*id)).collect();
        for id in freed {
            self.lose_replica(segment_id, id);
        }
    }

    /// How many segments have something at a backup that may be needed. What is there is known only once it has said so; before that every segment
    /// counts that may not be safe without it.
    pub fn segments_at(&self, id: ServerId) -> u64 {
        let Some(backup) = self.backups.get(&id) else {
            return 0;
        };
        let wanted = self.config.replicas;
        let is_safe_elsewhere = |segment: &Segment| {
            let open = self.staying(segment);
            let open = open.iter().filter(|replica| replica.is_open()).count();
            open >= wanted && !segment.is_closed || self.safe(segment).len() >= wanted
        };
        let is_needed = |segment: &&Segment| {
            let is_unknown = !backup.is_ready() && segment.is_awaited();
            segment.replica(id).is_some() || is_unknown && !is_safe_elsewhere(segment)
        };
        let orphans = self.floor.orphans.iter();
        let orphans = orphans.filter(|orphan| orphan.replica.backup == id).count();
        let segments = self.segments.values().filter(is_needed).count();
        (segments + orphans + backup.unknown.len()) as u64
    }
}
