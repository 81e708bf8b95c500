//! What happens to a log's replicas: events come in here.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use log::{Change, Log, LogPosition};
use trace::Event;
use wire::ids::ServerId;
use wire::peer::{Answer, Listing, MAX_APPEND_BYTES, Malformed, Role, Status};
use wire::time::Time;

use crate::backup::{Backup, Link, Request, UnderWay};
use crate::floor::{Floor, Ghost};
use crate::random::Random;
use crate::segment::{Replica, Segment};
use crate::{BackupInfo, Output};

/// A head's backup that lets data wait for longer is replaced, unless its peers are slow as well.
const SLOW: Duration = Duration::from_millis(50);
/// The limit where all backups of the head are slow at once.
const ALL_SLOW: Duration = Duration::from_secs(1);
/// So many times the median of the head's backups is slow.
const SLOW_FACTOR: u32 = 10;
/// A connection on which a request waits for longer is closed, and an attempt to connect that takes longer is given up.
pub(crate) const STUCK: Duration = Duration::from_secs(5);
/// That disks are full is said as often as this, as long as it holds.
const FULL_TOLD: Duration = Duration::from_secs(10);

/// Unfinished segments that one pump looks at.
const UNFINISHED_STEP: usize = 8;

/// What is wanted of a replicator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The server that writes the log.
    pub log: ServerId,
    /// Its machine, which gets no replica.
    pub host: String,
    /// Of the log: a backup with smaller frames gets no replica.
    pub segment_bytes: u32,
    /// Replicas of each segment.
    pub replicas: usize,
    /// With fewer nothing counts as durable.
    pub min_replicas: usize,
    /// Copies of closed segments go out in pieces of this size, so that what somebody waits for is not stuck behind them.
    pub copy_bytes: u32,
    /// Replicas that were lost are made again at this rate, averaged over some milliseconds; at least 1.
    pub repair_bytes_per_second: u64,
    /// For scattering replicas.
    pub seed: u64,
}

/// Data under way to one backup at most, and data under way that nobody waits for: copies of side segments, and replicas that are made again.
const WINDOW_BYTES: u32 = 4 << 20;

// Smaller for small segments, so that simulated stores meet these limits as real ones do.
impl Config {
    pub(crate) fn window_bytes(&self) -> u32 {
        WINDOW_BYTES.min(self.segment_bytes)
    }

