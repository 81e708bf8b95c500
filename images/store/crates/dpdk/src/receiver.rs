//! The receiving half of a lane.

use std::net::SocketAddrV4;
use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::mpsc::Receiver as Ring;

use frames::arp::Operation;
use frames::{Frame, Interface, decode};
use transport::datagram::{BURST, Datagram, Receive, Transmit};

use crate::counters::{Count, Counters};
use crate::device::Port;
use crate::ffi::{Buffer, Buffers, register_thread};
use crate::gate::{Entry, Pass, Side};

/// So many times nothing may come until the sending half is looked after.
const IDLE_POLLS: u32 = 64;

/// What was found for this lane in one of the buffers.
struct Found {
    buffer: usize,
    from: SocketAddrV4,
    payload: Range<usize>,
    to_peers: bool,
}

/// Receives what comes to the lane's UDP ports. Payloads stay where the NIC has put them, until the next poll.
pub struct Receiver {
    // Before the port: buffers go back to a pool that is still there.
    buffers: Buffers,
    ring: Option<Ring<Buffer>>,
    found: Vec<Found>,
    port: Arc<Port>,
    pass: Pass,
    us: Interface,
    lane: u16,
    /// For everybody, and for other servers.
    udp_ports: [Option<u16>; 2],
    /// The NIC steers for us.
    own_queue: bool,
    registered: bool,
    idle: u32,
}

impl Receiver {
    pub(crate) fn new(
        port: Arc<Port>,
        lane: u16,
        udp_ports: [Option<u16>; 2],
        ring: Option<Ring<Buffer>>,
        own_queue: bool,
    ) -> Receiver {
        Receiver {
            buffers: Buffers::with_capacity(BURST),
            ring,
            found: Vec::with_capacity(BURST),
            pass: port.gate.admit(lane, Side::Receives),
            us: port.us(),
            port,
            lane,
            udp_ports,
            own_queue,
            registered: false,
            idle: 0,
        }
    }

    fn counters(&self) -> &Counters {
        &self.port.slots[usize::from(self.lane)].counters
    }

    /// Fills the buffers: first with what other lanes have for this one, of which there is `true`.
    fn take(&mut self, sender: &mut dyn Transmit) -> usize {
        while self.buffers.len() < BURST
            && let Some(buffer) = self.ring.as_ref().and_then(|ring| ring.try_recv().ok())
        {
            self.buffers.push(buffer);
        }
        let handed_over = self.buffers.len();
        let room = BURST - handed_over;
        match self.port.gate.enter(&mut self.pass) {
            Entry::Open => {}
            Entry::Anew => {
                self.us = self.port.us();
                // Before it is to answer what comes.
                sender.flush();
            }
            Entry::Closed => return handed_over,
        }
        let (port, buffers) = (&*self.port, &mut self.buffers);
        if self.own_queue {
            port.running.receive(self.lane, buffers, room);
        } else {
            port.with_common(|| port.running.receive(0, buffers, room));
        }
        handed_over
    }

    /// What is in one of the buffers, and who gets it.
    fn sort(&mut self, index: usize, handed_over: bool, sender: &mut dyn Transmit) {
        let Some(buffer) = self.buffers.get(index) else {
            return;
        };
        match decode(buffer.bytes(), self.us, buffer.checked()) {
            Err(why) => self.counters().refuse(why),
            Ok(Frame::Arp(arp)) => {
                sender.observe(buffer.bytes());
                if arp.operation == Operation::Reply && !handed_over {
                    self.share(index);
                }
            }
            Ok(Frame::Datagram(datagram)) if self.udp_ports.contains(&Some(datagram.to_port)) => {
                self.found.push(Found {
                    buffer: index,
                    from: datagram.from,
                    payload: datagram.payload,
                    to_peers: self.udp_ports[1] == Some(datagram.to_port),
                });
            }
            Ok(Frame::Datagram(datagram)) => self.pass(index, datagram.to_port),
        }
    }

    /// Gives a datagram to the lane that it is for.
    fn pass(&mut self, index: usize, udp_port: u16) {
        let Some(lane) = self.port.lane_of(udp_port) else {
            self.counters().add(Count::NoSuchPort, 1);
            return;
        };
        if let Some(buffer) = self.buffers.get_mut(index) {
            let mut buffer = buffer.take();
            buffer.set_checked();
            let taken = self.port.hand_over(lane, buffer);
            let count = if taken {
                Count::HandedOver
            } else {
                Count::RingFull
            };
            self.counters().add(count, 1);
        }
    }

    /// An answer to any lane's question is for all of them.
    fn share(&mut self, index: usize) {
        for lane in 0..self.port.slots.len() {
            if lane == usize::from(self.lane) {
                continue;
            }
            let mut copies = Buffers::with_capacity(1);
            if !self.port.running.allocate(&mut copies, 1) {
                return;
            }
            if let (Some(mut copy), Some(frame)) = (copies.pop(), self.buffers.get(index)) {
                let bytes = frame.bytes().len().min(copy.bytes().len());
                copy.bytes_mut()[..bytes].copy_from_slice(&frame.bytes()[..bytes]);
                copy.truncate(bytes);
                // A lane that has too much to do hears of it when it asks again.
                self.port.hand_over(lane, copy);
            }
        }
    }

    fn count(&mut self, sender: &mut dyn Transmit) {
        let found = self.found.len();
        if found == 0 {
            self.idle += 1;
            if self.idle >= IDLE_POLLS {
                self.idle = 0;
                sender.flush();
            }
            return;
        }
        self.counters().add(Count::Received, found as u64);
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.port.gate.leave(&self.pass);
    }
}

impl Receive for Receiver {
    fn poll(&mut self, sender: &mut dyn Transmit) -> usize {
        if !self.registered {
            register_thread();
            self.registered = true;
        }
        self.found.clear();
        self.buffers.clear();
        let handed_over = self.take(sender);
        for index in 0..self.buffers.len() {
            self.sort(index, index < handed_over, sender);
        }
        self.count(sender);
        self.found.len()
    }

    fn datagram(&self, index: usize) -> Datagram<'_> {
        let found = &self.found[index];
        let frame = self
            .buffers
            .get(found.buffer)
            .map_or(&[][..], Buffer::bytes);
        Datagram {
            from: found.from,
            payload: &frame[found.payload.clone()],
            to_peers: found.to_peers,
        }
    }

    /// A port of DPDK is polled.
    fn descriptor(&self) -> Option<RawFd> {
        None
    }
}
