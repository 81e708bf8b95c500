//! Requests that arrive, in the order in which they began.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use base::time::Time;

/// Where a request lies: the number of its session's place, and the slot.
pub type RequestSlot = (u32, u8);
/// So many requests are looked at when one has to end, the oldest first: a look costs what was paid for it.
pub const LOOKED_AT: usize = 8;

/// Requests that were let in and not handed over yet, by when they began.
#[derive(Default)]
pub struct Arrivals {
    all: BTreeSet<(Time, RequestSlot)>,
    by_peer: BTreeSet<(Ipv4Addr, Time, RequestSlot)>,
}

impl Arrivals {
    pub fn insert(&mut self, peer: Ipv4Addr, began_at: Time, place: RequestSlot) {
        self.all.insert((began_at, place));
        self.by_peer.insert((peer, began_at, place));
    }

    pub fn remove(&mut self, peer: Ipv4Addr, began_at: Time, place: RequestSlot) {
        self.all.remove(&(began_at, place));
        self.by_peer.remove(&(peer, began_at, place));
    }

    pub fn oldest(&self) -> impl Iterator<Item = &(Time, RequestSlot)> {
        self.all.iter()
    }

    pub fn oldest_of(&self, peer: Ipv4Addr) -> impl Iterator<Item = RequestSlot> {
        let first = (peer, Time::ZERO, (0, 0));
        let last = (peer, Time::NEVER, (u32::MAX, u8::MAX));
        let of_peer = self.by_peer.range(first..=last).take(LOOKED_AT);
        of_peer.map(|(_, _, place)| *place)
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        assert_eq!(self.all.len(), self.by_peer.len());
        self.all.len()
    }
}
