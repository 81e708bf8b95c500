//! One UDP address: its sessions, and who goes first.

mod arrivals;
#[cfg(test)]
mod consistency;
mod grants;
mod opening;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;

use base::time::Time;
use transport::datagram::Transmit;

use crate::cookie::Baker;
use crate::names::Names;
use crate::packet::{self, Header, Kind, Malformed, Refusal};
use crate::role::Role;
use crate::session::Session;
use crate::shared::{Counters, Shared};
use crate::{Config, Event, Reason};
use transport::{Lender, Loan};

/// Low bits of a session's number that say where it lies; above them [`RANDOM_BITS`] that nobody guesses; the rest is 0.
const INDEX_BITS: u32 = 20;
const RANDOM_BITS: u32 = 39;
/// Sessions that others opened are looked through no more often than this, for those that were forgotten or can make room.
const LOOK: Duration = Duration::from_millis(100);
/// Packets of one message before the next may have its turn, if that became the shorter one.
const TURN_PACKETS: usize = 2;

/// Everything that one UDP address speaks and hears.
pub struct Endpoint {
    shared: Shared,
    baker: Baker,
    names: Names,
    sessions: Vec<Option<Box<Session>>>,
    free: Vec<u32>,
    /// Sessions that were opened from here.
    initiated: BTreeSet<u32>,
    /// Those of them that are open, by the other side's address and number.
    reached: BTreeMap<(SocketAddrV4, u64), u32>,
    /// Sessions that others opened, by their address and number.
    accepted: BTreeMap<(SocketAddrV4, u64), u32>,
    /// Which run of a program opened those of an address, and how many there are.
    runs: BTreeMap<SocketAddrV4, Run>,
    /// No session needs a look before this.
    next_check: Time,
    /// No session that others opened can be forgotten before this.
    next_expiry: Time,
    /// Nobody is displaced before this.
    next_displacement: Time,
}

/// What is known of the program that opened sessions from an address.
struct Run {
    incarnation: u64,
    sessions: usize,
}

impl Endpoint {
    /// `seed` must be one that nobody can guess: it makes the numbers of sessions, and cookies.
    ///
    /// # Panics
    /// If the port's datagrams are shorter than [`packet::MIN_DATAGRAM_BYTES`].
    pub fn new(config: Config, seed: [u8; 32]) -> Endpoint {
        assert!(
            config.datagram_bytes >= packet::MIN_DATAGRAM_BYTES,
            "datagrams of {} bytes are too short",
            config.datagram_bytes
        );
        // Two keys: names are seen by everybody, and tell nothing of cookies.
        let key = |at: usize| u64::from_le_bytes(core::array::from_fn(|byte| seed[8 * at + byte]));
        Endpoint {
            shared: Shared::new(config),
            names: Names::new([key(0), key(1)]),
            baker: Baker::new([key(2), key(3)]),
            sessions: Vec::new(),
            free: Vec::new(),
            initiated: BTreeSet::new(),
            reached: BTreeMap::new(),
            accepted: BTreeMap::new(),
            runs: BTreeMap::new(),
            next_check: Time::NEVER,
            next_expiry: Time::NEVER,
            next_displacement: Time::ZERO,
        }
    }

    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    pub fn counters(&self) -> Counters {
        Counters {
            sessions: (self.sessions.len() - self.free.len()) as u64,
            held_bytes: (self.own_held_bytes() + self.held_by_others_bytes()) as u64,
            ..self.shared.counters
        }
    }

    /// Packets that were sent so far.
    pub fn packets_out(&self) -> u64 {
        self.shared.counters.packets_out
    }

    /// Memory of the sessions that were opened from here.
    pub fn own_held_bytes(&self) -> usize {
        self.shared.own.total_bytes()
    }

    /// Memory of the sessions that others opened.
    pub fn held_by_others_bytes(&self) -> usize {
        self.shared.of_others.total_bytes()
    }

