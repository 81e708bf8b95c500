//! The connection to one backup.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::ids::ServerId;
use base::time::Time;
use trace::Event;
use wire::peer::{Held, SERVING_LEASE};

use crate::interruption::Interruptions;
use crate::request::Request;
use crate::{BackupInfo, ReplicationEffects};

/// Between attempts to connect.
const RECONNECT: core::ops::RangeInclusive<Duration> =
    Duration::from_millis(20)..=Duration::from_secs(2);
/// A backup without a free frame, or that was slow, gets no replicas for so long; nor does one that has let a request wait for as long.
const AVOIDED: Duration = Duration::from_secs(1);
/// The promise is renewed when it is this old.
pub const KEEP_ALIVE_AGE: Duration = Duration::from_nanos(SERVING_LEASE.as_nanos() as u64 / 4);
/// Requests to free replicas that are under way to one backup, at most.
const MAX_FREES: usize = 16;

/// How it stands with the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    Down { retry_at: Time },
    Connecting { since: Time },
    Up,
}

/// A request that was not answered yet.
#[derive(Clone, Copy, Debug)]
pub struct UnderWay {
    pub nonce: u64,
    pub sent_at: Time,
    pub what: Request,
}

#[derive(Debug)]
pub struct Backup {
    pub info: BackupInfo,
    pub link: ConnectionState,
    /// What it holds was asked for on this connection.
    pub list_sent: bool,
    /// It has said so: only then it is known what to send and what to free.
    pub is_listed: bool,
    /// What it holds of this log that is none of its replicas: to be taken for one, or to be freed.
    pub unknown: BTreeMap<u64, Held>,
    /// Behind the unknown replicas that were looked at last.
    unknown_cursor: u64,
    retry_delay: Duration,
    pub interruptions: Interruptions,
    /// Whether it could be used once, or an attempt to connect has failed.
    pub was_tried: bool,
    next_nonce: u64,
    /// In the order in which they were sent.
    pub under_way: VecDeque<UnderWay>,
    pub under_way_bytes: u32,
    /// The part of that which nobody waits for.
    pub background_bytes: u32,
    /// When that was sent which was answered with a promise, at the latest.
    pub promised: Option<Time>,
    /// When a keep-alive was last sent.
    asked: Option<Time>,
    /// Smoothed time from sending data to its answer.
    pub latency: Option<Duration>,
    avoided_until: Time,
    /// Another backup of its machine was slow: it gets no replicas where there are others.
    host_avoided_until: Time,
    /// It had no frame free when it was last asked for one.
    pub is_full: bool,
    /// Its storage has failed: it takes nothing.
    pub retired: bool,
    /// Replicas that are not needed any more, and that it is to be asked to free.
    frees: VecDeque<u64>,
    /// Those that it was asked to free and has not said are gone. What was sent on a connection that broke may still arrive.
    freeing: BTreeSet<u64>,
    /// Replicas that it holds or shall hold: how loaded it is by this log.
    pub replica_count: usize,
}

impl Backup {
    pub fn new(info: BackupInfo) -> Backup {
        Backup {
            info,
            link: ConnectionState::Down {
                retry_at: Time::ZERO,
            },
            list_sent: false,
            is_listed: false,
            unknown: BTreeMap::new(),
            unknown_cursor: 0,
            retry_delay: *RECONNECT.start(),
            interruptions: Interruptions::default(),
            was_tried: false,
            next_nonce: 1,
            under_way: VecDeque::new(),
            under_way_bytes: 0,
            background_bytes: 0,
            promised: None,
            asked: None,
            latency: None,
            avoided_until: Time::ZERO,
            host_avoided_until: Time::ZERO,
            is_full: false,
            retired: false,
            frees: VecDeque::new(),
            freeing: BTreeSet::new(),
            replica_count: 0,
        }
    }

    pub fn id(&self) -> ServerId {
        self.info.id
    }

    pub fn is_up(&self) -> bool {
        self.link == ConnectionState::Up
    }

    /// Whether it is known what it holds, so that it can be told what to hold.
    pub fn is_ready(&self) -> bool {
        self.is_up() && self.is_listed
    }

    /// Whether it could take another replica; one that is drained takes it as the last resort at most.
    pub fn takes_replicas(&self, now: Time) -> bool {
        let is_avoided = self.avoided_until > now || self.waited(now) >= AVOIDED;
        self.is_ready() && !self.retired && !is_avoided
    }

    /// It has no frame free.
    pub fn full(&mut self, now: Time) {
        self.is_full = true;
        self.avoid(now);
    }

    /// It shall get no replicas for a while.
    pub fn avoid(&mut self, now: Time) {
        self.avoided_until = now + AVOIDED;
    }

    /// The same where there are others, since it has its machine in common with a slow one.
    pub fn avoid_host(&mut self, now: Time) {
        self.host_avoided_until = now + AVOIDED;
    }

    pub fn is_host_avoided(&self, now: Time) -> bool {
        self.host_avoided_until > now
    }

    /// When it can get replicas again, if that is later than `now`; else [`Time::NEVER`].
    pub fn avoided_until(&self, now: Time) -> Time {
        if self.avoided_until > now {
            self.avoided_until
        } else {
            Time::NEVER
        }
    }

    pub fn has_window(&self, window_bytes: u32) -> bool {
        self.under_way_bytes < window_bytes
    }

    pub fn connected(&mut self) {
        self.link = ConnectionState::Up;
        self.list_sent = false;
        self.is_listed = false;
        self.retry_delay = *RECONNECT.start();
    }

