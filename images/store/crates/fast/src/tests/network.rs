//! The network and the programs on it.

use core::time::Duration;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};

use base::time::Time;
use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use transport::datagram::Transmit;

use super::answer;
use crate::packet::{self, Kind};
use crate::{Config, Endpoint, Event, Loan, Reason};

/// What happens to packets, each in one of a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    pub lost: u32,
    pub repeated: u32,
    pub changed: u32,
    /// Delay beyond the usual two microseconds, at most.
    pub jitter: Duration,
}

pub fn address(node: usize) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1 + node as u8), 12247)
}

/// What an endpoint sends, until the network takes it.
#[derive(Default)]
pub struct Outbox {
    pub sent: Vec<(SocketAddrV4, Vec<u8>)>,
}

impl Transmit for Outbox {
    fn address(&self) -> SocketAddrV4 {
        address(0)
    }
    fn max_payload_bytes(&self) -> usize {
        1472
    }
    fn send(&mut self, to: SocketAddrV4, parts: &[&[u8]]) {
        self.sent.push((to, parts.concat()));
    }
    fn flush(&mut self) {}
}

/// One program: answers what it is asked.
pub struct Node {
    pub endpoint: Endpoint,
    pub out: Outbox,
    pub is_dead: bool,
    pub holds_answers: bool,
    held: Vec<(u64, u64, Vec<u8>)>,
    /// Session, nonce, answer.
    pub answers: Vec<(u64, u64, Vec<u8>)>,
    /// Session, nonce, request: in the order in which they were handed over.
    pub executed: Vec<(u64, u64, Vec<u8>)>,
    pub opened: Vec<u64>,
    pub closed: Vec<(u64, Reason)>,
    own: Vec<u64>,
    pub wake_at: Time,
    /// What is lent for answers, by its token: of every second long one, all but its first bytes.
    pub loans: BTreeMap<u64, Option<Vec<u8>>>,
    pub lent: u64,
    /// After every so many turns everything is called back; 0: never.
    pub recall_every: u64,
    turns: u64,
}

