//! Replicas of heads that were given up while they were open. A floor above them makes them count no more; or their backups answer after all, and are
//! sent the rest: one that is closed misleads nobody, and no floor is needed for it.
//!
//! So a master whose backups were slow, or could not be reached for a moment, goes on though the coordinator can note nothing.

use base::ids::ServerId;
use base::time::Time;
use log::Log;
use wire::peer::{Append, Held, ReplicaId, Role};

use crate::Output;
use crate::backup::Backup;
use crate::floor::Ghost;
use crate::replicator::Replicator;
use crate::request::Request;
use crate::sending::Sender;

impl Replicator {
    /// A backup has answered an append to a replica that was given up.
    pub(crate) fn ghost_answered(
        &mut self,
        segment_id: u64,
        id: ServerId,
        (end, crc): (u32, u32),
        closes: bool,
    ) {
        let Some(ghost) = self.floor.ghost_mut(segment_id, id) else {
            return;
        };
        ghost.replica.acknowledged(end, crc);
        if !closes {
            return;
        }
        self.floor.lay(segment_id, id);
        if let Some(backup) = self.backups.get_mut(&id) {
            // It is taken for one of the segment's replicas if one is missing, and freed if not.
            let held = Held::Closed { bytes: end, crc };
            backup.strays.insert(segment_id, held);
            self.strays_at = Time::ZERO;
        }
    }

    /// A backup does not take what it is sent.
    pub(crate) fn ghost_refused(&mut self, segment_id: u64, id: ServerId) {
        if let Some(ghost) = self.floor.ghost_mut(segment_id, id) {
            ghost.is_in_step = false;
        }
    }

    /// A backup has said what it holds. What it was sent before has arrived or not, or will: it is sent everything once more. But where something was
    /// acknowledged and is not there any more, nothing is begun anew: for a while it would look like a head without what was acknowledged.
    pub(crate) fn ghosts_again(&mut self, id: ServerId) {
        let Some(backup) = self.backups.get(&id) else {
            return;
        };
        let ghosts = self.floor.ghosts.iter_mut();
        for ghost in ghosts.filter(|ghost| ghost.replica.backup == id) {
            let segment = self.segments.get(&ghost.segment_id);
            let has_other = segment.is_some_and(|segment| segment.replica(id).is_some());
            let may_begin = ghost.replica.acked_bytes == 0 || ghost.discarded.is_some();
            let is_there = backup.strays.contains_key(&ghost.segment_id);
            let can_be = is_there || may_begin && !backup.is_freeing(ghost.segment_id);
            ghost.is_in_step = can_be && !has_other;
            ghost.replica.start_again();
        }
    }

    /// The coordinator has noted the open floor.
    pub fn floor_raised(&mut self, segment_id: u64) {
        for ghost in self.floor.raise(segment_id) {
            let id = ghost.replica.backup;
            let segment = self.segments.get(&ghost.segment_id);
            let has_other = segment.is_some_and(|segment| segment.replica(id).is_some());
            if let Some(backup) = self.backups.get_mut(&id)
                && !has_other
                && !backup.strays.contains_key(&ghost.segment_id)
            {
                backup.free(ghost.segment_id);
            }
        }
    }

    /// Sends what is missing of replicas that were given up, and that they are complete.
    pub(crate) fn send_ghosts(&mut self, now: Time, log: &Log, out: &mut impl Output) {
        for at in 0..self.floor.ghosts.len() {
            let segment_id = self.floor.ghosts[at].segment_id;
            let (may_close, window_bytes) =
                (self.may_close(segment_id), self.config.window_bytes());
            let ghost = &mut self.floor.ghosts[at];
            let backup = self.backups.get_mut(&ghost.replica.backup);
            let Some(backup) = backup.filter(|backup| backup.is_ready() && !backup.retired) else {
                continue;
            };
            if !ghost.is_in_step {
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
                    &mut ghost.replica,
                    &mut segment.sums,
                    backup,
                    window_bytes,
                    out,
                ),
                _ if may_close => close_discarded(now, id, ghost, backup, out),
                _ => {}
            }
        }
    }
}

/// A head that was discarded is sent as one piece: it held a header and a digest. Its backup passes over what it holds.
fn close_discarded(
    now: Time,
    replica: ReplicaId,
    ghost: &mut Ghost,
    backup: &mut Backup,
    out: &mut impl Output,
) {
    let Some(data) = &ghost.discarded else { return };
    if std::mem::replace(&mut ghost.replica.close_sent, true) {
        return;
    }
    let (end, crc) = (data.len() as u32, crc32c::crc32c(data));
    (ghost.replica.sent_bytes, ghost.replica.sent_crc) = (end, crc);
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
