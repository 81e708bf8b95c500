//! What happens to a log's replicas: events come in here.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::ids::ServerId;
use base::time::Time;
use log::{Change, Log, LogPosition};
use wire::peer::Role;

use crate::backup::{Backup, ConnectionState};
use crate::config::Config;
use crate::event::ReplicationEvent;
use crate::floor::{Floor, Orphan};
use crate::random::Random;
use crate::segment::{Replica, Segment};
use crate::{BackupInfo, ReplicationEffects};

/// A connection on which a request waits for longer is closed, and an attempt to connect that takes longer is given up.
pub(crate) const STUCK: Duration = Duration::from_secs(5);

/// How well the log is replicated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Backups that take replicas.
    pub backups: u64,
    /// Segments that have replicas or shall have.
    pub segments: u64,
    /// Those with fewer replicas than wanted, open side segments not counted.
    pub segments_short: u64,
    /// Data that waits to be copied.
    pub waiting_bytes: u64,
    /// Replicas so far that went to backups that are to leave, as there were too few others.
    pub last_resorts: u64,
}

/// See the crate's documentation.
pub struct Replicator {
    pub(crate) config: Config,
    pub(crate) backups: BTreeMap<ServerId, Backup>,
    pub(crate) segments: BTreeMap<u64, Segment>,
    /// The highest id that a segment of this log has had.
    pub(crate) newest_segment: u64,
    /// Head segments that are not settled, oldest first; the last is the log's head.
    pub(crate) heads: VecDeque<u64>,
    /// The end of the newest head that is settled: durable, whatever happens to its successors.
    pub(crate) settled: LogPosition,
    /// Segments other than those in `heads` for which there is something to do.
    pub(crate) unfinished: BTreeSet<u64>,
    pub(crate) unfinished_cursor: u64,
    pub(crate) floor: Floor,
    /// A backup has refused this log for ever, as somebody recovers it; or holds what another log of the same id wrote.
    pub(crate) is_deposed: bool,
    /// The head must be replaced as soon as memory is free.
    pub(crate) wants_new_head: bool,
    pub(crate) more_replicas_at: Time,
    /// No replica that was lost is made again before this.
    pub(crate) repair_at: Time,
    /// Copies that nobody waits for go out a piece at a time.
    pub(crate) yields_to_replay: bool,
    /// When to look at some of the unknown replicas again.
    pub(crate) unknown_at: Time,
    /// That disks are full is not said again before this.
    pub(crate) full_told_until: Time,
    pub(crate) random: Random,
    pub(crate) last_resorts: u64,
}

impl Replicator {
    pub fn new(config: Config) -> Replicator {
        assert!(config.min_replicas >= 1 && config.replicas >= config.min_replicas);
        assert!(config.repair_bytes_per_second > 0);
        Replicator {
            random: Random::new(config.seed),
            config,
            backups: BTreeMap::new(),
            segments: BTreeMap::new(),
            newest_segment: 0,
            heads: VecDeque::new(),
            settled: LogPosition::START,
            unfinished: BTreeSet::new(),
            unfinished_cursor: 0,
            floor: Floor::default(),
            is_deposed: false,
            wants_new_head: false,
            more_replicas_at: Time::ZERO,
            repair_at: Time::ZERO,
            yields_to_replay: false,
            unknown_at: Time::ZERO,
            full_told_until: Time::ZERO,
            last_resorts: 0,
        }
    }

    /// So many replicas and at least so many are wanted from now on, also of what is there: those that are missing are made, those that are too many freed
    /// once enough are complete; the open head is replaced by one that has as many.
    ///
    /// # Panics
    /// If the numbers make no sense, as in [`Replicator::new`].
    pub fn want(&mut self, (replicas, min_replicas): (usize, usize), repair_bytes_per_second: u64) {
        assert!(min_replicas >= 1 && replicas >= min_replicas);
        assert!(repair_bytes_per_second > 0);
        self.config.repair_bytes_per_second = repair_bytes_per_second;
        if (replicas, min_replicas) != (self.config.replicas, self.config.min_replicas) {
            self.config.replicas = replicas;
            self.config.min_replicas = min_replicas;
            self.unfinished.extend(self.segments.keys());
        }
    }

    /// While this master replays, copies of side segments take what time is left: what it brings back is in other logs still, and its
    /// clients wait.
    pub fn yield_to_replay(&mut self, is_replaying: bool) {
        self.yields_to_replay = is_replaying;
    }

    /// Whether a backup has said that this log is being recovered, or that it is not the only one of its id: its master must end.
    pub fn is_deposed(&self) -> bool {
        self.is_deposed
    }