impl Node {
    pub fn new(index: usize, config: Config, seed: u64) -> Node {
        let mut bytes = [index as u8 + 1; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        Node {
            endpoint: Endpoint::new(config, bytes),
            out: Outbox::default(),
            is_dead: false,
            holds_answers: false,
            held: Vec::new(),
            answers: Vec::new(),
            executed: Vec::new(),
            opened: Vec::new(),
            closed: Vec::new(),
            own: Vec::new(),
            wake_at: Time::ZERO,
            loans: BTreeMap::new(),
            lent: 0,
            recall_every: 0,
            turns: 0,
        }
    }

    /// Answers a request, with a loan where that is possible and its turn.
    fn reply(&mut self, now: Time, session: u64, nonce: u64, answer: Vec<u8>) {
        const HEAD_BYTES: usize = 10;
        if answer.len() > HEAD_BYTES && nonce.is_multiple_of(2) {
            let (head, lent) = answer.split_at(HEAD_BYTES);
            let loan = Loan {
                token: self.lent,
                length: lent.len(),
            };
            if self
                .endpoint
                .send_lent(session, nonce, head, loan, &mut self.out)
            {
                self.loans.insert(self.lent, Some(lent.to_vec()));
                self.lent += 1;
                return;
            }
        }
        self.endpoint
            .send(|| now, session, nonce, &[&answer], &mut self.out);
    }

    pub fn connect(&mut self, now: Time, peer: SocketAddrV4, is_ordered: bool) -> u64 {
        let session = self.endpoint.connect(now, peer, is_ordered, &mut self.out);
        self.own.push(session);
        self.wake_at = now;
        session
    }

    pub fn send(&mut self, now: Time, session: u64, nonce: u64, payload: &[u8]) -> bool {
        self.wake_at = now;
        let (head, tail) = payload.split_at(payload.len() / 3);
        self.endpoint
            .send(|| now, session, nonce, &[head, tail], &mut self.out)
    }

    /// What is lent is there no more.
    pub fn forget_loans(&mut self) {
        self.loans.values_mut().for_each(|lent| *lent = None);
    }

    pub fn close(&mut self, session: u64) {
        self.endpoint.close(session, &mut self.out);
    }

    /// Memory that is kept for the next messages when nothing is under way.
    pub fn idle_bytes(&self) -> u64 {
        self.endpoint.counters().held_bytes.min(64 * 9000)
    }

    pub fn answer_held(&mut self, now: Time) {
        self.wake_at = now;
        for (session, nonce, request) in std::mem::take(&mut self.held) {
            self.reply(now, session, nonce, answer(&request));
        }
    }

    fn receive(&mut self, now: Time, from: SocketAddrV4, datagram: &[u8]) {
        if let Some(event) = self.endpoint.receive(now, from, datagram, &mut self.out) {
            self.handle(now, event);
        }
        self.drain(now);
    }

    fn drain(&mut self, now: Time) {
        while let Some(event) = self.endpoint.next_event() {
            self.handle(now, event);
        }
    }

    fn handle(&mut self, now: Time, event: Event<'_>) {
        match event {
            Event::Opened { session, .. } => self.opened.push(session),
            Event::Closed { session, reason } => self.closed.push((session, reason)),
            Event::Message {
                session,
                nonce,
                payload,
            } => {
                if self.own.contains(&session) {
                    self.answers.push((session, nonce, payload.to_vec()));
                } else {
                    self.executed.push((session, nonce, payload.to_vec()));
                    if self.holds_answers {
                        self.held.push((session, nonce, payload.to_vec()));
                    } else {
                        self.reply(now, session, nonce, answer(&payload));
                    }
                }
                if let Cow::Owned(buffer) = payload {
                    self.endpoint.recycle(buffer);
                }
            }
            Event::Returned { token } => {
                let returned = self.loans.remove(&token);
                assert!(returned.is_some(), "returned twice, or never lent");
            }
        }
    }

    fn turn(&mut self, now: Time) {
        if self.wake_at <= now {
            self.wake_at = self.endpoint.tick(now, &mut self.out);
        }
        self.drain(now);
        let loans = &self.loans;
        let lend = |token: u64, length: usize| Some(&loans[&token].as_ref()?[..length]);
        self.turns += 1;
        if self.recall_every > 0 && self.turns.is_multiple_of(self.recall_every) {
            self.endpoint.recall(|_| true, &lend, &mut self.out);
        }
        self.endpoint.pump(8, &lend, &mut self.out);
        self.drain(now);
    }
}

pub struct Network {
    pub now: Time,
    pub nodes: Vec<Node>,
    pub weather: Weather,
    /// Packets that were handed to the network.
    pub carried: u64,
    /// Of long requests of these nodes the last piece never leaves.
    pub never_end: Vec<usize>,
    config: Config,
    random: Xoshiro256PlusPlus,
    under_way: BTreeMap<(Time, u64), (usize, usize, Vec<u8>)>,
    serial: u64,
}

impl Network {
    pub fn new(seed: u64, weather: Weather) -> Network {
        Network::with(seed, weather, Config::default(), 2)
    }

    pub fn with(seed: u64, weather: Weather, config: Config, nodes: usize) -> Network {
        Network {
            now: Time(1_000_000_000),
            nodes: (0..nodes)
                .map(|index| Node::new(index, config, seed))
                .collect(),
            weather,
            carried: 0,
            never_end: Vec::new(),
            config,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            under_way: BTreeMap::new(),
            serial: 0,
        }
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.random.next_u64() % bound.max(1)
    }

    fn happens(&mut self, of_a_thousand: u32) -> bool {
        self.below(1000) < u64::from(of_a_thousand)
    }

    pub fn restart(&mut self, node: usize) {
        let seed = self.random.next_u64();
        self.nodes[node] = Node::new(node, self.config, seed);
    }

    /// Opens a session and waits for it.
    pub fn open(&mut self, from: usize, to: usize, is_ordered: bool) -> u64 {
        loop {
            let session = self.nodes[from].connect(self.now, address(to), is_ordered);
            let done = self.run_until(|network| {
                let node = &mut network.nodes[from];
                let is_open = node.opened.contains(&session);
                (is_open || node.closed.iter().any(|(closed, _)| *closed == session))
                    .then_some(is_open)
            });
            if done == Some(true) {
                return session;
            }
        }
    }

