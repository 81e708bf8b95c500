//! Whose memory the buffers of connections are: what each connection is counted for, which have to wait, and which have to end.

use std::net::Ipv4Addr;

use base::time::Time;

use crate::budget::{Audience, Budget, Waiting};
use crate::connection::{CloseReason, SendHalf};
use crate::io::{Io, Limits};
use crate::stream::Stream;

/// One address has at most one part in so many of what is for clients ...
const CLIENT_PARTS: usize = 4;
/// ... and of what is for other servers.
const PEER_PARTS: usize = 2;

/// Output of one connection that waits may take one part in so many of its budget.
const THROTTLE_PART: usize = 16;

/// Who opened a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// This program.
    Own,
    Accepted(Audience, Ipv4Addr),
}

impl Origin {
    /// The other side, if it came here.
    pub fn peer(self) -> Option<Ipv4Addr> {
        match self {
            Origin::Own => None,
            Origin::Accepted(_, peer) => Some(peer),
        }
    }
}

/// The budgets of both audiences.
pub(crate) struct Accounts {
    clients: Budget,
    peers: Budget,
}

impl Accounts {
    pub fn new(limits: &Limits) -> Accounts {
        Accounts {
            clients: Budget::new(limits.buffer_bytes, CLIENT_PARTS),
            peers: Budget::new(limits.peer_buffer_bytes, PEER_PARTS),
        }
    }

    pub fn of(&mut self, origin: Origin) -> &mut Budget {
        match origin {
            Origin::Own => self.for_audience(Audience::Peers),
            Origin::Accepted(audience, _) => self.for_audience(audience),
        }
    }

    pub fn for_audience(&mut self, audience: Audience) -> &mut Budget {
        match audience {
            Audience::Clients => &mut self.clients,
            Audience::Peers => &mut self.peers,
        }
    }

    /// With more output than this waiting, nothing is read from a connection: where there is little memory, none may have much of it.
    pub fn throttle_bytes(&mut self, origin: Origin, limits: &Limits) -> usize {
        limits
            .throttle_bytes
            .min(self.of(origin).limit_bytes() / THROTTLE_PART)
    }

    pub fn is_any_short(&self) -> bool {
        self.clients.is_short(None) || self.peers.is_short(None)
    }
}

impl Io {
    /// Whether a connection has to give back what it does not need.
    pub(crate) fn is_short_of_buffers(&mut self, slot: usize) -> bool {
        let Some(Some(link)) = self.links.get(slot) else {
            return false;
        };
        let origin = link.origin;
        self.accounts.of(origin).is_short(origin.peer())
    }

    /// What the receiving half of `slot` holds now: memory, and whether a message was begun.
    pub(crate) fn note_input(&mut self, slot: usize, bytes: usize, is_partial: bool, now: Time) {
        let Some(link) = &mut self.links[slot] else {
            return;
        };
        link.heard = now;
        link.input_bytes = bytes;
        link.partial_since = match link.partial_since {
            since @ Some(_) if is_partial => since,
            _ => is_partial.then_some(now),
        };
        self.watched |= is_partial;
        self.account(slot);
    }

    /// The receiving half of `slot` has given memory back.
    pub(crate) fn shrunk(&mut self, slot: usize, bytes: usize) {
        if let Some(Some(link)) = self.links.get_mut(slot) {
            link.input_bytes = bytes;
            self.account(slot);
        }
    }

    /// A message of `slot` is complete: the next one has all its time, and others of its address may arrive.
    pub(crate) fn message_came(&mut self, slot: usize) {
        let Some(link) = &mut self.links[slot] else {
            return;
        };
        link.partial_since = None;
        let (origin, bytes) = (link.origin, std::mem::take(&mut link.admitted_bytes));
        if bytes > 0 {
            self.accounts.of(origin).dismiss(origin.peer(), bytes);
            self.let_in(origin);
        }
    }

