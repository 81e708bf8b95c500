//! What backups answer, and what a refusal means.

use core::time::Duration;

use base::bugs::{Bug, is_planted};
use base::ids::ServerId;
use base::time::Time;
use trace::Event;
use wire::peer::{Answer, Listing, Malformed, Status};

use crate::ReplicationEffects;
use crate::backup::UnderWay;
use crate::event::ReplicationEvent;
use crate::replicator::Replicator;
use crate::request::Request;

/// That disks are full is said as often as this, as long as it holds.
const FULL_TOLD: Duration = Duration::from_secs(10);

impl Replicator {
    /// A backup answers the request `nonce`. If that makes no sense, its connection must be closed, and that be told.
    pub fn answer(
        &mut self,
        now: Time,
        id: ServerId,
        nonce: u64,
        payload: &[u8],
        out: &mut impl ReplicationEffects,
    ) -> Result<(), Malformed> {
        trace::note(Event::BackupAnswered, 0, id.0);
        let Some(backup) = self.backups.get_mut(&id) else {
            return Ok(());
        };
        let Some(request) = backup.answered(now, nonce) else {
            out.report(ReplicationEvent::UnknownAnswer { backup: id });
            return Ok(());
        };
        let status = if let Request::List = request.what {
            let listing = Listing::decode(payload)?;
            if listing.status == Status::Ok {
                self.listed(id, listing.replicas, out);
            }
            listing.status
        } else {
            Answer::decode(payload)?.status
        };
        match status {
            Status::Ok => self.done(id, request),
            Status::Fenced => {
                if !std::mem::replace(&mut self.is_deposed, true) {
                    out.report(ReplicationEvent::Deposed);
                }
            }
            status => self.refused(now, id, request, status, out),
        }
        Ok(())
    }

    fn done(&mut self, id: ServerId, request: UnderWay) {
        let Some(backup) = self.backups.get_mut(&id) else {
            return;
        };
        match request.what {
            Request::Free { .. } | Request::List => {}
            Request::KeepAlive => backup.promises(request.sent_at),
            Request::Append {
                segment_id,
                end,
                closes,
                crc,
                ..
            } => {
                backup.promises(request.sent_at);
                backup.is_full = false;
                let segment = self.segments.get_mut(&segment_id);
                match segment.and_then(|segment| segment.replica_mut(id)) {
                    Some(replica) => {
                        replica.acknowledged(end, crc);
                        replica.is_closed |= closes;
                    }
                    None => self.orphan_answered(segment_id, id, (end, crc), closes),
                }
            }
        }
    }

    fn refused(
        &mut self,
        now: Time,
        id: ServerId,
        request: UnderWay,
        status: Status,
        out: &mut impl ReplicationEffects,
    ) {
        let Some(backup) = self.backups.get_mut(&id) else {
            return;
        };
        match status {
            Status::Full => backup.full(now),
            Status::Retired => {
                backup.was_tried = true;
                return self.retire(id, out);
            }
            Status::Mismatch => out.report(ReplicationEvent::Mismatch {
                backup: id,
                request: request.what,
            }),
            _ => {}
        }
        let Request::Append {
            segment_id, offset, ..
        } = request.what
        else {
            return;
        };
        let opens = offset == 0 || is_planted(Bug::ForgetOpenReplica);
        let segment = self.segments.get_mut(&segment_id);
        if let Some(replica) = segment.and_then(|segment| segment.replica_mut(id))
            && status == Status::Full
            && opens
            && replica.may_be_absent()
        {
            // Nothing of it is there.
            replica.open_sent = None;
        }
        self.lose_replica(segment_id, id);
        self.orphan_refused(segment_id, id);
    }

    /// Says, from time to time, that writes wait because backups have no room.
    pub(crate) fn tell_of_full_disks(&mut self, now: Time, out: &mut impl ReplicationEffects) {
        let is_waiting = |id: &u64| {
            let head = self.segments.get(id);
            head.is_some_and(|head| head.replicas.len() < self.config.min_replicas)
        };
        let full = self.backups.values().filter(|backup| backup.is_full);
        let full = full.count();
        if full == 0 || now < self.full_told_until || !self.heads.iter().any(is_waiting) {
            return;
        }
        self.full_told_until = now + FULL_TOLD;
        let known = self.backups.len();
        out.report(ReplicationEvent::BackupsFull { full, known });
    }
}
