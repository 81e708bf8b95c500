//! Backups that were away and are there again, under the same server id or another, with what they held.
//!
//! A backup that has connected says first what it holds. What is complete there and lacked is a replica again without a byte being sent; the rest
//! is freed, but nothing before it is safe elsewhere.

use core::time::Duration;
use std::collections::BTreeMap;

use base::bugs::{Bug, is_planted};
use base::ids::ServerId;
use base::time::Time;
use log::Log;
use wire::peer::{Held, Listed};

use crate::ReplicationEffects;
use crate::backup::Backup;
use crate::event::ReplicationEvent;
use crate::replicator::Replicator;
use crate::segment::{Replica, Segment};

/// Unknown replicas of each backup that are looked at at a time.
const STEP: usize = 64;
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// The fate of an unknown replica.
enum Verdict {
    /// It is as good as a replica that was just made.
    Adopt {
        bytes: u32,
        crc: u32,
    },
    Free,
    /// It may be the last copy, or a head that a recovery would take.
    Keep,
}

impl Replicator {
    /// A backup has said what it holds. Nothing else was sent to it on this connection before.
    pub(crate) fn listed(
        &mut self,
        id: ServerId,
        replicas: Vec<Listed>,
        out: &mut impl ReplicationEffects,
    ) {
        let mut unknown: BTreeMap<u64, Held> = replicas
            .into_iter()
            .map(|listed| (listed.segment_id, listed.held))
            .collect();
        if self.has_namesake(&unknown) {
            self.is_deposed = true;
            return out.report(ReplicationEvent::IdGivenOutTwice { backup: id });
        }
        for (segment_id, is_there) in self.compare(id, &unknown) {
            if is_there {
                unknown.remove(&segment_id);
            } else {
                out.report(ReplicationEvent::ReplicaGone {
                    backup: id,
                    segment_id,
                });
                self.lose_replica(segment_id, id);
            }
        }
        let holds = |segment_id| {
            let held: Option<&Held> = unknown.get(&segment_id);
            held.is_some_and(|held| *held != Held::Nothing)
        };
        self.floor.listed(id, holds);
        let Some(backup) = self.backups.get_mut(&id) else {
            return;
        };
        backup.interruptions.end();
        for (&segment_id, held) in &unknown {
            match held {
                Held::Nothing => backup.free(segment_id),
                Held::Closed { .. } => backup.do_not_free(segment_id),
                Held::OpenHead => {}
            }
        }
        unknown.retain(|segment_id, _| !backup.is_freeing(*segment_id));
        backup.unknown = unknown;
        backup.is_listed = true;
        backup.was_tried = true;
        self.orphans_again(id);
        self.unknown_at = Time::ZERO;
    }

    /// Whether another server had this log's id before: there are segments that this one has not come to. As long as nothing was acknowledged here,
    /// the id is left to the other: what it acknowledged may be brought back, and must not be freed.
    fn has_namesake(&self, listed: &BTreeMap<u64, Held>) -> bool {
        let newest = listed.keys().next_back();
        let is_ahead = newest.is_some_and(|newest| *newest > self.newest_segment);
        is_ahead && self.floor.raised.is_none() && !is_planted(Bug::IgnoreNamesake)
    }

    /// Segments of which this backup should hold a replica, and whether it does: a complete one, or one that can be completed.
    fn compare(&self, id: ServerId, listed: &BTreeMap<u64, Held>) -> Vec<(u64, bool)> {
        let known = self.segments.iter();
        let known = known.filter(|(_, segment)| segment.replica(id).is_some());
        let is_there = |(&segment_id, segment): (&u64, &Segment)| {
            let complete = segment
                .sums
                .complete
                .map(|(bytes, crc)| Held::Closed { bytes, crc });
            let is_complete = complete.is_some() && listed.get(&segment_id) == complete.as_ref();
            let replica = segment.replica(id);
            let can_resume = || replica.is_some_and(|it| self.can_resume(it, segment_id, listed));
            (segment_id, is_complete || can_resume())
        };
        known.map(is_there).collect()
    }

    /// When to look at unknown replicas, if there are any.
    pub(crate) fn unknown_due(&self) -> Time {
        let has_unknown = self
            .backups
            .values()
            .any(|backup| !backup.unknown.is_empty());
        if has_unknown {
            self.unknown_at
        } else {
            Time::NEVER
        }
    }

