//! Replicas of heads that were given up while they were open. A floor above them makes them count no more; or their backups answer after all, and are
//! sent the rest: one that is closed misleads nobody, and no floor is needed for it.
//!
//! So a master whose backups were slow, or could not be reached for a moment, goes on though the coordinator can note nothing.

use base::ids::ServerId;
use base::time::Time;
use log::Log;
use wire::peer::{Append, Held, ReplicaId, Role};

use crate::ReplicationEffects;
use crate::backup::Backup;
use crate::floor::Orphan;
use crate::replicator::Replicator;
use crate::request::Request;
use crate::sending::Sender;

impl Replicator {
    /// A backup has answered an append to a replica that was given up.
    pub(crate) fn orphan_answered(
        &mut self,
        segment_id: u64,
        id: ServerId,
        (end, crc): (u32, u32),
        closes: bool,
    ) {
        let Some(orphan) = self.floor.orphan_mut(segment_id, id) else {
            return;
        };
        orphan.replica.acknowledged(end, crc);
        if !closes {
            return;
        }
        self.floor.take_orphan(segment_id, id);
        if let Some(backup) = self.backups.get_mut(&id) {
            // It is taken for one of the segment's replicas if one is missing, and freed if not.
            let held = Held::Closed { bytes: end, crc };
            backup.unknown.insert(segment_id, held);
            self.unknown_at = Time::ZERO;
        }
    }

    /// A backup does not take what it is sent.
    pub(crate) fn orphan_refused(&mut self, segment_id: u64, id: ServerId) {
        if let Some(orphan) = self.floor.orphan_mut(segment_id, id) {
            orphan.is_in_step = false;
        }
    }

    /// A backup has said what it holds. What it was sent before has arrived or not, or will: it is sent everything once more. But where something was
    /// acknowledged and is not there any more, nothing is begun anew: for a while it would look like a head without what was acknowledged.
    pub(crate) fn orphans_again(&mut self, id: ServerId) {
        let Some(backup) = self.backups.get(&id) else {
            return;
        };
        let orphans = self.floor.orphans.iter_mut();
        for orphan in orphans.filter(|orphan| orphan.replica.backup == id) {
            let segment = self.segments.get(&orphan.segment_id);
            let has_other = segment.is_some_and(|segment| segment.replica(id).is_some());
            let may_begin = orphan.replica.acked_bytes == 0 || orphan.discarded.is_some();
            let is_there = backup.unknown.contains_key(&orphan.segment_id);
            let can_be = is_there || may_begin && !backup.is_freeing(orphan.segment_id);
            orphan.is_in_step = can_be && !has_other;
            orphan.replica.start_again();
        }
    }

    /// The coordinator has noted the open floor.
    pub fn floor_raised(&mut self, segment_id: u64) {
        for orphan in self.floor.raise(segment_id) {
            let id = orphan.replica.backup;
            let segment = self.segments.get(&orphan.segment_id);
            let has_other = segment.is_some_and(|segment| segment.replica(id).is_some());
            if let Some(backup) = self.backups.get_mut(&id)
                && !has_other
                && !backup.unknown.contains_key(&orphan.segment_id)
            {
                backup.free(orphan.segment_id);
            }
        }
    }

    /// Sends what is missing of replicas that were given up, and that they are complete.
    pub(crate) fn send_orphans(&mut self, now: Time, log: &Log, out: &mut impl ReplicationEffects) {
        for at in 0..self.floor.orphans.len() {
            let segment_id = self.floor.orphans[at].segment_id;
            let (may_close, window_bytes) =
                (self.may_close(segment_id), self.config.window_bytes());
            let orphan = &mut self.floor.orphans[at];
            let backup = self.backups.get_mut(&orphan.replica.backup);
            let Some(backup) = backup.filter(|backup| backup.is_ready() && !backup.retired) else {
                continue;
            };
            if !orphan.is_in_step {
                continue;
            }
            let id = ReplicaId {
                log: self.config.log,
                segment_id,
            };
            match (self.segments.get_mut(&segment_id), log.segment(segment_id)) {
                (Some(segment), Some(data)) => Sender {
                    now,
                    id,
                    data,
                    log,
                    may_close: may_close && segment.is_closed,
                    append_bytes: self.config.append_bytes(),
                    copy_bytes: self.config.copy_bytes,
                }
                .send(
                    &mut orphan.replica,
                    &mut segment.sums,
                    backup,
                    window_bytes,
                    out,
                ),
                _ if may_close => close_discarded(now, id, orphan, backup, out),
                _ => {}
            }
        }
    }
}

/// A head that was discarded is sent as one piece: it held a header and a digest. Its backup passes over what it holds.
fn close_discarded(
    now: Time,
    replica: ReplicaId,
    orphan: &mut Orphan,
    backup: &mut Backup,
    out: &mut impl ReplicationEffects,
) {
    let Some(data) = &orphan.discarded else {
        return;
    };
    if std::mem::replace(&mut orphan.replica.close_sent, true) {
        return;
    }
    let (end, crc) = (data.len() as u32, crc32c::crc32c(data));
    (orphan.replica.sent_bytes, orphan.replica.sent_crc) = (end, crc);
    let append = Append {
        replica,
        role: Role::Head,
        offset: 0,
        closes: true,
        crc,
        data,
    };
    let request = Request::Append {
        segment_id: replica.segment_id,
        offset: 0,
        end,
        closes: true,
        crc,
        in_background: false,
    };
    backup.send(now, request, &[&append.fixed_bytes(), data], out);
}
