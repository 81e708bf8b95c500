//! The side that asks: slots, repetitions, answers.

use core::time::Duration;
use std::borrow::Cow;

use base::time::Time;
use transport::datagram::Transmit;

use crate::packet::{FLAG_RETRY, Header, Kind};
use crate::serving::is_later;
use crate::session::{Session, Stage};
use crate::shared::Shared;
use crate::slot::{Phase, Slot};
use crate::{Event, Reason, unscheduled};

/// Pings without an answer after which a session without requests is given up.
const PINGS: u32 = 3;
/// What a request takes that waits for a slot, beside its bytes: one without any is not free.
const QUEUED_BYTES: usize = 64;

impl Session {
    /// Sends a request as soon as there is a slot. False if too much waits already.
    pub fn call(
        &mut self,
        now: Time,
        nonce: u64,
        parts: &[&[u8]],
        shared: &mut Shared,
        out: &mut dyn Transmit,
    ) -> bool {
        if self.queue.is_empty()
            && let Some(slot) = self.free_slot()
        {
            self.start_call(now, slot, nonce, parts, shared, out);
            return true;
        }
        let request = parts.concat();
        self.queue_bytes += request.len() + QUEUED_BYTES;
        self.queue.push_back((nonce, request));
        self.queue_bytes <= shared.config.queue_bytes
    }

    fn free_slot(&mut self) -> Option<u8> {
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        if self.slots.len() < self.max_slots {
            assert!(
                self.slots.len() <= usize::from(u8::MAX),
                "slots have numbers of a byte"
            );
            self.slots.push(Slot::default());
            return Some((self.slots.len() - 1) as u8);
        }
        None
    }

    fn start_call(
        &mut self,
        now: Time,
        number: u8,
        nonce: u64,
        parts: &[&[u8]],
        shared: &mut Shared,
        out: &mut dyn Transmit,
    ) {
        // 0 stands for no request.
        self.last_number = self.last_number.wrapping_add(1).max(1);
        let retry_at = now + self.retry_delay(0, shared);
        let slot = &mut self.slots[usize::from(number)];
        assert_eq!(slot.phase, Phase::Idle, "a slot has one request at a time");
        slot.phase = Phase::Asked;
        slot.number = self.last_number;
        slot.nonce = nonce;
        slot.asked_at = now;
        slot.retry_at = retry_at;
        slot.retries = 0;
        let unscheduled = unscheduled(self.piece_bytes);
        slot.outgoing
            .start(parts, unscheduled, || shared.take_spare(usize::MAX));
        self.begin_sending(number, shared, out);
    }