    /// Of a head's data in one request, at most: no less than the longest atomic append, which is never cut.
    pub(crate) fn append_bytes(&self) -> u32 {
        (self.segment_bytes / 8 * 5).min(MAX_APPEND_BYTES as u32)
    }
}

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
    /// Head segments that are not settled, oldest first; the last is the log's head.
    pub(crate) heads: VecDeque<u64>,
    /// The end of the newest head that is settled: durable, whatever happens to its successors.
    settled: LogPosition,
    /// Segments other than those in `heads` for which there is something to do.
    pub(crate) unfinished: BTreeSet<u64>,
    unfinished_cursor: u64,
    pub(crate) floor: Floor,
    /// A backup has refused this log for ever: somebody recovers it.
    pub(crate) is_deposed: bool,
    /// The head must be replaced as soon as memory is free.
    pub(crate) wants_new_head: bool,
    pub(crate) more_replicas_at: Time,
    /// No replica that was lost is made again before this.
    pub(crate) repair_at: Time,
    /// Copies that nobody waits for go out a piece at a time.
    pub(crate) yields_to_replay: bool,
    /// When to look at some of the strays again.
    pub(crate) strays_at: Time,
    /// That disks are full is not said again before this.
    full_told_until: Time,
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
            strays_at: Time::ZERO,
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

    /// Whether a backup has said that this log is being recovered: its master must end.
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
    pub fn set_backups(&mut self, backups: Vec<BackupInfo>, out: &mut impl Output) {
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

    fn set_backup(&mut self, info: BackupInfo, out: &mut impl Output) {
        let (id, needed) = (info.id, self.config.segment_bytes);
        let (is_retired, is_draining) = (info.is_retired, info.is_draining);
        if info.segment_bytes < needed && !self.backups.contains_key(&id) {
            let text = format!(
                "backup {id} on {} has frames of {} bytes, and gets no replicas of this log's segments of {needed} bytes: \
                 to use it, start its server with larger segments and an empty storage",
                info.host, info.segment_bytes
            );
            out.log_message(2, &text);
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
    fn retire(&mut self, id: ServerId, out: &mut impl Output) {
        let Some(backup) = self.backups.get_mut(&id) else {
            return;
        };
        if !std::mem::replace(&mut backup.retired, true) {
            let text = format!(
                "backup {id} on {} has retired, and its replicas are made again elsewhere: replace its storage and restart its \
                 server",
                backup.info.host
            );
            out.log_message(2, &text);
        }
        backup.strays.clear();
        self.lose_replicas(id, |_| true);
    }

    pub fn connected(&mut self, id: ServerId) {
        if let Some(backup) = self.backups.get_mut(&id) {
            backup.connected();
        }
    }

    /// A connection could not be made, or has ended. What is closed there stays; what is not complete is begun anew, here or elsewhere.
    pub fn disconnected(&mut self, now: Time, id: ServerId) {
        if let Some(backup) = self.backups.get_mut(&id) {
            backup.disconnected(now);
            self.lose_replicas(id, |replica| !replica.is_closed);
        }
    }

    /// There is a coordinator again, or another one.
    pub fn coordinator_found(&mut self, out: &mut impl Output) {
        if let Some(segment_id) = self.floor.ask_again() {
            out.raise_open_floor(segment_id);
        }
    }

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
                ..
            } => {
                backup.promises(request.sent_at);
                backup.is_full = false;
                let segment = self.segments.get_mut(&segment_id);
                match segment.and_then(|segment| segment.replica_mut(id)) {
                    Some(replica) => {
                        replica.acked_bytes = replica.acked_bytes.max(end);
                        replica.is_closed |= closes;
                    }
                    None => self.ghost_answered(segment_id, id, end, closes),
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
    fn tell_of_full_disks(&mut self, now: Time, out: &mut impl Output) {
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

    // ---- losses ----

    fn lose_replicas(&mut self, id: ServerId, which: impl Fn(&Replica) -> bool) {
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
            self.floor.ghosts.push(Ghost {
                segment_id,
                replica,
                lease_from,
                is_in_step,
                discarded: None,
            });
        }
        self.unfinished.insert(segment_id);
    }

    /// Gives up replicas of heads on backups that are much slower than their peers, and connections on which nothing moves.
    fn look_for_slow_backups(&mut self, now: Time, out: &mut impl Output) {
        let mut stuck = Vec::new();
        for backup in self
            .backups
            .values()
            .filter(|backup| backup.waited(now) >= STUCK)
        {
            out.disconnect_backup(backup.id());
            stuck.push(backup.id());
        }
        for id in stuck {
            self.disconnected(now, id);
        }
        for id in self.slow_backups(now) {
            if let Some(backup) = self.backups.get_mut(&id) {
                backup.avoid(now);
            }
            let is_candidate = |replica: &Replica| replica.role == Role::Head && !replica.is_closed;
            self.lose_replicas(id, is_candidate);
        }
    }

    /// Backups of heads that let data wait for too long.
    fn slow_backups(&self, now: Time) -> Vec<ServerId> {
        let heads = self.heads.iter().filter_map(|id| self.segments.get(id));
        let replicas = heads.flat_map(|head| &head.replicas);
        let backups = replicas.filter_map(|replica| self.backups.get(&replica.backup));
        if backups.clone().all(|backup| backup.waited(now) <= SLOW) {
            return Vec::new();
        }
        let mut latencies: Vec<Duration> = backups
            .clone()
            .filter_map(|backup| backup.latency)
            .collect();
        latencies.sort_unstable();
        let median = latencies
            .get(latencies.len() / 2)
            .copied()
            .unwrap_or_default();
        let limit = SLOW.max(median * SLOW_FACTOR);
        // If all are slow it is this server that was not awake, or its network.
        let all_slow = backups.clone().all(|backup| backup.waited(now) > limit);
        let limit = if all_slow { limit.max(ALL_SLOW) } else { limit };
        backups
            .filter(|backup| backup.waited(now) > limit)
            .map(Backup::id)
            .collect()
    }

    // ---- the log ----

    /// Follows the log, sends what is new to all backups, and tells the log what is durable and settled. The driver calls this after each batch of
    /// events, and at the time that it answers.
    pub fn pump(&mut self, now: Time, log: &mut Log, out: &mut impl Output) -> Time {
        if self.is_deposed {
            return Time::NEVER;
        }
        self.reconnect(now, out);
        self.send_lists(now, out);
        self.look_for_slow_backups(now, out);
        self.follow(log, out);
        self.replace_head(now, log);
        self.follow(log, out);
        self.claim_strays(now, log);
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

    fn reconnect(&mut self, now: Time, out: &mut impl Output) {
        for backup in self.backups.values_mut() {
            if let Link::Down { retry_at } = backup.link
                && retry_at <= now
            {
                backup.link = Link::Connecting { since: now };
                out.connect_backup(backup.info.id, &backup.info.locator);
            }
        }
    }

    fn follow(&mut self, log: &mut Log, out: &mut impl Output) {
        while let Some(change) = log.take_change() {
            match change {
                Change::Opened { segment_id, role } => {
                    self.segments.insert(segment_id, Segment::new(role));
                    if role == Role::Head {
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

    fn free(&mut self, segment_id: u64, _out: &mut impl Output) {
        self.unfinished.remove(&segment_id);
        let Some(segment) = self.segments.remove(&segment_id) else {
            return;
        };
        debug_assert!(segment.is_settled);
        for replica in segment.replicas {
            if let Some(backup) = self.backups.get_mut(&replica.backup) {
                backup.replica_count -= 1;
                backup.free(segment_id);
            }
        }
    }

    // ---- durability ----

    /// Tells the log which closed segments have all the replicas that they can have.
    fn settle(&mut self, now: Time, log: &mut Log) {
        while let Some(&id) = self.heads.front()
            && self.heads.len() > 1
            && self.is_complete(now, id)
            && self.floor.lets_be_durable(id)
        {
            // Its successor was opened everywhere before it was closed, so that it is named by whatever a recovery takes for the head.
            if let Some(end) = log.position_in(id, self.segments[&id].acked_bytes()) {
                self.settled = end;
            }
            self.heads.pop_front();
            self.settle_one(id, log);
        }
        for id in self.next_unfinished() {
            if log.segment(id).is_none() {
                self.give_up_copies(id);
            }
            self.leave_draining(id);
            if self.is_complete(now, id) {
                self.settle_one(id, log);
                if self.is_finished(&self.segments[&id]) {
                    self.unfinished.remove(&id);
                } else if self.is_on_draining(id) && log.segment(id).is_none() {
                    log.leave_out_soon(id);
                }
            } else if log.segment(id).is_none() {
                log.leave_out_soon(id);
            }
        }
        // The next pump goes on behind these.
        self.unfinished_cursor = self.next_unfinished().last().map_or(0, |last| last + 1);
    }

    /// Of a segment that is not in memory any more: they will never be complete.
    fn give_up_copies(&mut self, segment_id: u64) {
        let Some(segment) = self.segments.get(&segment_id) else {
            return;
        };
        let partial = segment.replicas.iter().filter(|replica| !replica.is_closed);
        let partial: Vec<ServerId> = partial.map(|replica| replica.backup).collect();
        for id in partial {
            self.lose_replica(segment_id, id);
        }
    }

    /// Some of the unfinished segments, other ones each time: there can be very many when a backup was lost.
    pub(crate) fn next_unfinished(&self) -> Vec<u64> {
        let from = self.unfinished.range(self.unfinished_cursor..);
        let again = self.unfinished.range(..self.unfinished_cursor);
        let not_heads = from.chain(again).filter(|id| !self.heads.contains(id));
        not_heads.take(UNFINISHED_STEP).copied().collect()
    }

    fn settle_one(&mut self, id: u64, log: &mut Log) {
        if let Some(segment) = self.segments.get_mut(&id)
            && !std::mem::replace(&mut segment.is_settled, true)
        {
            log.settle(id);
        }
    }

    fn is_complete(&self, now: Time, id: u64) -> bool {
        let Some(segment) = self.segments.get(&id) else {
            return false;
        };
        let count = segment.replicas.len();
        let wanted = self.config.replicas.min(self.choice(now, id).hosts());
        segment.is_closed
            && segment.all_closed()
            && count >= self.config.min_replicas
            && count >= wanted
    }

    /// Up to where the log is durable. The order of the conditions is that of docs/replication.md, "When is it durable?".
    fn durable_position(&self, log: &Log) -> LogPosition {
        let mut position = self.settled;
        for &id in &self.heads {
            let head = &self.segments[&id];
            let is_enough = head.replicas.len() >= self.config.min_replicas;
            if !self.floor.lets_be_durable(id) || !is_enough || !head.all_open() {
                break;
            }
            if let Some(acked) = log.position_in(id, head.acked_bytes()) {
                position = acked;
            }
            if !(head.is_closed && head.all_closed()) {
                break;
            }
        }
        position
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
