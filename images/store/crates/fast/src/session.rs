//! One session: what both of its sides have.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddrV4;

use base::time::Time;
use transport::datagram::Transmit;

use crate::holders::{Admission, Turn, Wish};
use crate::incoming::{Added, Incoming};
use crate::packet::{Header, Kind};
use crate::role::Role;
use crate::shared::Shared;
use crate::slot::{Phase, Slot};
use crate::{Event, Reason, unscheduled};
use transport::Lender;

/// Pieces that overtake a missing one before that counts as lost.
const REORDERED_PIECES: usize = 3;
/// So much of an answer has room before it comes: more grows as it does, since its length, too, is only what somebody says.
const ASKED_FOR_BYTES: usize = 1 << 20;
/// A new sample of the round trip time counts as one part of so many.
const RTT_SHARE: u32 = 8;

/// How far an initiator is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Opening {
        cookie: u64,
        challenges: u32,
        tries: u32,
        retry_at: Time,
        give_up_at: Time,
    },
    Open,
}

pub struct Session {
    pub index: u32,
    pub id: u64,
    pub peer: SocketAddrV4,
    /// As the peer numbers it.
    pub peer_id: u64,
    pub role: Role,
    pub stage: Stage,
    pub is_ordered: bool,
    /// Of a message, in one packet.
    pub piece_bytes: usize,
    pub slots: Vec<Slot>,
    pub max_slots: usize,
    /// Initiator: slots without a request.
    pub free: Vec<u8>,
    /// Initiator: requests that wait for a slot.
    pub queue: VecDeque<(u64, Vec<u8>)>,
    pub queue_bytes: usize,
    /// Initiator: of the last request.
    pub last_number: u32,
    /// Acceptor of an ordered session: the next to be handed over.
    pub next_number: u32,
    /// Acceptor of an ordered session: requests that came before their predecessors.
    pub early: BTreeMap<u32, (u8, Vec<u8>)>,
    pub early_bytes: usize,
    pub heard_at: Time,
    /// Initiator: pings without an answer.
    pub pings: u32,
    pub ping_at: Time,
    /// Initiator: since when an answer is to say how far the peer is.
    pub asked_how_far: Option<Time>,
    /// Initiator: what the last such answer said, and when.
    pub pinged: Option<(Duration, Time)>,
    /// Smoothed.
    pub rtt: Duration,
}

impl Session {
    pub fn new(index: u32, id: u64, peer: SocketAddrV4, role: Role, now: Time) -> Session {
        Session {
            index,
            id,
            peer,
            peer_id: 0,
            role,
            stage: Stage::Open,
            is_ordered: false,
            piece_bytes: 0,
            slots: Vec::new(),
            max_slots: 0,
            free: Vec::new(),
            queue: VecDeque::new(),
            queue_bytes: 0,
            last_number: 0,
            next_number: 1,
            early: BTreeMap::new(),
            early_bytes: 0,
            heard_at: now,
            pings: 0,
            ping_at: now,
            asked_how_far: None,
            pinged: None,
            rtt: Duration::ZERO,
        }
    }

    pub fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    /// Requests that are under way or wait.
    pub fn is_busy(&self) -> bool {
        match self.role {
            Role::Initiator => self.free.len() < self.slots.len() || !self.queue.is_empty(),
            Role::Acceptor { .. } => {
                let is_owed = |slot: &Slot| !matches!(slot.phase, Phase::Idle | Phase::Answered);
                self.slots.iter().any(is_owed)
            }
        }
    }

    /// Which kind of message goes out of here.
    fn message_kind(&self) -> Kind {
        match self.role {
            Role::Initiator => Kind::Request,
            Role::Acceptor { .. } => Kind::Response,
        }
    }

    pub fn header(&self, kind: Kind, slot: u8) -> Header {
        Header {
            slot,
            number: self.slots[usize::from(slot)].number,
            ..Header::new(kind, self.peer_id)
        }
    }

    /// Sends a packet without payload about the request in `slot`.
    pub fn control(&self, kind: Kind, slot: u8, shared: &mut Shared, out: &mut dyn Transmit) {
        shared.transmit(self.peer, &self.header(kind, slot), &[], out);
    }

    /// Begins to send the message that [`crate::outgoing::Outgoing::start`] was given.
    pub fn begin_sending(&mut self, slot: u8, shared: &mut Shared, out: &mut dyn Transmit) {
        let kind = self.message_kind();
        shared.counters.messages_out += 1;
        if self.slots[usize::from(slot)].outgoing.length() <= self.piece_bytes {
            self.send_first(kind, 0, slot, shared, out);
            self.slots[usize::from(slot)].outgoing.sent_all();
        } else {
            self.list_sendable(slot, shared);
        }
        shared.settle(self.role, &mut self.slots[usize::from(slot)]);
    }

