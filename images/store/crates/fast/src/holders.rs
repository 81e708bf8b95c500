//! What each address has of the memory for requests that arrive, and of the places for sessions: no more than a part of either. Addresses
//! whose requests find no memory wait for it in turn. It counts; whose sessions end is for [`crate::Endpoint`] to carry out.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use base::bugs::{Bug, is_planted};
use base::time::Time;

/// One address has at most one part in so many.
const PARTS: usize = 4;
/// So many sessions any address may have, if there are places.
const LEAST_SESSIONS: usize = 8;
/// Requests that wait for their predecessors have at most one part in so many: the rest is always there for those that need not wait.
const EARLY_PARTS: usize = 2;
/// An address that waits asks again more often than this, or waits no more.
const FORGOTTEN_AFTER: Duration = Duration::from_millis(500);

/// Where a request stands in its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The session has no order.
    Any,
    /// It is the next one in order, so that others may wait for it.
    Next,
    /// It waits for its predecessors.
    Early,
}

/// A request that asks for memory.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    pub peer: Ipv4Addr,
    pub turn: Turn,
    /// As it was announced.
    pub length: usize,
    /// What its session has already, which is handed over with it.
    pub beside: usize,
}

/// How much there is for requests that arrive, and how long each may have its part while others wait.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    pub bytes: usize,
    pub tenure: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    LetIn,
    /// Its address has its part already, or it would only wait for others of its session.
    NotNow,
    /// All of the memory is in use. Its address waits from now on.
    NoRoom,
}

/// An address whose request has found no memory.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    since: Time,
    asked_at: Time,
    length: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Holder {
    sessions: usize,
    /// Announced lengths of requests that were let in and not handed over yet.
    admitted_bytes: usize,
    waiting: Option<Waiting>,
}

/// The addresses that have sessions here.
#[derive(Debug, Default)]
pub struct Holders {
    // Ordered: others choose the keys.
    all: BTreeMap<Ipv4Addr, Holder>,
    /// Of all of them.
    admitted_bytes: usize,
    /// The same since the last request that was let in because there was no other, and that is longer than there is memory.
    overdrawn_bytes: usize,
    /// Those that have some of it, by how much.
    by_bytes: BTreeSet<(usize, Ipv4Addr)>,
    /// Those that wait, by since when.
    queue: BTreeSet<(Time, Ipv4Addr)>,
    /// What is to be left for a request at another port that has waited for longer than a tenure.
    pub left_for_others: usize,
    /// Whether other ports have some of the memory, so that here not even one request may take more than there is.
    pub is_shared: bool,
}

impl Holders {
    pub fn has_place(&self, peer: Ipv4Addr, sessions: usize) -> bool {
        self.get(peer).sessions < (sessions / PARTS).max(LEAST_SESSIONS)
    }

    pub fn opened(&mut self, peer: Ipv4Addr) {
        self.all.entry(peer).or_default().sessions += 1;
    }

    /// A session has ended, none of whose requests is arriving any more.
    pub fn ended(&mut self, peer: Ipv4Addr) {
        let Some(holder) = self.all.get_mut(&peer) else {
            return;
        };
        assert!(holder.sessions > 0, "a session ends once");
        holder.sessions -= 1;
        if holder.sessions == 0 {
            assert_eq!(holder.admitted_bytes, 0, "a message without a session");
            if let Some(waiting) = holder.waiting {
                self.queue.remove(&(waiting.since, peer));
            }
            self.all.remove(&peer);
        }
    }

    /// Announced lengths of requests that are here in part, or wait for others of their sessions: as much memory they may take.
    pub fn admitted_bytes(&self) -> usize {
        self.admitted_bytes
    }

    /// Lets a request arrive, if there is memory for all of it.
    pub fn admit(&mut self, now: Time, wish: Wish, room: Room) -> Admission {
        self.forget_gone(now);
        if !self.is_within_share(wish, room) {
            return Admission::NotNow;
        }
        if self.has_room(now, wish, room) {
            let is_only = self.is_only(now, wish, room);
            self.served(wish);
            self.change(wish.peer, |bytes| bytes + wish.length);
            if is_only && self.admitted_bytes > room.bytes {
                self.overdrawn_bytes = self.admitted_bytes;
            }
            return Admission::LetIn;
        }
        if wish.turn == Turn::Early {
            return Admission::NotNow;
        }
        self.wait(now, wish);
        Admission::NoRoom
    }

