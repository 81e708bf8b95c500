//! Finding a dead server's log: what the backups hold of it, and whether that is all. docs/replication.md, "Which log is the log?".

use core::time::Duration;
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};

use base::bugs::{Bug, is_planted};
use base::ids::ServerId;
use base::time::Time;
use wire::member::{Log, ReplicaFound, SegmentSource, ToShard, coordinator};

use crate::CoordinatorEffects;
use crate::recovery::dead::{Dead, Head};
use crate::recovery::missing::Missing;
use crate::registry::members::Members;

/// A backup that has not answered is asked again after this.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Backups that take longer are not waited for where the others have everything. Each waits out its promise to the old master first.
const GRACE: Duration = Duration::from_millis(600);
/// Segments that a text names one by one.
const MAX_NAMED: usize = 8;

/// What a log consists of, and who has it.
pub(crate) struct Found {
    /// `None` where somebody has accepted that parts are lost: what is left was laid down then.
    pub head: Option<Head>,
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
    pub fn ask(&mut self, now: Time, members: &mut Members, out: &mut impl CoordinatorEffects) {
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
            let kind = coordinator::Kind::FenceLog(log);
            out.send_member(connection, ToShard::from(kind));
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

    /// For people: backups that are connected and have not said what they hold; empty if all have.
    pub fn who_is_silent(&self, members: &Members) -> String {
        let backups = members.linked_backups();
        let silent = backups.filter(|(id, _)| !self.found.contains_key(id));
        let silent: Vec<String> = silent.map(|(id, _)| id.to_string()).collect();
        match silent.as_slice() {
            [] => String::new(),
            named => format!(
                "backups that have yet to say what they hold of the log of server {}: those of servers {}",
                self.log,
                named[..named.len().min(MAX_NAMED)].join(", ")
            ),
        }
    }

    /// Every segment of the log from `from_segment` on, and who has it. The error says what nobody has.
    pub fn segments(&self, dead: &Dead, from_segment: u64) -> Result<Found, Missing> {
        if let Some(left) = &dead.left {
            return self.segments_left(&left.segments, from_segment);
        }
        let floor = dead.floor.unwrap_or(0);
        let Some((head, mut digest)) = self.head(floor, dead.head) else {
            return Err(Missing {
                segments: Vec::new(),
                lacks_head: true,
                left: self.everything(dead.head),
                text: self.name_missing_head(floor, dead.head),
            });
        };
        if is_planted(Bug::IgnoreDigest) {
            digest = self.all_closed();
        }
        let closed = self.replicas_by_segment(|replica| !replica.is_open);
        let mut segments = Vec::new();
        let mut missing = Vec::new();
        let mut left = BTreeMap::from([(head.segment_id, head.bytes)]);
        // Also of those that are not read: where one of them is closed nowhere, an older head may be open on a backup that has not answered.
        for segment_id in digest {
            match closed.get(&segment_id) {
                Some(replicas) => {
                    left.insert(segment_id, replicas[0].1.bytes);
                    if segment_id >= from_segment {
                        segments.push(self.source(replicas));
                    }
                }
                None => missing.push(segment_id),
            }
        }
        if !missing.is_empty() {
            let begun = self.everything(dead.head);
            let begun = begun.into_iter().filter(|(id, _)| missing.contains(id));
            left.extend(begun);
            return Err(Missing {
                text: self.name_missing(&missing),
                segments: missing,
                lacks_head: false,
                left,
            });
        }
        let head_taken = Head {
            segment_id: head.segment_id,
            bytes: head.bytes,
        };
        if head.segment_id >= from_segment {
            segments.push(head);
        }
        Ok(Found {
            head: Some(head_taken),
            segments,
        })
    }

    /// Of a log of which parts are given up: exactly what was left then, whatever has come back since.
    fn segments_left(
        &self,
        left: &BTreeMap<u64, u32>,
        from_segment: u64,
    ) -> Result<Found, Missing> {
        let mut segments = Vec::new();
        let mut missing = Vec::new();
        let by_segment = self
            .replicas_by_segment(|replica| left.get(&replica.segment_id) == Some(&replica.bytes));
        for segment_id in left.keys() {
            match by_segment.get(segment_id) {
                Some(replicas) if *segment_id >= from_segment => {
                    segments.push(self.source(replicas));
                }
                Some(_) => {}
                None => missing.push(*segment_id),
            }
        }
        if missing.is_empty() {
            return Ok(Found {
                head: None,
                segments,
            });
        }
        let mut left = left.clone();
        left.retain(|segment_id, _| !missing.contains(segment_id));
        Err(Missing {
            text: self.name_missing(&missing),
            segments: missing,
            lacks_head: false,
            left,
        })
    }

    /// Segments of which something can be read, and how much of each: a closed replica, else the longest open one of a head. `chosen`: the head that was
    /// believed already; what lies behind its end was never acknowledged, and its versions have been used again since.
    fn everything(&self, chosen: Option<Head>) -> BTreeMap<u64, u32> {
        let is_behind = |replica: &ReplicaFound| {
            chosen.is_some_and(|head| match replica.segment_id.cmp(&head.segment_id) {
                Ordering::Less => false,
                Ordering::Equal => replica.bytes > head.bytes,
                Ordering::Greater => replica.is_open,
            })
        };
        // What there is of a copy that is not complete ends anywhere in an entry, and backups give nothing out of it.
        let is_readable = |replica: &ReplicaFound| !(replica.is_open && replica.is_side);
        let readable =
            self.replicas_by_segment(|replica| is_readable(replica) && !is_behind(replica));
        let longest = readable.into_iter().filter_map(|(segment_id, replicas)| {
            let of_it = replicas.iter().map(|(_, replica)| replica);
            let best = of_it.max_by_key(|replica| (!replica.is_open, replica.bytes))?;
            Some((segment_id, best.bytes))
        });
        longest.filter(|(_, bytes)| *bytes > 0).collect()
    }

    /// Undamaged replicas.
    fn replicas_by_segment(
        &self,
        counts: impl Fn(&ReplicaFound) -> bool,
    ) -> BTreeMap<u64, Replicas<'_>> {
        let mut by_segment: BTreeMap<u64, Replicas<'_>> = BTreeMap::new();
        for (backup, replica) in self.replicas() {
            if replica.damage.is_empty() && counts(replica) {
                let of_segment = by_segment.entry(replica.segment_id).or_default();
                of_segment.push((backup, replica));
            }
        }
        by_segment
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
    fn head(&self, floor: u64, chosen: Option<Head>) -> Option<(SegmentSource, Vec<u64>)> {
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
        let &(_, first) = heads.first()?;
        heads.retain(|(_, other)| {
            (other.segment_id, other.bytes) == (first.segment_id, first.bytes)
        });
        Some((self.source(&heads), first.digest.clone()))
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
                let damaged = of_it.map(|(backup, replica)| match replica.damage.as_str() {
                    "" if replica.is_side => format!("the copy at server {backup} is not complete"),
                    "" => format!("server {backup} has only its first {} bytes", replica.bytes),
                    damage => format!("the replica at server {backup} {damage}"),
                });
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
            let of_it = self
                .replicas()
                .filter(|(_, replica)| replica.segment_id == segment_id);
            let there = of_it.map(|(backup, replica)| match replica.damage.as_str() {
                "" => format!("; server {backup} has {} bytes of it", replica.bytes),
                damage => format!("; that at server {backup} {damage}"),
            });
            let there: Vec<String> = there.collect();
            return format!(
                "no backup that answers has the head of the log of server {} with which its recovery began (segment {segment_id}, {bytes} bytes){}",
                self.log,
                there.concat()
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
