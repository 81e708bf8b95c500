//! Sessions as connections of a reactor: opened, sent on, and given their part of the budget.

use base::time::Time;
use fast::{Config, Endpoint, Lender, Loan};
use trace::Event as Traced;
use udp::USUAL_MTU;

use super::{Inlet, Outlet, Port, Way, connection, of_connection, port_to};
use crate::budget::{Audience, Datagrams};
use crate::clock;
use crate::io::{Counters, Io};
use crate::stream::Peer;
use crate::target::{FastPeer, PortKind};

/// Of the memory that ports share, each has one part in so many, whatever the others have.
const LEAST_PART: usize = 16;

impl Io {
    /// Adds a port, with a number for each of its UDP ports; `seeds` are as many as these may be.
    pub(crate) fn add_port(&mut self, port: Port, config: Config, seeds: [[u8; 32]; 2]) -> Inlet {
        let (first, sender) = (self.outlets.len(), self.senders.len());
        let second = port.sender.peer_address();
        let addresses = [Some(port.sender.address()), second];
        for (at, address) in addresses.into_iter().enumerate() {
            let Some(address) = address else { continue };
            let audience = match at {
                0 => port.audience,
                _ => Audience::Peers,
            };
            let config = Config {
                datagram_bytes: port.sender.max_payload_bytes(),
                // With fewer than two packets one would wait for the grant of the other.
                window_bytes: config.window_bytes.max(2 * port.sender.max_payload_bytes()),
                sessions: self.limits.connections,
                buffer_bytes: self.accounts.for_audience(audience).limit_bytes(),
                own_buffer_bytes: self.accounts.for_audience(audience).limit_bytes(),
                accepts_ordered: config.accepts_ordered && audience == Audience::Peers,
                accepts_unordered: config.accepts_unordered && audience == Audience::Clients,
                ..config
            };
            self.outlets.push(Outlet {
                kind: port.kind,
                number: port.number,
                audience,
                endpoint: Endpoint::new(config, seeds[at]),
                sender,
                is_second: at > 0,
                address,
                next_tick: Time::ZERO,
                sent_to: None,
                flushed_packets: 0,
                is_awaited: false,
                pump_packets: match port.kind {
                    // The time of three usual packets.
                    PortKind::Dpdk => (3 * USUAL_MTU / config.datagram_bytes).max(1),
                    // Each time is a system call.
                    PortKind::Udp => 4,
                },
            });
        }
        self.senders.push(port.sender);
        Inlet {
            wakes: port.receiver.descriptor(),
            receiver: port.receiver,
            outlets: [first, self.outlets.len() - 1],
            is_unread: true,
            heard_at: Time::ZERO,
        }
    }

    /// Gives a port what is left of the budget that it shares with all other ports and connections of its audience.
    pub(super) fn share_buffers(&mut self, now: Time, port: usize) {
        let audience = self.outlets[port].audience;
        let (mut held, mut of_other_ports) = (Datagrams::default(), Datagrams::default());
        let (mut is_shared, mut wanted) = (false, 0);
        for (number, outlet) in self.outlets.iter_mut().enumerate() {
            if outlet.audience != audience {
                continue;
            }
            let endpoint = &mut outlet.endpoint;
            held.of_others += endpoint.held_by_others_bytes();
            held.own += endpoint.own_held_bytes();
            if number != port {
                // Requests that have begun to arrive at other ports may yet take more.
                of_other_ports.of_others += endpoint.claimed_bytes();
                of_other_ports.own += endpoint.own_held_bytes();
                is_shared |= endpoint.is_arriving();
                wanted = endpoint.wanted_bytes(now).max(wanted);
            }
        }
        let share = self
            .accounts
            .for_audience(audience)
            .share_with_datagrams(held);
        let of_others = share.of_others.saturating_sub(of_other_ports.of_others);
        // Short requests go on at all of them.
        let of_others = of_others.max(share.of_others / LEAST_PART);
        let own = share.own.saturating_sub(of_other_ports.own);
        let outlet = &mut self.outlets[port];
        outlet.endpoint.set_buffer_bytes(of_others, own);
        outlet.with(&mut self.senders, |endpoint, sender| {
            endpoint.share_room(now, is_shared, wanted, sender)
        });
    }

