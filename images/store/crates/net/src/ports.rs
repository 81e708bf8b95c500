//! Ports: where datagrams come and go, and the sessions of the `fast` protocol on them.
//!
//! To a handler a session is a connection like any other. Numbers tell them apart: those of sessions have the highest bit set, then four
//! bits for the UDP port. Other servers have UDP ports of their own: clients cannot speak their protocol.

use std::borrow::Cow;
use std::net::SocketAddrV4;
use std::ops::RangeInclusive;
use std::os::fd::RawFd;
use std::time::Duration;

use fast::packet::Glimpse;
use fast::{Config, Endpoint, Event, Lender, Loan};
use trace::Event as Traced;
use transport::datagram::{Receive, Transmit};
use udp::USUAL_MTU;
use wire::time::Time;

use crate::budget::{Audience, Datagrams};
use crate::clock;
use crate::connection::CloseReason;
use crate::handler::Handler;
use crate::io::{Counters, Io};
use crate::target::{FastPeer, PortKind};

const FAST: u64 = 1 << 63;
const PORT_SHIFT: u32 = 59;
/// UDP ports of one reactor.
pub(crate) const MAX_PORTS: usize = 16;
/// How often a port that wakes nobody is looked at in a round of which nothing else is due: looking costs some nanoseconds, the rest of a round some hundred.
const PATIENCE: usize = 64;
/// Of the memory that ports share, each has one part in so many, whatever the others have.
const LEAST_PART: usize = 16;
/// Bursts that one port hands over before others have their turn.
const BURSTS: usize = 2;
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
    fn share_buffers(&mut self, now: Time, port: usize) {
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
            return false;
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

/// Hands one event to the handler.
fn dispatch(port: usize, now: Time, event: Event<'_>, handler: &mut impl Handler, io: &mut Io) {
    match event {
        Event::Opened {
            session,
            is_accepted,
            ..
        } => {
            let listener = is_accepted.then_some(listener(port));
            handler.opened(now, connection(port, session), listener, io);
        }
        Event::Message {
            session,
            nonce,
            payload,
        } => {
            let connection = connection(port, session);
            trace::record_at(Traced::FrameIn, connection, nonce);
            match payload {
                Cow::Borrowed(payload) => handler.frame(now, connection, nonce, payload, io),
                Cow::Owned(payload) => {
                    if let Some(read) = handler.message(now, connection, nonce, payload, io) {
                        io.outlets[port].endpoint.recycle(read);
                    }
                }
            }
        }
        Event::Closed { session, reason } => {
            let reason = CloseReason::Session(reason);
            handler.closed(now, connection(port, session), reason, io);
        }
        Event::Returned { token } => handler.returned(token),
    }
}

fn dispatch_waiting(port: usize, now: Time, handler: &mut impl Handler, io: &mut Io) -> bool {
    let mut worked = false;
    while let Some(event) = io.outlets[port].endpoint.next_event() {
        dispatch(port, now, event, handler, io);
        worked = true;
    }
    worked
}

/// As [`read`], for a thread that has nothing else to do: looks at ports that wake nobody again and again for a while.
pub(crate) fn read_patiently(
    inlets: &mut [Inlet],
    io: &mut Io,
    handler: &mut impl Handler,
) -> bool {
    if read(inlets, io, handler) {
        return true;
    }
    let looks = match must_look(inlets) && !io.is_pumping() {
        true => PATIENCE,
        false => 0,
    };
    (0..looks).any(|_| read_those(inlets, io, handler, |inlet| inlet.wakes.is_none()))
}

/// Receives what has come to the ports and hands it over; true if something did.
pub(crate) fn read(inlets: &mut [Inlet], io: &mut Io, handler: &mut impl Handler) -> bool {
    read_those(inlets, io, handler, Inlet::is_due)
}

fn read_those(
    inlets: &mut [Inlet],
    io: &mut Io,
    handler: &mut impl Handler,
    is_due: impl Fn(&Inlet) -> bool,
) -> bool {
    let mut worked = false;
    for inlet in inlets {
        for _ in 0..BURSTS {
            if !is_due(inlet) || !read_burst(inlet, io, handler) {
                break;
            }
            worked = true;
        }
    }
    worked
}

fn read_burst(inlet: &mut Inlet, io: &mut Io, handler: &mut impl Handler) -> bool {
    let sender = io.outlets[inlet.outlets[0]].sender;
    let count = inlet.receiver.poll(&mut *io.senders[sender]);
    if count == 0 {
        // What epoll told of has been read, but where there is traffic more will come before it tells again.
        inlet.is_unread = inlet.heard_at != Time::ZERO;
        return false;
    }
    if count > 1 {
        let glimpses = (0..count).map(|index| glimpse(inlet, index));
        handler.foresee(&mut glimpses.filter_map(|seen| match seen {
            Glimpse::Request(request) => Some(request),
            Glimpse::Piece | Glimpse::Other => None,
        }));
    }
    let now = clock::now();
    inlet.heard_at = now;
    for port in inlet.ports() {
        io.share_buffers(now, port);
    }
    // What is short does not wait for what is long, here as little as on the way.
    let mut pieces = 0;
    for index in 0..count {
        match glimpse(inlet, index) {
            Glimpse::Piece => pieces += 1,
            Glimpse::Request(_) | Glimpse::Other => take(inlet, now, index, io, handler),
        }
    }
    for index in (0..count).filter(|_| pieces > 0) {
        if glimpse(inlet, index) == Glimpse::Piece {
            take(inlet, now, index, io, handler);
        }
    }
    for port in inlet.ports() {
        io.outlets[port].next_tick = Time::ZERO;
        io.outlets[port].pump(&mut io.senders, handler);
    }
    true
}

fn glimpse(inlet: &Inlet, index: usize) -> Glimpse<'_> {
    fast::packet::glimpse(inlet.receiver.datagram(index).payload)
}

