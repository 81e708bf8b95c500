//! What goes out: data, ends of segments, requests to free replicas, keep-alives.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use base::ids::ServerId;
use base::time::Time;
use log::Log;
use wire::peer::{Append, Free, KeepAlive, List, ReplicaId, Role};

use crate::ReplicationEffects;
use crate::backup::{Backup, ConnectionState};
use crate::floor::Floor;
use crate::replicator::{Replicator, STUCK};
use crate::request::Request;
use crate::segment::{Replica, Segment, Sums};

impl Replicator {
    /// Sends what the log has that backups do not have.
    pub(crate) fn send_all(&mut self, now: Time, log: &Log, out: &mut impl ReplicationEffects) {
        for at in 0..self.heads.len() {
            let id = self.heads[at];
            self.place(now, id);
            let may_close = self.may_close(id);
            let window_bytes = self.config.window_bytes();
            self.send_segment(now, id, may_close, window_bytes, log, out);
        }
        self.send_orphans(now, log, out);
        let window_bytes = match self.yields_to_replay {
            true => self.config.copy_bytes,
            false => self.config.window_bytes(),
        };
        for id in self.next_unfinished() {
            let before = self.background_bytes();
            if before >= window_bytes {
                break;
            }
            let is_repair = self.is_repair(id);
            // What the cleaner has replaced cannot be sent any more.
            if log.segment(id).is_none() || is_repair && now < self.repair_at {
                continue;
            }
            self.place(now, id);
            self.send_segment(now, id, true, window_bytes, log, out);
            if is_repair {
                let sent = u64::from(self.background_bytes() - before);
                self.repair_at = now + time_for(sent, self.config.repair_bytes_per_second);
            }
        }
    }

    /// There must always be an open head with nothing but closed ones before it.
    pub(crate) fn may_close(&self, head: u64) -> bool {
        let next = self.heads.iter().find(|id| **id > head);
        let next = next.and_then(|id| self.segments.get(id));
        next.is_some_and(|next| next.is_open_head() || next.all_closed())
    }

    /// A segment that had all of its replicas before. Nothing waits for it but safety; for the others the cleaner or a recovery waits.
    fn is_repair(&self, segment_id: u64) -> bool {
        let segment = self.segments.get(&segment_id);
        segment.is_some_and(|segment| segment.is_settled)
    }

    fn background_bytes(&self) -> u32 {
        let under_way = self.backups.values().map(|backup| backup.background_bytes);
        under_way.sum()
    }

    fn send_segment(
        &mut self,
        now: Time,
        segment_id: u64,
        may_close: bool,
        window_bytes: u32,
        log: &Log,
        out: &mut impl ReplicationEffects,
    ) {
        let (log_id, copy_bytes) = (self.config.log, self.config.copy_bytes);
        let append_bytes = self.config.append_bytes();
        let Some(segment) = self.segments.get_mut(&segment_id) else {
            return;
        };
        if !segment.is_awaited() {
            return;
        }
        let Some(data) = log.segment(segment_id) else {
            return;
        };
        for replica in &mut segment.replicas {
            let id = replica.backup;
            if let Some(backup) = self.backups.get_mut(&id).filter(|backup| backup.is_ready()) {
                let sender = Sender {
                    now,
                    id: ReplicaId {
                        log: log_id,
                        segment_id,
                    },
                    data,
                    log,
                    may_close: may_close && segment.is_closed,
                    append_bytes,
                    copy_bytes,
                };
                sender.send(replica, &mut segment.sums, backup, window_bytes, out);
            }
        }
    }

    /// Asks backups that have connected what they hold, before anything else.
    pub(crate) fn send_lists(&mut self, now: Time, out: &mut impl ReplicationEffects) {
        let list = List {
            log: self.config.log,
        };
        for backup in self.backups.values_mut() {
            if backup.is_up() && !std::mem::replace(&mut backup.list_sent, true) {
                backup.send(now, Request::List, &[&list.to_bytes()], out);
            }
        }
    }

    pub(crate) fn send_frees(&mut self, now: Time, out: &mut impl ReplicationEffects) {
        for backup in self.backups.values_mut() {
            while let Some(segment_id) = backup.next_free() {
                let replica = ReplicaId {
                    log: self.config.log,
                    segment_id,
                };
                let message = Free { replica }.to_bytes();
                backup.send(now, Request::Free { segment_id }, &[&message], out);
            }
        }
    }