    /// Whether a connection may go on to receive a message of this length; otherwise it is read again when that is so.
    pub(crate) fn admit(&mut self, slot: usize, message_bytes: usize) -> bool {
        let Some(link) = &mut self.links[slot] else {
            return false;
        };
        if link.is_waiting {
            return false;
        }
        if link.admitted_bytes >= message_bytes {
            return true;
        }
        let waiting = Waiting {
            connection: link.id,
            slot,
            message_bytes,
        };
        let origin = link.origin;
        link.is_waiting = !self.accounts.of(origin).admit(origin.peer(), waiting);
        if link.is_waiting {
            self.counters.messages_delayed += 1;
        } else if origin.peer().is_some() {
            link.admitted_bytes = message_bytes;
            link.wants_room = true;
        }
        !link.is_waiting
    }

    /// The origin of a connection whose message was just let in, if that and what its address holds are together more than its share.
    pub(crate) fn tight_origin(&mut self, slot: usize, message_bytes: usize) -> Option<Origin> {
        let link = self.links.get_mut(slot)?.as_mut()?;
        if !std::mem::take(&mut link.wants_room) {
            return None;
        }
        let (origin, more) = (link.origin, message_bytes.saturating_sub(link.accounted));
        let is_tight = self.accounts.of(origin).is_tight(origin.peer(), more);
        (is_tight && origin != Origin::Own).then_some(origin)
    }

    pub(crate) fn is_of(&self, slot: usize, origin: Origin) -> bool {
        let link = self.links.get(slot).and_then(Option::as_ref);
        link.is_some_and(|link| link.origin == origin)
    }

    /// Has connections read again whose messages may arrive now.
    fn let_in(&mut self, origin: Origin) {
        while let Some(next) = self.accounts.of(origin).next_admitted(origin.peer()) {
            let link = self.links.get_mut(next.slot).and_then(Option::as_mut);
            let link = link.filter(|link| link.id == next.connection);
            assert!(link.is_some(), "a connection that has ended does not wait");
            if let Some(link) = link {
                link.is_waiting = false;
                link.admitted_bytes = next.message_bytes;
                link.wants_room = true;
                self.resumed.push(next.slot);
            }
        }
    }

    /// Counts what a connection holds, and keeps the sums in their bounds.
    pub(crate) fn account(&mut self, slot: usize) {
        let is_short = self.is_short_of_buffers(slot);
        let Some(link) = &mut self.links[slot] else {
            return;
        };
        if is_short {
            link.output.give_back();
        }
        let sealed = link.stream.as_ref().map_or(0, Stream::held_bytes);
        let held = link.input_bytes + link.output.capacity() + sealed;
        if held == link.accounted {
            return;
        }
        let (origin, before) = (link.origin, link.accounted);
        link.accounted = held;
        self.counters.buffer_bytes = self.counters.buffer_bytes - before as u64 + held as u64;
        self.accounts
            .of(origin)
            .changed(origin.peer(), before, held);
        if held > before {
            self.keep_bounds(origin);
        }
    }

    /// Ends connections of an address that has more than its share, and of those that have the most of all while all have too much.
    fn keep_bounds(&mut self, origin: Origin) {
        let budget = self.accounts.of(origin);
        let excess = budget.share_excess_bytes(origin.peer());
        if excess > 0 {
            self.end_largest(origin, excess);
        }
        loop {
            let budget = self.accounts.of(origin);
            let excess = budget.excess_bytes();
            if excess == 0 {
                return;
            }
            let victim = match (origin, budget.greediest()) {
                (Origin::Accepted(audience, _), Some(peer)) => Origin::Accepted(audience, peer),
                (Origin::Own, Some(peer)) => Origin::Accepted(Audience::Peers, peer),
                (_, None) if budget.is_own_too_large() => Origin::Own,
                // Datagrams of others have the rest, and not more than is for them.
                (_, None) => return,
            };
            if !self.end_largest(victim, excess) {
                return;
            }
        }
    }

