//! Finding a dead server's log: what the backups hold of it, and whether that is all. docs/replication.md, "Which log is the log?".

use core::time::Duration;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use wire::bugs::{Bug, is_planted};
use wire::ids::ServerId;
use wire::member::{Log, ReplicaFound, SegmentSource, ToShard, coordinator};
use wire::time::Time;

use crate::Output;
use crate::members::Members;

/// A backup that has not answered is asked again after this.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Backups that take longer are not waited for where the others have everything. Each waits out its promise to the old master first.
const GRACE: Duration = Duration::from_millis(600);
/// Segments that a text names one by one.
const MAX_NAMED: usize = 8;

/// Up to where a dead server's log is believed: its newest segment, and so much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub segment_id: u64,
    pub bytes: u32,
}

/// What a log consists of, and who has it.
pub(crate) struct Found {
    pub head: Head,
    pub segments: Vec<SegmentSource>,
}

type Replicas<'a> = Vec<(ServerId, &'a ReplicaFound)>;

#[derive(Debug)]
pub(crate) struct Search {
    log: ServerId,
    began: Time,
    /// Connection on which each server's backup was asked last, and when.
    asked: BTreeMap<u32, (u64, Time)>,
    /// What each backup holds.
    found: BTreeMap<ServerId, Vec<ReplicaFound>>,
}

impl Search {
    pub fn new(log: ServerId, now: Time) -> Search {
        Search {
            log,
            began: now,
            asked: BTreeMap::new(),
            found: BTreeMap::new(),
        }
    }

    /// Asks the backups that have not answered, and forgets what those had that are gone.
    pub fn ask(&mut self, now: Time, members: &mut Members, out: &mut impl Output) {
        self.found.retain(|backup, _| {
            let server = members.server(backup.index());
            server.is_some_and(|server| server.id == *backup && server.backup.is_some())
        });
        for (id, connection) in members.linked_backups() {
            let asked = self.asked.get(&id.index());
            let is_due = asked.is_none_or(|&(on, at)| on != connection || now >= at + ASK_AGAIN);
            if self.found.contains_key(&id) || !is_due {
                continue;
            }
            self.asked.insert(id.index(), (connection, now));
            let log = Log { log: self.log.0 };
            let kind = Some(coordinator::Kind::FenceLog(log));
            out.send_member(connection, ToShard { kind });
        }
    }

    pub fn answered(&mut self, backup: ServerId, replicas: Vec<ReplicaFound>) {
        self.found.insert(backup, replicas);
    }

    /// Whether waiting for more answers is not worth it.
    pub fn has_settled(&self, now: Time, members: &Members) -> bool {
        let mut backups = members.linked_backups();
        now >= self.began + GRACE || backups.all(|(id, _)| self.found.contains_key(&id))
    }

    /// Every segment of the log from `from_segment` on, and who has it. The error names what nobody has. `chosen`: what an earlier recovery took
    /// for the head, and was believed with.
    pub fn segments(
        &self,
        floor: u64,
        chosen: Option<Head>,
        from_segment: u64,
    ) -> Result<Found, String> {
        let (head, mut digest) = self.head(floor, chosen)?;
        let found = Head {
            segment_id: head.segment_id,
            bytes: head.bytes,
        };
        if is_planted(Bug::IgnoreDigest) {
            digest = self.all_closed();
        }
        let mut closed: BTreeMap<u64, Replicas<'_>> = BTreeMap::new();
        for (backup, replica) in self.replicas() {
            if !replica.is_open && replica.damage.is_empty() {
                let of_segment = closed.entry(replica.segment_id).or_default();
                of_segment.push((backup, replica));
            }
        }
        let mut segments = Vec::new();
        let mut missing = Vec::new();
        // Also of those that are not read: where one of them is closed nowhere, an older head may be open on a backup that has not answered.
        for segment_id in digest {
            match closed.get(&segment_id) {
                Some(replicas) if segment_id >= from_segment => {
                    segments.push(self.source(replicas));
                }
                Some(_) => {}
                None => missing.push(segment_id),
            }
        }
        if head.segment_id >= from_segment {
            segments.push(head);
        }
        if missing.is_empty() {
            let head = found;
            Ok(Found { head, segments })
        } else {
            Err(self.name_missing(&missing))
        }
    }