    /// Sends the first packet of a message that lies here.
    pub fn send_first(
        &self,
        kind: Kind,
        flags: u8,
        slot: u8,
        shared: &mut Shared,
        out: &mut dyn Transmit,
    ) {
        let bytes = self.slots[usize::from(slot)].outgoing.bytes();
        let header = Header {
            flags,
            length: bytes.len() as u32,
            ..self.header(kind, slot)
        };
        let piece = &bytes[..bytes.len().min(self.piece_bytes)];
        shared.transmit(self.peer, &header, piece, out);
    }

    /// Sends the next packet of a message that has one to send; false if it has none.
    ///
    /// # Errors
    /// What was lent is gone: the message will never be whole.
    pub fn send_next(
        &mut self,
        slot: u8,
        shared: &mut Shared,
        lend: &Lender<'_>,
        out: &mut dyn Transmit,
    ) -> Result<bool, Reason> {
        let kind = self.message_kind();
        let piece_bytes = self.piece_bytes;
        let outgoing = &mut self.slots[usize::from(slot)].outgoing;
        let Some(piece) = outgoing.next_piece(piece_bytes) else {
            return Ok(false);
        };
        let outgoing = &self.slots[usize::from(slot)].outgoing;
        let header = Header {
            length: outgoing.length() as u32,
            offset: piece.offset as u32,
            ..self.header(kind, slot)
        };
        let payload = outgoing.parts(piece, lend).ok_or(Reason::Lost)?;
        shared.transmit_parts(self.peer, &header, payload, out);
        Ok(true)
    }

    pub fn list_sendable(&mut self, slot: u8, shared: &mut Shared) {
        let number = slot;
        let slot = &mut self.slots[usize::from(slot)];
        if let Some(rank) = slot.send_rank.take() {
            shared.sendable.remove(&(rank, self.index, number));
        }
        if slot.outgoing.has_more() {
            let rank = slot.outgoing.remaining();
            slot.send_rank = Some(rank);
            shared.sendable.insert((rank, self.index, number));
        }
    }

    pub fn list_grantable(&mut self, slot: u8, shared: &mut Shared) {
        let number = slot;
        let slot = &mut self.slots[usize::from(slot)];
        if let Some(listed) = slot.grant_rank.take() {
            shared.grantable.remove(listed, self.index, number);
        }
        let rest = slot.incoming.length() - slot.incoming.granted;
        if slot.phase == Phase::Receiving && rest > 0 {
            let listed = (rest, slot.incoming.granted_at);
            slot.grant_rank = Some(listed);
            shared.grantable.insert(listed, self.index, number);
        }
    }

    /// Takes a slot off the lists of what is sent and granted.
    pub fn unlist(&mut self, slot: u8, shared: &mut Shared) {
        let number = slot;
        let slot = &mut self.slots[usize::from(slot)];
        if let Some(rank) = slot.send_rank.take() {
            shared.sendable.remove(&(rank, self.index, number));
        }
        if let Some(listed) = slot.grant_rank.take() {
            shared.grantable.remove(listed, self.index, number);
            shared.is_grant_due = true;
        }
    }

    /// Notes what a request was let have, until [`Session::release`].
    pub fn claim(&mut self, now: Time, slot: u8, length: usize, shared: &mut Shared) {
        let number = slot;
        let slot = &mut self.slots[usize::from(slot)];
        assert_eq!(slot.deadline, None, "two requests in one slot");
        let deadline = now + shared.config.halted_after;
        slot.admitted_bytes = length;
        slot.admitted_at = now;
        slot.deadline = Some(deadline);
        shared.deadlines.insert((deadline, self.index, number));
        let place = (self.index, number);
        shared.arrivals.insert(*self.peer.ip(), now, place);
    }

    /// A request was handed over, or never will be: its memory is not its address's any more.
    pub fn release(&mut self, slot: u8, shared: &mut Shared) {
        let number = slot;
        let slot = &mut self.slots[usize::from(slot)];
        if let Some(deadline) = slot.deadline.take() {
            shared.deadlines.remove(&(deadline, self.index, number));
            let (peer, began_at) = (*self.peer.ip(), slot.admitted_at);
            let place = (self.index, number);
            shared.arrivals.remove(peer, began_at, place);
            let bytes = core::mem::take(&mut slot.admitted_bytes);
            shared.holders.dismiss(peer, bytes);
        }
    }