    pub fn report(&self) -> Report {
        let is_short = |segment: &&Segment| {
            // Of one that had all of its replicas once, those count that are complete again; a fresh one gets them within milliseconds.
            let counts = |replica: &&Replica| replica.is_closed || !segment.is_settled;
            let count = segment.replicas.iter().filter(counts).count();
            count < self.config.replicas && segment.is_awaited()
        };
        let waiting = |segment: &Segment| -> u64 {
            let missing = |replica: &Replica| {
                u64::from(replica.sent_bytes.saturating_sub(replica.acked_bytes))
            };
            segment.replicas.iter().map(missing).sum()
        };
        let is_usable =
            |backup: &&Backup| backup.is_up() && !backup.retired && !backup.info.is_draining;
        Report {
            backups: self.backups.values().filter(is_usable).count() as u64,
            segments: self.segments.len() as u64,
            segments_short: self.segments.values().filter(is_short).count() as u64,
            waiting_bytes: self.segments.values().map(waiting).sum(),
            last_resorts: self.last_resorts,
        }
    }

    // ---- events ----

    /// The backups that are alive, as the coordinator says. What was on others is lost until they are back. Of two processes of one server the
    /// younger counts: they would have the same storage.
    pub fn set_backups(&mut self, backups: Vec<BackupInfo>, out: &mut impl ReplicationEffects) {
        let is_superseded = |id: &ServerId| {
            let mut others = backups.iter().map(|info| info.id);
            others.any(|other| other.index() == id.index() && other.generation() > id.generation())
        };
        let gone: Vec<ServerId> = self
            .backups
            .keys()
            .copied()
            .filter(|id| !backups.iter().any(|info| info.id == *id) || is_superseded(id))
            .collect();
        for id in gone {
            out.disconnect_backup(id);
            self.lose_replicas(id, |_| true);
            self.backups.remove(&id);
        }
        let living: Vec<BackupInfo> = backups
            .iter()
            .filter(|info| !is_superseded(&info.id))
            .cloned()
            .collect();
        for info in living {
            if info.host != self.config.host {
                self.set_backup(info, out);
            }
        }
    }

    fn set_backup(&mut self, info: BackupInfo, out: &mut impl ReplicationEffects) {
        let (id, needed) = (info.id, self.config.segment_bytes);
        let (is_retired, is_draining) = (info.is_retired, info.is_draining);
        if info.segment_bytes < needed && !self.backups.contains_key(&id) {
            out.report(ReplicationEvent::FramesTooSmall {
                backup: id,
                host: info.host.clone(),
                frame_bytes: info.segment_bytes,
                segment_bytes: needed,
            });
        }
        match self.backups.get_mut(&id) {
            Some(backup) => backup.info = info,
            None => {
                self.backups.insert(id, Backup::new(info));
            }
        }
        if is_retired {
            self.retire(id, out);
        }
        if is_draining {
            self.copy_elsewhere(id);
        }
    }

    /// A backup's storage has failed.
    pub(crate) fn retire(&mut self, id: ServerId, out: &mut impl ReplicationEffects) {
        let Some(backup) = self.backups.get_mut(&id) else {
            return;
        };
        if !std::mem::replace(&mut backup.retired, true) {
            out.report(ReplicationEvent::BackupRetired {
                backup: id,
                host: backup.info.host.clone(),
            });
        }
        backup.unknown.clear();
        self.lose_replicas(id, |_| true);
    }

    pub fn connected(&mut self, id: ServerId) {
        if let Some(backup) = self.backups.get_mut(&id) {
            backup.connected();
        }
    }

    /// There is a coordinator again, or another one.
    pub fn coordinator_found(&mut self, out: &mut impl ReplicationEffects) {
        if let Some(segment_id) = self.floor.ask_again() {
            out.raise_open_floor(segment_id);
        }
    }

    // ---- losses ----

    pub(crate) fn lose_replicas(&mut self, id: ServerId, which: impl Fn(&Replica) -> bool) {
        let is_lost = |replica: &Replica| replica.backup == id && which(replica);
        let holding = |(segment_id, segment): (&u64, &Segment)| {
            segment.replicas.iter().any(is_lost).then_some(*segment_id)
        };
        let held: Vec<u64> = self.segments.iter().filter_map(holding).collect();
        for segment_id in held {
            self.lose_replica(segment_id, id);
        }
    }

