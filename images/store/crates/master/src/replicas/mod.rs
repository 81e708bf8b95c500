//! The log on backups: what becomes durable through a [`Replicator`], and whether the shard may serve.

pub(crate) mod known;

use base::ids::ServerId;
use base::time::Time;
use log::Log;
use replication::{BackupInfo, ReplicationEvent, Replicator};
use wire::member::{self, OpenFloor, ToCoordinator, shard};

use crate::config::{Identity, Replication};
use crate::effects::{Channel, ShardEffects};
use crate::replicas::known::KnownBackups;
use crate::reports::ReplicasEvent;

/// Passes on what a replicator wants.
struct ToBackups<'a, O>(&'a mut O);

impl<O: ShardEffects> replication::ReplicationEffects for ToBackups<'_, O> {
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
        let kind = shard::Kind::RaiseOpenFloor(floor);
        self.0.send_coordinator(ToCoordinator::from(kind));
    }
    fn report(&mut self, event: ReplicationEvent) {
        self.0.report(event.into());
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

/// What becomes durable on backups, and which there are.
#[derive(Default)]
pub(crate) struct Replicas {
    /// Of a log with replicas, while the shard is enlisted.
    replicator: Option<Replicator>,
    pub known: KnownBackups,
}

impl Replicas {
    /// Begins with the log of another incarnation, or of none.
    pub fn replace(
        &mut self,
        config: Option<Replication>,
        segment_bytes: u32,
        log: Option<ServerId>,
        identity: &Identity,
        out: &mut impl ShardEffects,
    ) {
        if let Some(mut old) = self.replicator.take() {
            old.set_backups(Vec::new(), &mut ToBackups(out));
        }
        if let (Some(config), Some(log)) = (config, log) {
            self.replicator = Some(replicator(config, segment_bytes, log, identity));
        }
    }

    /// People want other numbers of copies.
    pub fn want(&mut self, wanted: &Replication) {
        if let Some(replicator) = &mut self.replicator {
            let numbers = (wanted.replicas.into(), wanted.min_replicas.into());
            replicator.want(numbers, wanted.repair_bytes_per_second);
        }
    }

    pub fn connected(&mut self, backup: ServerId) {
        if let Some(replicator) = &mut self.replicator {
            replicator.connected(backup);
        }
    }

    pub fn disconnected(&mut self, now: Time, backup: ServerId) {
        if let Some(replicator) = &mut self.replicator {
            replicator.disconnected(now, backup);
        }
    }

    pub fn answer(
        &mut self,
        now: Time,
        backup: ServerId,
        nonce: u64,
        payload: &[u8],
        out: &mut impl ShardEffects,
    ) {
        let Some(replicator) = &mut self.replicator else {
            return;
        };
        if let Err(error) = replicator.answer(now, backup, nonce, payload, &mut ToBackups(out)) {
            out.report(ReplicasEvent::UnreadableAnswer { backup, error }.into());
            out.disconnect_backup(Channel::Replication, backup);
            replicator.disconnected(now, backup);
        }
    }

    /// All backups of the store, of which those may take replicas that take segments of this size.
    pub fn set_backups(
        &mut self,
        list: member::Backups,
        segment_bytes: u32,
        out: &mut impl ShardEffects,
    ) {
        self.known.set(&list.backups);
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
        let own = segment_bytes;
        let (fitting, small): (Vec<_>, Vec<_>) = list
            .backups
            .into_iter()
            .partition(|backup| backup.segment_bytes >= own);
        for backup in small {
            let event = ReplicasEvent::FramesTooSmall {
                backup: ServerId(backup.server_id),
                frame_bytes: backup.segment_bytes,
                segment_bytes: own,
            };
            out.report(event.into());
        }
        let backups = fitting.into_iter().map(info).collect();
        replicator.set_backups(backups, &mut ToBackups(out));
    }

    pub fn open_floor_raised(&mut self, floor: OpenFloor) {
        if let Some(replicator) = &mut self.replicator {
            replicator.floor_raised(floor.segment_id);
        }
    }

    /// A coordinator has let the shard in, again or anew.
    pub fn ask_for_open_floor(&mut self, out: &mut impl ShardEffects) {
        if let Some(replicator) = &mut self.replicator {
            replicator.coordinator_found(&mut ToBackups(out));
        }
    }

    /// How well the log is replicated; `None` if it is not meant to be.
    pub fn report(&self) -> Option<replication::Report> {
        self.replicator.as_ref().map(Replicator::report)
    }

    /// How many segments of the log have something at a backup that is to leave the store.
    pub fn segments_at(&self, backup: ServerId) -> u64 {
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

    /// Sends what is new to the backups. `are_replaying`: that goes first.
    pub fn pump(
        &mut self,
        now: Time,
        log: &mut Log,
        are_replaying: bool,
        out: &mut impl ShardEffects,
    ) -> Option<Time> {
        let replicator = self.replicator.as_mut()?;
        replicator.yield_to_replay(are_replaying);
        Some(replicator.pump(now, log, &mut ToBackups(out)))
    }
}
