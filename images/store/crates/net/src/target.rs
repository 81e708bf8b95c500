//! Where a locator points.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};

use wire::locator::{Locator, LocatorError};

use crate::address::Address;

/// What carries the datagrams of a port, the fastest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PortKind {
    /// A NIC without the kernel.
    Dpdk,
    /// The kernel's sockets.
    Udp,
}

impl PortKind {
    /// As locators name it.
    pub fn protocol(self) -> &'static str {
        match self {
            PortKind::Dpdk => "fast+dpdk",
            PortKind::Udp => "fast+udp",
        }
    }

    fn of(protocol: &str) -> Option<PortKind> {
        [PortKind::Dpdk, PortKind::Udp]
            .into_iter()
            .find(|kind| kind.protocol() == protocol)
    }
}

/// What is spoken by whoever has ports of these kinds, the fastest first.
pub fn protocols(mut kinds: Vec<PortKind>) -> Vec<&'static str> {
    kinds.sort_unstable();
    kinds.dedup();
    let fast = kinds.into_iter().map(PortKind::protocol);
    fast.chain(["tcp"]).collect()
}

/// A peer that speaks the `fast` protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastPeer {
    pub kind: PortKind,
    pub address: SocketAddrV4,
    /// Its NIC's address, if the locator tells.
    pub mac: Option<[u8; 6]>,
}

/// A peer, as a locator names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Tcp(Address),
    Fast(FastPeer),
}

impl Target {
    /// # Errors
    /// The locator is of another protocol, or it lacks something.
    pub fn of(locator: &Locator) -> Result<Target, LocatorError> {
        let Some(kind) = PortKind::of(locator.protocol()) else {
            if locator.protocol() != "tcp" {
                return Err(locator
                    .error("this protocol is not spoken here; use tcp, fast+udp or fast+dpdk"));
            }
            let (host, port) = locator.tcp()?;
            return Ok(Target::Tcp(Address::new(host, port)));
        };
        let (host, port) = locator.host_and_port()?;
        let ip: Ipv4Addr = host
            .parse()
            .map_err(|_| locator.error("its host has to be an IPv4 address, not a name"))?;
        let mac = locator.option("mac").map(mac_address);
        let mac = match mac {
            Some(None) => return Err(locator.error("its mac is none such as 94:de:80:ab:01:79")),
            Some(found) => found,
            None => None,
        };
        Ok(Target::Fast(FastPeer {
            kind,
            address: SocketAddrV4::new(ip, port),
            mac,
        }))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Tcp(address) => write!(f, "tcp {address}"),
            Target::Fast(peer) => write!(f, "{} {}", peer.kind.protocol(), peer.address),
        }
    }
}

/// Six pairs of hexadecimal digits with colons between them.
pub fn mac_address(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut mac {
        let part = parts.next().filter(|part| part.len() == 2)?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}

/// As [`mac_address`] reads it.
pub fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> Result<Target, String> {
        let locator = Locator::parse(text).map_err(|error| error.to_string())?;
        Target::of(&locator).map_err(|error| error.to_string())
    }

    #[test]
    fn locators_name_targets() {
        let seeds = "fast+dpdk:host=192.168.101.29,mac=94:de:80:ab:01:79,port=12247";
        let peer = FastPeer {
            kind: PortKind::Dpdk,
            address: "192.168.101.29:12247".parse().unwrap(),
            mac: Some([0x94, 0xde, 0x80, 0xab, 0x01, 0x79]),
        };
        assert_eq!(mac_text(peer.mac.unwrap()), "94:de:80:ab:01:79");
        assert_eq!(target(seeds), Ok(Target::Fast(peer)));
        let peer = FastPeer {
            kind: PortKind::Udp,
            address: "10.0.0.1:7".parse().unwrap(),
            mac: None,
        };
        assert_eq!(
            target("fast+udp:host=10.0.0.1,port=7"),
            Ok(Target::Fast(peer))
        );
        assert_eq!(
            target("tcp:host=name,port=7"),
            Ok(Target::Tcp(Address::new("name", 7)))
        );
    }

    #[test]
    fn what_cannot_be_used_is_explained() {
        for (text, part) in [
            ("infrc:host=a,port=1", "fast+dpdk"),
            ("tcp:host=a", "port"),
            ("fast+udp:host=name,port=1", "IPv4 address"),
            ("fast+dpdk:host=1.2.3.4,port=1,mac=12", "mac"),
            ("fast+dpdk:host=1.2.3.4,port=1,mac=1:2:3:4:5:6", "mac"),
        ] {
            let error = target(text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
