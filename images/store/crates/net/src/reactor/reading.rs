//! What arrives on connections: received, handed over message by message, and counted.

use std::time::Duration;

use trace::Event;
use transport::BASE_BYTES;

use super::Reactor;
use crate::clock;
use crate::connection::CloseReason;
use crate::handler::Handler;
use crate::io::Io;
use crate::stream::Received;

/// How long one connection's messages may be handled before the others have their turn.
const TURN: Duration = Duration::from_micros(200);

impl Reactor {
    /// Receives and hands over what is complete; once more before a long answer begins, for what is short and has come meanwhile is answered first.
    pub(super) fn read(&mut self, slot: usize, handler: &mut impl Handler) -> bool {
        let has_worked = self.read_once(slot, handler);
        if has_worked && self.io.is_about_to_begin(slot) {
            self.read_once(slot, handler);
        }
        has_worked
    }

    fn read_once(&mut self, slot: usize, handler: &mut impl Handler) -> bool {
        let Some(link) = self.io.link(slot) else {
            return false;
        };
        let Some(Some(input)) = self.inputs.get_mut(slot) else {
            return false;
        };
        if link.doomed.is_some() {
            return false;
        }
        if link.throttled || input.backlog {
            input.missed_news = true;
            return false; // Read again when the output has drained, or when what is here has been handled.
        }
        let announced = input.announced_bytes();
        if announced > BASE_BYTES && !self.may_arrive(slot, announced) {
            if let Some(Some(input)) = self.inputs.get_mut(slot) {
                input.missed_news = true;
            }
            return false; // Read again when others of its address have arrived.
        }
        let (Some(link), Some(Some(input))) = (self.io.link(slot), self.inputs.get_mut(slot))
        else {
            return false;
        };
        let Some(stream) = &mut link.stream else {
            return false;
        };
        match input.receive(stream) {
            Ok(Received::Nothing) => {
                input.missed_news = false;
                false
            }
            Ok(Received::End) => {
                self.io.doom(slot, CloseReason::EndOfStream);
                true
            }
            Ok(Received::Some { bytes, drained }) => {
                trace::record_at(Event::Received, link.id, bytes as u64);
                let is_drained = drained && !input.missed_news;
                self.io.counters.bytes_in += bytes as u64;
                self.pump(slot, handler);
                self.settle(slot);
                if !is_drained {
                    self.keep_unread(slot);
                }
                true
            }
            Err(error) => {
                self.io.doom(slot, CloseReason::Broken(error));
                true
            }
        }
    }

    /// Whether a long message may arrive now. What its address has for idle connections goes back first.
    fn may_arrive(&mut self, slot: usize, announced: usize) -> bool {
        if !self.io.admit(slot, announced) {
            self.complain(|| {
                "long messages wait: others of their address have all buffers that are for one address (see \
                 rcbox_messages_delayed_by_bound_total)"
                    .to_owned()
            });
            return false;
        }
        if let Some(origin) = self.io.tight_origin(slot, announced) {
            self.save_buffers(|io, slot| io.is_of(slot, origin));
        }
        true
    }

    /// Counts what the connection holds; where memory for buffers is short, what it does not need goes back first.
    pub(super) fn settle(&mut self, slot: usize) {
        let Some(Some(input)) = self.inputs.get_mut(slot) else {
            return;
        };
        if self.io.is_short_of_buffers(slot) {
            input.give_back();
        }
        let is_partial = input.held_bytes() > 0 && !input.backlog;
        self.io
            .note_input(slot, input.capacity(), is_partial, clock::now());
    }

    /// Memory for buffers is short: takes back what connections hold that are not heard of.
    pub(super) fn save_buffers(&mut self, is_meant: impl Fn(&mut Io, usize) -> bool) {
        for slot in 0..self.inputs.len() {
            if let Some(input) = &mut self.inputs[slot]
                && is_meant(&mut self.io, slot)
            {
                input.give_back();
                let capacity = input.capacity();
                self.io.shrunk(slot, capacity);
            }
        }
    }

    /// Has a connection read again in the next round, without waiting for epoll.
    pub(super) fn keep_unread(&mut self, slot: usize) {
        if let Some(Some(input)) = self.inputs.get_mut(slot)
            && !input.unread
        {
            input.unread = true;
            self.unread.push(slot);
        }
    }

    pub(super) fn has_backlog(&self, slot: usize) -> bool {
        matches!(self.inputs.get(slot), Some(Some(input)) if input.backlog)
    }

    /// Hands complete frames over, and their answers to the kernel, until there are none, too many answers wait, or others
    /// have waited for long enough.
    pub(super) fn pump(&mut self, slot: usize, handler: &mut impl Handler) {
        let (mut first, mut last) = (None, None);
        while let Some(connection) = self.may_handle(slot, handler) {
            let Some(Some(input)) = self.inputs.get_mut(slot) else {
                break;
            };
            input.backlog =
                matches!((first, last), (Some(first), Some(last)) if last - first >= TURN);
            if input.backlog {
                self.io.resumed.push(slot);
                break;
            }
            match input.next_frame() {
                Ok(Some(frame)) => {
                    let now = clock::now();
                    first = first.or(Some(now));
                    last = Some(now);
                    self.io.counters.frames_in += 1;
                    self.io.message_came(slot);
                    if frame.announced_bytes > frame.payload.len() {
                        let (announced, kept) = (frame.announced_bytes, frame.payload.len());
                        tracing::warn!(
                            "a message of {announced} bytes was cut to the {kept} that are allowed"
                        );
                    }
                    trace::record_at(Event::FrameIn, connection, frame.nonce);
                    handler.frame(now, connection, frame.nonce, frame.payload, &mut self.io);
                }
                Ok(None) => break,
                Err(error) => self.io.doom(slot, CloseReason::Stream(error)),
            }
        }
        // Long answers begin at the end of the round.
        self.io
            .flush_short(slot, &|token, length| handler.lent(token, length));
        if let Some(now) = last {
            self.heat.heat(slot, now);
        }
    }

    /// The connection's number if its next frame may be handled; otherwise it ends, or waits for its peer to read.
    fn may_handle(&mut self, slot: usize, handler: &impl Handler) -> Option<u64> {
        let origin = self.io.link(slot)?.origin;
        let limits = self.io.limits;
        let throttle_bytes = self.io.accounts.throttle_bytes(origin, &limits);
        if self.io.link(slot)?.pending_bytes() > throttle_bytes {
            self.io
                .flush(slot, &|token, length| handler.lent(token, length));
        }
        self.io.account(slot);
        let link = self.io.link(slot)?;
        if link.doomed.is_some() {
            return None;
        }
        link.throttled = link.pending_bytes() > throttle_bytes;
        (!link.throttled).then_some(link.id)
    }
}
