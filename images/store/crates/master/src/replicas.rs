//! The log on backups: what becomes durable through a [`Replicator`], and whether the shard may serve.

use replication::{BackupInfo, Replicator};
use wire::ids::ServerId;
use wire::member::{self, OpenFloor, ToCoordinator, shard};
use wire::time::Time;

use crate::config::{Identity, Replication};
use crate::output::{Channel, Output};
use crate::shard::Shard;

/// Passes on what a replicator wants.
struct ToBackups<'a, O>(&'a mut O);

impl<O: Output> replication::Output for ToBackups<'_, O> {
    fn connect_backup(&mut self, backup: ServerId, locator: &str) {
        self.0.connect_backup(Channel::Replication, backup, locator);
    }
    fn disconnect_backup(&mut self, backup: ServerId) {
        self.0.disconnect_backup(Channel::Replication, backup);
    }
    fn send_backup(&mut self, backup: ServerId, nonce: u64, parts: &[&[u8]]) {
        self.0
            .send_backup(Channel::Replication, backup, nonce, parts);
    }
    fn raise_open_floor(&mut self, segment_id: u64) {
        let floor = OpenFloor { segment_id };
        let kind = Some(shard::Kind::RaiseOpenFloor(floor));
        self.0.send_coordinator(ToCoordinator { kind });
    }
    fn log_message(&mut self, level: u32, text: &str) {
        self.0.log_message(level, text);
    }
}

/// The replicator of a server's log.
fn replicator(
    config: Replication,
    segment_bytes: u32,
    log: ServerId,
    identity: &Identity,
) -> Replicator {
    Replicator::new(replication::Config {
        log,
        host: identity.host_id.clone(),
        segment_bytes,
        replicas: config.replicas.into(),
        min_replicas: config.min_replicas.into(),
        copy_bytes: config.copy_bytes,
        repair_bytes_per_second: config.repair_bytes_per_second,
        seed: log.0 ^ identity.process,
    })
}

impl Shard {
    /// Begins with the log of another incarnation, or of none.
    pub(crate) fn replace_replicator(&mut self, log: Option<ServerId>, out: &mut impl Output) {
        if let Some(mut old) = self.replicator.take() {
            old.set_backups(Vec::new(), &mut ToBackups(out));
        }
        if let (Some(config), Some(log)) = (self.config.replication, log) {
            let segment_bytes = self.config.segment_bytes;
            self.replicator = Some(replicator(config, segment_bytes, log, &self.identity));
        }
    }

    pub(crate) fn replica_backup_connected(&mut self, backup: ServerId) {
        if let Some(replicator) = &mut self.replicator {
            replicator.connected(backup);
        }
    }

    pub(crate) fn replica_backup_disconnected(&mut self, now: Time, backup: ServerId) {
        if let Some(replicator) = &mut self.replicator {
            replicator.disconnected(now, backup);
        }
    }

    pub(crate) fn replica_backup_answer(
        &mut self,
        now: Time,
        backup: ServerId,
        nonce: u64,
        payload: &[u8],
        out: &mut impl Output,
    ) {
        let Some(replicator) = &mut self.replicator else {
            return;
        };
        if let Err(error) = replicator.answer(now, backup, nonce, payload, &mut ToBackups(out)) {
            let text = format!("backup {backup} sent an answer that cannot be read: {error}");
            out.log_message(1, &text);
            out.disconnect_backup(Channel::Replication, backup);
            replicator.disconnected(now, backup);
        }
    }

    /// The backups that may take replicas.
    pub(crate) fn replicate_to(&mut self, list: member::Backups, out: &mut impl Output) {
        let Some(replicator) = &mut self.replicator else {
            return;
        };
        let info = |backup: member::Backup| BackupInfo {
            id: ServerId(backup.server_id),
            host: backup.host_id,
            domain: backup.domain,
            locator: backup.locator,
            segment_bytes: backup.segment_bytes,
            is_retired: backup.is_retired,
            is_draining: backup.is_draining,
            is_last_resort: backup.is_last_resort,
        };
        let own = self.config.segment_bytes;
        let (fitting, small): (Vec<_>, Vec<_>) = list
            .backups
            .into_iter()
            .partition(|backup| backup.segment_bytes >= own);
        for backup in small {
            let (id, theirs) = (ServerId(backup.server_id), backup.segment_bytes);
            let text = format!(
                "backup {id} takes segments of {theirs} bytes and this server's have {own}: it gets none of them; give all \
                 servers the same segment size"
            );
            out.log_message(2, &text);
        }
        let backups = fitting.into_iter().map(info).collect();
        replicator.set_backups(backups, &mut ToBackups(out));
    }

    pub(crate) fn open_floor_raised(&mut self, floor: OpenFloor) {
        if let Some(replicator) = &mut self.replicator {
            replicator.floor_raised(floor.segment_id);
        }
    }

    /// A coordinator has let the shard in, again or anew.
    pub(crate) fn ask_for_open_floor(&mut self, out: &mut impl Output) {
        if let Some(replicator) = &mut self.replicator {
            replicator.coordinator_found(&mut ToBackups(out));
        }
    }

    /// How well the log is replicated; `None` if it is not meant to be. What a recovery has brought counts as a segment that lacks copies until
    /// nobody needs the log any more from which it came: of that, there may be one copy left.
    pub fn replication_report(&self) -> Option<replication::Report> {
        let mut report = self.replicator.as_ref().map(Replicator::report)?;
        report.segments_short += self.recoveries.unreleased_count();
        Some(report)
    }

    /// How many segments of the log have something at a backup that is to leave the store.
    pub(crate) fn segments_at(&self, backup: ServerId) -> u64 {
        let replicator = self.replicator.as_ref();
        replicator.map_or(0, |replicator| replicator.segments_at(backup))
    }

    /// A backup has said that this shard's log is being recovered by others: it serves nothing any more.
    pub fn is_deposed(&self) -> bool {
        self.replicator.as_ref().is_some_and(Replicator::is_deposed)
    }

    /// Whether no recovery of this shard's log can have begun. `now` must have been read after the request came that asks for it.
    pub fn is_serving(&self, now: Time) -> bool {
        let replicator = self.replicator.as_ref();
        replicator.is_none_or(|replicator| replicator.is_serving(now))
    }

    /// Until when that is so for certain, as far as is known now. [`Time::NEVER`] without replicas.
    pub fn serving_until(&self) -> Time {
        let replicator = self.replicator.as_ref();
        replicator.map_or(Time::NEVER, Replicator::serving_until)
    }

    /// Sends what is new to the backups, and the replies that waited for what is durable now.
    pub(crate) fn replicate(&mut self, now: Time, out: &mut impl Output) -> Time {
        let Some(replicator) = &mut self.replicator else {
            return Time::NEVER;
        };
        replicator.yield_to_replay(self.recoveries.are_replaying());
        let next = replicator.pump(now, &mut self.store.log, &mut ToBackups(out));
        if replicator.is_deposed() {
            self.gate.forget();
        }
        self.store.forget_removed();
        self.gate.open(self.store.log.durable_position(), out);
        next
    }
}