    pub fn inject(&mut self, from: usize, to: usize, datagram: Vec<u8>) {
        self.serial += 1;
        let at = self.now + Duration::from_micros(2);
        self.under_way
            .insert((at, self.serial), (from, to, datagram));
    }

    /// Gives what the nodes sent to the network.
    fn collect(&mut self) {
        for from in 0..self.nodes.len() {
            for (to, mut datagram) in std::mem::take(&mut self.nodes[from].out.sent) {
                self.carried += 1;
                assert!(
                    datagram.len() <= self.config.datagram_bytes,
                    "{} bytes",
                    datagram.len()
                );
                let Some(to) = (0..self.nodes.len()).find(|&node| address(node) == to) else {
                    continue;
                };
                let is_end = self.never_end.contains(&from) && is_last_of_many(&datagram);
                if is_end || self.happens(self.weather.lost) {
                    continue;
                }
                let copies = 1 + u32::from(self.happens(self.weather.repeated));
                for copy in 0..copies {
                    if copy == 0 && self.happens(self.weather.changed) {
                        let bit = self.below(8 * datagram.len() as u64) as usize;
                        datagram[bit / 8] ^= 1 << (bit % 8);
                    }
                    let jitter = self.weather.jitter.as_nanos() as u64;
                    let delay = Duration::from_nanos(2000 + self.below(jitter + 1));
                    self.serial += 1;
                    self.under_way.insert(
                        (self.now + delay, self.serial),
                        (from, to, datagram.clone()),
                    );
                }
            }
        }
    }

    /// Goes on to the next thing that happens; false if nothing will.
    fn step(&mut self) -> bool {
        for node in self.nodes.iter_mut().filter(|node| !node.is_dead) {
            node.turn(self.now);
        }
        self.collect();
        let has_more = self
            .nodes
            .iter()
            .any(|node| !node.is_dead && node.endpoint.has_more());
        let next_packet = self.under_way.keys().next().map(|(at, _)| *at);
        let wake_ups = self
            .nodes
            .iter()
            .filter(|node| !node.is_dead)
            .map(|node| node.wake_at);
        let next = wake_ups.chain(next_packet).min().unwrap_or(Time::NEVER);
        if has_more {
            // A round of a busy loop.
            self.now = next.min(self.now + Duration::from_nanos(500)).max(self.now);
        } else if next == Time::NEVER {
            return false;
        } else {
            self.now = self.now.max(next);
        }
        while let Some(entry) = self.under_way.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let (from, to, datagram) = entry.remove();
            let (now, node) = (self.now, &mut self.nodes[to]);
            if !node.is_dead {
                node.receive(now, address(from), &datagram);
                node.wake_at = now;
            }
        }
        true
    }

    /// Runs until `wanted` gives something.
    pub fn run_until<T>(&mut self, mut wanted: impl FnMut(&mut Network) -> Option<T>) -> Option<T> {
        for _ in 0..3_000_000 {
            if let Some(found) = wanted(self) {
                return Some(found);
            }
            if !self.step() {
                return wanted(self);
            }
        }
        panic!("it goes on and on");
    }

    pub fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        self.run_until(|network| (network.now >= end).then_some(()));
    }
}

/// Whether a packet has the end of a request of several.
fn is_last_of_many(datagram: &[u8]) -> bool {
    packet::decode(datagram).is_ok_and(|(header, piece)| {
        let end = header.offset as usize + piece.len();
        header.kind == Kind::Request && header.offset > 0 && end == header.length as usize
    })
}

impl Network {
    /// For requests that arrive at a node.
    pub fn room(&self) -> usize {
        self.config.buffer_bytes / 2
    }

    /// Payload on its way to a node, in bytes.
    pub fn under_way_to(&self, node: usize) -> usize {
        let packets = self.under_way.values().filter(|(_, to, _)| *to == node);
        packets.map(|(_, _, datagram)| datagram.len()).sum()
    }
}
