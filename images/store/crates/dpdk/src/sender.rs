//! The sending half of a lane: headers, neighbours, and what waits for the port.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::{Duration, Instant};

use frames::arp::{Arp, Operation};
use frames::{
    Checked, Frame, HEADERS_BYTES, Interface, Limits, Mac, Neighbours, Sending, Sums, Template,
    decode, set_station,
};
use transport::datagram::{BURST, Transmit};

use crate::counters::{Count, Counters};
use crate::device::{Port, max_payload_bytes};
use crate::ffi::{Buffer, Buffers};
use crate::gate::{Entry, Pass, Side};

/// Frames that wait for the port to take them: of a link that is down, for example.
pub(crate) const MAX_PENDING: usize = 512;
/// In so many calls the clock is read once.
const CLOCK_TURNS: u32 = 16;

/// Which of a lane's UDP ports a datagram leaves.
#[derive(Clone, Copy)]
enum From {
    Port,
    PeerPort,
}

/// Sends from a lane's UDP ports.
pub struct Sender {
    // Before the port: buffers go back to a pool that is still there.
    /// Fresh ones.
    stash: Buffers,
    /// Frames that are ready.
    pending: Buffers,
    neighbours: Neighbours<Buffer>,
    port: Arc<Port>,
    pass: Pass,
    us: Interface,
    lane: u16,
    template: Template,
    /// From the UDP port for other servers.
    peer_template: Option<Template>,
    start: Instant,
    now: Duration,
    turns: u32,
    /// Whom to ask ARP for.
    asks: Vec<Ipv4Addr>,
}

impl Sender {
    pub(crate) fn new(
        port: Arc<Port>,
        lane: u16,
        udp_port: u16,
        peer_port: Option<u16>,
        limits: Limits,
    ) -> Sender {
        let us = port.us();
        let mut sender = Sender {
            stash: Buffers::with_capacity(BURST),
            pending: Buffers::with_capacity(MAX_PENDING),
            neighbours: Neighbours::new(port.route, limits),
            template: template(&port, us, udp_port),
            peer_template: peer_port.map(|peer_port| template(&port, us, peer_port)),
            pass: port.gate.admit(lane, Side::Sends),
            us,
            port,
            lane,
            start: Instant::now(),
            now: Duration::ZERO,
            turns: 0,
            asks: Vec::new(),
        };
        sender.announce();
        sender
    }

    /// One says for all that we are here: to switches, and to those who knew our address elsewhere.
    fn announce(&mut self) {
        if self.lane == 0 {
            let announcement = Arp::announcement(self.us);
            self.put_arp(&announcement);
        }
    }

    /// Whether the port may be used now. Where it was opened anew, what waits comes from an address that it may not have any more.
    fn enter(&mut self) -> bool {
        match self.port.gate.enter(&mut self.pass) {
            Entry::Open => true,
            Entry::Closed => false,
            Entry::Anew => {
                self.us = self.port.us();
                let templates = [Some(&mut self.template), self.peer_template.as_mut()];
                for old in templates.into_iter().flatten() {
                    *old = template(&self.port, self.us, old.from().port());
                }
                self.pending.clear();
                self.announce();
                true
            }
        }
    }

    fn counters(&self) -> &Counters {
        &self.port.slots[usize::from(self.lane)].counters
    }

    fn look_at_clock(&mut self) {
        self.now = self.start.elapsed();
    }

    fn fresh(&mut self) -> Option<Buffer> {
        if self.stash.is_empty() && !self.port.running.allocate(&mut self.stash, BURST) {
            self.counters().add(Count::NoBuffer, 1);
        }
        self.stash.pop()
    }

    /// A buffer with a datagram, whose station is still open.
    fn datagram(&mut self, from: From, to: SocketAddrV4, parts: &[&[u8]]) -> Option<Buffer> {
        let payload_bytes: usize = parts.iter().map(|part| part.len()).sum();
        if payload_bytes > self.max_payload_bytes() {
            self.counters().add(Count::TooLong, 1);
            return None;
        }
        let mut buffer = self.fresh()?;
        let room = buffer.bytes_mut();
        if room.len() < HEADERS_BYTES + payload_bytes {
            self.counters().add(Count::TooLong, 1);
            return None;
        }
        let (headers, mut rest) = room.split_first_chunk_mut::<HEADERS_BYTES>()?;
        let template = match (from, &self.peer_template) {
            (From::PeerPort, Some(template)) => template,
            _ => &self.template,
        };
        template.write(headers, to, payload_bytes as u16);
        for part in parts {
            let (here, behind) = rest.split_at_mut(part.len());
            here.copy_from_slice(part);
            rest = behind;
        }
        buffer.truncate(HEADERS_BYTES + payload_bytes);
        Some(buffer)
    }

    fn send_from(&mut self, from: From, to: SocketAddrV4, parts: &[&[u8]]) {
        let Some(buffer) = self.datagram(from, to, parts) else {
            return;
        };
        if *to.ip() == self.us.ip {
            return self.loop_back(to, buffer);
        }
        let asks = &mut self.asks;
        match self
            .neighbours
            .send(self.now, *to.ip(), buffer, |ip| asks.push(ip))
        {
            Sending::To(station, buffer) => self.put(buffer, station),
            Sending::Waits => {}
            Sending::Dropped => self
                .counters()
                .set(Count::NoNeighbour, self.neighbours.dropped()),
        }
        self.put_asks();
        if self.pending.len() >= BURST {
            self.transmit();
        }
    }

