//! The ports for datagrams of one process: below them is the network, above them the sessions of the protocol `fast`.
//!
//! As in a real reactor a session is a connection like any other, with a number that says which port it is of; what comes is handed over in rounds, and what is
//! lent is given from where it lies each time that a packet of it leaves.

use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddrV4;

use base::time::Time;
use fast::{Config, Endpoint, Lender, Loan};
use transport::datagram::Transmit;
use wire::locator::Locator;

use crate::net::datagrams::address;
use crate::net::network::Host;

/// What ports are called in locators, the fastest first.
pub const PROTOCOLS: [&str; 2] = ["fast+dpdk", "fast+udp"];
/// The highest bit of connections that are sessions; the port's number comes next.
const FAST: u64 = 1 << 63;
const PORT_SHIFT: u32 = 60;
/// Packets of long messages that a port sends in a round, as a reactor does.
pub const PUMP_PACKETS: usize = 4;

/// What an endpoint has sent, until the network takes it.
pub struct Outbox {
    address: SocketAddrV4,
    datagram_bytes: usize,
    pub sent: Vec<(SocketAddrV4, Vec<u8>)>,
}

impl Transmit for Outbox {
    fn address(&self) -> SocketAddrV4 {
        self.address
    }
    fn max_payload_bytes(&self) -> usize {
        self.datagram_bytes
    }
    fn send(&mut self, to: SocketAddrV4, parts: &[&[u8]]) {
        self.sent.push((to, parts.concat()));
    }
    fn flush(&mut self) {}
}

pub struct Port {
    pub endpoint: Endpoint,
    pub outbox: Outbox,
    pub inbox: VecDeque<(SocketAddrV4, Vec<u8>)>,
    pub next_tick: Time,
}

/// What is lent, as it was then.
#[derive(Default)]
pub struct Lent {
    values: BTreeMap<u64, (Vec<u8>, u32)>,
}

impl Lent {
    pub fn add(&mut self, token: u64, value: Vec<u8>) {
        self.values.entry(token).or_insert((value, 0)).1 += 1;
    }

    pub fn remove(&mut self, token: u64) {
        if let Some((_, loans)) = self.values.get_mut(&token) {
            *loans -= 1;
            if *loans == 0 {
                self.values.remove(&token);
            }
        }
    }

    /// Loans under these tokens.
    fn count(&self, tokens: &Range<u64>) -> u64 {
        let loans = self.values.range(tokens.clone());
        loans.map(|(_, (_, loans))| u64::from(*loans)).sum()
    }

    /// Whether these are the bytes that were lent.
    pub fn is_as_lent(&self, token: u64, bytes: &[u8]) -> bool {
        let known = self.values.get(&token);
        known.is_none_or(|(value, _)| value == bytes)
    }
}

/// Requests that were handed over, of sessions that others have opened.
#[derive(Default)]
pub struct HandedOver {
    nonces: BTreeSet<(u64, u64)>,
    /// Of sessions that keep the order: the number of the last request.
    in_order: BTreeMap<u64, u32>,
}

impl HandedOver {
    pub fn opened_in_order(&mut self, connection: u64) {
        self.in_order.insert(connection, 0);
    }

    /// Says what is wrong with it.
    pub fn add(&mut self, connection: u64, nonce: u64) -> Result<(), String> {
        if !self.nonces.insert((connection, nonce)) {
            return Err(format!(
                "request {nonce} of session {connection} was handed over twice"
            ));
        }
        if let Some(last) = self.in_order.get_mut(&connection) {
            let number = nonce as u32;
            if number != *last + 1 {
                return Err(format!(
                    "request {number} of session {connection} was handed over after request {last}"
                ));
            }
            *last = number;
        }
        Ok(())
    }
}

/// All ports of a process, or of a shard of one.
pub struct Ports {
    pub ports: Vec<Port>,
    /// The earliest round that is planned.
    pub poll_at: u64,
    pub lent: Lent,
    pub handed_over: HandedOver,
    /// Loans that there were, and those that the cleaner has called back.
    pub loans: u64,
    pub recalled: u64,
    /// Whom a connection leads to, by any name: whether the last one was a session.
    pub ways: BTreeMap<String, bool>,
}

impl Ports {
    /// One port for each of the last `kinds` protocols, all of the same number.
    pub fn new(
        host: Host,
        udp_port: u16,
        kinds: usize,
        config: Config,
        mut seed: impl FnMut() -> [u8; 32],
    ) -> Ports {
        let port = |kind| Port {
            endpoint: Endpoint::new(config, seed()),
            outbox: Outbox {
                address: address(kind, host, udp_port),
                datagram_bytes: config.datagram_bytes,
                sent: Vec::new(),
            },
            inbox: VecDeque::new(),
            next_tick: Time::ZERO,
        };
        Ports {
            ports: (PROTOCOLS.len() - kinds..PROTOCOLS.len())
                .map(port)
                .collect(),
            poll_at: u64::MAX,
            lent: Lent::default(),
            handed_over: HandedOver::default(),
            loans: 0,
            recalled: 0,
            ways: BTreeMap::new(),
        }
    }