    /// The same, and what requests that have begun to arrive may yet take.
    pub fn claimed_bytes(&self) -> usize {
        self.shared.claimed_bytes()
    }

    /// Has so much memory from now on for messages of sessions that others open, and for those of its own. What is there stays.
    pub fn set_buffer_bytes(&mut self, of_others: usize, own: usize) {
        self.shared.config.buffer_bytes = of_others;
        self.shared.config.own_buffer_bytes = own;
    }

    /// Takes at most so many sessions of others from now on. Those that are there stay.
    pub fn set_max_sessions(&mut self, sessions: usize) {
        self.shared.config.sessions = sessions;
    }

    /// Begins to open a session; [`Event::Opened`] or [`Event::Closed`] follows. With `is_ordered` the other side is handed the requests in the order in which
    /// they were sent.
    pub fn connect(
        &mut self,
        now: Time,
        peer: SocketAddrV4,
        is_ordered: bool,
        out: &mut dyn Transmit,
    ) -> u64 {
        let index = self.add(now, peer, Role::Initiator);
        self.initiated.insert(index);
        self.next_check = Time::ZERO;
        let incarnation = self.names.incarnation();
        let Some(session) = self.sessions[index as usize].as_mut() else {
            return 0;
        };
        session.is_ordered = is_ordered;
        session.begin_opening(now, incarnation, &mut self.shared, out);
        session.id
    }

    /// Sends a request, or the answer to the request that came with this nonce. False if there is no such session, or it is not open yet. `clock` is asked
    /// only where the time matters.
    pub fn send(
        &mut self,
        clock: impl FnOnce() -> Time,
        session: u64,
        nonce: u64,
        parts: &[&[u8]],
        out: &mut dyn Transmit,
    ) -> bool {
        let Some(index) = self.index(session) else {
            return false;
        };
        let Some(known) = self.sessions[index].as_mut() else {
            return false;
        };
        if !known.is_open() {
            return false;
        }
        if known.role == Role::Initiator {
            let now = clock();
            let check_at = now + self.shared.config.retry_min;
            self.next_check = self.next_check.min(check_at);
            if !known.call(now, nonce, parts, &mut self.shared, out) {
                self.end(index, Some(Reason::QueueFull));
            }
            return true;
        }
        // An answer that nobody waits for any more has nobody to miss it.
        known.reply(nonce, parts, &mut self.shared, out);
        if self.shared.keeps_too_much() {
            self.end_largest(out);
        }
        true
    }

    /// Answers the request that came with this nonce with `head` and what the caller keeps until it is given back with [`Event::Returned`]. False if
    /// nothing was lent: the request has an answer, or nobody waits for one any more, or it is too short to be worth it.
    pub fn send_lent(
        &mut self,
        session: u64,
        nonce: u64,
        head: &[u8],
        loan: Loan,
        out: &mut dyn Transmit,
    ) -> bool {
        let known = self.index(session).map(|index| &mut self.sessions[index]);
        let Some(Some(session)) = known else {
            return false;
        };
        session.role != Role::Initiator
            && session.is_open()
            && session.reply_lent(nonce, head, loan, &mut self.shared, out)
    }

    /// Copies what was lent under tokens that are meant, and gives it back.
    pub fn recall(
        &mut self,
        is_meant: impl Fn(u64) -> bool,
        lend: &Lender<'_>,
        out: &mut dyn Transmit,
    ) {
        for session in self.sessions.iter_mut().flatten() {
            for slot in &mut session.slots {
                let is_lent = slot
                    .outgoing
                    .loan()
                    .is_some_and(|loan| is_meant(loan.token));
                if is_lent
                    && let Some(token) =
                        slot.outgoing.keep(lend, self.shared.take_spare(usize::MAX))
                {
                    self.shared.events.push_back(Event::Returned { token });
                    self.shared.settle(session.role, slot);
                }
            }
        }
        if self.shared.keeps_too_much() {
            self.end_largest(out);
        }
    }

