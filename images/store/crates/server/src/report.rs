//! What the coordinator is told of a backup.

use std::time::Duration;

use backup::{Backup, Inventory, ReplicaInfo, State, Storage};
use base::time::Time;
use wire::member::{BackupReport, LogInventory, ReplicaFound};
use wire::peer::Role;

/// Between two reports of one session.
const INTERVAL: Duration = Duration::from_secs(1);

/// Which reports are due.
#[derive(Default)]
pub(crate) struct Reports {
    /// The last one of this session, without its logs.
    last: Option<BackupReport>,
    /// When the next may be made.
    not_before: Time,
    /// Something may have changed since.
    is_due: bool,
}

impl Reports {
    /// The first one of a session, or of a backup.
    pub fn begin(&mut self, now: Time) {
        *self = Reports {
            last: None,
            not_before: now,
            is_due: true,
        };
    }

    pub fn changed(&mut self) {
        self.is_due = true;
    }

    /// When to make the next one.
    pub fn due_at(&self) -> Time {
        if self.is_due {
            self.not_before
        } else {
            Time::NEVER
        }
    }

    /// The next one, if it says something new.
    pub fn make<S: Storage>(&mut self, now: Time, backup: &Backup<S>) -> Option<BackupReport> {
        let report = numbers(backup);
        self.is_due = false;
        self.not_before = now + INTERVAL;
        if self.last.as_ref() == Some(&report) {
            return None;
        }
        let logs = match self.last {
            None => backup.logs().map(|log| log.0).collect(),
            Some(_) => Vec::new(),
        };
        self.last = Some(report.clone());
        Some(BackupReport { logs, ..report })
    }
}

fn numbers<S: Storage>(backup: &Backup<S>) -> BackupReport {
    let (config, stats) = (backup.config(), backup.stats());
    BackupReport {
        logs: Vec::new(),
        segment_bytes: config.segment_bytes,
        frames: config.frame_count,
        frames_free: stats.frames_free + stats.frames_freeing,
        frames_damaged: stats.frames_damaged + stats.frames_unusable,
        retired: stats.retired.unwrap_or_default(),
        stalled: stats.stalled.unwrap_or_default().to_owned(),
        keeps_checkpoints: true,
    }
}

pub(crate) fn log_inventory(inventory: Inventory) -> LogInventory {
    LogInventory {
        log: inventory.log.0,
        replicas: inventory.replicas.into_iter().map(replica_found).collect(),
    }
}

fn replica_found(replica: ReplicaInfo) -> ReplicaFound {
    ReplicaFound {
        segment_id: replica.segment_id,
        is_side: replica.role == Role::Side,
        is_open: replica.state == State::Open,
        bytes: replica.bytes,
        crc: replica.crc,
        damage: replica
            .damage
            .map(|damage| damage.to_string())
            .unwrap_or_default(),
        digest: replica.digest,
    }
}
