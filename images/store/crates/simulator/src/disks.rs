//! What goes wrong with disks, and how that ends.

use backup::BLOCK_BYTES;
use backup::testing::MemoryStorage;
use wire::peer::{ReplicaId, Request};

use crate::scenario::{MILLI, Replicated, SECOND};
use crate::world::{Event, World, host_name, server_host};

/// What the disk of a failed or full volume answers.
const FULL: &str = "no space left on device";
const BROKEN: &str = "input/output error";

impl World {
    /// Every disk of this server, whether its process runs or not.
    fn disks_of(&mut self, server: usize) -> impl Iterator<Item = &mut MemoryStorage> {
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

    /// A disk takes nothing more for a while: it is full, or its writes or syncs fail; or every frame of it is taken.
    pub(crate) fn fail_disk(&mut self, server: usize, replicated: Replicated) {
        let most = *self
            .streams
            .of("failing disks")
            .pick(&[100 * MILLI, 2 * SECOND, 6 * SECOND]);
        let after = self.streams.of("failing disks").between(MILLI, most);
        let (kind, disk) = (
            self.streams.of("failing disks").below(4),
            self.streams.of("failing disks").below(3),
        );
        // What was not synced on a disk that has failed is not believed by the next process; `Flushed` has not promised it.
        let is_damage = !replicated.flushed;
        if kind == 3 || is_damage && !self.survives_damage() {
            self.note_fault(server_host(server), "has no free frame for ns", after);
            self.servers[server].frames_taken_until = self.now + after;
            return;
        }
        let disks = self.disks_of(server).count();
        let Some(disk) = disk.checked_rem(disks) else {
            return;
        };
        let faults = self.disks_of(server).nth(disk).map(|disk| &mut disk.faults);
        let Some(faults) = faults else { return };
        let (what, covers) = match kind {
            0 => {
                faults.writes = Some(FULL.to_owned());
                ("has a full disk,", "disks full")
            }
            1 => {
                faults.writes = Some(BROKEN.to_owned());
                ("cannot write to disk", "disks whose writes fail")
            }
            _ => {
                faults.syncs = Some(BROKEN.to_owned());
                ("cannot sync disk", "disks whose syncs fail")
            }
        };
        self.damages += u32::from(is_damage);
        self.coverage.hit(covers);
        self.note_fault(server_host(server), what, disk as u64);
        self.schedule_in(after, Event::RepairDisks(server));
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

    /// A byte on a disk changes by itself, or cannot be read any more.
    pub(crate) fn rot(&mut self, server: usize) {
        let shard = self
            .streams
            .of("rot")
            .below(self.servers[server].shards.len());
        let is_readable = self.streams.of("rot").chance(600);
        let shards = &mut self.servers[server].shards;
        let Some(backup) = shards[shard].core.backup_mut() else {
            return;
        };
        let disk = backup.storage_mut();
        // The superblock is there in three places; that all of them rot is no single fault.
        let first = 3 * u64::from(BLOCK_BYTES);
        let used = disk.bytes().iter().rposition(|&byte| byte != 0);
        let last = used.unwrap_or(0) as u64;
        if last <= first {
            return;
        }
        let offset = self.streams.of("rot").between(first, last);
        let what = if is_readable {
            disk.rot(offset, 1 << self.streams.of("rot").below(8));
            self.coverage.hit("bytes rotten");
            "has a rotten byte at"
        } else {
            disk.faults.unreadable_at = Some(offset);
            self.coverage.hit("bytes that cannot be read");
            "cannot read the byte at"
        };
        self.note_fault(server_host(server), what, offset);
    }

    /// A process could not take its storage into use, and ends; it is started again until it can.
    pub(crate) fn storage_refused(&mut self, server: usize, why: &str) {
        if self.has_failing_disk(server) {
            self.coverage.hit("storages that could not be opened");
            return self.crash_server(server);
        }
        let name = host_name(server_host(server));
        self.fail(format!("{name} ends itself: {why}"));
    }
}
