//! Ethernet frames that carry UDP over IPv4, ARP, and which station has which address.
//!
//! What a driver needs that has a NIC for itself and no kernel above it. Everything here is a function of its arguments: frames and times come in,
//! frames and answers go out.

#![forbid(unsafe_code)]

pub mod arp;
mod decode;
mod encode;
mod neighbours;
mod refused;
pub mod sum;

use std::net::Ipv4Addr;

pub use decode::{Checked, Datagram, Frame, decode};
pub use encode::{Sums, Template, set_station};
pub use neighbours::{Limits, Neighbours, Route, Sending};
pub use refused::Refused;

/// The address of a station on an Ethernet.
pub type Mac = [u8; 6];

/// To all stations.
pub const BROADCAST: Mac = [0xff; 6];
/// Bytes of an Ethernet header without a VLAN tag.
pub const ETHERNET_BYTES: usize = 14;
/// Bytes of an IPv4 header without options, as we send it.
pub const IPV4_BYTES: usize = 20;
pub const UDP_BYTES: usize = 8;
/// All that stands before the payload of a datagram which we send.
pub const HEADERS_BYTES: usize = ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES;

pub(crate) const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
pub(crate) const ETHERTYPE_ARP: [u8; 2] = [0x08, 0x06];
pub(crate) const ETHERTYPE_VLAN: [u8; 2] = [0x81, 0x00];
pub(crate) const PROTOCOL_UDP: u8 = 17;

/// Who we are on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    pub ip: Ipv4Addr,
    pub mac: Mac,
}

/// Reads a MAC address as locators write it: six pairs of hexadecimal digits, between colons.
pub fn parse_mac(text: &str) -> Option<Mac> {
    let mut mac = [0; 6];
    let mut pairs = text.split(':');
    for byte in &mut mac {
        let pair = pairs.next()?;
        if pair.len() != 2 || !pair.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    pairs.next().is_none().then_some(mac)
}

/// Writes a MAC address as [`parse_mac`] reads it.
pub fn mac_text(mac: Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// A single station's, and not nobody's.
pub(crate) fn is_station(mac: Mac) -> bool {
    mac[0] & 1 == 0 && mac != [0; 6]
}

/// An address that one machine can have.
pub(crate) fn is_machine(ip: Ipv4Addr) -> bool {
    let first = ip.octets()[0];
    first != 0 && first != 127 && first < 224
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mac_addresses_are_read_as_written() {
        let mac = [0x94, 0xde, 0x80, 0xab, 0x01, 0x79];
        assert_eq!(parse_mac("94:DE:80:ab:01:79"), Some(mac));
        assert_eq!(mac_text(mac), "94:de:80:ab:01:79");
        for wrong in [
            "",
            "94:de",
            "94:de:80:ab:01:79:00",
            "94:de:80:ab:1:79",
            "94:de:80:ab:+1:79",
            "94-de-80-ab-01-79",
            "é:de:80:ab:01:79",
        ] {
            assert_eq!(parse_mac(wrong), None, "{wrong}");
        }
    }
}
