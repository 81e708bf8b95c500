//! What backups answer, and what a refusal means.

use core::time::Duration;

use trace::Event;
use wire::ids::ServerId;
use wire::peer::{Answer, Listing, Malformed, Status};
use wire::time::Time;

use crate::Output;
use crate::backup::{Request, UnderWay};
use crate::replicator::Replicator;

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
        out: &mut impl Output,
    ) -> Result<(), Malformed> {
        trace::note(Event::BackupAnswered, 0, id.0);
        let Some(backup) = self.backups.get_mut(&id) else {
            return Ok(());
        };
        let Some(request) = backup.answered(now, nonce) else {
            let text = format!("backup {id} has answered what it was not asked");
            out.log_message(2, &text);
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
                    let text = "this server's log is being recovered by others: it serves no more";
                    out.log_message(1, text);
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
                    None => self.ghost_answered(segment_id, id, (end, crc), closes),
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
        out: &mut impl Output,
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
            Status::Mismatch => out.log_message(1, &mismatch(id, &request.what)),
            _ => {}
        }
        let Request::Append { segment_id, .. } = request.what else {
            return;
        };
        let segment = self.segments.get_mut(&segment_id);
        if let Some(replica) = segment.and_then(|segment| segment.replica_mut(id))
            && status == Status::Full
            && !replica.is_open()
        {
            // Nothing of it is there.
            replica.open_sent = None;
        }
        self.lose_replica(segment_id, id);
        self.ghost_refused(segment_id, id);
    }

    /// Says, from time to time, that writes wait because backups have no room.
    pub(crate) fn tell_of_full_disks(&mut self, now: Time, out: &mut impl Output) {
        let is_waiting = |id: &u64| {
            let head = self.segments.get(id);
            head.is_some_and(|head| head.replicas.len() < self.config.min_replicas)
        };
        let full = self.backups.values().filter(|backup| backup.is_full);
        let count = full.count();
        if count == 0 || now < self.full_told_until || !self.heads.iter().any(is_waiting) {
            return;
        }
        self.full_told_until = now + FULL_TOLD;
        let text = format!(
            "no backup has a free frame for this log's next segment: {count} of {} that are known are full, and writes wait until one has; give \
             servers more room (a larger --segmentFrames or device, and a restart), or the store more servers",
            self.backups.len()
        );
        out.log_message(1, &text);
    }
}

/// What a refusal means that no honest backup gives: it says what to do, for the replica is made again elsewhere.
fn mismatch(id: ServerId, what: &Request) -> String {
    let which = match *what {
        Request::Append {
            segment_id,
            offset,
            end,
            ..
        } => format!("bytes {offset} to {end} of segment {segment_id}"),
        Request::Free { segment_id } => format!("the end of segment {segment_id}"),
        Request::KeepAlive => "a keep-alive".to_owned(),
        Request::List => "a question for what it holds".to_owned(),
    };
    format!(
        "backup {id} refused {which}: what it holds differs from what this server sent, or was damaged on the way; the replica is made again \
         elsewhere; if this comes again, replace that server's disk or memory"
    )
}
