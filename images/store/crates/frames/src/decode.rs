//! From a received frame to a datagram for us, or to why there is none.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Range;

use crate::arp::Arp;
use crate::refused::Refused;
use crate::sum::{add, fold, pseudo_header};
use crate::{
    BROADCAST, ETHERNET_BYTES, ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_VLAN, IPV4_BYTES,
    Interface, Mac, PROTOCOL_UDP, UDP_BYTES, is_machine, is_station,
};

/// What need not be checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// The NIC has found this sum right already.
    pub ip: bool,
    pub udp: bool,
    /// The frame never was on a wire, so that it may come from our own address.
    pub inside: bool,
}

/// A UDP datagram to our address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    pub from: SocketAddrV4,
    /// The station that the frame came from: the peer, or the router on the way to it.
    pub station: Mac,
    pub to_port: u16,
    /// Where in the frame the payload is.
    pub payload: Range<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    Datagram(Datagram),
    Arp(Arp),
}

/// Takes a frame apart. Whatever is in it, this reads only the frame, and what it gives lies within.
///
/// # Errors
/// It is no datagram for us and no ARP message.
pub fn decode(frame: &[u8], us: Interface, checked: Checked) -> Result<Frame, Refused> {
    let header: &[u8; ETHERNET_BYTES] = frame.first_chunk().ok_or(Refused::Malformed)?;
    let destination: Mac = part(header, 0);
    if destination != us.mac && destination != BROADCAST {
        return Err(Refused::OtherStation);
    }
    let station: Mac = part(header, 6);
    let mut at = ETHERNET_BYTES;
    let mut kind: [u8; 2] = part(header, 12);
    if kind == ETHERTYPE_VLAN {
        let tag: &[u8; 4] = frame[at..].first_chunk().ok_or(Refused::Malformed)?;
        if u16::from_be_bytes([tag[0], tag[1]]) & 0x0fff != 0 {
            return Err(Refused::Vlan);
        }
        kind = [tag[2], tag[3]];
        at += tag.len();
    }
    match kind {
        ETHERTYPE_IPV4 if destination == us.mac => {
            if !is_station(station) {
                return Err(Refused::BadSource);
            }
            ipv4(frame, at, us, checked, station).map(Frame::Datagram)
        }
        // IPv4 to all stations is not for a store.
        ETHERTYPE_IPV4 => Err(Refused::OtherStation),
        ETHERTYPE_ARP => Arp::decode(&frame[at..]).map(Frame::Arp),
        _ => Err(Refused::OtherProtocol),
    }
}

fn ipv4(
    frame: &[u8],
    at: usize,
    us: Interface,
    checked: Checked,
    station: Mac,
) -> Result<Datagram, Refused> {
    let packet = &frame[at..];
    let header: &[u8; IPV4_BYTES] = packet.first_chunk().ok_or(Refused::Malformed)?;
    // Options are not for us; they are skipped.
    let header_bytes = usize::from(header[0] & 0x0f) * 4;
    let total_bytes = usize::from(word(header, 2));
    // Behind the packet, Ethernet may have filled up.
    if header[0] >> 4 != 4
        || header_bytes < IPV4_BYTES
        || total_bytes < header_bytes
        || total_bytes > packet.len()
    {
        return Err(Refused::Malformed);
    }
    let address = |at: usize| Ipv4Addr::from(part::<4>(header, at));
    if address(16) != us.ip {
        return Err(Refused::OtherAddress);
    }
    if !checked.ip && fold(add(0, &packet[..header_bytes])) != 0xffff {
        return Err(Refused::WrongSum);
    }
    // More of it follows, or this is not the first part.
    if word(header, 6) & 0x3fff != 0 {
        return Err(Refused::Fragment);
    }
    if header[9] != PROTOCOL_UDP {
        return Err(Refused::NotUdp);
    }
    let from = address(12);
    if !is_machine(from) || (from == us.ip && !checked.inside) {
        return Err(Refused::BadSource);
    }
    let (from_port, to_port, payload) =
        udp(&packet[header_bytes..total_bytes], from, us.ip, checked)?;
    let start = at + header_bytes;
    Ok(Datagram {
        from: SocketAddrV4::new(from, from_port),
        station,
        to_port,
        payload: start + payload.start..start + payload.end,
    })
}

fn udp(
    datagram: &[u8],
    from: Ipv4Addr,
    to: Ipv4Addr,
    checked: Checked,
) -> Result<(u16, u16, Range<usize>), Refused> {
    let header: &[u8; UDP_BYTES] = datagram.first_chunk().ok_or(Refused::Malformed)?;
    let udp_bytes = word(header, 4);
    let length = usize::from(udp_bytes);
    if length < UDP_BYTES || length > datagram.len() {
        return Err(Refused::Malformed);
    }
    // 0: the sender has computed none.
    let wrong = || fold(add(pseudo_header(from, to, udp_bytes), &datagram[..length])) != 0xffff;
    if word(header, 6) != 0 && !checked.udp && wrong() {
        return Err(Refused::WrongSum);
    }
    let from_port = word(header, 0);
    if from_port == 0 {
        return Err(Refused::BadSource);
    }
    Ok((from_port, word(header, 2), UDP_BYTES..length))
}

/// `N` bytes of a header; `at` is a constant within it.
fn part<const N: usize>(header: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&header[at..at + N]);
    bytes
}

fn word(header: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(part(header, at))
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
