//! Which station has which address: told beforehand, or asked for by ARP. In bounded memory, whatever others send.
//!
//! Nothing is learned from frames that nobody asked for: anyone on the link can send them in anybody's name. What was told stands, whatever is answered.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::ops::Bound;
use std::time::Duration;

use crate::{Mac, is_machine, is_station};

/// How much is kept, and how long.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Neighbours that are known or asked for.
    pub entries: usize,
    /// Frames that wait for one answer, and for all.
    pub waiting_of_one: usize,
    pub waiting: usize,
    /// So long after a neighbour has answered it is used without asking.
    pub fresh: Duration,
    /// Until a question is repeated, and how often it is put.
    pub ask_again: Duration,
    pub asks: u32,
    /// So long nobody is asked for who did not answer.
    pub rest: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            entries: 1024,
            waiting_of_one: 32,
            waiting: 128,
            fresh: Duration::from_secs(30),
            ask_again: Duration::from_millis(100),
            asks: 5,
            rest: Duration::from_secs(1),
        }
    }
}

/// Which addresses are on the link, and who takes what is for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    pub us: Ipv4Addr,
    /// Leading bits that addresses on the link have in common with ours.
    pub prefix_bits: u8,
    /// Without one, everybody is looked for on the link.
    pub gateway: Option<Ipv4Addr>,
}

impl Route {
    /// Whom to ask ARP for, to reach `to`.
    pub fn next_hop(&self, to: Ipv4Addr) -> Ipv4Addr {
        let mask = u32::MAX
            .checked_shl(32 - u32::from(self.prefix_bits.min(32)))
            .unwrap_or(0);
        let on_link = (u32::from(to) ^ u32::from(self.us)) & mask == 0;
        match self.gateway {
            Some(gateway) if !on_link => gateway,
            _ => to,
        }
    }
}

/// What is to become of a frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Sending<T> {
    /// It goes to this station.
    To(Mac, T),
    /// It waits for an answer.
    Waits,
    /// There is no room to wait, nobody answers, or the address is no machine's. Whoever sent it will send it again.
    Dropped,
}

#[derive(Debug)]
struct Neighbour<T> {
    mac: Option<Mac>,
    /// Somebody who is to know has told it: then it is that, and nobody is asked.
    is_told: bool,
    /// When it answered last.
    heard: Duration,
    /// Somebody claims that another station has this address now: it is asked.
    is_doubted: bool,
    /// Questions without an answer, and when the next is due.
    asks: u32,
    next_ask: Duration,
    waiting: Vec<T>,
    /// Since the last search for one that can go.
    used: bool,
}

/// The neighbours of one port; `T` is a frame that waits.
#[derive(Debug)]
pub struct Neighbours<T> {
    limits: Limits,
    route: Route,
    // Ordered: others choose the keys.
    entries: BTreeMap<Ipv4Addr, Neighbour<T>>,
    told: usize,
    waiting: usize,
    /// No question is due before.
    next_ask: Duration,
    /// Where the search for one that can go ended.
    hand: Ipv4Addr,
    dropped: u64,
}

/// Another station counts as an address's owner when the one that is known did not answer the first of so many questions.
const ASKS_OF_OWNER: u32 = 2;

const NEVER: Duration = Duration::MAX;

impl<T> Neighbours<T> {
    pub fn new(route: Route, limits: Limits) -> Neighbours<T> {
        Neighbours {
            limits,
            route,
            entries: BTreeMap::new(),
            told: 0,
            waiting: 0,
            next_ask: NEVER,
            hand: Ipv4Addr::UNSPECIFIED,
            dropped: 0,
        }
    }

    /// Neighbours that are known or asked for.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Frames that wait for an answer.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Frames that were dropped here, ever.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The station that has an address, as far as is known.
    pub fn station(&self, ip: Ipv4Addr) -> Option<Mac> {
        self.entries.get(&ip).and_then(|entry| entry.mac)
    }

