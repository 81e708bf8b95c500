//! Connections to backups, whatever they are for, and whether the shard may serve.

use base::ids::ServerId;
use base::time::Time;
use wire::member::{self, SuspectServer, ToCoordinator, shard};

use crate::effects::{Channel, ShardEffects};
use crate::shard::Shard;

impl Shard {
    /// The coordinator's list of backups.
    pub(crate) fn set_backups(
        &mut self,
        now: Time,
        list: member::Backups,
        out: &mut impl ShardEffects,
    ) {
        self.replicas
            .set_backups(list, self.config.segment_bytes, out);
        let (store, known) = (&mut self.store, &self.replicas.known);
        self.recoveries.forget_lost_sources(store, known, now, out);
    }

    /// A connection that [`ShardEffects::connect_backup`] began is there.
    pub fn backup_connected(
        &mut self,
        now: Time,
        channel: Channel,
        backup: ServerId,
        out: &mut impl ShardEffects,
    ) {
        match channel {
            Channel::Replication => self.replicas.connected(backup),
            Channel::Recovery => self.recoveries.source_connected(backup, out),
            Channel::Migration => self.migrations.connected(now, backup),
        }
    }

    /// A connection to a backup could not be made, or has ended.
    pub fn backup_disconnected(
        &mut self,
        now: Time,
        channel: Channel,
        backup: ServerId,
        out: &mut impl ShardEffects,
    ) {
        if self.has_coordinator() && self.replicas.known.may_suspect(now, backup) {
            let server_id = backup.0;
            let kind = shard::Kind::SuspectServer(SuspectServer { server_id });
            out.send_coordinator(ToCoordinator::from(kind));
        }
        let (store, known) = (&mut self.store, &self.replicas.known);
        let (recoveries, migrations) = (&mut self.recoveries, &mut self.migrations);
        match channel {
            Channel::Replication => self.replicas.disconnected(now, backup),
            Channel::Recovery => recoveries.source_disconnected(store, known, now, backup, out),
            Channel::Migration => migrations.disconnected(now, backup),
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
        out: &mut impl ShardEffects,
    ) {
        let (store, known) = (&mut self.store, &self.replicas.known);
        let (recoveries, migrations) = (&mut self.recoveries, &mut self.migrations);
        match channel {
            Channel::Replication => self.replicas.answer(now, backup, nonce, payload, out),
            Channel::Recovery => {
                recoveries.source_answer(store, known, now, (backup, nonce), payload, out);
            }
            Channel::Migration => migrations.answer(store, now, backup, nonce, payload, out),
        }
    }

    /// How well the log is replicated; `None` if it is not meant to be. The objects of a recovery count as a segment that lacks copies until
    /// nobody needs the log any more from which it came: of that, there may be one copy left.
    pub fn replication_report(&self) -> Option<replication::Report> {
        let mut report = self.replicas.report()?;
        report.segments_short += self.recoveries.unreleased_count();
        Some(report)
    }

    /// A backup has said that this shard's log is being recovered by others: it serves nothing any more.
    pub fn is_deposed(&self) -> bool {
        self.replicas.is_deposed()
    }

    /// Whether no recovery of this shard's log can have begun. `now` must have been read after the request came that asks for it.
    pub fn is_serving(&self, now: Time) -> bool {
        self.replicas.is_serving(now)
    }

    /// Until when that is so for certain, as far as is known now. [`Time::NEVER`] without replicas.
    pub fn serving_until(&self) -> Time {
        self.replicas.serving_until()
    }

    /// Sends what is new to the backups, and the replies that waited for what is durable now.
    pub(super) fn replicate(&mut self, now: Time, out: &mut impl ShardEffects) -> Time {
        let are_replaying = self.recoveries.are_replaying();
        let log = &mut self.store.log;
        let Some(next) = self.replicas.pump(now, log, are_replaying, out) else {
            return Time::NEVER;
        };
        if self.replicas.is_deposed() {
            self.gate.forget();
        }
        self.store.forget_removed();
        self.gate.open(self.store.log.durable_position(), out);
        next
    }
}
