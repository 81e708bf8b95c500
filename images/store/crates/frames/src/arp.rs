//! ARP for IPv4 over Ethernet (RFC 826): who has an address.

use std::net::Ipv4Addr;

use crate::refused::Refused;
use crate::{BROADCAST, ETHERNET_BYTES, ETHERTYPE_ARP, Interface, is_machine, is_station};

/// Bytes of an ARP message behind its Ethernet header.
pub const MESSAGE_BYTES: usize = 28;
/// Bytes of a frame with one, filled up to the least that Ethernet carries.
pub const FRAME_BYTES: usize = 60;

/// Ethernet (1), IPv4, and the lengths of their addresses.
const KIND: [u8; 6] = [0, 1, 8, 0, 6, 4];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Request,
    Reply,
}

/// One ARP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arp {
    pub operation: Operation,
    pub sender: Interface,
    pub target: Interface,
}

impl Arp {
    /// Asks everyone who has `target`.
    pub fn request(us: Interface, target: Ipv4Addr) -> Arp {
        Arp {
            operation: Operation::Request,
            sender: us,
            target: Interface {
                ip: target,
                mac: [0; 6],
            },
        }
    }

    /// Tells everyone who has an entry for our address that it is here.
    pub fn announcement(us: Interface) -> Arp {
        Arp::request(us, us.ip)
    }

    /// The answer to a request for our address; `None` to everything else.
    pub fn answer(&self, us: Interface) -> Option<Arp> {
        let asked = self.operation == Operation::Request && self.target.ip == us.ip;
        asked.then_some(Arp {
            operation: Operation::Reply,
            sender: us,
            target: self.sender,
        })
    }

    /// What follows the Ethernet header.
    pub(crate) fn decode(message: &[u8]) -> Result<Arp, Refused> {
        let message: &[u8; MESSAGE_BYTES] = message.first_chunk().ok_or(Refused::Malformed)?;
        if message[..6] != KIND {
            return Err(Refused::OtherProtocol);
        }
        let operation = match message[6..8] {
            [0, 1] => Operation::Request,
            [0, 2] => Operation::Reply,
            _ => return Err(Refused::OtherProtocol),
        };
        let interface = |at: usize| {
            let mut mac = [0; 6];
            mac.copy_from_slice(&message[at..at + 6]);
            let ip = &message[at + 6..at + 10];
            Interface {
                ip: Ipv4Addr::new(ip[0], ip[1], ip[2], ip[3]),
                mac,
            }
        };
        let (sender, target) = (interface(8), interface(18));
        // A sender without an address asks whether ours is free (RFC 5227): it is answered, and teaches nothing.
        let nobody = sender.ip.is_unspecified() && operation == Operation::Request;
        if !is_station(sender.mac) || !(is_machine(sender.ip) || nobody) {
            return Err(Refused::BadSource);
        }
        Ok(Arp {
            operation,
            sender,
            target,
        })
    }

    /// The frame: a request goes to all, a reply to the one that asked.
    pub fn encode(&self) -> [u8; FRAME_BYTES] {
        let mut frame = [0; FRAME_BYTES];
        let (destination, operation) = match self.operation {
            Operation::Request => (BROADCAST, 1),
            Operation::Reply => (self.target.mac, 2),
        };
        frame[..6].copy_from_slice(&destination);
        frame[6..12].copy_from_slice(&self.sender.mac);
        frame[12..14].copy_from_slice(&ETHERTYPE_ARP);
        let message = &mut frame[ETHERNET_BYTES..ETHERNET_BYTES + MESSAGE_BYTES];
        message[..6].copy_from_slice(&KIND);
        message[7] = operation;
        for (at, interface) in [(8, self.sender), (18, self.target)] {
            message[at..at + 6].copy_from_slice(&interface.mac);
            message[at + 6..at + 10].copy_from_slice(&interface.ip.octets());
        }
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Checked, Frame, decode};

    const US: Interface = Interface {
        ip: Ipv4Addr::new(10, 0, 0, 1),
        mac: [2, 0, 0, 0, 0, 1],
    };
    const PEER: Interface = Interface {
        ip: Ipv4Addr::new(10, 0, 0, 2),
        mac: [2, 0, 0, 0, 0, 2],
    };

    fn decoded(frame: &[u8], us: Interface) -> Result<Frame, Refused> {
        decode(frame, us, Checked::default())
    }

    /// Bytes as other implementations write them.
    #[test]
    fn golden_request() {
        let golden =
            "ffffffffffff020000000001080600010800060400010200000000010a0000010000000000000a000002";
        let frame = Arp::request(US, PEER.ip).encode();
        let text: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(text, format!("{golden}{}", "00".repeat(18)));
    }

    #[test]
    fn a_request_for_us_is_answered_to_the_one_that_asked() {
        let request = Arp::request(PEER, US.ip);
        assert_eq!(decoded(&request.encode(), US), Ok(Frame::Arp(request)));
        let answer = request.answer(US).expect("asked for us");
        assert_eq!(
            (answer.operation, answer.sender, answer.target),
            (Operation::Reply, US, PEER)
        );
        assert_eq!(decoded(&answer.encode(), PEER), Ok(Frame::Arp(answer)));
        assert_eq!(answer.answer(PEER), None, "a reply is not answered");
        assert_eq!(
            Arp::request(PEER, PEER.ip).answer(US),
            None,
            "asked for another"
        );
    }

    #[test]
    fn who_asks_without_an_address_is_answered() {
        let probe = Arp::request(
            Interface {
                ip: Ipv4Addr::UNSPECIFIED,
                ..PEER
            },
            US.ip,
        );
        assert_eq!(decoded(&probe.encode(), US), Ok(Frame::Arp(probe)));
        assert!(probe.answer(US).is_some());
    }

    #[test]
    fn other_kinds_and_impossible_senders_are_refused() {
        let frame = Arp::request(PEER, US.ip).encode();
        for (at, byte, refused) in [
            (15, 6, Refused::OtherProtocol),
            (19, 16, Refused::OtherProtocol),
            (21, 3, Refused::OtherProtocol),
            (22, 3, Refused::BadSource),
            (28, 224, Refused::BadSource),
        ] {
            let mut changed = frame;
            changed[at] = byte;
            assert_eq!(decoded(&changed, US), Err(refused), "byte {at}");
        }
        assert_eq!(decoded(&frame[..41], US), Err(Refused::Malformed));
    }
}