    /// A request that was let in has been handed over, or will not come.
    pub fn dismiss(&mut self, peer: Ipv4Addr, length: usize) {
        self.change(peer, |bytes| {
            assert!(length <= bytes, "a request is dismissed once");
            bytes - length
        });
        self.overdrawn_bytes = self.overdrawn_bytes.min(self.admitted_bytes);
    }

    /// Whether no more was let in than there is memory, but for one request.
    pub fn is_within(&self, room: Room) -> bool {
        self.admitted_bytes <= room.bytes.max(self.overdrawn_bytes)
    }

    /// Whether an address has less than its part of the memory. One request is always within, else the longest would never be; and so is one that
    /// others of its session wait for.
    fn is_within_share(&self, wish: Wish, room: Room) -> bool {
        let admitted = self.get(wish.peer).admitted_bytes;
        admitted == 0 || wish.turn == Turn::Next || admitted + wish.length <= room.bytes / PARTS
    }

    /// Whether a request fits beside those that are arriving.
    pub fn has_room(&self, now: Time, wish: Wish, room: Room) -> bool {
        if is_planted(Bug::AdmitWithoutRoom) {
            return true;
        }
        let bytes = match wish.turn {
            Turn::Any | Turn::Next => room.bytes,
            Turn::Early => room.bytes / EARLY_PARTS,
        };
        let left = self.left_for(now, wish.peer, room);
        self.is_only(now, wish, room)
            || self.admitted_bytes + wish.length <= bytes.saturating_sub(left)
    }

    /// Whether nothing else arrives, here or at other ports, and nobody else waits: it is let in however long it is, else the longest would never be.
    fn is_only(&self, now: Time, wish: Wish, room: Room) -> bool {
        let is_alone = !self.is_shared && self.admitted_bytes == wish.beside;
        is_alone && wish.turn != Turn::Early && self.left_for(now, wish.peer, room) == 0
    }

    /// How much memory other addresses are to find free, since they have waited for longer than anybody needs.
    fn left_for(&self, now: Time, peer: Ipv4Addr, room: Room) -> usize {
        let first = self.overdue(now, room).filter(|(first, _)| *first != peer);
        let here = first.map_or(0, |(_, waiting)| waiting.length);
        here.max(self.left_for_others)
    }

    /// The address that has waited for longest, if that is longer than a tenure.
    fn overdue(&self, now: Time, room: Room) -> Option<(Ipv4Addr, Waiting)> {
        let (since, peer) = self.queue.first()?;
        let waiting = self.get(*peer).waiting?;
        (now.since(*since) >= room.tenure).then_some((*peer, waiting))
    }

    /// Whether it is the turn of this address, for which requests have to end that had their time.
    pub fn is_overdue(&self, now: Time, peer: Ipv4Addr, room: Room) -> bool {
        self.overdue(now, room)
            .is_some_and(|(first, _)| first == peer)
    }

    /// How long the request is for which other ports are to leave memory.
    pub fn wants_of_others(&self, now: Time, room: Room) -> usize {
        let first = self.overdue(now, room);
        first.map_or(0, |(_, waiting)| waiting.length)
    }

    fn wait(&mut self, now: Time, wish: Wish) {
        let Some(holder) = self.all.get_mut(&wish.peer) else {
            return;
        };
        let before = holder.waiting;
        holder.waiting = Some(Waiting {
            since: before.map_or(now, |waiting| waiting.since),
            asked_at: now,
            length: before.map_or(0, |waiting| waiting.length).max(wish.length),
        });
        if before.is_none() {
            self.queue.insert((now, wish.peer));
        }
    }

    /// An address waits no more that was let have as much as it waits for.
    fn served(&mut self, wish: Wish) {
        if let Some(holder) = self.all.get_mut(&wish.peer)
            && let Some(waiting) = holder
                .waiting
                .take_if(|waiting| waiting.length <= wish.length)
        {
            self.queue.remove(&(waiting.since, wish.peer));
        }
    }

