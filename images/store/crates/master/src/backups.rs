//! Connections to backups, whatever they are for, and what the coordinator said of backups.

use core::time::Duration;
use std::collections::BTreeMap;

use wire::ids::ServerId;
use wire::member::{self, SuspectServer, ToCoordinator, shard};
use wire::time::Time;

use crate::output::{Channel, Output};
use crate::shard::Shard;

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
    fn set(&mut self, backups: &[member::Backup]) {
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
    fn may_suspect(&mut self, now: Time, backup: ServerId) -> bool {
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

impl Shard {
    /// The coordinator's list of backups.
    pub(crate) fn set_backups(&mut self, now: Time, list: member::Backups, out: &mut impl Output) {
        self.backups.set(&list.backups);
        self.replicate_to(list, out);
        self.forget_lost_sources(now, out);
    }

    /// A connection that [`Output::connect_backup`] began is there.
    pub fn backup_connected(
        &mut self,
        now: Time,
        channel: Channel,
        backup: ServerId,
        out: &mut impl Output,
    ) {
        match channel {
            Channel::Replication => self.replica_backup_connected(backup),
            Channel::Recovery => self.source_connected(backup, out),
            Channel::Migration => self.migration_connected(now, backup),
        }
    }

    /// A connection to a backup could not be made, or has ended.
    pub fn backup_disconnected(
        &mut self,
        now: Time,
        channel: Channel,
        backup: ServerId,
        out: &mut impl Output,
    ) {
        if self.has_coordinator() && self.backups.may_suspect(now, backup) {
            let server_id = backup.0;
            let kind = Some(shard::Kind::SuspectServer(SuspectServer { server_id }));
            out.send_coordinator(ToCoordinator { kind });
        }
        match channel {
            Channel::Replication => self.replica_backup_disconnected(now, backup),
            Channel::Recovery => self.source_disconnected(now, backup, out),
            Channel::Migration => self.migration_disconnected(now, backup),
        }
    }

    /// A backup answers the request `nonce`. What cannot be read ends the connection.
    pub fn backup_answer(
        &mut self,
        now: Time,
        channel: Channel,
        backup: ServerId,
        nonce: u64,
        payload: &[u8],
        out: &mut impl Output,
    ) {
        match channel {
            Channel::Replication => self.replica_backup_answer(now, backup, nonce, payload, out),
            Channel::Recovery => self.source_answer(now, backup, nonce, payload, out),
            Channel::Migration => self.migration_answer(now, backup, nonce, payload, out),
        }
    }
}