    /// Ends a session. Nothing is reported.
    pub fn close(&mut self, session: u64, out: &mut dyn Transmit) {
        if let Some(index) = self.index(session) {
            self.say_close(index, out);
            self.end(index, None);
        }
    }

    /// Requests of a session that wait for a slot, in bytes.
    pub fn queued_bytes(&self, session: u64) -> usize {
        let session = self
            .index(session)
            .and_then(|at| self.sessions[at].as_ref());
        session.map_or(0, |session| session.queue_bytes)
    }

    /// Where the other side of a session is.
    pub fn peer(&self, session: u64) -> Option<SocketAddrV4> {
        let session = self.sessions[self.index(session)?].as_ref()?;
        Some(session.peer)
    }

    /// Finds out how far the other side of a session that was opened from here is: [`Endpoint::pinged`] says so once it has answered.
    pub fn ping(&mut self, now: Time, session: u64, out: &mut dyn Transmit) {
        let known = self.index(session).map(|index| &mut self.sessions[index]);
        if let Some(Some(session)) = known
            && session.role == Role::Initiator
            && session.is_open()
        {
            session.asked_how_far = Some(now);
            session.send_ping(&mut self.shared, out);
        }
    }

    /// The round trip of the last ping that was answered, and when; that of requests is longer by what they take there.
    pub fn pinged(&self, session: u64) -> Option<(Duration, Time)> {
        let session = self.sessions[self.index(session)?].as_ref()?;
        session.pinged
    }

