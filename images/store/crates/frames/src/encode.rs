//! The headers of datagrams that we send.

use std::net::SocketAddrV4;

use crate::sum::{add, fold, pseudo_header};
use crate::{
    ETHERNET_BYTES, ETHERTYPE_IPV4, HEADERS_BYTES, IPV4_BYTES, Interface, Mac, PROTOCOL_UDP,
    UDP_BYTES,
};

/// Who computes the sums of what we send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sums {
    /// The header's here; of UDP none, as RFC 768 allows: what we carry has a sum of its own.
    Software,
    /// The NIC, both; UDP's field holds the sum of the pseudo header, on which NICs build.
    Nic,
}

/// The headers of everything that goes out of one UDP port: most of their bytes never change.
#[derive(Clone, Debug)]
pub struct Template {
    bytes: [u8; HEADERS_BYTES],
    from: SocketAddrV4,
    sums: Sums,
    /// Of the IPv4 header's words that never change.
    header_sum: u32,
}

/// So many routers may lie between.
const TIME_TO_LIVE: u8 = 64;
const DO_NOT_FRAGMENT: u8 = 0x40;
const IP: usize = ETHERNET_BYTES;
const UDP: usize = ETHERNET_BYTES + IPV4_BYTES;

impl Template {
    pub fn new(us: Interface, port: u16, sums: Sums) -> Template {
        let mut bytes = [0; HEADERS_BYTES];
        bytes[6..12].copy_from_slice(&us.mac);
        bytes[12..14].copy_from_slice(&ETHERTYPE_IPV4);
        bytes[IP] = 0x45; // Version 4, five words of header.
        bytes[IP + 6] = DO_NOT_FRAGMENT;
        bytes[IP + 8] = TIME_TO_LIVE;
        bytes[IP + 9] = PROTOCOL_UDP;
        bytes[IP + 12..IP + 16].copy_from_slice(&us.ip.octets());
        bytes[UDP..UDP + 2].copy_from_slice(&port.to_be_bytes());
        Template {
            header_sum: add(0, &bytes[IP..UDP]),
            bytes,
            from: SocketAddrV4::new(us.ip, port),
            sums,
        }
    }

    /// Where they say that the datagram comes from.
    pub fn from(&self) -> SocketAddrV4 {
        self.from
    }

    /// Writes the headers of a datagram that will go to a station which is told later ([`set_station`]).
    ///
    /// `payload_bytes` is at most what an MTU leaves of 65535 bytes.
    pub fn write(&self, out: &mut [u8; HEADERS_BYTES], to: SocketAddrV4, payload_bytes: u16) {
        *out = self.bytes;
        let udp_bytes = payload_bytes + UDP_BYTES as u16;
        let total_bytes = udp_bytes + IPV4_BYTES as u16;
        out[IP + 2..IP + 4].copy_from_slice(&total_bytes.to_be_bytes());
        out[IP + 16..IP + 20].copy_from_slice(&to.ip().octets());
        out[UDP + 2..UDP + 4].copy_from_slice(&to.port().to_be_bytes());
        out[UDP + 4..UDP + 6].copy_from_slice(&udp_bytes.to_be_bytes());
        match self.sums {
            Sums::Software => {
                let sum = add(self.header_sum, &to.ip().octets()) + u32::from(total_bytes);
                out[IP + 10..IP + 12].copy_from_slice(&(!fold(sum)).to_be_bytes());
            }
            Sums::Nic => {
                let sum = fold(pseudo_header(*self.from.ip(), *to.ip(), udp_bytes));
                out[UDP + 6..UDP + 8].copy_from_slice(&sum.to_be_bytes());
            }
        }
    }
}

/// Says which station a frame goes to.
pub fn set_station(frame: &mut [u8; HEADERS_BYTES], station: Mac) {
    frame[..6].copy_from_slice(&station);
}