    /// Passes over those that ask no more.
    pub fn forget_gone(&mut self, now: Time) {
        while let Some((since, peer)) = self.queue.first().copied() {
            let holder = self.all.get_mut(&peer);
            let waiting = holder.map(|holder| &mut holder.waiting);
            let is_gone = |waiting: &mut Waiting| now.since(waiting.asked_at) >= FORGOTTEN_AFTER;
            if waiting.is_some_and(|waiting| waiting.take_if(is_gone).is_none()) {
                return;
            }
            self.queue.remove(&(since, peer));
        }
    }

    /// Addresses that keep one of this address from letting a request of `length` bytes arrive: they have more than both. Those that have the most
    /// come first.
    pub fn greedier_than(&self, peer: Ipv4Addr, length: usize) -> impl Iterator<Item = Ipv4Addr> {
        let own = self.get(peer).admitted_bytes + length;
        let greedier = self.by_bytes.range((own + 1, Ipv4Addr::UNSPECIFIED)..);
        let others = greedier.rev().filter(move |(_, other)| *other != peer);
        others.map(|(_, other)| *other)
    }

    fn change(&mut self, peer: Ipv4Addr, to: impl FnOnce(usize) -> usize) {
        let Some(holder) = self.all.get_mut(&peer) else {
            return;
        };
        let before = holder.admitted_bytes;
        let after = to(before);
        holder.admitted_bytes = after;
        assert!(
            before <= self.admitted_bytes,
            "each has a part of what all have"
        );
        self.admitted_bytes = self.admitted_bytes - before + after;
        self.by_bytes.remove(&(before, peer));
        if after > 0 {
            self.by_bytes.insert((after, peer));
        }
    }

    #[cfg(test)]
    pub fn sessions(&self) -> usize {
        self.all.values().map(|holder| holder.sessions).sum()
    }

    fn get(&self, peer: Ipv4Addr) -> Holder {
        self.all.get(&peer).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room = Room {
        bytes: 12 << 20,
        tenure: Duration::from_secs(2),
    };
    const START: Time = Time(1_000_000_000);

    fn peer(number: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, 0, number)
    }

    fn wish(number: u8, turn: Turn, length: usize) -> Wish {
        Wish {
            peer: peer(number),
            turn,
            length,
            beside: 0,
        }
    }

    fn of(count: u8) -> Holders {
        let mut holders = Holders::default();
        (0..count).for_each(|number| holders.opened(peer(number)));
        holders
    }

    fn after(milliseconds: u64) -> Time {
        START + Duration::from_millis(milliseconds)
    }

    #[test]
    fn announced_lengths_never_pass_what_there_is_but_for_one_request() {
        for turn in [Turn::Any, Turn::Next] {
            let mut holders = of(9);
            let mut admit = |number, length| holders.admit(START, wish(number, turn, length), ROOM);
            assert_eq!(admit(0, 8 << 20), Admission::LetIn);
            assert_eq!(admit(1, 8 << 20), Admission::NoRoom);
            assert_eq!(admit(2, 3 << 20), Admission::LetIn);
            assert_eq!(admit(3, 3 << 20), Admission::NoRoom);
            assert_eq!(admit(4, 1 << 20), Admission::LetIn);
            assert_eq!(holders.admitted_bytes(), 12 << 20);
            holders.dismiss(peer(0), 8 << 20);
            assert_eq!(holders.admitted_bytes(), 4 << 20);
        }
        let small = Room {
            bytes: 1 << 20,
            ..ROOM
        };
        let mut holders = of(2);
        let mut admit = |number| holders.admit(START, wish(number, Turn::Any, 8 << 20), small);
        assert_eq!([admit(0), admit(1)], [Admission::LetIn, Admission::NoRoom]);
    }

