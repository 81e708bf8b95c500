//! What drivers of datagrams offer to a thread that polls them: UDP payloads in, UDP payloads out.
//!
//! A port has two halves that live in the same thread. They are apart so that what was received can stay where the driver has it
//! (a packet buffer of the NIC, for example) while answers to it go out.

use std::net::SocketAddrV4;
use std::os::fd::RawFd;

/// The most datagrams that one [`Receive::poll`] takes.
pub const BURST: usize = 32;

/// One received datagram: whole, with sums that are right as far as the driver checks them.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    pub from: SocketAddrV4,
    pub payload: &'a [u8],
    /// It came to the second UDP port, if the driver has two: the one for other servers.
    pub to_peers: bool,
}

/// The receiving half.
pub trait Receive: Send {
    /// Takes what has come, at most [`BURST`]; how many there are. Those of the poll before are given back to the driver. What is not a datagram for this
    /// port (ARP, for example) goes to `sender`.
    fn poll(&mut self, sender: &mut dyn Transmit) -> usize;

    /// One of those that the last poll took, below the number that it gave.
    fn datagram(&self, index: usize) -> Datagram<'_>;

    /// What becomes readable when there is something to poll; `None` if nothing tells, so that whoever waits has to look again and again.
    fn descriptor(&self) -> Option<RawFd>;
}

/// The sending half.
pub trait Transmit: Send {
    /// Where others reach this port.
    fn address(&self) -> SocketAddrV4;

    /// Where other servers reach this port, if that is another UDP port than for everybody.
    fn peer_address(&self) -> Option<SocketAddrV4> {
        None
    }

    /// The longest payload of a datagram, in bytes: the MTU without the headers of IPv4 and UDP.
    fn max_payload_bytes(&self) -> usize;

    /// Sends one datagram: the parts, one behind the other. It may wait for [`Transmit::flush`], and it may get lost.
    fn send(&mut self, to: SocketAddrV4, parts: &[&[u8]]);

    /// As [`Transmit::send`], from the UDP port for other servers.
    fn send_to_peer(&mut self, to: SocketAddrV4, parts: &[&[u8]]) {
        self.send(to, parts);
    }

    /// Hands everything that waits to the NIC or the kernel, as far as there is room.
    fn flush(&mut self);

    /// An Ethernet frame came that is no datagram for this port.
    fn observe(&mut self, _frame: &[u8]) {}

    /// What is known beforehand of a peer: the MAC address in its locator.
    fn learn(&mut self, _peer: std::net::Ipv4Addr, _mac: [u8; 6]) {}
}
