//! What goes wrong with disks.

use backup::BLOCK_BYTES;

use crate::cluster::{Cluster, server_host};
use crate::event::Event;
use crate::scenario::{MILLI, Replicated, SECOND};

/// What the disk of a failed or full volume answers.
const FULL: &str = "no space left on device";
const BROKEN: &str = "input/output error";

/// A disk takes nothing more for a while: it is full, or its writes or syncs fail; or every frame of it is taken.
pub fn fail(cluster: &mut Cluster, server: usize, replicated: Replicated) {
    let most = *cluster
        .streams
        .of("failing disks")
        .pick(&[100 * MILLI, 2 * SECOND, 6 * SECOND]);
    let after = cluster.streams.of("failing disks").between(MILLI, most);
    let (kind, disk) = (
        cluster.streams.of("failing disks").below(4),
        cluster.streams.of("failing disks").below(3),
    );
    // The next process does not believe writes of a failed disk that were not synced; `Flushed` has not promised it.
    let is_damage = !replicated.flushed;
    if kind == 3 || is_damage && !cluster.survives_damage() {
        cluster.note_fault(server_host(server), "has no free frame for ns", after);
        cluster.servers[server].frames_taken_until = cluster.now + after;
        return;
    }
    let disks = cluster.disks_of(server).count();
    let Some(disk) = disk.checked_rem(disks) else {
        return;
    };
    let faults = cluster
        .disks_of(server)
        .nth(disk)
        .map(|disk| &mut disk.faults);
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
    cluster.damages += u32::from(is_damage);
    cluster.coverage.hit(covers);
    cluster.note_fault(server_host(server), what, disk as u64);
    cluster.schedule_in(after, Event::RepairDisks(server));
}

/// A byte on a disk changes by itself, or cannot be read any more.
pub fn rot(cluster: &mut Cluster, server: usize) {
    let shard = cluster
        .streams
        .of("rot")
        .below(cluster.servers[server].shards.len());
    let is_readable = cluster.streams.of("rot").chance(600);
    let shards = &mut cluster.servers[server].shards;
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
    let offset = cluster.streams.of("rot").between(first, last);
    let what = if is_readable {
        disk.rot(offset, 1 << cluster.streams.of("rot").below(8));
        cluster.coverage.hit("bytes rotten");
        "has a rotten byte at"
    } else {
        disk.faults.unreadable_at = Some(offset);
        cluster.coverage.hit("bytes that cannot be read");
        "cannot read the byte at"
    };
    cluster.note_fault(server_host(server), what, offset);
}
