//! How sessions begin, and which ones are let in.

use std::net::SocketAddrV4;

use base::time::Time;
use transport::datagram::Transmit;

use super::{Endpoint, LOOK, Run};
use crate::packet::{self, HEADER_BYTES, Header, Kind, Open, Opened, Refusal};
use crate::role::Role;
use crate::{Event, Reason};

impl Endpoint {
    /// The first answers to a side that asked for a session.
    pub(super) fn answer_to_open(
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
                    let name = (session.peer, session.peer_id);
                    self.reached.insert(name, session.index);
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

    pub(super) fn refuse(
        &mut self,
        to: SocketAddrV4,
        open: &[u8],
        why: Refusal,
        out: &mut dyn Transmit,
    ) {
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

    pub(super) fn asked_to_open(
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
                || open.slots == 0
                || !self.accepts(open.is_ordered) =>
            {
                Some(Refusal::Invalid)
            }
            () => None,
        };
        if let Some(&index) = self.accepted.get(&(from, open.session)) {
            return self.say_opened(index as usize, &open, out);
        }
        self.end_former_runs(from, open.incarnation);
        let all = self.shared.config.sessions;
        let is_full = !self.shared.holders.has_place(*from.ip(), all)
            || self.accepted.len() >= all && !self.displace_idle(now, out);
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

    /// Whether others may open sessions of this kind here.
    fn accepts(&self, is_ordered: bool) -> bool {
        let config = &self.shared.config;
        match is_ordered {
            true => config.accepts_ordered,
            false => config.accepts_unordered,
        }
    }

    fn accept(&mut self, now: Time, from: SocketAddrV4, open: &Open, out: &mut dyn Transmit) {
        let incarnation = open.incarnation;
        let index = self.add(now, from, Role::Acceptor { incarnation });
        self.accepted.insert((from, open.session), index);
        self.shared.holders.opened(*from.ip());
        let run = self.runs.entry(from).or_insert(Run {
            incarnation,
            sessions: 0,
        });
        run.sessions += 1;
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
        let known = self.runs.get(&peer);
        if known.is_none_or(|run| run.incarnation == incarnation) {
            return;
        }
        let all = (peer, 0)..=(peer, u64::MAX);
        let former: Vec<u32> = self.accepted.range(all).map(|(_, index)| *index).collect();
        for index in former {
            self.end(index as usize, Some(Reason::Restarted));
        }
    }

    /// Ends the session that was silent for longest, if that was long and nothing is owed to it. True if there was one.
    fn displace_idle(&mut self, now: Time, out: &mut dyn Transmit) -> bool {
        if now < self.next_displacement {
            return false;
        }
        self.next_displacement = now + LOOK;
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
