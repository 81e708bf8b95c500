//! Ports: where datagrams come and go, and the sessions of the `fast` protocol on them.
//!
//! To a handler a session is a connection like any other. Numbers tell them apart: those of sessions have the highest bit set, then four
//! bits for the UDP port. Other servers have UDP ports of their own: clients cannot speak their protocol.

mod reading;
mod sessions;

use std::net::SocketAddrV4;
use std::ops::RangeInclusive;
use std::os::fd::RawFd;
use std::time::Duration;

use base::time::Time;
use fast::{Config, Endpoint};
use trace::Event as Traced;
use transport::datagram::{Receive, Transmit};

use crate::budget::Audience;
use crate::handler::Handler;
use crate::target::{FastPeer, PortKind};

pub(crate) use reading::{cool, expect, is_hot, must_look, read, read_patiently, tend};

const FAST: u64 = 1 << 63;
const PORT_SHIFT: u32 = 59;
/// UDP ports of one reactor.
pub(crate) const MAX_PORTS: usize = 16;
/// How long a thread sleeps at a time whose port has nothing that wakes it.
pub(crate) const DOZE: Duration = Duration::from_micros(100);

/// A port as its driver gives it.
pub struct Port {
    pub kind: PortKind,
    /// As whoever adds it calls it, in [`Way`].
    pub number: usize,
    /// Whose sessions are taken. A driver with two UDP ports ([`Transmit::peer_address`]) has the second for other servers.
    pub audience: Audience,
    pub receiver: Box<dyn Receive>,
    pub sender: Box<dyn Transmit>,
}

/// What a port of this kind usually has: the window is what fits between two polls of it, and what a short message waits for at most.
pub fn fast_config(kind: PortKind) -> Config {
    Config {
        window_bytes: match kind {
            // Five packets: 10 Gbit/s with 6 us there and back.
            PortKind::Dpdk => 7 << 10,
            PortKind::Udp => 256 << 10,
        },
        ..Config::default()
    }
}

/// Under which numbers of listeners sessions are reported that others open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortListeners {
    /// Of the first UDP port, and of the last: the same, if the driver has one.
    pub first: usize,
    pub last: usize,
}

impl PortListeners {
    pub(crate) fn of(first: usize, last: usize) -> PortListeners {
        PortListeners {
            first: listener(first),
            last: listener(last),
        }
    }
}

/// Beyond all numbers of TCP listeners.
fn listener(port: usize) -> usize {
    1000 + port
}

/// The sending half, with what is known of its sessions.
pub(crate) struct Outlet {
    kind: PortKind,
    number: usize,
    audience: Audience,
    endpoint: Endpoint,
    /// The sender's number, and which of its UDP ports this one is.
    sender: usize,
    is_second: bool,
    address: SocketAddrV4,
    next_tick: Time,
    /// Something was sent since the last flush, last of all to this connection.
    sent_to: Option<u64>,
    /// As many had been sent at the last flush.
    flushed_packets: u64,
    /// Something was asked, and the answer is worth waiting for.
    is_awaited: bool,
    /// Packets of long messages that are sent before looking for what has come.
    pump_packets: usize,
}

/// A sender as the second of its UDP ports.
struct Second<'s>(&'s mut dyn Transmit);

impl Transmit for Second<'_> {
    fn address(&self) -> SocketAddrV4 {
        self.0.peer_address().unwrap_or_else(|| self.0.address())
    }
    fn max_payload_bytes(&self) -> usize {
        self.0.max_payload_bytes()
    }
    fn send(&mut self, to: SocketAddrV4, parts: &[&[u8]]) {
        self.0.send_to_peer(to, parts);
    }
    fn flush(&mut self) {
        self.0.flush();
    }
}

/// The senders of all ports.
pub(crate) type Senders = Vec<Box<dyn Transmit>>;

impl Outlet {
    /// Gives the endpoint, and the sender as the UDP port that this one is, to `act`.
    fn with<T>(
        &mut self,
        senders: &mut Senders,
        act: impl FnOnce(&mut Endpoint, &mut dyn Transmit) -> T,
    ) -> T {
        let sender = &mut *senders[self.sender];
        match self.is_second {
            true => act(&mut self.endpoint, &mut Second(sender)),
            false => act(&mut self.endpoint, sender),
        }
    }

    /// Sends more of long messages, and hands everything to the driver.
    fn pump(&mut self, senders: &mut Senders, handler: &impl Handler) {
        if self.endpoint.has_more() {
            let packets = self.pump_packets;
            let lend = |token, length| handler.lent(token, length);
            self.with(senders, |endpoint, sender| {
                endpoint.pump(packets, &lend, sender)
            });
            self.sent_to.get_or_insert(0);
        }
        self.flush(senders);
    }

