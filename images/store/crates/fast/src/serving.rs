//! The side that answers: each request once, in order where that is wanted.

use std::borrow::Cow;

use base::bugs::{Bug, is_planted};
use base::time::Time;
use transport::datagram::Transmit;

use crate::packet::{FLAG_RETRY, Header, Kind};
use crate::session::Session;
use crate::shared::Shared;
use crate::slot::{Phase, Slot};
use crate::{Event, Reason, unscheduled};
use transport::Loan;

/// A request as its answer names it.
fn nonce(slot: u8, number: u32) -> u64 {
    u64::from(slot) << 32 | u64::from(number)
}

/// Whether a request came later than another, of which the numbers may have started anew.
pub fn is_later(number: u32, than: u32) -> bool {
    than == 0 || number.wrapping_sub(than).cast_signed() > 0
}

impl Session {
    /// A piece of a request came.
    pub fn request<'a>(
        &mut self,
        now: Time,
        header: &Header,
        piece: &'a [u8],
        shared: &mut Shared,
        out: &mut dyn Transmit,
    ) -> Result<Option<Event<'a>>, Reason> {
        let index = usize::from(header.slot);
        if index >= self.max_slots || header.number == 0 {
            return Err(Reason::Nonsense);
        }
        if index >= self.slots.len() {
            self.add_slots(index + 1, shared)?;
        }
        let slot = &self.slots[index];
        if slot.number == header.number {
            return self.request_again(now, header, piece, shared, out);
        }
        if !is_later(header.number, slot.number) {
            shared.counters.stale += 1;
            return Ok(None);
        }
        if matches!(slot.phase, Phase::Receiving | Phase::Executing) {
            // A slot is used again when its answer has come.
            return Err(Reason::Nonsense);
        }
        let length = header.length as usize;
        if length > shared.config.message_bytes {
            return Err(Reason::Nonsense);
        }
        self.forget_answer(header.slot, shared);
        if length <= self.piece_bytes {
            if header.offset != 0 || length != piece.len() {
                return Err(Reason::Nonsense);
            }
            let is_early = self.is_ordered && header.number != self.next_number;
            if is_early && !self.is_let_in(now, header.number, length, shared) {
                shared.counters.refused += 1;
                return Ok(None); // It will come again.
            }
            if is_early {
                self.claim(now, header.slot, length, shared);
            }
            self.slots[index].number = header.number;
            shared.counters.messages_in += 1;
            return self.hand_over(header.slot, Cow::Borrowed(piece), shared);
        }
        if !self.begin_receiving(now, header, piece, shared) {
            return Ok(None); // It will come again.
        }
        self.slots[index].number = header.number;
        match self.receive_piece(now, header, piece, shared, out) {
            Some(message) => self.hand_over(header.slot, Cow::Owned(message), shared),
            None => Ok(None),
        }
    }

    /// Makes slots, as far as there is memory for them.
    fn add_slots(&mut self, count: usize, shared: &mut Shared) -> Result<(), Reason> {
        let bytes = (count - self.slots.len()) * size_of::<Slot>();
        if !shared.take_for_slots(bytes) {
            return Err(Reason::OutOfBuffers);
        }
        self.slots.resize_with(count, Slot::default);
        Ok(())
    }

    /// A piece of a request that has been heard of.
    fn request_again<'a>(
        &mut self,
        now: Time,
        header: &Header,
        piece: &'a [u8],
        shared: &mut Shared,
        out: &mut dyn Transmit,
    ) -> Result<Option<Event<'a>>, Reason> {
        let is_retry = header.flags & FLAG_RETRY != 0;
        let phase = self.slots[usize::from(header.slot)].phase;
        if phase == Phase::Receiving {
            if let Some(message) = self.receive_piece(now, header, piece, shared, out) {
                return self.hand_over(header.slot, Cow::Owned(message), shared);
            }
            if is_retry {
                self.ask_for_missing(now, header.slot, shared, out);
            }
            return Ok(None);
        }
        shared.counters.stale += 1;
        let is_whole = header.length as usize == piece.len() && !self.is_ordered;
        if is_planted(Bug::HandOverAgain) && is_whole && phase == Phase::Answered {
            self.forget_answer(header.slot, shared);
            return self.hand_over(header.slot, Cow::Borrowed(piece), shared);
        }
        if is_retry && phase == Phase::Executing {
            self.control(Kind::Working, header.slot, shared, out);
        } else if is_retry && phase == Phase::Answered {
            let slot = &self.slots[usize::from(header.slot)];
            // What waits for its turn comes without being asked for.
            if slot.send_rank.is_none() {
                shared.counters.resent += 1;
                self.send_again(header.slot, shared, out);
            }
        }
        Ok(None)
    }

    /// Sends the first packet of an answer once more.
    fn send_again(&mut self, number: u8, shared: &mut Shared, out: &mut dyn Transmit) {
        let piece_bytes = self.piece_bytes;
        let outgoing = &mut self.slots[usize::from(number)].outgoing;
        if outgoing.length() <= piece_bytes {
            return self.send_first(Kind::Response, 0, number, shared, out);
        }
        outgoing.resend(0, piece_bytes, piece_bytes);
        self.list_sendable(number, shared);
    }

    /// Hands a complete request over, now or when those before it have been.
    fn hand_over<'a>(
        &mut self,
        slot: u8,
        payload: Cow<'a, [u8]>,
        shared: &mut Shared,
    ) -> Result<Option<Event<'a>>, Reason> {
        let session = self.id;
        let number = self.slots[usize::from(slot)].number;
        self.slots[usize::from(slot)].phase = Phase::Executing;
        if self.is_ordered {
            if number != self.next_number {
                return self.keep_early(slot, number, payload.into_owned(), shared);
            }
            self.advance();
            while let Some((slot, payload)) = self.early.remove(&self.next_number) {
                let nonce = nonce(slot, self.next_number);
                self.release(slot, shared);
                assert!(payload.len() <= self.early_bytes, "what waited was counted");
                self.early_bytes -= payload.len();
                shared.of_others.arriving_bytes -= payload.len();
                let payload = Cow::Owned(payload);
                shared.events.push_back(Event::Message {
                    session,
                    nonce,
                    payload,
                });
                self.advance();
            }
        }
        self.release(slot, shared);
        let nonce = nonce(slot, number);
        Ok(Some(Event::Message {
            session,
            nonce,
            payload,
        }))
    }

    /// Keeps a request until those before it have come. Whoever makes too many wait for one is not a peer of ours.
    fn keep_early<'a>(
        &mut self,
        slot: u8,
        number: u32,
        request: Vec<u8>,
        shared: &mut Shared,
    ) -> Result<Option<Event<'a>>, Reason> {
        self.early_bytes += request.len();
        shared.of_others.arriving_bytes += request.len();
        self.early.insert(number, (slot, request));
        match self.early_bytes > shared.config.queue_bytes {
            true => Err(Reason::OutOfBuffers),
            false => Ok(None),
        }
    }

    fn advance(&mut self) {
        self.next_number = self.next_number.wrapping_add(1).max(1);
    }

    /// Answers a request. False if there is none such, or it has its answer.
    pub fn reply(
        &mut self,
        nonce: u64,
        parts: &[&[u8]],
        shared: &mut Shared,
        out: &mut dyn Transmit,
    ) -> bool {
        let unscheduled = unscheduled(self.piece_bytes);
        let Some((number, slot)) = self.begin_answer(nonce) else {
            return false;
        };
        slot.outgoing
            .start(parts, unscheduled, || shared.take_spare(usize::MAX));
        self.begin_sending(number, shared, out);
        true
    }

    /// As [`Session::reply`], with an end that its owner keeps. Answers of one packet are better copied.
    pub fn reply_lent(
        &mut self,
        nonce: u64,
        head: &[u8],
        loan: Loan,
        shared: &mut Shared,
        out: &mut dyn Transmit,
    ) -> bool {
        let unscheduled = unscheduled(self.piece_bytes);
        if head.len() + loan.length <= self.piece_bytes {
            return false;
        }
        let Some((number, slot)) = self.begin_answer(nonce) else {
            return false;
        };
        slot.outgoing.start_lent(head, loan, unscheduled);
        self.begin_sending(number, shared, out);
        true
    }

    /// The slot of a request that gets its answer now.
    fn begin_answer(&mut self, nonce: u64) -> Option<(u8, &mut Slot)> {
        let number = u8::try_from(nonce >> 32).ok()?;
        let slot = self.slots.get_mut(usize::from(number))?;
        if slot.phase != Phase::Executing || u64::from(slot.number) != nonce & 0xffff_ffff {
            return None;
        }
        slot.phase = Phase::Answered;
        assert_eq!(
            slot.outgoing.loan(),
            None,
            "an answer begins without a loan"
        );
        Some((number, slot))
    }

    /// An answer has arrived.
    pub fn hear_ack(&mut self, header: &Header, shared: &mut Shared) {
        let slot = self.slots.get(usize::from(header.slot));
        if slot.is_some_and(|slot| slot.number == header.number && slot.phase == Phase::Answered) {
            self.forget_answer(header.slot, shared);
        }
    }

    /// All requests below `number` have their answers.
    pub fn hear_ping(&mut self, number: u32, shared: &mut Shared, out: &mut dyn Transmit) {
        for index in 0..self.slots.len() {
            let slot = &self.slots[index];
            if slot.phase == Phase::Answered && is_later(number, slot.number) {
                self.forget_answer(index as u8, shared);
                let slot = &mut self.slots[index];
                drop(slot.outgoing.clear(0));
                shared.settle(self.role, slot);
            }
        }
        let pong = Header::new(Kind::Pong, self.peer_id);
        shared.transmit(self.peer, &pong, &[], out);
    }

    fn forget_answer(&mut self, number: u8, shared: &mut Shared) {
        self.unlist(number, shared);
        let slot = &mut self.slots[usize::from(number)];
        slot.phase = Phase::Idle;
        shared.give_back(slot);
        shared.recycle(slot.outgoing.clear(self.piece_bytes));
        shared.settle(self.role, slot);
    }
}