    /// Whether there is a port of this kind.
    pub fn has_port(&self, kind: PortKind) -> bool {
        self.outlets.iter().any(|outlet| outlet.kind == kind)
    }

    /// The number of the port by which a peer is reached, if there is one of its kind: the nearest to it.
    pub fn port_to(&self, peer: &FastPeer) -> Option<usize> {
        let port = self.port_from(peer, Audience::Clients)?;
        Some(self.outlets[port].number)
    }

    /// As [`Io::port_to`], by its place here; of two that are as near, the one of this audience.
    fn port_from(&self, peer: &FastPeer, from: Audience) -> Option<usize> {
        let own = self.outlets.iter().enumerate();
        let own = own.map(|(port, outlet)| (port, outlet.kind, outlet.audience, outlet.address));
        port_to(peer, from, own)
    }

    /// Which way a connection takes; `None` if its session is gone.
    pub fn way(&self, connection: u64) -> Option<Way> {
        let Some((port, session)) = of_connection(connection) else {
            return Some(Way::Tcp);
        };
        let outlet = self.outlets.get(port)?;
        let endpoint = &outlet.endpoint;
        Some(Way::Port {
            port: outlet.number,
            peer: endpoint.peer(session)?,
            pinged: endpoint.pinged(session),
        })
    }

    pub(crate) fn peer_in_session(&self, port: usize, session: u64) -> Option<Peer> {
        let address = self.outlets.get(port)?.endpoint.peer(session)?;
        Some(Peer {
            address,
            identity: None,
        })
    }

    /// Finds out how far the peer of a session is that was opened from here; [`Io::way`] tells later.
    pub fn ping(&mut self, connection: u64) {
        let Some((port, session)) = of_connection(connection) else {
            return;
        };
        let Some(outlet) = self.outlets.get_mut(port) else {
            return;
        };
        let now = clock::now();
        outlet.with(&mut self.senders, |endpoint, sender| {
            endpoint.ping(now, session, sender)
        });
        outlet.is_awaited = true;
        outlet.sent_to = Some(connection);
    }

    /// Opens a session to a peer, from the port that is nearest to it; `None` if there is no port of its kind. The handler is told with `opened` or
    /// `closed`. With `is_ordered` the peer is handed what is sent in the order in which it was, and counts as a server's.
    pub fn open_session(&mut self, peer: &FastPeer, is_ordered: bool) -> Option<u64> {
        let from = match is_ordered {
            true => Audience::Peers,
            false => Audience::Clients,
        };
        let port = self.port_from(peer, from)?;
        let outlet = &mut self.outlets[port];
        if let Some(mac) = peer.mac {
            self.senders[outlet.sender].learn(*peer.address.ip(), mac);
        }
        let now = clock::now();
        let session = outlet.with(&mut self.senders, |endpoint, sender| {
            endpoint.connect(now, peer.address, is_ordered, sender)
        });
        let connection = connection(port, session);
        outlet.next_tick = Time::ZERO;
        outlet.is_awaited = true;
        outlet.sent_to = Some(connection);
        Some(connection)
    }

    pub(crate) fn send_in_session(&mut self, connection: u64, nonce: u64, parts: &[&[u8]]) -> bool {
        let Some((port, session)) = of_connection(connection) else {
            return false;
        };
        let Some(outlet) = self.outlets.get_mut(port) else {
            return false;
        };
        trace::record_at(Traced::FrameOut, connection, nonce);
        let mut is_asked = false;
        let clock = || {
            is_asked = true;
            clock::now()
        };
        let is_sent = outlet.with(&mut self.senders, |endpoint, sender| {
            endpoint.send(clock, session, nonce, parts, sender)
        });
        if is_asked {
            outlet.is_awaited = true;
            outlet.next_tick = Time::ZERO;
        }
        outlet.sent_to = Some(connection);
        is_sent
    }

