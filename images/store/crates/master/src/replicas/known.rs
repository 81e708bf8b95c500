//! What the coordinator said of backups.

use core::time::Duration;
use std::collections::BTreeMap;

use base::ids::ServerId;
use base::time::Time;
use wire::member;

/// The coordinator is told no more often than this that something with one server broke.
const SUSPICION_INTERVAL: Duration = Duration::from_secs(1);

/// All backups of the store, as the coordinator last said.
#[derive(Default)]
pub(crate) struct KnownBackups(BTreeMap<ServerId, Known>);

struct Known {
    /// Where it listens for masters.
    locator: String,
    suspected: Option<Time>,
}

impl KnownBackups {
    pub fn set(&mut self, backups: &[member::Backup]) {
        let mut before = std::mem::take(&mut self.0);
        for backup in backups {
            let id = ServerId(backup.server_id);
            let known = Known {
                locator: backup.locator.clone(),
                suspected: before.remove(&id).and_then(|known| known.suspected),
            };
            self.0.insert(id, known);
        }
    }

    pub fn locator(&self, backup: ServerId) -> Option<&str> {
        self.0.get(&backup).map(|known| known.locator.as_str())
    }

    /// Whether the coordinator should hear now that a connection to this backup broke.
    pub fn may_suspect(&mut self, now: Time, backup: ServerId) -> bool {
        let Some(known) = self.0.get_mut(&backup) else {
            return false;
        };
        let is_due = known
            .suspected
            .is_none_or(|last| last + SUSPICION_INTERVAL <= now);
        if is_due {
            known.suspected = Some(now);
        }
        is_due
    }
}
