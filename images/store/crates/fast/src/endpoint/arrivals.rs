//! Requests that arrive: which of them have to end so that others find memory, and which do not go on.

use base::time::Time;
use transport::datagram::Transmit;

use super::Endpoint;
use crate::arrivals::LOOKED_AT;
use crate::holders::{Turn, Wish};
use crate::packet::Header;
use crate::{Event, Reason};

impl Endpoint {
    /// A piece of a request came. If there is no memory for it, others may have to make room.
    pub(super) fn request<'a>(
        &mut self,
        now: Time,
        index: usize,
        header: &Header,
        piece: &'a [u8],
        out: &mut dyn Transmit,
    ) -> Option<Event<'a>> {
        loop {
            let session = self.sessions[index].as_mut()?;
            let taken = session.request(now, header, piece, &mut self.shared, out);
            if let Some(wish) = self.shared.crowded.take()
                && self.make_room(now, index as u32, wish, out)
            {
                continue; // It finds room now: who comes first else is for whoever sends the most.
            }
            return taken.unwrap_or_else(|reason| {
                self.say_close(index, out);
                self.end(index, Some(reason));
                None
            });
        }
    }

    /// There is no memory for a request of a session: others end until there is, as far as they should. Whether there is now.
    fn make_room(&mut self, now: Time, asking: u32, wish: Wish, out: &mut dyn Transmit) -> bool {
        let room = self.shared.room();
        while !self.shared.holders.has_room(now, wish, room) {
            let greedy = self.greedy(now, wish);
            let Some(index) = greedy.or_else(|| self.longest(now, asking, wish)) else {
                return false;
            };
            self.give_up(index, Reason::OutOfBuffers, out);
        }
        true
    }

    /// A session whose request does not come as fast as it may, of an address that has more than whoever wants some.
    fn greedy(&self, now: Time, wish: Wish) -> Option<u32> {
        let greedier = self.shared.holders.greedier_than(wish.peer, wish.length);
        let places = greedier
            .take(LOOKED_AT)
            .flat_map(|peer| self.shared.arrivals.oldest_of(peer));
        let mut slow = places.filter(|(index, slot)| {
            let session = self.sessions[*index as usize].as_deref();
            session.is_some_and(|session| session.is_slow(now, *slot))
        });
        slow.next().map(|(index, _)| index)
    }

    /// The session whose request has been arriving for longest, if that is longer than a tenure, and it is the turn of whoever wants its memory. That
    /// may be one of the same address, so that nobody makes others wait for what it holds itself.
    fn longest(&self, now: Time, asking: u32, wish: Wish) -> Option<u32> {
        let room = self.shared.room();
        if !self.shared.holders.is_overdue(now, wish.peer, room) {
            return None;
        }
        // Requests that wait for this very one are handed over with it.
        let is_beside = |index: u32| wish.turn == Turn::Next && index == asking;
        let mut others = self.shared.arrivals.oldest();
        let (began_at, (index, _)) = others.find(|(_, (index, _))| !is_beside(*index))?;
        (now.since(*began_at) >= room.tenure).then_some(*index)
    }

    /// Other ports share the memory for requests that arrive: whether they have some of it, and how long the request is there that has waited for
    /// longer than a tenure. For that one, requests end here that had their time.
    pub fn share_room(
        &mut self,
        now: Time,
        is_shared: bool,
        wanted: usize,
        out: &mut dyn Transmit,
    ) {
        self.shared.holders.is_shared = is_shared;
        self.shared.holders.left_for_others = wanted;
        let room = self.shared.room();
        while wanted > 0 && self.shared.holders.admitted_bytes() > 0 {
            let oldest = self.shared.arrivals.oldest().next().copied();
            let Some((_, (index, _))) =
                oldest.filter(|(began_at, _)| now.since(*began_at) >= room.tenure)
            else {
                return;
            };
            self.give_up(index, Reason::OutOfBuffers, out);
        }
    }

    /// Whether requests of several packets are arriving.
    pub fn is_arriving(&self) -> bool {
        self.shared.holders.admitted_bytes() > 0
    }

    /// Whether requests that arrive have no more memory than is for them, but for one that is alone, and take none that they were not let have.
    pub fn is_within_bounds(&self) -> bool {
        let holders = &self.shared.holders;
        holders.is_within(self.shared.room())
            && self.shared.of_others.arriving_bytes <= holders.admitted_bytes()
    }

    /// How long the request is that has waited for memory for longer than a tenure; 0 if there is none.
    pub fn wanted_bytes(&mut self, now: Time) -> usize {
        self.shared.holders.forget_gone(now);
        self.shared.holders.wants_of_others(now, self.shared.room())
    }

    fn give_up(&mut self, index: u32, reason: Reason, out: &mut dyn Transmit) {
        self.say_close(index as usize, out);
        self.end(index as usize, Some(reason));
    }

    /// Ends sessions with requests that were begun and do not go on.
    pub(super) fn check_arrivals(&mut self, now: Time, out: &mut dyn Transmit) {
        while let Some(&(deadline, index, slot)) = self.shared.deadlines.first() {
            if deadline > now {
                return;
            }
            self.shared.deadlines.pop_first();
            let session = self.sessions[index as usize].as_mut();
            let goes_on =
                session.is_none_or(|session| session.look_at_arrival(now, slot, &mut self.shared));
            if !goes_on {
                self.give_up(index, Reason::Unfinished, out);
            }
        }
    }
}