    /// Begins to receive a message of several packets with this piece of it; false if there is no memory for it, or the piece is none of it.
    pub fn begin_receiving(
        &mut self,
        now: Time,
        header: &Header,
        piece: &[u8],
        shared: &mut Shared,
    ) -> bool {
        let length = header.length as usize;
        let granted = unscheduled(self.piece_bytes).min(length);
        let offset = header.offset as usize;
        if !Incoming::fits(length, self.piece_bytes, granted, offset, piece) {
            shared.counters.stale += 1;
            return false;
        }
        // An answer was asked for. A request's length is only what somebody says: its memory grows as it comes.
        let is_asked_for = self.role == Role::Initiator;
        let is_let_in = match is_asked_for {
            true => shared.has_room_for_answers(),
            false => self.is_let_in(now, header.number, length, shared),
        };
        if !is_let_in {
            shared.counters.refused += 1;
            return false;
        }
        let mut room = match is_asked_for {
            true => shared.take_spare(usize::MAX),
            false => shared.take_spare(length),
        };
        if is_asked_for {
            room.clear();
            room.reserve_exact(length.min(ASKED_FOR_BYTES));
        }
        let slot = &mut self.slots[usize::from(header.slot)];
        slot.incoming.start(length, self.piece_bytes, granted, room);
        slot.incoming.began(now);
        slot.phase = Phase::Receiving;
        shared.settle(self.role, slot);
        if !is_asked_for {
            self.claim(now, header.slot, length, shared);
        }
        self.list_grantable(header.slot, shared);
        true
    }

    /// Whether there is memory for a request.
    pub fn is_let_in(&self, now: Time, number: u32, length: usize, shared: &mut Shared) -> bool {
        let turn = match (self.is_ordered, number == self.next_number) {
            (false, _) => Turn::Any,
            (true, true) => Turn::Next,
            (true, false) => Turn::Early,
        };
        let wish = Wish {
            peer: *self.peer.ip(),
            turn,
            length,
            beside: match turn {
                Turn::Next => self.admitted_bytes(),
                Turn::Any | Turn::Early => 0,
            },
        };
        let admission = shared.holders.admit(now, wish, shared.room());
        if admission == Admission::NoRoom {
            shared.crowded = Some(wish);
        }
        admission == Admission::LetIn
    }

    /// Whether a request is still waited for whose deadline has come: until when then.
    pub fn look_at_arrival(&mut self, now: Time, slot: u8, shared: &mut Shared) -> bool {
        let number = slot;
        let Some(slot) = self.slots.get_mut(usize::from(slot)) else {
            return true;
        };
        // While nothing more of it may come, it is not late.
        let moved_at = match slot.phase == Phase::Receiving && slot.incoming.may_come() {
            true => slot.incoming.moved_at(),
            false => now,
        };
        let end = slot.admitted_at + shared.config.message_timeout;
        let deadline = (moved_at + shared.config.halted_after).min(end);
        slot.deadline = Some(deadline);
        shared.deadlines.insert((deadline, self.index, number));
        now < deadline
    }

    /// Whether a request comes more slowly than anybody needs to send it.
    pub fn is_slow(&self, now: Time, slot: u8) -> bool {
        let slot = self.slots.get(usize::from(slot));
        slot.is_some_and(|slot| slot.phase == Phase::Receiving && slot.incoming.is_slow(now))
    }

    /// Takes a piece of a message that arrives. The message, if it is complete.
    pub fn receive_piece(
        &mut self,
        now: Time,
        header: &Header,
        piece: &[u8],
        shared: &mut Shared,
        out: &mut dyn Transmit,
    ) -> Option<Vec<u8>> {
        let offset = header.offset as usize;
        let slot = &mut self.slots[usize::from(header.slot)];
        let incoming = &mut slot.incoming;
        let added = match header.length as usize == incoming.length() {
            true => incoming.add(offset, piece),
            false => Added::Wrong,
        };
        match added {
            Added::Wrong | Added::Again => {
                shared.counters.stale += 1;
                None
            }
            Added::Complete => {
                let message = incoming.take();
                self.unlist(header.slot, shared);
                shared.is_grant_due = true;
                shared.settle(self.role, &mut self.slots[usize::from(header.slot)]);
                shared.counters.messages_in += 1;
                Some(message)
            }
            Added::New => {
                incoming.came(now, piece.len());
                let on_their_way =
                    incoming.granted - incoming.received_bytes().min(incoming.granted);
                shared.is_grant_due |= incoming.granted < incoming.length()
                    && 4 * on_their_way <= 3 * shared.config.window_bytes;
                // One that came to a halt is listed again when it goes on.
                let is_halted = incoming.granted < incoming.length() && slot.grant_rank.is_none();
                let is_lost = incoming.ahead(offset) >= REORDERED_PIECES;
                if is_lost
                    && now.since(incoming.asked_at) >= self.rtt.max(shared.config.retry_min / 4)
                {
                    self.ask_for_missing(now, header.slot, shared, out);
                }
                if is_halted {
                    self.list_grantable(header.slot, shared);
                }
                shared.settle(self.role, &mut self.slots[usize::from(header.slot)]);
                None
            }
        }
    }

