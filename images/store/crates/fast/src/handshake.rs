//! How a session begins: the side that asks proves its address with a cookie before the other remembers anything.

use core::time::Duration;

use base::time::Time;
use transport::datagram::Transmit;

use crate::Reason;
use crate::packet::{HEADER_BYTES, Header, Kind, MIN_DATAGRAM_BYTES, Open, Opened};
use crate::session::{Session, Stage};
use crate::shared::Shared;

/// Between the first two attempts; it doubles with each.
const FIRST_RETRY: Duration = Duration::from_millis(1);
/// Cookies that are believed in one attempt to open a session.
const MAX_CHALLENGES: u32 = 8;

impl Session {
    pub fn begin_opening(
        &mut self,
        now: Time,
        incarnation: u64,
        shared: &mut Shared,
        out: &mut dyn Transmit,
    ) {
        self.stage = Stage::Opening {
            cookie: 0,
            challenges: 0,
            tries: 0,
            retry_at: now,
            give_up_at: now + shared.config.connect_timeout,
        };
        // Until the other side has its own number, this names the run of the side that asks.
        self.peer_id = incarnation;
        self.send_open(0, shared, out);
    }

    fn send_open(&self, cookie: u64, shared: &mut Shared, out: &mut dyn Transmit) {
        let open = Open {
            session: self.id,
            incarnation: self.peer_id,
            cookie,
            datagram_bytes: shared.config.datagram_bytes.min(usize::from(u16::MAX)) as u16,
            slots: shared.config.slots,
            is_ordered: self.is_ordered,
        };
        shared.transmit(self.peer, &Header::new(Kind::Open, 0), &open.encode(), out);
    }

    pub fn tend_opening(
        &mut self,
        now: Time,
        shared: &mut Shared,
        out: &mut dyn Transmit,
    ) -> Result<Time, Reason> {
        let Stage::Opening {
            cookie,
            tries,
            retry_at,
            give_up_at,
            ..
        } = &mut self.stage
        else {
            return Ok(now);
        };
        if now >= *give_up_at {
            return Err(Reason::Unreachable);
        }
        let mut due = None;
        if now >= *retry_at {
            *retry_at = now + FIRST_RETRY * (1 << (*tries).min(6));
            *tries += 1;
            due = Some(*cookie).filter(|_| *tries > 1);
        }
        let next = (*retry_at).min(*give_up_at);
        if let Some(cookie) = due {
            shared.counters.retries += 1;
            self.send_open(cookie, shared, out);
        }
        Ok(next)
    }

    /// The other side wants its cookie back.
    pub fn challenged(&mut self, payload: &[u8], shared: &mut Shared, out: &mut dyn Transmit) {
        let (
            Stage::Opening {
                cookie, challenges, ..
            },
            Some(given),
        ) = (&mut self.stage, payload.first_chunk::<8>())
        else {
            return;
        };
        let given = u64::from_le_bytes(*given);
        if given == *cookie || *challenges >= MAX_CHALLENGES {
            return;
        }
        *cookie = given;
        *challenges += 1;
        self.send_open(given, shared, out);
    }

    /// The session is open. False if it was, or if that makes no sense.
    pub fn opened(&mut self, now: Time, payload: &[u8], shared: &Shared) -> bool {
        let Some(opened) = Opened::decode(payload) else {
            return false;
        };
        let datagram_bytes = usize::from(opened.datagram_bytes);
        let fits = (MIN_DATAGRAM_BYTES..=shared.config.datagram_bytes).contains(&datagram_bytes);
        if self.is_open() || !fits || opened.slots == 0 {
            return false;
        }
        self.stage = Stage::Open;
        self.peer_id = opened.session;
        self.settle_terms(datagram_bytes, opened.slots, shared);
        self.heard_at = now;
        true
    }

    /// What both sides agreed on.
    pub fn settle_terms(&mut self, datagram_bytes: usize, slots: u16, shared: &Shared) {
        self.piece_bytes = datagram_bytes - HEADER_BYTES;
        self.max_slots = usize::from(slots.min(shared.config.slots).min(256));
    }
}