    /// A frame is to go to `to`; `ask` sends the ARP request that this may need.
    pub fn send(
        &mut self,
        now: Duration,
        to: Ipv4Addr,
        frame: T,
        mut ask: impl FnMut(Ipv4Addr),
    ) -> Sending<T> {
        let sending = self.decide(now, to, frame, &mut ask);
        if matches!(sending, Sending::Dropped) {
            self.dropped += 1;
        }
        sending
    }

    fn decide(
        &mut self,
        now: Duration,
        to: Ipv4Addr,
        frame: T,
        ask: &mut dyn FnMut(Ipv4Addr),
    ) -> Sending<T> {
        let limits = self.limits;
        // Who was told needs no router.
        let is_told = self.entries.get(&to).is_some_and(|entry| entry.is_told);
        let hop = if is_told { to } else { self.route.next_hop(to) };
        if !is_machine(hop) {
            return Sending::Dropped;
        }
        let Some(entry) = self.entry(hop) else {
            return Sending::Dropped;
        };
        entry.used = true;
        if let Some(mac) = entry.mac {
            let is_fresh = now < entry.heard + limits.fresh && !entry.is_doubted;
            if entry.is_told || is_fresh || now < entry.next_ask {
                return Sending::To(mac, frame);
            }
            if entry.asks < limits.asks {
                entry.ask(now, limits);
                ask(hop);
                return Sending::To(mac, frame);
            }
            // It has gone.
            entry.asks = 0;
            entry.mac = None;
            entry.is_doubted = false;
        }
        if entry.asks >= limits.asks {
            if now < entry.next_ask {
                return Sending::Dropped;
            }
            entry.asks = 0;
        }
        let due = entry.asks == 0;
        let full = entry.waiting.len() >= limits.waiting_of_one || self.waiting >= limits.waiting;
        if due {
            self.ask(now, hop, ask);
        }
        if full {
            return Sending::Dropped;
        }
        if let Some(entry) = self.entries.get_mut(&hop) {
            entry.waiting.push(frame);
            self.waiting += 1;
        }
        Sending::Waits
    }

    fn ask(&mut self, now: Duration, ip: Ipv4Addr, ask: &mut dyn FnMut(Ipv4Addr)) {
        if let Some(entry) = self.entries.get_mut(&ip) {
            entry.ask(now, self.limits);
            self.next_ask = self.next_ask.min(entry.next_ask);
            ask(ip);
        }
    }

    /// When [`Neighbours::tick`] has something to do; `None`: not before the next frame.
    pub fn next_tick(&self) -> Option<Duration> {
        (self.next_ask != NEVER).then_some(self.next_ask)
    }

    /// Repeats the questions that are due. Who was asked often enough is given up, with the frames that waited.
    pub fn tick(&mut self, now: Duration, mut ask: impl FnMut(Ipv4Addr)) {
        if now < self.next_ask {
            return;
        }
        let limits = self.limits;
        let mut next = NEVER;
        for (&ip, entry) in &mut self.entries {
            // Those that are known are asked when they are used; those that nobody waits for are not asked.
            if entry.mac.is_some() || entry.waiting.is_empty() {
                continue;
            }
            if now >= entry.next_ask {
                if entry.asks >= limits.asks {
                    self.waiting -= entry.waiting.len();
                    self.dropped += entry.waiting.len() as u64;
                    entry.waiting = Vec::new();
                    entry.next_ask = now + limits.rest;
                    continue;
                }
                entry.ask(now, limits);
                ask(ip);
            }
            next = next.min(entry.next_ask);
        }
        self.next_ask = next;
    }

    /// The answer to a question: `ip` has the station `mac`. What waited for that now goes to it. Answers that nobody asked for count as
    /// [`Neighbours::claimed`]. One that contradicts what is known counts only if the station that is known was asked and did not answer.
    pub fn answered(&mut self, now: Duration, ip: Ipv4Addr, mac: Mac) -> Vec<T> {
        let is_sound = is_station(mac) && ip != self.route.us;
        let Some(entry) = self.entries.get_mut(&ip).filter(|_| is_sound) else {
            return Vec::new();
        };
        let is_contested = entry.mac.is_some_and(|known| known != mac);
        if entry.is_told || entry.asks == 0 || is_contested && entry.asks < ASKS_OF_OWNER {
            self.claimed(ip, mac);
            return Vec::new();
        }
        entry.mac = Some(mac);
        entry.heard = now;
        self.found(ip)
    }