    /// Answers a request with `head` and what the handler keeps, and gives with [`Handler::lent`], until it is told that it was [`Handler::returned`].
    /// False if nothing was lent, and nothing sent: it is then sent as usual.
    pub fn send_lent(&mut self, connection: u64, nonce: u64, head: &[u8], loan: Loan) -> bool {
        let Some((port, session)) = of_connection(connection) else {
            return self.send_lent_on_stream(connection, nonce, head, loan);
        };
        let Some(outlet) = self.outlets.get_mut(port) else {
            return false;
        };
        let is_lent = outlet.with(&mut self.senders, |endpoint, sender| {
            endpoint.send_lent(session, nonce, head, loan, sender)
        });
        if is_lent {
            trace::record_at(Traced::FrameOut, connection, nonce);
            outlet.sent_to = Some(connection);
        }
        is_lent
    }

    /// Gives back what was lent under tokens that are meant; what has not been sent of it is copied.
    pub fn recall(&mut self, is_meant: impl Fn(u64) -> bool, lend: &Lender<'_>) {
        self.recall_from_streams(&is_meant, lend);
        for outlet in &mut self.outlets {
            outlet.with(&mut self.senders, |endpoint, sender| {
                endpoint.recall(&is_meant, lend, sender)
            });
            outlet.next_tick = Time::ZERO;
        }
    }

    pub(crate) fn close_session(&mut self, port: usize, session: u64) {
        if let Some(outlet) = self.outlets.get_mut(port) {
            outlet.with(&mut self.senders, |endpoint, sender| {
                endpoint.close(session, sender)
            });
            outlet.sent_to.get_or_insert(0);
        }
    }

    pub(crate) fn queued_in_session(&self, port: usize, session: u64) -> usize {
        let outlet = self.outlets.get(port);
        outlet.map_or(0, |outlet| outlet.endpoint.queued_bytes(session))
    }

    pub(crate) fn set_max_sessions(&mut self, sessions: usize) {
        for outlet in &mut self.outlets {
            outlet.endpoint.set_max_sessions(sessions);
        }
    }

    pub(crate) fn flush_ports(&mut self) {
        for outlet in &mut self.outlets {
            outlet.flush(&mut self.senders);
        }
    }

    /// Whether a port has more of long messages to send.
    pub(crate) fn is_pumping(&self) -> bool {
        self.outlets.iter().any(|outlet| outlet.endpoint.has_more())
    }

    /// When a port has to be looked at.
    pub(crate) fn next_port_tick(&self) -> Time {
        let ticks = self.outlets.iter().map(|outlet| outlet.next_tick);
        ticks.min().unwrap_or(Time::NEVER)
    }

    pub(crate) fn add_port_counters(&self, counters: &mut Counters) {
        for outlet in &self.outlets {
            let of_port = outlet.endpoint.counters();
            counters.connections += of_port.sessions;
            counters.frames_in += of_port.messages_in;
            counters.frames_out += of_port.messages_out;
            counters.bytes_in += of_port.bytes_in;
            counters.bytes_out += of_port.bytes_out;
            counters.buffer_bytes += of_port.held_bytes;
            counters.refused += of_port.refused;
            let fast = &mut counters.fast;
            fast.packets_in += of_port.packets_in;
            fast.packets_out += of_port.packets_out;
            fast.malformed += of_port.malformed;
            fast.stale += of_port.stale;
            fast.retries += of_port.retries;
            fast.resent += of_port.resent;
            fast.sessions += of_port.sessions;
        }
    }
}
