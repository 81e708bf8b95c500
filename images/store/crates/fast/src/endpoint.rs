//! One UDP address: its sessions, and who goes first.

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::SocketAddrV4;

use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use transport::datagram::Transmit;
use wire::time::Time;

use crate::cookie::Baker;
use crate::outgoing::{Lender, Loan};
use crate::packet::{self, HEADER_BYTES, Header, Kind, Malformed, Open, Opened, Refusal};
use crate::session::{Role, Session};
use crate::shared::{Counters, Shared};
use crate::{Config, Event, Reason};

/// Low bits of a session's number that say where it lies; above them [`RANDOM_BITS`] that nobody guesses; the rest is 0.
const INDEX_BITS: u32 = 20;
const RANDOM_BITS: u32 = 40;
/// Packets of one message before the next may have its turn, if that became the shorter one.
const TURN_PACKETS: usize = 2;
/// Messages that are granted at a time: the second fills the gaps that the first leaves.
const GRANTED_AT_A_TIME: usize = 2;

/// Everything that one UDP address speaks and hears.
pub struct Endpoint {
    shared: Shared,
    baker: Baker,
    incarnation: u64,
    random: Xoshiro256PlusPlus,
    sessions: Vec<Option<Box<Session>>>,
    free: Vec<u32>,
    /// Sessions that were opened from here.
    initiated: Vec<u32>,
    /// Sessions that others opened, by their address and number.
    accepted: BTreeMap<(SocketAddrV4, u64), u32>,
    /// No session needs a look before this.
    next_check: Time,
    /// No session that others opened can be forgotten before this.
    next_expiry: Time,
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
        let mut random = Xoshiro256PlusPlus::from_seed(seed);
        Endpoint {
            shared: Shared::new(config),
            baker: Baker::new([random.next_u64(), random.next_u64()]),
            incarnation: random.next_u64(),
            random,
            sessions: Vec::new(),
            free: Vec::new(),
            initiated: Vec::new(),
            accepted: BTreeMap::new(),
            next_check: Time::NEVER,
            next_expiry: Time::NEVER,
        }
    }

    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    pub fn counters(&self) -> Counters {
        Counters {
            sessions: (self.sessions.len() - self.free.len()) as u64,
            held_bytes: (self.shared.arriving_bytes + self.shared.kept_bytes) as u64,
            ..self.shared.counters
        }
    }

    /// Packets that were sent so far.
    pub fn packets_out(&self) -> u64 {
        self.shared.counters.packets_out
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
        self.initiated.push(index);
        self.next_check = Time::ZERO;
        let incarnation = self.incarnation;
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
        if self.shared.kept_bytes > self.shared.config.buffer_bytes / 2 {
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
                if is_lent && let Some(token) = slot.outgoing.keep(lend, self.shared.take_spare()) {
                    self.shared.events.push_back(Event::Returned { token });
                    self.shared.settle(slot);
                }
            }
        }
        if self.shared.kept_bytes > self.shared.config.buffer_bytes / 2 {
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
            Kind::Request if !is_asking => {
                match session.request(now, header, payload, shared, out) {
                    Ok(event) => event,
                    Err(reason) => {
                        self.say_close(index, out);
                        self.end(index, Some(reason));
                        None
                    }
                }
            }
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
            self.next_expiry = self.check_accepted(now, out);
        }
        if self.shared.is_grant_due {
            self.grant(now, out);
        }
        self.next_check.min(self.next_expiry)
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

    /// Lets the messages go on of which the least is left.
    fn grant(&mut self, now: Time, out: &mut dyn Transmit) {
        self.shared.is_grant_due = false;
        self.pass_over_halted(now);
        let mut first = [None; GRANTED_AT_A_TIME];
        for (place, rank) in first.iter_mut().zip(&self.shared.grantable) {
            *place = Some(*rank);
        }
        for (place, (_, index, slot)) in first.into_iter().flatten().enumerate() {
            // Without memory to spare only one message goes on: it ends, and then there is some.
            if place > 0 && !self.shared.has_room() {
                return;
            }
            let Some(session) = self.sessions[index as usize].as_mut() else {
                continue;
            };
            let window = self.shared.config.window_bytes >> place;
            let incoming = &mut session.slots[usize::from(slot)].incoming;
            let target = (incoming.received_bytes() + window).min(incoming.length());
            let more = target.saturating_sub(incoming.granted);
            if more < window / 4 && target < incoming.length() || more == 0 {
                continue;
            }
            incoming.granted = target;
            let header = Header {
                offset: target as u32,
                ..session.header(Kind::Grant, slot)
            };
            self.shared.transmit(session.peer, &header, &[], out);
            session.list_grantable(slot, &mut self.shared);
        }
    }

    /// Takes those off the list that have a grant and do not use it: they are listed again when they do. Nobody else waits for them.
    fn pass_over_halted(&mut self, now: Time) {
        let patience = 4 * self.shared.config.retry_min;
        let mut place = 0;
        while let Some(&(_, index, slot)) = self.shared.grantable.iter().nth(place) {
            if place == GRANTED_AT_A_TIME {
                return;
            }
            let session = self.sessions[index as usize].as_mut();
            let slot = session.map(|session| &mut session.slots[usize::from(slot)]);
            let is_halted = slot.as_ref().is_none_or(|slot| {
                slot.incoming.granted > slot.incoming.received_bytes()
                    && now.since(slot.incoming.came_at) > patience
            });
            if !is_halted {
                place += 1;
                continue;
            }
            if let Some(slot) = slot {
                slot.grant_rank = None;
            }
            let rank = self.shared.grantable.iter().nth(place).copied();
            rank.map(|rank| self.shared.grantable.remove(&rank));
        }
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
        let random = (self.random.next_u64() >> (64 - RANDOM_BITS)).max(1);
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
        match session.role {
            Role::Initiator => self.initiated.retain(|&one| one as usize != index),
            Role::Acceptor { .. } => {
                self.accepted.retain(|_, one| *one as usize != index);
            }
        }
        self.free.push(index as u32);
        // What it leaves may let others go on.
        self.shared.is_grant_due = true;
    }

    fn end_largest(&mut self, out: &mut dyn Transmit) {
        let sessions = self.sessions.iter().enumerate();
        let held = sessions.filter_map(|(index, one)| Some((one.as_ref()?.kept_bytes(), index)));
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
        let is_meant = |session: &Session| {
            session.peer == from && session.peer_id == used && session.is_open()
        };
        let meant = self
            .sessions
            .iter()
            .position(|one| one.as_deref().is_some_and(is_meant));
        match meant {
            Some(index) => self.end(index, Some(Reason::Forgotten)),
            None => self.shared.counters.stale += 1,
        }
    }

    /// The first answers to a side that asked for a session.
    fn answer_to_open(
        &mut self,
        now: Time,
        index: usize,
        header: &Header,
        payload: &[u8],
        out: &mut dyn Transmit,
    ) -> Option<Event<'static>> {
        let session = self.sessions[index].as_mut()?;
        match header.kind {
            Kind::Challenge => session.challenged(payload, &mut self.shared, out),
            Kind::Opened => {
                if session.opened(now, payload, &self.shared) {
                    return Some(Event::Opened {
                        session: session.id,
                        is_accepted: false,
                        is_ordered: session.is_ordered,
                    });
                }
            }
            Kind::Refused => {
                let refusal = Refusal::of(header.number);
                self.end(index, Some(Reason::Refused(refusal)));
            }
            _ => self.shared.counters.stale += 1,
        }
        None
    }

    fn refuse(&mut self, to: SocketAddrV4, open: &[u8], why: Refusal, out: &mut dyn Transmit) {
        self.shared.counters.refused += 1;
        let Some(open) = open.get(HEADER_BYTES..).and_then(Open::decode) else {
            return;
        };
        let header = Header {
            number: why as u32,
            length: packet::VERSION.into(),
            ..Header::new(Kind::Refused, open.session)
        };
        self.shared.transmit(to, &header, &[], out);
    }

    fn asked_to_open(
        &mut self,
        now: Time,
        from: SocketAddrV4,
        payload: &[u8],
        out: &mut dyn Transmit,
    ) {
        let Some(open) = Open::decode(payload) else {
            self.shared.counters.malformed += 1;
            return;
        };
        if !self.baker.is_good(now, from, open.session, open.cookie) {
            let cookie = self.baker.cookie(now, from, open.session);
            let header = Header::new(Kind::Challenge, open.session);
            return self
                .shared
                .transmit(from, &header, &cookie.to_le_bytes(), out);
        }
        let refused = match () {
            () if usize::from(open.datagram_bytes) < packet::MIN_DATAGRAM_BYTES
                || open.slots == 0 =>
            {
                Some(Refusal::Invalid)
            }
            () => None,
        };
        if let Some(&index) = self.accepted.get(&(from, open.session)) {
            return self.say_opened(index as usize, &open, out);
        }
        self.end_former_runs(from, open.incarnation);
        let is_full = self.accepted.len() >= self.shared.config.sessions;
        let is_full = is_full && !self.displace_idle(now, out);
        if let Some(why) = refused.or(is_full.then_some(Refusal::Full)) {
            self.shared.counters.refused += 1;
            let header = Header {
                number: why as u32,
                length: packet::VERSION.into(),
                ..Header::new(Kind::Refused, open.session)
            };
            return self.shared.transmit(from, &header, &[], out);
        }
        self.accept(now, from, &open, out);
    }

    fn accept(&mut self, now: Time, from: SocketAddrV4, open: &Open, out: &mut dyn Transmit) {
        let incarnation = open.incarnation;
        let index = self.add(now, from, Role::Acceptor { incarnation });
        self.accepted.insert((from, open.session), index);
        let expires_at = now + self.shared.config.expire_after;
        self.next_expiry = self.next_expiry.min(expires_at);
        if let Some(session) = &mut self.sessions[index as usize] {
            session.peer_id = open.session;
            session.is_ordered = open.is_ordered;
            let datagram_bytes =
                usize::from(open.datagram_bytes).min(self.shared.config.datagram_bytes);
            session.settle_terms(datagram_bytes, open.slots, &self.shared);
            let event = Event::Opened {
                session: session.id,
                is_accepted: true,
                is_ordered: session.is_ordered,
            };
            self.shared.events.push_back(event);
        }
        self.say_opened(index as usize, open, out);
    }

    fn say_opened(&mut self, index: usize, open: &Open, out: &mut dyn Transmit) {
        if let Some(session) = &self.sessions[index] {
            let opened = Opened {
                session: session.id,
                datagram_bytes: (session.piece_bytes + HEADER_BYTES) as u16,
                slots: session.max_slots as u16,
            };
            let header = Header::new(Kind::Opened, open.session);
            self.shared
                .transmit(session.peer, &header, &opened.encode(), out);
        }
    }

    /// The peer was started anew: what its former run opened has nobody any more.
    fn end_former_runs(&mut self, peer: SocketAddrV4, incarnation: u64) {
        let is_former = |session: &Session| {
            session.peer == peer
                && matches!(session.role, Role::Acceptor { incarnation: of } if of != incarnation)
        };
        let sessions = self.sessions.iter().enumerate();
        let former: Vec<usize> = sessions
            .filter(|(_, one)| one.as_deref().is_some_and(is_former))
            .map(|(index, _)| index)
            .collect();
        for index in former {
            self.end(index, Some(Reason::Restarted));
        }
    }

    /// Ends the session that was silent for longest, if that was long and nothing is owed to it. True if there was one.
    fn displace_idle(&mut self, now: Time, out: &mut dyn Transmit) -> bool {
        let idle_timeout = self.shared.config.idle_timeout;
        let accepted = self.accepted.values().filter_map(|&index| {
            let session = self.sessions[index as usize].as_deref()?;
            Some((session.heard_at, index, session.is_busy()))
        });
        let idle = accepted
            .filter(|(heard_at, _, is_busy)| !is_busy && now.since(*heard_at) >= idle_timeout)
            .min();
        let Some((_, index, _)) = idle else {
            return false;
        };
        self.say_close(index as usize, out);
        self.end(index as usize, Some(Reason::Displaced));
        true
    }
}