/// Hands over what one datagram brings.
fn take(inlet: &Inlet, now: Time, index: usize, io: &mut Io, handler: &mut impl Handler) {
    let datagram = inlet.receiver.datagram(index);
    let port = inlet.outlets[usize::from(datagram.to_peers)];
    trace::record_at(
        Traced::Received,
        trace::DATAGRAMS,
        datagram.payload.len() as u64,
    );
    let outlet = &mut io.outlets[port];
    let event = outlet.with(&mut io.senders, |endpoint, sender| {
        endpoint.receive(now, datagram.from, datagram.payload, sender)
    });
    outlet.sent_to.get_or_insert(0);
    if let Some(event) = event {
        dispatch(port, now, event, handler, io);
    }
    dispatch_waiting(port, now, handler, io);
}

/// Does what is due on the ports; true if the handler was told something.
pub(crate) fn tend(
    now: Time,
    inlets: &mut [Inlet],
    io: &mut Io,
    handler: &mut impl Handler,
) -> bool {
    let mut worked = false;
    for inlet in inlets {
        for port in inlet.ports() {
            if now >= io.outlets[port].next_tick {
                io.share_buffers(now, port);
                let outlet = &mut io.outlets[port];
                outlet.next_tick = outlet.with(&mut io.senders, |endpoint, sender| {
                    endpoint.tick(now, sender)
                });
                outlet.sent_to.get_or_insert(0);
            }
            expect_one(now, inlet, &mut io.outlets[port]);
            worked |= dispatch_waiting(port, now, handler, io);
            io.outlets[port].pump(&mut io.senders, handler);
        }
    }
    worked
}

/// Looks at the ports in every round from which something was asked.
pub(crate) fn expect(now: Time, inlets: &mut [Inlet], io: &mut Io) {
    for inlet in inlets {
        for port in inlet.ports() {
            expect_one(now, inlet, &mut io.outlets[port]);
        }
    }
}

fn expect_one(now: Time, inlet: &mut Inlet, outlet: &mut Outlet) {
    if std::mem::take(&mut outlet.is_awaited) {
        inlet.heard_at = now;
        inlet.is_unread = true;
    }
}

/// Forgets that there was traffic, where that was long ago: only epoll tells of the next.
pub(crate) fn cool(now: Time, spin: Duration, inlets: &mut [Inlet]) {
    for inlet in inlets {
        if now.since(inlet.heard_at) >= spin {
            inlet.heard_at = Time::ZERO;
        }
    }
}

/// Whether a port is looked at in every round, so that epoll need not be asked in each.
pub(crate) fn is_hot(inlets: &[Inlet]) -> bool {
    inlets.iter().any(|inlet| inlet.is_due())
}

/// Whether a port has nothing that would wake a sleeping thread.
pub(crate) fn must_look(inlets: &[Inlet]) -> bool {
    inlets.iter().any(|inlet| inlet.wakes.is_none())
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