    /// A datagram came. What it brought is to be handled before [`Endpoint::next_event`] is asked for more.
    pub fn receive<'a>(
        &mut self,
        now: Time,
        from: SocketAddrV4,
        datagram: &'a [u8],
        out: &mut dyn Transmit,
    ) -> Option<Event<'a>> {
        self.shared.counters.packets_in += 1;
        self.shared.counters.bytes_in += datagram.len() as u64;
        match packet::decode(datagram) {
            Ok((header, payload)) => self.packet(now, from, &header, payload, out),
            Err(malformed) => {
                self.shared.counters.malformed += 1;
                if let Malformed::Version(_) = malformed
                    && datagram[5] == Kind::Open as u8
                {
                    self.refuse(from, datagram, Refusal::Version, out);
                }
                None
            }
        }
    }

    fn packet<'a>(
        &mut self,
        now: Time,
        from: SocketAddrV4,
        header: &Header,
        payload: &'a [u8],
        out: &mut dyn Transmit,
    ) -> Option<Event<'a>> {
        match header.kind {
            Kind::Open => {
                self.asked_to_open(now, from, payload, out);
                return None;
            }
            Kind::Reset => {
                let used = u64::from(header.length) | u64::from(header.offset) << 32;
                self.was_reset(from, used);
                return None;
            }
            _ => {}
        }
        let found = self.index(header.session);
        let known = found.and_then(|index| Some((index, self.sessions[index].as_mut()?)));
        let Some((index, session)) = known.filter(|(_, session)| session.peer == from) else {
            self.shared.counters.stale += 1;
            self.say_reset(from, header, out);
            return None;
        };
        let shared = &mut self.shared;
        let is_asking = session.role == Role::Initiator;
        if !session.is_open() {
            return self.answer_to_open(now, index, header, payload, out);
        }
        session.heard_at = now;
        let slots = session.slots.len();
        let knows_slot = usize::from(header.slot) < slots
            && session.slots[usize::from(header.slot)].number == header.number;
        let event = match header.kind {
            Kind::Response if is_asking => session.answer(now, header, payload, shared, out),
            Kind::Request if !is_asking => self.request(now, index, header, payload, out),
            Kind::Grant | Kind::Resend if knows_slot => {
                session.hear_receiver(now, header, shared);
                None
            }
            Kind::Working if is_asking => {
                session.hear_working(now, header, shared);
                None
            }
            Kind::Ack if !is_asking => {
                session.hear_ack(header, shared);
                None
            }
            Kind::Ping if !is_asking => {
                session.hear_ping(header.number, shared, out);
                None
            }
            Kind::Pong if is_asking => {
                session.pings = 0;
                let asked_at = session.asked_how_far.take();
                session.pinged = asked_at.map(|at| (now.since(at), now)).or(session.pinged);
                None
            }
            Kind::Close => {
                self.end(index, Some(Reason::Closed));
                None
            }
            _ => {
                shared.counters.stale += 1;
                None
            }
        };
        if self.shared.is_grant_due {
            self.grant(now, out);
        }
        event
    }

    /// Something that came of an earlier datagram, or of time.
    pub fn next_event(&mut self) -> Option<Event<'static>> {
        self.shared.events.pop_front()
    }

    /// Takes a message's buffer back when it was handled: the next one then needs no new memory.
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        self.shared.recycle(buffer);
    }

    /// Sends pieces of long messages, at most `packets`, of the message first of which the least is left. True if there is more to send.
    /// `lend` gives what was lent.
    pub fn pump(&mut self, packets: usize, lend: &Lender<'_>, out: &mut dyn Transmit) -> bool {
        let mut left = packets;
        while left > 0 {
            let Some((rank, index, slot)) = self.shared.sendable.pop_first() else {
                return false;
            };
            let Some(Some(session)) = self.sessions.get_mut(index as usize) else {
                continue;
            };
            debug_assert_eq!(session.slots[usize::from(slot)].send_rank, Some(rank));
            session.slots[usize::from(slot)].send_rank = None;
            let mut sent = Ok(true);
            for _ in 0..TURN_PACKETS.min(left) {
                sent = session.send_next(slot, &mut self.shared, lend, out);
                if sent != Ok(true) {
                    break;
                }
                left -= 1;
            }
            session.list_sendable(slot, &mut self.shared);
            if let Err(reason) = sent {
                self.say_close(index as usize, out);
                self.end(index as usize, Some(reason));
            }
        }
        !self.shared.sendable.is_empty()
    }

    /// Whether [`Endpoint::pump`] has something to send.
    pub fn has_more(&self) -> bool {
        !self.shared.sendable.is_empty()
    }

    /// Does what is due: repeats, asks, gives up, forgets. When to call again; calling earlier does no harm.
    pub fn tick(&mut self, now: Time, out: &mut dyn Transmit) -> Time {
        if now >= self.next_check {
            self.next_check = self.check_initiated(now, out);
        }
        if now >= self.next_expiry {
            self.next_expiry = self.check_accepted(now, out).max(now + LOOK);
        }
        self.check_arrivals(now, out);
        if self.shared.is_grant_due {
            self.grant(now, out);
        }
        let arrival = self.shared.deadlines.first();
        let arrival = arrival.map_or(Time::NEVER, |(deadline, ..)| *deadline);
        self.next_check.min(self.next_expiry).min(arrival)
    }

    fn check_initiated(&mut self, now: Time, out: &mut dyn Transmit) -> Time {
        let mut next = Time::NEVER;
        let mut ended = Vec::new();
        for &index in &self.initiated {
            let Some(session) = self.sessions[index as usize].as_mut() else {
                continue;
            };
            match session.tend(now, &mut self.shared, out) {
                Ok(at) => next = next.min(at),
                Err(reason) => ended.push((index, reason)),
            }
        }
        for (index, reason) in ended {
            self.say_close(index as usize, out);
            self.end(index as usize, Some(reason));
        }
        next
    }

    fn check_accepted(&mut self, now: Time, out: &mut dyn Transmit) -> Time {
        let mut next = Time::NEVER;
        let mut ended = Vec::new();
        for &index in self.accepted.values() {
            let Some(session) = &self.sessions[index as usize] else {
                continue;
            };
            let expires_at = session.heard_at + self.shared.config.expire_after;
            match now >= expires_at {
                true => ended.push(index),
                false => next = next.min(expires_at),
            }
        }
        ended.sort_unstable();
        for index in ended {
            self.say_close(index as usize, out);
            self.end(index as usize, Some(Reason::Silent));
        }
        next
    }

    fn index(&self, session: u64) -> Option<usize> {
        let index = (session & ((1 << INDEX_BITS) - 1)) as usize;
        let known = self.sessions.get(index)?.as_ref()?;
        (known.id == session).then_some(index)
    }

    fn add(&mut self, now: Time, peer: SocketAddrV4, role: Role) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.sessions.push(None);
            (self.sessions.len() - 1) as u32
        });
        // Never 0, which stands for no session.
        let random = (self.names.next() >> (64 - RANDOM_BITS)).max(1);
        let id = random << INDEX_BITS | u64::from(index);
        let session = Session::new(index, id, peer, role, now);
        self.sessions[index as usize] = Some(Box::new(session));
        index
    }

    fn end(&mut self, index: usize, reason: Option<Reason>) {
        let Some(mut session) = self.sessions[index].take() else {
            return;
        };
        session.end(reason, &mut self.shared);
        let (peer, name) = (session.peer, (session.peer, session.peer_id));
        match session.role {
            Role::Initiator => {
                self.initiated.remove(&session.index);
                if self.reached.get(&name) == Some(&session.index) {
                    self.reached.remove(&name);
                }
            }
            Role::Acceptor { .. } => {
                self.accepted.remove(&name);
                self.shared.holders.ended(*peer.ip());
                if let Some(run) = self.runs.get_mut(&peer) {
                    run.sessions -= 1;
                    if run.sessions == 0 {
                        self.runs.remove(&peer);
                    }
                }
            }
        }
        self.free.push(index as u32);
        // What it leaves may let others go on.
        self.shared.is_grant_due = true;
    }

    /// Ends the session of others whose answers take the most.
    fn end_largest(&mut self, out: &mut dyn Transmit) {
        let sessions = self.sessions.iter().enumerate();
        let held = sessions.filter_map(|(index, one)| {
            let session = one.as_ref()?;
            (session.role != Role::Initiator).then_some((session.kept_bytes(), index))
        });
        if let Some((_, index)) = held.max() {
            self.shared.counters.refused += 1;
            self.say_close(index, out);
            self.end(index, Some(Reason::OutOfBuffers));
        }
    }

    fn say_close(&mut self, index: usize, out: &mut dyn Transmit) {
        if let Some(session) = &self.sessions[index]
            && session.is_open()
        {
            let header = Header::new(Kind::Close, session.peer_id);
            self.shared.transmit(session.peer, &header, &[], out);
        }
    }

    /// Tells a peer that it uses a session that is not there (any more). No longer than what it answers, and never the answer to one of its kind.
    fn say_reset(&mut self, to: SocketAddrV4, header: &Header, out: &mut dyn Transmit) {
        use Kind::{Ack, Grant, Ping, Pong, Request, Resend, Response, Working};
        if matches!(
            header.kind,
            Request | Response | Grant | Resend | Working | Ack | Ping | Pong
        ) {
            let reset = Header {
                length: header.session as u32,
                offset: (header.session >> 32) as u32,
                ..Header::new(Kind::Reset, 0)
            };
            self.shared.transmit(to, &reset, &[], out);
        }
    }

    /// The peer has no session of this number.
    fn was_reset(&mut self, from: SocketAddrV4, used: u64) {
        let name = (from, used);
        let meant = self.accepted.get(&name).or(self.reached.get(&name));
        match meant.copied() {
            Some(index) => self.end(index as usize, Some(Reason::Forgotten)),
            None => self.shared.counters.stale += 1,
        }
    }
}