    fn replicas(&self) -> impl Iterator<Item = (ServerId, &ReplicaFound)> {
        let backups = self.found.iter();
        backups.flat_map(|(&backup, replicas)| replicas.iter().map(move |one| (backup, one)))
    }

    fn all_closed(&self) -> Vec<u64> {
        let closed = self.replicas().filter(|(_, replica)| !replica.is_open);
        let ids: BTreeSet<u64> = closed.map(|(_, replica)| replica.segment_id).collect();
        ids.into_iter().collect()
    }

    /// The oldest head segment of which an open replica counts: younger ones hold nothing that was acknowledged. Of its replicas the longest,
    /// and the digest in it.
    fn head(&self, floor: u64, chosen: Option<Head>) -> Result<(SegmentSource, Vec<u64>), String> {
        let floor = if is_planted(Bug::UseStaleOpenReplica) {
            0
        } else {
            floor
        };
        let counts = |replica: &ReplicaFound| {
            replica.is_open
                && !replica.is_side
                && replica.damage.is_empty()
                && replica.segment_id >= floor
                && chosen.is_none_or(|head| {
                    (head.segment_id, head.bytes) == (replica.segment_id, replica.bytes)
                })
        };
        let mut heads: Replicas<'_> = self.replicas().filter(|(_, one)| counts(one)).collect();
        // The longest of the oldest first.
        heads.sort_by_key(|(_, replica)| (replica.segment_id, Reverse(replica.bytes)));
        let Some(&(_, first)) = heads.first() else {
            return Err(self.name_missing_head(floor, chosen));
        };
        heads.retain(|(_, other)| {
            (other.segment_id, other.bytes) == (first.segment_id, first.bytes)
        });
        Ok((self.source(&heads), first.digest.clone()))
    }

    /// These replicas are of one segment; at least one.
    fn source(&self, replicas: &[(ServerId, &ReplicaFound)]) -> SegmentSource {
        let (_, first) = replicas[0];
        let same = replicas.iter().filter(|(_, one)| one.bytes == first.bytes);
        let mut backups: Vec<u64> = same.map(|(backup, _)| backup.0).collect();
        // So that not all segments are asked of the same one first.
        let turn = first.segment_id as usize % backups.len();
        backups.rotate_left(turn);
        SegmentSource {
            log: self.log.0,
            segment_id: first.segment_id,
            bytes: first.bytes,
            backups,
        }
    }

    fn name_missing(&self, missing: &[u64]) -> String {
        let named: Vec<String> = missing
            .iter()
            .take(MAX_NAMED)
            .map(|&segment_id| {
                let of_it = self
                    .replicas()
                    .filter(|(_, replica)| replica.segment_id == segment_id);
                let damaged = of_it.filter(|(_, replica)| !replica.damage.is_empty()).map(
                    |(backup, replica)| {
                        format!("the replica at server {backup} {}", replica.damage)
                    },
                );
                let damaged: Vec<String> = damaged.collect();
                if damaged.is_empty() {
                    segment_id.to_string()
                } else {
                    format!("{segment_id} ({})", damaged.join(", "))
                }
            })
            .collect();
        let more = missing.len().saturating_sub(MAX_NAMED);
        let more = if more == 0 {
            String::new()
        } else {
            format!(" and {more} more")
        };
        format!(
            "no backup that answers has segment {}{more} of the log of server {}",
            named.join(", "),
            self.log
        )
    }

    fn name_missing_head(&self, floor: u64, chosen: Option<Head>) -> String {
        if let Some(Head { segment_id, bytes }) = chosen {
            return format!(
                "no backup that answers has the head of the log of server {} with which its recovery began (segment {segment_id}, {bytes} bytes)",
                self.log
            );
        }
        let damaged: Vec<String> = self
            .replicas()
            .filter(|(_, replica)| {
                replica.is_open && replica.segment_id >= floor && !replica.damage.is_empty()
            })
            .map(|(backup, replica)| {
                format!(
                    "; segment {} at server {backup} {}",
                    replica.segment_id, replica.damage
                )
            })
            .collect();
        format!(
            "no backup that answers has the head of the log of server {} (segment {floor} or a later one){}",
            self.log,
            damaged.concat()
        )
    }
}
