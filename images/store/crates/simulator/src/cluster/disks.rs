//! Disks of servers: what they cannot do, and how that is repaired.

use backup::testing::MemoryStorage;
use server::End;
use wire::peer::{ReplicaId, Request};

use crate::cluster::{Cluster, host_name, server_host};

impl Cluster {
    /// Every disk of this server, whether its process runs or not.
    pub fn disks_of(&mut self, server: usize) -> impl Iterator<Item = &mut MemoryStorage> {
        let node = &mut self.servers[server];
        let backups = node
            .shards
            .iter_mut()
            .flat_map(|shard| shard.core.backup_mut());
        backups
            .map(|backup| backup.storage_mut())
            .chain(node.disks.values_mut())
    }

    /// Whether one of its disks is of no store: it was lost, or not used yet.
    pub(crate) fn has_empty_disk(&mut self, server: usize) -> bool {
        let shards = self.scenario.shards as usize;
        let owners = self.disks_of(server).filter_map(backup::owner);
        owners.count() < shards
    }

    /// Whether a backup of this server has to refuse this request because all its frames are taken.
    pub(crate) fn finds_no_frame(&self, server: usize, shard: usize, payload: &[u8]) -> bool {
        let node = &self.servers[server];
        let Ok(Request::Append(append)) = Request::decode(payload) else {
            return false;
        };
        let shard = node.shards.get(shard);
        let backup = shard.and_then(|shard| shard.core.backup());
        let is_new = |replica: ReplicaId| {
            backup.is_some_and(|backup| {
                backup
                    .segments(replica.log)
                    .all(|id| id != replica.segment_id)
            })
        };
        self.now < node.frames_taken_until && append.offset == 0 && is_new(append.replica)
    }

    /// Somebody makes room or changes the controller, and starts a process again whose backup has retired: it would stay so.
    pub(crate) fn repair_disks(&mut self, server: usize) {
        let mut repaired = 0;
        for disk in self.disks_of(server) {
            let faults = std::mem::take(&mut disk.faults);
            repaired += u64::from(faults.writes.is_some() || faults.syncs.is_some());
            disk.faults.unreadable_at = faults.unreadable_at;
        }
        if repaired == 0 {
            return;
        }
        self.note_fault(server_host(server), "has repaired disks:", repaired);
        let shards = self.servers[server].shards.iter();
        let mut backups = shards.filter_map(|shard| shard.core.backup());
        if backups.any(|backup| backup.stats().retired.is_some()) {
            self.coverage.hit("backups retired");
            self.crash_server(server);
        }
    }

    /// Whether one of its disks takes nothing.
    pub(crate) fn has_failing_disk(&mut self, server: usize) -> bool {
        let mut disks = self.disks_of(server);
        disks.any(|disk| disk.faults.writes.is_some() || disk.faults.syncs.is_some())
    }

    /// A process could not take its storage into use, and ends; it is started again until it can.
    pub(crate) fn storage_refused(&mut self, server: usize, why: &End) {
        if self.has_failing_disk(server) {
            self.coverage.hit("storages that could not be opened");
            return self.crash_server(server);
        }
        let name = host_name(server_host(server));
        self.fail(format!("{name} ends itself: {why}"));
    }
}