    /// Where others reach it, besides TCP.
    pub fn locators(&self) -> String {
        let locator = |port: &Port| {
            let address = port.outbox.address;
            let protocol = protocol(address);
            format!(";{protocol}:host={},port={}", address.ip(), address.port())
        };
        self.ports.iter().map(locator).collect()
    }

    /// The port that a datagram for this address is for.
    pub fn at(&mut self, address: SocketAddrV4) -> Option<&mut Port> {
        self.ports
            .iter_mut()
            .find(|port| port.outbox.address == address)
    }

    fn of(&mut self, connection: u64) -> Option<(&mut Port, u64)> {
        let (port, session) = of_connection(connection)?;
        Some((self.ports.get_mut(port)?, session))
    }

    /// Begins to open a session to where a locator points. `None` if there is no port for it.
    pub fn connect(&mut self, now: Time, locator: &Locator, is_ordered: bool) -> Option<u64> {
        let (host, port) = locator.host_and_port().ok()?;
        let peer = SocketAddrV4::new(host.parse().ok()?, port);
        let is_meant = |port: &Port| protocol(port.outbox.address) == locator.protocol();
        let number = self.ports.iter().position(is_meant)?;
        let port = &mut self.ports[number];
        port.next_tick = Time::ZERO;
        let session = port
            .endpoint
            .connect(now, peer, is_ordered, &mut port.outbox);
        Some(connection(number, session))
    }

    pub fn send(&mut self, now: Time, connection: u64, nonce: u64, payload: &[u8]) {
        if let Some((port, session)) = self.of(connection) {
            port.next_tick = Time::ZERO;
            port.endpoint
                .send(|| now, session, nonce, &[payload], &mut port.outbox);
        }
    }

    pub fn send_lent(&mut self, connection: u64, nonce: u64, head: &[u8], loan: Loan) -> bool {
        let Some((port, session)) = self.of(connection) else {
            return false;
        };
        let is_lent = port
            .endpoint
            .send_lent(session, nonce, head, loan, &mut port.outbox);
        self.loans += u64::from(is_lent);
        is_lent
    }

    /// Copies what was lent under these tokens, and gives it back.
    pub fn recall(&mut self, tokens: &Range<u64>, lend: &Lender<'_>) {
        self.recalled += self.lent.count(tokens);
        for port in &mut self.ports {
            port.next_tick = Time::ZERO;
            let is_meant = |token| tokens.contains(&token);
            port.endpoint.recall(is_meant, lend, &mut port.outbox);
        }
    }

    pub fn close(&mut self, connection: u64) {
        if let Some((port, session)) = self.of(connection) {
            port.endpoint.close(session, &mut port.outbox);
        }
    }

    /// Who is at the other side of a connection.
    pub fn peer(&self, connection: u64) -> Option<SocketAddrV4> {
        let (port, session) = of_connection(connection)?;
        self.ports.get(port)?.endpoint.peer(session)
    }

    /// A connection to `whom` is open. Whether it is the first session after one over TCP, and whether the first over TCP after a session.
    pub fn opened_way(&mut self, whom: String, connection: u64) -> (bool, bool) {
        let is_session = is_session(connection);
        let was_session = self.ways.insert(whom, is_session);
        (
            is_session && was_session == Some(false),
            !is_session && was_session == Some(true),
        )
    }

    /// Whether something came, is to be handed over, or is to be sent.
    pub fn has_more(&self) -> bool {
        self.ports
            .iter()
            .any(|port| !port.inbox.is_empty() || port.endpoint.has_more())
    }

    pub fn next_tick(&self) -> Time {
        let ticks = self.ports.iter().map(|port| port.next_tick);
        ticks.min().unwrap_or(Time::NEVER)
    }
}

fn protocol(address: SocketAddrV4) -> &'static str {
    PROTOCOLS[usize::from(address.ip().octets()[1])]
}

pub fn connection(port: usize, session: u64) -> u64 {
    FAST | (port as u64) << PORT_SHIFT | session
}

pub fn is_session(connection: u64) -> bool {
    connection & FAST != 0
}

fn of_connection(connection: u64) -> Option<(usize, u64)> {
    let port = (connection & !FAST) >> PORT_SHIFT;
    let session = connection & ((1 << PORT_SHIFT) - 1);
    is_session(connection).then_some((port as usize, session))
}