    pub(crate) fn lose_replica(&mut self, segment_id: u64, id: ServerId) {
        let Some(segment) = self.segments.get_mut(&segment_id) else {
            return;
        };
        let Some(at) = segment
            .replicas
            .iter()
            .position(|replica| replica.backup == id)
        else {
            return;
        };
        let replica = segment.replicas.remove(at);
        let haunts = replica.is_candidate() && self.floor.lets_count(segment_id);
        let mut is_in_step = false;
        if let Some(backup) = self.backups.get_mut(&id) {
            assert!(backup.replica_count > 0, "a replica is lost once");
            backup.replica_count -= 1;
            is_in_step = backup.is_ready();
            // One that has retired frees nothing, and what is closed there may be the last copy.
            if !haunts && replica.open_sent.is_some() && !backup.retired {
                backup.free(segment_id);
            }
        }
        if haunts {
            self.wants_new_head |= self.heads.back() == Some(&segment_id);
            let lease_from = self.lease_of(&replica);
            self.floor.orphans.push(Orphan {
                segment_id,
                replica,
                lease_from,
                is_in_step,
                discarded: None,
            });
        }
        self.unfinished.insert(segment_id);
    }

    // ---- the log ----

    /// Follows the log, sends what is new to all backups, and tells the log what is durable and settled. The driver calls this after each batch of
    /// events, and at the time that it answers.
    pub fn pump(&mut self, now: Time, log: &mut Log, out: &mut impl ReplicationEffects) -> Time {
        if self.is_deposed {
            return Time::NEVER;
        }
        self.end_interruptions(now);
        self.reconnect(now, out);
        self.send_lists(now, out);
        self.look_for_slow_backups(now, out);
        self.follow(log, out);
        self.replace_head(now, log);
        self.follow(log, out);
        self.claim_unknown(now, log);
        self.send_all(now, log, out);
        self.ask_for_floor(out);
        self.settle(now, log);
        self.tell_of_full_disks(now, out);
        log.advance_durable(self.durable_position(log));
        self.follow(log, out);
        self.send_frees(now, out);
        self.send_keep_alives(now, out);
        self.next_deadline(now)
    }

    fn reconnect(&mut self, now: Time, out: &mut impl ReplicationEffects) {
        for backup in self.backups.values_mut() {
            if let ConnectionState::Down { retry_at } = backup.link
                && retry_at <= now
            {
                backup.link = ConnectionState::Connecting { since: now };
                out.connect_backup(backup.info.id, &backup.info.locator);
            }
        }
    }

    fn follow(&mut self, log: &mut Log, out: &mut impl ReplicationEffects) {
        while let Some(change) = log.take_change() {
            match change {
                Change::Opened { segment_id, role } => {
                    let other = self.segments.insert(segment_id, Segment::new(role));
                    assert!(other.is_none(), "a segment is opened once");
                    self.newest_segment = self.newest_segment.max(segment_id);
                    if role == Role::Head {
                        let newest = self.heads.back();
                        assert!(newest < Some(&segment_id), "the ids of heads grow");
                        self.heads.push_back(segment_id);
                        self.wants_new_head = false;
                    }
                }
                Change::Closed { segment_id } => {
                    if let Some(segment) = self.segments.get_mut(&segment_id) {
                        segment.is_closed = true;
                        self.unfinished.insert(segment_id);
                    }
                }
                Change::Discarded { segment_id, bytes } => self.discard(segment_id, &bytes),
                Change::Freed { segment_id } => self.free(segment_id, out),
            }
        }
    }

    /// A head that held nothing is gone. Its replicas are open, and could be believed as long as the floor is not above them.
    fn discard(&mut self, segment_id: u64, bytes: &[u8]) {
        let replicas = self.segments.get(&segment_id).map(|head| &head.replicas);
        let backups = replicas.into_iter().flatten().map(|replica| replica.backup);
        for backup in backups.collect::<Vec<_>>() {
            self.lose_replica(segment_id, backup);
        }
        self.floor.keep_bytes(segment_id, bytes);
        self.heads.retain(|head| *head != segment_id);
        self.segments.remove(&segment_id);
        self.unfinished.remove(&segment_id);
    }

    fn free(&mut self, segment_id: u64, _out: &mut impl ReplicationEffects) {
        self.unfinished.remove(&segment_id);
        let Some(segment) = self.segments.remove(&segment_id) else {
            return;
        };
        assert!(segment.is_settled, "no segment goes before it is safe");
        for replica in segment.replicas {
            if let Some(backup) = self.backups.get_mut(&replica.backup) {
                assert!(backup.replica_count > 0, "a replica is freed once");
                backup.replica_count -= 1;
                backup.free(segment_id);
            }
        }
    }
}