    #[test]
    fn requests_that_wait_for_others_leave_room_for_the_next_one() {
        let mut holders = of(5);
        for number in 0..4 {
            let early = wish(number, Turn::Early, 3 << 20);
            let is_in = holders.admit(START, early, ROOM) == Admission::LetIn;
            assert_eq!(is_in, number < 2);
        }
        // Its address has its part, and is let in all the same.
        let next = wish(0, Turn::Next, 6 << 20);
        assert_eq!(holders.admit(START, next, ROOM), Admission::LetIn);
        assert_eq!(holders.admitted_bytes(), 12 << 20);
        // Requests that wait for it do not keep it out, however little memory there is.
        let small = Room {
            bytes: 8 << 20,
            ..ROOM
        };
        let mut holders = of(1);
        let early = wish(0, Turn::Early, 2 << 20);
        assert_eq!(holders.admit(START, early, small), Admission::LetIn);
        let next = Wish {
            beside: 2 << 20,
            ..wish(0, Turn::Next, 8 << 20)
        };
        assert_eq!(holders.admit(START, next, small), Admission::LetIn);
    }

    #[test]
    fn whoever_has_waited_for_a_tenure_is_next_and_nobody_overtakes() {
        let mut holders = of(4);
        let eight = |number| wish(number, Turn::Any, 8 << 20);
        assert_eq!(holders.admit(START, eight(0), ROOM), Admission::LetIn);
        assert_eq!(holders.admit(after(1), eight(1), ROOM), Admission::NoRoom);
        assert_eq!(holders.admit(after(2), eight(2), ROOM), Admission::NoRoom);
        for at in (100..=2000).step_by(100) {
            assert_eq!(holders.admit(after(at), eight(1), ROOM), Admission::NoRoom);
            assert_eq!(holders.admit(after(at), eight(2), ROOM), Admission::NoRoom);
            assert!(!holders.is_overdue(after(at), peer(1), ROOM));
        }
        assert!(holders.is_overdue(after(2001), peer(1), ROOM));
        assert!(!holders.is_overdue(after(2002), peer(2), ROOM));
        // Nobody takes the room that it needs, not even with less, or though all has become free.
        let one = wish(3, Turn::Any, 1 << 20);
        assert_eq!(holders.admit(after(2001), one, ROOM), Admission::NoRoom);
        holders.dismiss(peer(0), 8 << 20);
        assert_eq!(
            holders.admit(after(2002), eight(2), ROOM),
            Admission::NoRoom
        );
        assert_eq!(holders.admit(after(2002), one, ROOM), Admission::LetIn);
        assert_eq!(holders.admit(after(2003), eight(1), ROOM), Admission::LetIn);
        assert!(holders.is_overdue(after(2003), peer(2), ROOM));
    }

    #[test]
    fn whoever_asks_no_more_keeps_nobody_waiting() {
        let mut holders = of(3);
        let eight = |number| wish(number, Turn::Any, 8 << 20);
        assert_eq!(holders.admit(START, eight(0), ROOM), Admission::LetIn);
        assert_eq!(holders.admit(after(0), eight(1), ROOM), Admission::NoRoom);
        assert_eq!(
            holders.admit(after(2500), eight(2), ROOM),
            Admission::NoRoom
        );
        assert_eq!(holders.wants_of_others(after(2500), ROOM), 0);
        holders.dismiss(peer(0), 8 << 20);
        assert_eq!(holders.admit(after(2501), eight(2), ROOM), Admission::LetIn);
        holders.ended(peer(1));
        holders.dismiss(peer(2), 8 << 20);
        holders.ended(peer(2));
        assert!(holders.queue.is_empty() && holders.by_bytes.is_empty());
    }

    #[test]
    fn what_other_ports_wait_for_is_left_to_them() {
        let mut holders = of(2);
        holders.left_for_others = 8 << 20;
        let mut admit = |length| holders.admit(START, wish(0, Turn::Any, length), ROOM);
        assert_eq!(admit(5 << 20), Admission::NoRoom);
        assert_eq!(admit(3 << 20), Admission::LetIn);
    }

    #[test]
    fn not_even_one_request_takes_what_other_ports_have() {
        let small = Room {
            bytes: 1 << 20,
            ..ROOM
        };
        let mut holders = of(1);
        holders.is_shared = true;
        let long = wish(0, Turn::Any, 8 << 20);
        assert_eq!(holders.admit(START, long, small), Admission::NoRoom);
        holders.is_shared = false;
        assert_eq!(holders.admit(START, long, small), Admission::LetIn);
    }
}