    fn put(&mut self, mut buffer: Buffer, station: Mac) {
        if let Some(headers) = buffer.bytes_mut().first_chunk_mut() {
            set_station(headers, station);
        }
        self.put_ready(buffer);
    }

    fn put_ready(&mut self, buffer: Buffer) {
        if self.pending.len() >= MAX_PENDING {
            self.transmit();
        }
        if !self.pending.push(buffer) {
            self.counters().add(Count::PortFull, 1);
        }
    }

    fn put_all(&mut self, waited: Vec<Buffer>, station: Mac) {
        for buffer in waited {
            self.put(buffer, station);
        }
    }

    fn put_arp(&mut self, arp: &Arp) {
        if let Some(mut buffer) = self.fresh() {
            let frame = arp.encode();
            buffer.truncate(frame.len());
            buffer.bytes_mut().copy_from_slice(&frame);
            self.put_ready(buffer);
        }
    }

    fn put_asks(&mut self) {
        while let Some(ip) = self.asks.pop() {
            let request = Arp::request(self.us, ip);
            self.put_arp(&request);
            self.counters().add(Count::Asked, 1);
        }
    }

    /// To another lane of the same device: no NIC sends a frame back to the one it came from.
    fn loop_back(&mut self, to: SocketAddrV4, mut buffer: Buffer) {
        let Some(lane) = self.port.lane_of(to.port()) else {
            self.counters().add(Count::NoSuchPort, 1);
            return;
        };
        if let Some(headers) = buffer.bytes_mut().first_chunk_mut() {
            set_station(headers, self.us.mac);
        }
        buffer.set_inside();
        if !self.port.hand_over(lane, buffer) {
            self.counters().add(Count::RingFull, 1);
        }
    }

    fn transmit(&mut self) {
        if !self.enter() {
            return;
        }
        let (port, pending) = (&self.port, &mut self.pending);
        let mut sent = 0;
        port.with_tx(self.lane, |queue| {
            while !pending.is_empty() {
                match port.running.send(queue, pending) {
                    0 => break,
                    number => sent += number,
                }
            }
        });
        if sent > 0 {
            self.counters().add(Count::Sent, sent as u64);
        }
    }

    fn arp(&mut self, arp: &Arp) {
        let us = self.us;
        if arp.sender.ip == us.ip {
            if arp.sender.mac != us.mac {
                self.counters().add(Count::Conflict, 1);
            }
            return;
        }
        let Interface { ip, mac } = arp.sender;
        match arp.operation {
            Operation::Reply if arp.target.ip == us.ip => {
                let waited = self.neighbours.answered(self.now, ip, mac);
                self.put_all(waited, mac);
            }
            Operation::Reply | Operation::Request => self.neighbours.claimed(ip, mac),
        }
        if let Some(answer) = arp.answer(us) {
            self.put_arp(&answer);
            self.counters().add(Count::Answered, 1);
        }
    }
}

/// For datagrams from one of our UDP ports.
fn template(port: &Port, us: Interface, udp_port: u16) -> Template {
    let sums = match port.running.start.tx_sums {
        0 => Sums::Software,
        _ => Sums::Nic,
    };
    Template::new(us, udp_port, sums)
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.port.gate.leave(&self.pass);
    }
}

impl Transmit for Sender {
    fn address(&self) -> SocketAddrV4 {
        self.template.from()
    }

    fn max_payload_bytes(&self) -> usize {
        max_payload_bytes(self.port.mtu)
    }

    fn peer_address(&self) -> Option<SocketAddrV4> {
        self.peer_template.as_ref().map(Template::from)
    }

    fn send(&mut self, to: SocketAddrV4, parts: &[&[u8]]) {
        self.send_from(From::Port, to, parts);
    }

    fn send_to_peer(&mut self, to: SocketAddrV4, parts: &[&[u8]]) {
        self.send_from(From::PeerPort, to, parts);
    }

    fn flush(&mut self) {
        self.turns = self.turns.wrapping_add(1);
        if self.neighbours.next_tick().is_some() {
            self.look_at_clock();
            let asks = &mut self.asks;
            self.neighbours.tick(self.now, |ip| asks.push(ip));
            self.put_asks();
            self.counters()
                .set(Count::NoNeighbour, self.neighbours.dropped());
        } else if self.turns.is_multiple_of(CLOCK_TURNS) {
            self.look_at_clock();
        }
        if self.lane == 0 && self.port.is_to_announce() {
            self.announce();
        }
        // Also with nothing to send: whoever opens the port anew waits for an answer.
        if self.enter() && !self.pending.is_empty() {
            self.transmit();
        }
    }

    fn observe(&mut self, frame: &[u8]) {
        self.look_at_clock();
        // The receiving half has checked its sums.
        let checked = Checked {
            ip: true,
            udp: true,
            inside: false,
        };
        // Datagrams prove nothing of where their senders are.
        if let Ok(Frame::Arp(arp)) = decode(frame, self.us, checked) {
            self.arp(&arp);
        }
        if !self.pending.is_empty() {
            self.transmit();
        }
    }

    fn learn(&mut self, peer: Ipv4Addr, mac: Mac) {
        let waited = self.neighbours.told(self.now, peer, mac);
        self.put_all(waited, mac);
    }
}