    /// The connection broke, and what is there is waited for.
    pub fn reconnect_at_once(&mut self, now: Time) {
        self.link = ConnectionState::Down { retry_at: now };
    }

    /// Whatever was under way may have arrived or not.
    pub fn disconnected(&mut self, now: Time) {
        self.link = ConnectionState::Down {
            retry_at: now + self.retry_delay,
        };
        self.was_tried = true;
        self.is_listed = false;
        // A promise that was asked for will not come any more.
        self.asked = None;
        self.unknown.clear();
        self.retry_delay = (self.retry_delay * 2).min(*RECONNECT.end());
        self.under_way_bytes = 0;
        self.background_bytes = 0;
        for request in std::mem::take(&mut self.under_way) {
            if let Request::Free { segment_id } = request.what {
                self.frees.push_back(segment_id);
            }
        }
    }

    pub fn send(
        &mut self,
        now: Time,
        what: Request,
        parts: &[&[u8]],
        out: &mut impl ReplicationEffects,
    ) {
        assert!(self.is_up(), "requests go out on a connection");
        let nonce = self.next_nonce;
        let newest = self.under_way.back();
        assert!(
            newest.is_none_or(|newest| newest.nonce < nonce),
            "nonces grow"
        );
        self.next_nonce += 1;
        if let Some((bytes, background)) = what.bytes() {
            self.under_way_bytes += bytes;
            self.background_bytes += background;
        }
        self.under_way.push_back(UnderWay {
            nonce,
            sent_at: now,
            what,
        });
        trace::record(Event::BackupAsked, self.info.id.0);
        out.send_backup(self.info.id, nonce, parts);
    }

    /// The request that is answered; `None` if there is none.
    pub fn answered(&mut self, now: Time, nonce: u64) -> Option<UnderWay> {
        let at = self
            .under_way
            .iter()
            .position(|request| request.nonce == nonce)?;
        let request = self.under_way.remove(at)?;
        if let Request::Free { segment_id } = request.what {
            self.freeing.remove(&segment_id);
        }
        if let Some((bytes, background)) = request.what.bytes() {
            assert!(
                bytes <= self.under_way_bytes && background <= self.background_bytes,
                "more is answered than was sent"
            );
            self.under_way_bytes -= bytes;
            self.background_bytes -= background;
            let took = now.since(request.sent_at);
            self.latency = Some(match self.latency {
                Some(latency) => (latency * 7 + took) / 8,
                None => took,
            });
        }
        Some(request)
    }

    /// For how long it has not answered what it was asked first of all that is under way, or an attempt to connect. Keep-alives count: without its promises the
    /// master serves no more than without its acknowledgements.
    pub fn waited(&self, now: Time) -> Duration {
        if let ConnectionState::Connecting { since } = self.link {
            return now.since(since);
        }
        let oldest = self.under_way.front();
        oldest.map_or(Duration::ZERO, |request| now.since(request.sent_at))
    }

    pub fn promises(&mut self, sent_at: Time) {
        self.promised = self.promised.max(Some(sent_at));
    }

    /// When a keep-alive is due.
    pub fn keep_alive_due(&self) -> Time {
        let newest = self.promised.max(self.asked);
        newest.map_or(Time::ZERO, |newest| newest + KEEP_ALIVE_AGE)
    }

    pub fn keep_alive_sent(&mut self, now: Time) {
        self.asked = Some(now);
    }

    /// A replica there is needed no more.
    pub fn free(&mut self, segment_id: u64) {
        if !self.is_freeing(segment_id) {
            self.frees.push_back(segment_id);
        }
    }

    /// A replica there may be needed all the same, if it is not too late.
    pub fn do_not_free(&mut self, segment_id: u64) {
        if !self.freeing.contains(&segment_id) {
            self.frees.retain(|id| *id != segment_id);
        }
    }

    /// Some of its unknown replicas, other ones each time.
    pub fn next_unknown(&mut self, count: usize) -> Vec<(u64, Held)> {
        let from = self.unknown.range(self.unknown_cursor..);
        let again = self.unknown.range(..self.unknown_cursor);
        let next: Vec<(u64, Held)> = from
            .chain(again)
            .take(count)
            .map(|(&segment_id, &held)| (segment_id, held))
            .collect();
        self.unknown_cursor = next.last().map_or(0, |(segment_id, _)| segment_id + 1);
        next
    }

    /// Whether it could be sent this segment: nothing of it is there that must be freed first, or could be taken as it is. An unknown open head
    /// is completed.
    pub fn has_place_for(&self, segment_id: u64) -> bool {
        let unknown = self.unknown.get(&segment_id);
        !self.is_freeing(segment_id) && unknown.is_none_or(|held| *held == Held::OpenHead)
    }

    /// Whether a replica of this segment is still to be freed there, so that no other can be put.
    pub fn is_freeing(&self, segment_id: u64) -> bool {
        self.frees.contains(&segment_id) || self.freeing.contains(&segment_id)
    }

    /// The next replica to ask it to free.
    pub fn next_free(&mut self) -> Option<u64> {
        let is_free = |request: &&UnderWay| matches!(request.what, Request::Free { .. });
        if !self.is_ready() || self.under_way.iter().filter(is_free).count() >= MAX_FREES {
            return None;
        }
        let segment_id = self.frees.pop_front()?;
        self.freeing.insert(segment_id);
        Some(segment_id)
    }
}