    fn flush(&mut self, senders: &mut Senders) {
        if self.sent_to.take().is_some() {
            let packets = self.endpoint.packets_out();
            if std::mem::replace(&mut self.flushed_packets, packets) != packets {
                trace::record_at(Traced::Flushed, trace::DATAGRAMS, 0);
            }
            senders[self.sender].flush();
        }
    }
}

/// Which way a connection takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Tcp,
    Port {
        /// [`Port::number`].
        port: usize,
        peer: SocketAddrV4,
        /// How long the last [`Io::ping`] that was answered took, and when that was.
        pinged: Option<(Duration, Time)>,
    },
}

/// The receiving half.
pub(crate) struct Inlet {
    receiver: Box<dyn Receive>,
    /// Who takes what comes: the first, or the second what is to the driver's second UDP port.
    outlets: [usize; 2],
    /// What epoll tells of, if anything.
    wakes: Option<RawFd>,
    /// There may be something that nobody will tell of.
    is_unread: bool,
    heard_at: Time,
}

impl Inlet {
    /// What epoll tells of, if anything.
    pub(crate) fn descriptor(&self) -> Option<RawFd> {
        self.wakes
    }

    pub(crate) fn readable(&mut self) {
        self.is_unread = true;
    }

    /// The numbers of its UDP ports.
    fn ports(&self) -> RangeInclusive<usize> {
        self.outlets[0]..=self.outlets[1]
    }

    /// Whether to look at it in this round.
    fn is_due(&self) -> bool {
        self.is_unread || self.wakes.is_none()
    }
}

fn connection(port: usize, session: u64) -> u64 {
    FAST | (port as u64) << PORT_SHIFT | session
}

/// Port and session of a connection, if it is none of TCP's.
pub(crate) fn of_connection(connection: u64) -> Option<(usize, u64)> {
    let port = (connection & !FAST) >> PORT_SHIFT;
    let session = connection & ((1 << PORT_SHIFT) - 1);
    (connection & FAST != 0).then_some((port as usize, session))
}

/// Which of some ports a peer is reached by. No switch sends a frame back by the cable that it came by, so a port without the kernel does not
/// reach its own process, or another lane of it.
fn port_to(
    peer: &FastPeer,
    from: Audience,
    ports: impl Iterator<Item = (usize, PortKind, Audience, SocketAddrV4)> + Clone,
) -> Option<usize> {
    let is_own = |(_, kind, _, address): (usize, PortKind, Audience, SocketAddrV4)| {
        kind == PortKind::Dpdk && peer.kind == kind && address.ip() == peer.address.ip()
    };
    if ports.clone().any(is_own) {
        return None;
    }
    let (port, ..) = ports
        .filter(|(_, kind, ..)| *kind == peer.kind)
        .max_by_key(|(_, _, audience, address)| {
            (nearness(*address, peer.address), *audience == from)
        })?;
    Some(port)
}

/// How many leading bits two addresses have in common.
fn nearness(one: SocketAddrV4, other: SocketAddrV4) -> u32 {
    (one.ip().to_bits() ^ other.ip().to_bits()).leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_reached_by_the_nearest_port_of_its_kind_and_nobody_reaches_himself_by_a_cable() {
        let address = |text: &str| text.parse().unwrap();
        let own = [
            (0, PortKind::Udp, Audience::Clients, address("10.0.0.1:7")),
            (1, PortKind::Dpdk, Audience::Clients, address("10.1.0.1:7")),
            (2, PortKind::Dpdk, Audience::Clients, address("10.1.1.1:7")),
            (3, PortKind::Udp, Audience::Peers, address("10.0.0.1:107")),
        ];
        let by_from = |from, kind, at: &str| {
            let peer = FastPeer {
                kind,
                address: address(at),
                mac: None,
            };
            port_to(&peer, from, own.into_iter())
        };
        let by = |kind, at| by_from(Audience::Clients, kind, at);
        assert_eq!(
            by_from(Audience::Peers, PortKind::Udp, "10.1.1.2:7"),
            Some(3)
        );
        assert_eq!(by(PortKind::Dpdk, "10.1.0.2:7"), Some(1));
        assert_eq!(by(PortKind::Dpdk, "10.1.1.2:7"), Some(2));
        assert_eq!(by(PortKind::Udp, "10.1.1.2:7"), Some(0));
        // Another shard of the same process.
        assert_eq!(by(PortKind::Dpdk, "10.1.0.1:8"), None);
        assert_eq!(by(PortKind::Udp, "10.0.0.1:8"), Some(0));
    }
}