    /// Somebody says, without being asked, that `ip` has this station. If that is news of somebody who is known, it is asked when it is used the
    /// next time.
    pub fn claimed(&mut self, ip: Ipv4Addr, mac: Mac) {
        if let Some(entry) = self.entries.get_mut(&ip) {
            entry.is_doubted |= entry.mac.is_some_and(|known| known != mac) && !entry.is_told;
        }
    }

    /// Somebody who is to know told us of `ip`: the latest such word counts, and no other.
    pub fn told(&mut self, now: Duration, ip: Ipv4Addr, mac: Mac) -> Vec<T> {
        if !is_machine(ip) || !is_station(mac) || ip == self.route.us {
            return Vec::new();
        }
        // Those that we were told of stay; there must be room for others.
        let room = self.told < self.limits.entries / 2;
        let Some(entry) = self.entry(ip) else {
            return Vec::new();
        };
        let is_new = !entry.is_told && room;
        if entry.is_told || room || entry.mac.is_none() {
            entry.is_told |= room;
            entry.mac = Some(mac);
            entry.heard = now;
        }
        self.told += usize::from(is_new);
        self.found(ip)
    }

    fn found(&mut self, ip: Ipv4Addr) -> Vec<T> {
        let Some(entry) = self.entries.get_mut(&ip) else {
            return Vec::new();
        };
        entry.asks = 0;
        entry.is_doubted = false;
        entry.next_ask = Duration::ZERO;
        let waited = std::mem::take(&mut entry.waiting);
        self.waiting -= waited.len();
        waited
    }

    /// The entry of `ip`, which may be new; `None` if no other can go for it.
    fn entry(&mut self, ip: Ipv4Addr) -> Option<&mut Neighbour<T>> {
        if !self.entries.contains_key(&ip)
            && self.entries.len() >= self.limits.entries
            && !self.evict()
        {
            return None;
        }
        Some(self.entries.entry(ip).or_insert_with(|| Neighbour {
            mac: None,
            is_told: false,
            heard: Duration::ZERO,
            is_doubted: false,
            asks: 0,
            next_ask: Duration::ZERO,
            waiting: Vec::new(),
            used: false,
        }))
    }

    /// Makes room: takes one of those that did not answer, so that strangers who ask in others' names push out nobody; else the first that was not used
    /// since the last round.
    fn evict(&mut self) -> bool {
        let is_nobody = |entry: &mut Neighbour<T>| entry.mac.is_none() && entry.waiting.is_empty();
        let is_unused = |entry: &mut Neighbour<T>| {
            let stays = entry.used || entry.is_told || !entry.waiting.is_empty();
            entry.used = false;
            !stays
        };
        self.evict_first(1, is_nobody) || self.evict_first(2, is_unused)
    }

    /// Goes round so often, and takes the first that may go.
    fn evict_first(&mut self, rounds: usize, may_go: impl Fn(&mut Neighbour<T>) -> bool) -> bool {
        for _ in 0..=rounds * self.entries.len() {
            let after = (Bound::Excluded(self.hand), Bound::Unbounded);
            let Some((&ip, entry)) = self.entries.range_mut(after).next() else {
                if self.hand.is_unspecified() {
                    return false;
                }
                self.hand = Ipv4Addr::UNSPECIFIED;
                continue;
            };
            self.hand = ip;
            if may_go(entry) {
                self.entries.remove(&ip);
                return true;
            }
        }
        false
    }
}

impl<T> Neighbour<T> {
    fn ask(&mut self, now: Duration, limits: Limits) {
        self.asks += 1;
        self.next_ask = now + limits.ask_again;
    }
}

#[cfg(test)]
#[path = "neighbours_tests.rs"]
mod tests;