    /// A piece of an answer came.
    pub fn answer<'a>(
        &mut self,
        now: Time,
        header: &Header,
        piece: &'a [u8],
        shared: &mut Shared,
        out: &mut dyn Transmit,
    ) -> Option<Event<'a>> {
        let slot = self.slots.get_mut(usize::from(header.slot))?;
        let is_awaited = matches!(slot.phase, Phase::Asked | Phase::Receiving);
        if slot.number != header.number || !is_awaited {
            shared.counters.stale += 1;
            return None;
        }
        let length = header.length as usize;
        if slot.phase == Phase::Asked {
            // After a repetition nobody knows which of both was answered; that it took no longer is better than to know nothing, and to repeat all for ever.
            if slot.retries == 0 || self.rtt == Duration::ZERO {
                let sample = now.since(slot.asked_at);
                self.measured(sample);
            }
            if length <= self.piece_bytes {
                if header.offset != 0 || length != piece.len() {
                    shared.counters.malformed += 1;
                    return None;
                }
                shared.counters.messages_in += 1;
                return Some(self.finish_call(now, header.slot, Cow::Borrowed(piece), shared, out));
            }
            if length > shared.config.message_bytes
                || !self.begin_receiving(now, header, piece, shared)
            {
                return None;
            }
        }
        let retry_at = now + self.retry_delay(0, shared);
        let slot = &mut self.slots[usize::from(header.slot)];
        slot.retries = 0;
        slot.retry_at = retry_at;
        let message = self.receive_piece(now, header, piece, shared, out)?;
        self.control(Kind::Ack, header.slot, shared, out);
        Some(self.finish_call(now, header.slot, Cow::Owned(message), shared, out))
    }

    fn finish_call<'a>(
        &mut self,
        now: Time,
        number: u8,
        payload: Cow<'a, [u8]>,
        shared: &mut Shared,
        out: &mut dyn Transmit,
    ) -> Event<'a> {
        self.unlist(number, shared);
        let slot = &mut self.slots[usize::from(number)];
        slot.phase = Phase::Idle;
        let nonce = slot.nonce;
        shared.recycle(slot.outgoing.clear(self.piece_bytes));
        shared.settle(self.role, slot);
        match self.queue.pop_front() {
            Some((nonce, request)) => {
                self.queue_bytes -= request.len() + QUEUED_BYTES;
                self.start_call(now, number, nonce, &[&request], shared, out);
            }
            None => self.free.push(number),
        }
        Event::Message {
            session: self.id,
            nonce,
            payload,
        }
    }

    /// The request is being executed: no answer is lost yet.
    pub fn hear_working(&mut self, now: Time, header: &Header, shared: &Shared) {
        let delay = self.retry_delay(3, shared);
        let Some(slot) = self.slots.get_mut(usize::from(header.slot)) else {
            return;
        };
        if slot.number == header.number && slot.phase == Phase::Asked {
            slot.retry_at = now + delay;
        }
    }

    /// Does what is due at the side that asks. When to look again, or why the session is over.
    pub fn tend(
        &mut self,
        now: Time,
        shared: &mut Shared,
        out: &mut dyn Transmit,
    ) -> Result<Time, Reason> {
        if self.stage != Stage::Open {
            return self.tend_opening(now, shared, out);
        }
        let dead_at = self.heard_at + shared.config.dead_after;
        if !self.is_busy() {
            return self.tend_idle(now, shared, out);
        }
        let mut next = now + shared.config.dead_after;
        let mut is_retried = false;
        for number in 0..self.slots.len() {
            let slot = &self.slots[number];
            if !matches!(slot.phase, Phase::Asked | Phase::Receiving) {
                continue;
            }
            if slot.retry_at <= now {
                is_retried = true;
                self.retry(now, number as u8, shared, out);
            }
            next = next.min(self.slots[number].retry_at);
        }
        // Silence counts from the first question that nobody answered, not from the last answer of an idle session.
        let asked_at = self.first_asked_at();
        if is_retried && now >= dead_at && now >= asked_at + shared.config.dead_after {
            return Err(Reason::Silent);
        }
        Ok(next.max(now + shared.config.retry_min / 4))
    }

    fn first_asked_at(&self) -> Time {
        let asked = |slot: &&Slot| matches!(slot.phase, Phase::Asked | Phase::Receiving);
        let times = self.slots.iter().filter(asked).map(|slot| slot.asked_at);
        times.min().unwrap_or(Time::NEVER)
    }

    fn retry(&mut self, now: Time, number: u8, shared: &mut Shared, out: &mut dyn Transmit) {
        let retries = self.slots[usize::from(number)].retries + 1;
        let delay = self.retry_delay(retries, shared);
        let slot = &mut self.slots[usize::from(number)];
        slot.retry_at = now + delay;
        if slot.send_rank.is_some() {
            return; // It waits for its turn here, not for the peer.
        }
        slot.retries = retries;
        shared.counters.retries += 1;
        match slot.phase {
            Phase::Receiving => self.ask_for_missing(now, number, shared, out),
            _ => self.send_first(Kind::Request, FLAG_RETRY, number, shared, out),
        }
    }

    fn tend_idle(
        &mut self,
        now: Time,
        shared: &mut Shared,
        out: &mut dyn Transmit,
    ) -> Result<Time, Reason> {
        let quiet_until = self.heard_at + shared.config.keep_alive;
        if now < quiet_until {
            self.pings = 0;
            return Ok(quiet_until);
        }
        if self.pings > 0 && now < self.ping_at {
            return Ok(self.ping_at);
        }
        if self.pings >= PINGS {
            return Err(Reason::Silent);
        }
        self.pings += 1;
        self.ping_at = now + shared.config.dead_after / PINGS;
        self.send_ping(shared, out);
        Ok(self.ping_at)
    }

    /// Says besides below which number all requests have their answers.
    pub fn send_ping(&self, shared: &mut Shared, out: &mut dyn Transmit) {
        let is_asked = |slot: &&Slot| matches!(slot.phase, Phase::Asked | Phase::Receiving);
        let under_way = self.slots.iter().filter(is_asked).map(|slot| slot.number);
        let next = self.last_number.wrapping_add(1);
        let header = Header {
            number: under_way.fold(next, |oldest, number| match is_later(oldest, number) {
                true => number,
                false => oldest,
            }),
            ..Header::new(Kind::Ping, self.peer_id)
        };
        shared.transmit(self.peer, &header, &[], out);
    }
}