    pub(crate) fn send_keep_alives(&mut self, now: Time, out: &mut impl ReplicationEffects) {
        let message = KeepAlive {
            log: self.config.log,
        };
        for id in promising(&self.heads, &self.segments, &self.floor) {
            if let Some(backup) = self.backups.get_mut(&id)
                && backup.is_up()
                && backup.keep_alive_due() <= now
            {
                backup.keep_alive_sent(now);
                backup.send(now, Request::KeepAlive, &[&message.to_bytes()], out);
            }
        }
    }

    /// When to pump again though nothing happens.
    pub(crate) fn next_deadline(&self, now: Time) -> Time {
        let retry = self.backups.values().map(|backup| match backup.link {
            ConnectionState::Down { retry_at } => retry_at,
            ConnectionState::Connecting { since } => since + STUCK,
            ConnectionState::Up => backup.avoided_until(now),
        });
        let interrupted = self.backups.values();
        let interrupted = interrupted.map(|backup| backup.interruptions.deadline());
        let up = promising(&self.heads, &self.segments, &self.floor)
            .filter_map(|id| self.backups.get(&id))
            .filter(|backup| backup.is_up());
        // Slow backups are looked for as often as promises are renewed.
        let unknown = self.unknown_due();
        let renewals = up.map(|backup| {
            backup
                .keep_alive_due()
                .max(now + crate::backup::KEEP_ALIVE_AGE / 4)
        });
        let waits_for_repair =
            self.repair_at > now && self.unfinished.iter().any(|id| self.is_repair(*id));
        let repair = waits_for_repair.then_some(self.repair_at);
        retry
            .chain(renewals)
            .chain(interrupted)
            .chain([unknown])
            .chain(repair)
            .min()
            .unwrap_or(Time::NEVER)
    }
}

/// How long `bytes` take at a rate.
fn time_for(bytes: u64, bytes_per_second: u64) -> Duration {
    let ns = u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_second);
    Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}

/// Backups whose promises count; some more than once.
fn promising<'a>(
    heads: &'a VecDeque<u64>,
    segments: &'a BTreeMap<u64, Segment>,
    floor: &'a Floor,
) -> impl Iterator<Item = ServerId> + 'a {
    let heads = heads.iter().filter_map(|id| segments.get(id));
    let replicas = heads.flat_map(|head| &head.replicas);
    let candidates = replicas.filter(|replica| replica.is_candidate());
    let orphans = floor.orphans.iter().map(|orphan| orphan.replica.backup);
    candidates.map(|replica| replica.backup).chain(orphans)
}

/// Sends one segment to one backup.
pub(crate) struct Sender<'a> {
    pub now: Time,
    pub id: ReplicaId,
    pub data: &'a [u8],
    pub log: &'a Log,
    pub may_close: bool,
    pub append_bytes: u32,
    pub copy_bytes: u32,
}

impl Sender<'_> {
    /// Sends what there is, as far as the window goes.
    pub fn send(
        &self,
        replica: &mut Replica,
        sums: &mut Sums,
        backup: &mut Backup,
        window_bytes: u32,
        out: &mut impl ReplicationEffects,
    ) {
        while backup.has_window(window_bytes) && self.send_next(replica, sums, backup, out) {}
    }

    /// Sends a piece; false if there is nothing to send.
    fn send_next(
        &self,
        replica: &mut Replica,
        sums: &mut Sums,
        backup: &mut Backup,
        out: &mut impl ReplicationEffects,
    ) -> bool {
        let segment_id = self.id.segment_id;
        let (offset, length) = (replica.sent_bytes, self.data.len() as u32);
        let end = match replica.role {
            Role::Head => self
                .log
                .end_of_appends(segment_id, offset, self.append_bytes),
            Role::Side => length.min(offset + self.copy_bytes),
        };
        let closes = self.may_close && end == length;
        if end == offset && (!closes || replica.close_sent) {
            return false;
        }
        let data = &self.data[offset as usize..end as usize];
        let crc = sums.up_to(end, replica.sent_crc, data);
        let append = Append {
            replica: self.id,
            role: replica.role,
            offset,
            closes,
            crc,
            data,
        };
        replica.sent_bytes = end;
        replica.sent_crc = crc;
        replica.close_sent = closes;
        replica.open_sent.get_or_insert(self.now);
        if closes {
            sums.complete = Some((end, crc));
        }
        let request = Request::Append {
            segment_id,
            offset,
            end,
            closes,
            crc,
            in_background: replica.role == Role::Side,
        };
        backup.send(self.now, request, &[&append.fixed_bytes(), data], out);
        true
    }
}
