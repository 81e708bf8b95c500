//! Why frames are dropped.

/// Why a frame is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refused {
    /// Too short for its headers, or lengths and versions that contradict each other.
    Malformed,
    /// To another station, or to a group of them.
    OtherStation,
    /// Tagged for a VLAN: what is for us comes untagged, or with a priority only (VLAN 0).
    Vlan,
    /// Neither IPv4 nor ARP.
    OtherProtocol,
    /// To another IPv4 address.
    OtherAddress,
    /// IPv4, but not UDP.
    NotUdp,
    /// Part of a datagram: we send and take none.
    Fragment,
    /// From no single machine, or from our own address.
    BadSource,
    /// The sum of the IPv4 header or of UDP is wrong.
    WrongSum,
}

impl Refused {
    pub const ALL: [Refused; 9] = [
        Refused::Malformed,
        Refused::OtherStation,
        Refused::Vlan,
        Refused::OtherProtocol,
        Refused::OtherAddress,
        Refused::NotUdp,
        Refused::Fragment,
        Refused::BadSource,
        Refused::WrongSum,
    ];

    /// As counters are labelled.
    pub fn name(self) -> &'static str {
        match self {
            Refused::Malformed => "malformed",
            Refused::OtherStation => "other_station",
            Refused::Vlan => "vlan",
            Refused::OtherProtocol => "other_protocol",
            Refused::OtherAddress => "other_address",
            Refused::NotUdp => "not_udp",
            Refused::Fragment => "fragment",
            Refused::BadSource => "bad_source",
            Refused::WrongSum => "wrong_sum",
        }
    }
}