    /// Decides about some unknown replicas, now and then.
    pub(crate) fn claim_unknown(&mut self, now: Time, log: &Log) {
        if now < self.unknown_due() {
            return;
        }
        self.unknown_at = now + PAUSE;
        // It takes a while to read a segment.
        let mut may_compute = true;
        let with_unknown = |backup: &&mut Backup| !backup.unknown.is_empty();
        let backups = self.backups.values_mut().filter(with_unknown);
        let looked_at: Vec<_> = backups
            .map(|backup| (backup.id(), backup.next_unknown(STEP)))
            .collect();
        for (id, unknown) in looked_at {
            for (segment_id, held) in unknown {
                self.know_complete(segment_id, log, &mut may_compute);
                self.claim(id, segment_id, held);
            }
        }
    }

    fn claim(&mut self, id: ServerId, segment_id: u64, held: Held) {
        let verdict = self.verdict(id, segment_id, held);
        let Some(backup) = self.backups.get_mut(&id) else {
            return;
        };
        match verdict {
            Verdict::Keep => {}
            Verdict::Free => {
                backup.unknown.remove(&segment_id);
                backup.free(segment_id);
            }
            Verdict::Adopt { bytes, crc } => {
                backup.unknown.remove(&segment_id);
                backup.replica_count += 1;
                // Closed, no recovery takes it for the newest head.
                self.floor.take_orphan(segment_id, id);
                if let Some(segment) = self.segments.get_mut(&segment_id) {
                    segment.replicas.push(Replica::found(id, bytes, crc));
                }
                self.unfinished.insert(segment_id);
            }
        }
    }

    fn verdict(&self, id: ServerId, segment_id: u64, held: Held) -> Verdict {
        // What was given up as an open head is freed when the floor is above it, but for what turns out to be complete and is needed.
        match self.judge(id, segment_id, held) {
            Verdict::Free if self.floor.has_orphan(segment_id, id) => Verdict::Keep,
            verdict => verdict,
        }
    }

    fn judge(&self, id: ServerId, segment_id: u64, held: Held) -> Verdict {
        // All that was acknowledged of this head is there, and a recovery may look for it, also if the log has given it up.
        if held == Held::OpenHead && self.floor.lets_count(segment_id) {
            return Verdict::Keep;
        }
        let Some(segment) = self.segments.get(&segment_id) else {
            return Verdict::Free;
        };
        match held {
            Held::Nothing | Held::OpenHead => Verdict::Free,
            // This log has not closed the segment. The replica is of another log with the same id: the coordinator gave that id out a second time, after
            // it had been put back to an older state.
            Held::Closed { .. } if !segment.is_closed => Verdict::Free,
            Held::Closed { bytes, crc } => match segment.sums.complete {
                None => Verdict::Keep,
                Some(complete) if complete != (bytes, crc) => Verdict::Free,
                Some(_) if self.lacks_replica_on_host_of(id, segment_id) => {
                    Verdict::Adopt { bytes, crc }
                }
                Some(_) if self.is_safe_without_unknown(segment) => Verdict::Free,
                Some(_) => Verdict::Keep,
            },
        }
    }

    /// Whether the segment has fewer replicas than wanted, and none on the machine of this backup. Those on backups that are drained count only
    /// against another such one.
    fn lacks_replica_on_host_of(&self, id: ServerId, segment_id: u64) -> bool {
        let host = |id: &ServerId| self.backups.get(id).map(|backup| &backup.info.host);
        let segment = &self.segments[&segment_id];
        let holders = match self.is_draining(id) {
            true => segment.replicas.iter().collect(),
            false => self.staying(segment),
        };
        let mut hosts = holders.iter().map(|replica| host(&replica.backup));
        holders.len() < self.config.replicas && hosts.all(|holder| holder != host(&id))
    }

    /// Whether as many replicas as are wanted are complete, on backups that stay, can be reached, and have said so.
    fn is_safe_without_unknown(&self, segment: &Segment) -> bool {
        self.safe(segment).len() >= self.config.replicas
    }

    /// Length and checksum of a segment that was never sent whole are computed, of one at a time.
    fn know_complete(&mut self, segment_id: u64, log: &Log, may_compute: &mut bool) {
        if let Some(segment) = self.segments.get_mut(&segment_id)
            && segment.is_closed
            && segment.sums.complete.is_none()
            && let Some(data) = log.segment(segment_id)
            && std::mem::take(may_compute)
        {
            segment.sums.complete = Some((data.len() as u32, crc32c::crc32c(data)));
        }
    }
}