    /// Ends the connection of an origin with the largest buffers, and others, until so much is about to be free or it has none. Whoever holds
    /// little never pays for those who hold much. False if there was nothing to end.
    fn end_largest(&mut self, origin: Origin, excess: usize) -> bool {
        let is_meant = |link: &SendHalf| link.origin == origin;
        // The receiving halves of those that are ending go at the end of the round.
        let ending = self.links.iter().flatten();
        let about_to_go: usize = ending
            .filter(|link| is_meant(link) && link.doomed.is_some())
            .map(|link| link.accounted)
            .sum();
        let mut excess = excess.saturating_sub(about_to_go);
        let mut has_ended = false;
        while excess > 0 {
            let links = self.links.iter().enumerate();
            let living = links
                .filter_map(|(slot, link)| Some((slot, link.as_ref()?)))
                .filter(|(_, link)| is_meant(link) && link.doomed.is_none());
            let largest = living.max_by_key(|(_, link)| link.accounted);
            let Some((slot, held)) = largest
                .map(|(slot, link)| (slot, link.accounted))
                .filter(|(_, held)| *held > 0)
            else {
                return has_ended;
            };
            excess = excess.saturating_sub(held);
            has_ended = true;
            self.doom(slot, CloseReason::OutOfBuffers);
            self.drop_output(slot);
        }
        has_ended
    }

    /// What a connection that ends was to be sent goes now, not at the end of the round: until then others may need as much.
    fn drop_output(&mut self, slot: usize) {
        let Some(link) = &mut self.links[slot] else {
            return;
        };
        self.returned.extend(link.output.take_loans());
        link.output.give_back();
        let sealed = link.stream.as_ref().map_or(0, Stream::held_bytes);
        let (origin, before, now) = (link.origin, link.accounted, link.input_bytes + sealed);
        link.accounted = now;
        self.counters.buffer_bytes = self.counters.buffer_bytes - before as u64 + now as u64;
        self.accounts.of(origin).changed(origin.peer(), before, now);
    }

    /// A connection is gone, with all that it held.
    pub(crate) fn settle_accounts(&mut self, link: &mut SendHalf) {
        let origin = link.origin;
        let (held, admitted) = (link.accounted, std::mem::take(&mut link.admitted_bytes));
        self.counters.buffer_bytes -= held as u64;
        let budget = self.accounts.of(origin);
        budget.changed(origin.peer(), held, 0);
        budget.dismiss(origin.peer(), admitted);
        budget.ended(origin.peer(), link.id);
        self.let_in(origin);
    }

    /// Ends a connection of others to make room for a new one: the one that was silent for longest, if that was long and nothing is owed to
    /// it; else the one that was silent for longest of an address that has more than a quarter of all connections, if the new one is another's.
    /// True if there was one.
    pub(crate) fn displace(&mut self, now: Time, newcomer: Origin) -> bool {
        let idle_timeout = self.limits.idle_timeout;
        let is_idle = |link: &SendHalf| {
            let sealed = link.stream.as_ref().map_or(0, Stream::pending_bytes);
            link.output.is_empty() && sealed == 0 && now.since(link.heard) >= idle_timeout
        };
        let mut slot = self.silent_for_longest(is_idle);
        if slot.is_none() {
            let all = self.limits.connections;
            let crowd = self.accounts.of(newcomer).most_connected(all);
            let crowd = crowd.filter(|crowd| Some(*crowd) != newcomer.peer());
            slot = crowd.and_then(|crowd| {
                self.silent_for_longest(|link| link.origin.peer() == Some(crowd))
            });
        }
        if let Some(slot) = slot {
            self.doom(slot, CloseReason::Displaced);
        }
        slot.is_some()
    }

    fn silent_for_longest(&self, is_meant: impl Fn(&SendHalf) -> bool) -> Option<usize> {
        let links = self.links.iter().enumerate();
        let accepted = links
            .filter_map(|(slot, link)| Some((slot, link.as_ref()?)))
            .filter(|(_, link)| link.origin != Origin::Own && link.doomed.is_none());
        let meant = accepted.filter(|(_, link)| is_meant(link));
        let silent = meant.min_by_key(|(_, link)| link.heard);
        silent.map(|(slot, _)| slot)
    }
}