    /// Says how far a message has arrived: what is missing of it, or up to where it may be sent.
    pub fn ask_for_missing(
        &mut self,
        now: Time,
        slot: u8,
        shared: &mut Shared,
        out: &mut dyn Transmit,
    ) {
        let incoming = &mut self.slots[usize::from(slot)].incoming;
        incoming.asked_at = now;
        // Whoever had its turn may be gone.
        shared.is_grant_due = true;
        let (gap, granted) = (incoming.first_gap(), incoming.granted);
        if let Some((offset, length)) = gap {
            let header = Header {
                offset: offset as u32,
                length: length as u32,
                ..self.header(Kind::Resend, slot)
            };
            shared.transmit(self.peer, &header, &[], out);
        }
        // The other side may have missed the grant for what is missing here.
        let header = Header {
            offset: granted as u32,
            ..self.header(Kind::Grant, slot)
        };
        shared.transmit(self.peer, &header, &[], out);
    }

    /// The peer takes more of a message, or misses something of it.
    pub fn hear_receiver(&mut self, now: Time, header: &Header, shared: &mut Shared) {
        let retry = self.retry_delay(0, shared);
        let slot = &mut self.slots[usize::from(header.slot)];
        if header.kind == Kind::Grant {
            slot.outgoing.grant(header.offset as usize);
        } else {
            // Nobody misses more than what may be on its way.
            let length = (header.length as usize).min(4 * shared.config.window_bytes);
            let (offset, piece_bytes) = (header.offset as usize, self.piece_bytes);
            slot.outgoing.resend(offset, length, piece_bytes);
            shared.counters.resent += (length / piece_bytes) as u64;
        }
        if slot.phase == Phase::Asked {
            slot.retries = 0;
            slot.retry_at = now + retry;
        }
        self.list_sendable(header.slot, shared);
    }

    /// How long to wait for an answer that was missed `retries` times in a row.
    pub fn retry_delay(&self, retries: u32, shared: &Shared) -> Duration {
        let base = (4 * self.rtt).max(shared.config.retry_min);
        (base * (1 << retries.min(6))).min(shared.config.retry_max.max(shared.config.retry_min))
    }

    pub fn measured(&mut self, sample: Duration) {
        self.rtt = match self.rtt {
            Duration::ZERO => sample,
            rtt => rtt + sample / RTT_SHARE - rtt / RTT_SHARE,
        };
    }

    /// Forgets everything; tells why, if the handler is to know.
    pub fn end(&mut self, reason: Option<Reason>, shared: &mut Shared) {
        for number in 0..self.slots.len() {
            self.unlist(number as u8, shared);
            self.release(number as u8, shared);
            let slot = &mut self.slots[number];
            shared.give_back(slot);
            let held = shared.of(self.role);
            held.arriving_bytes -= slot.accounted.0;
            held.kept_bytes -= slot.accounted.1;
            slot.accounted = (0, 0);
        }
        if let Role::Acceptor { .. } = self.role {
            shared.slot_bytes -= self.slots.len() * size_of::<Slot>();
        }
        self.slots.clear();
        shared.of(self.role).arriving_bytes -= self.early_bytes;
        self.early_bytes = 0;
        if let Some(reason) = reason {
            let session = self.id;
            shared.events.push_back(Event::Closed { session, reason });
        }
    }

    /// Announced lengths of requests that are arriving, or wait for their predecessors.
    pub fn admitted_bytes(&self) -> usize {
        self.slots.iter().map(|slot| slot.admitted_bytes).sum()
    }

    /// Memory of what the session has sent and keeps.
    pub fn kept_bytes(&self) -> usize {
        self.slots.iter().map(|slot| slot.accounted.1).sum()
    }
}
