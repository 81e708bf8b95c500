//! Ports for datagrams: from locators and options to what a reactor polls.

#[cfg(feature = "dpdk")]
mod attached;
mod interfaces;

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};

use net::{Audience, Port, PortKind, Target, USUAL_MTU};
use program::locators::{PEER_PORT_OFFSET, PortBeyond, offset_port};
use wire::locator::{Locator, LocatorError, parse_list};
use wire::member::{MAX_PORTS, PortReport};

#[cfg(feature = "dpdk")]
use dpdk::{Device, DeviceOptions, Eal};

use crate::interfaces::{Interface, Interfaces, cores_numa_node, hardware};

#[cfg(feature = "dpdk")]
pub use dpdk::EalOptions;

/// A build without DPDK has no options for it.
#[cfg(not(feature = "dpdk"))]
#[derive(clap::Args, Clone, Debug, Default)]
pub struct EalOptions {}

/// Why a program has not the ports that its command line names.
#[derive(Debug, thiserror::Error)]
pub enum PortsError {
    #[error(transparent)]
    Locator(#[from] LocatorError),
    #[error("locator {locator}: {option}={text} is no {what}")]
    Option {
        locator: String,
        option: &'static str,
        text: String,
        what: &'static str,
    },
    #[error("locator {0}: a prefix has at most 32 bits")]
    Prefix(String),
    #[error(transparent)]
    PortBeyond(#[from] PortBeyond),
    #[error("cannot receive datagrams at {address}: {error}")]
    Receive {
        address: SocketAddrV4,
        error: io::Error,
    },
    #[cfg(not(feature = "dpdk"))]
    #[error("this program was built without DPDK: leave fast+dpdk out")]
    WithoutDpdk,
    #[cfg(feature = "dpdk")]
    #[error("no device of DPDK was opened for {0}")]
    NoDevice(Ipv4Addr),
    #[cfg(feature = "dpdk")]
    #[error(transparent)]
    NetworkStatus(#[from] attached::NetworkStatusError),
    /// As DPDK says it.
    #[cfg(feature = "dpdk")]
    #[error("{0}")]
    Dpdk(String),
}

/// Where one port of a program is, as a locator such as `fast+udp:host=10.0.0.2,port=12100,mtu=9000` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortAddress {
    pub kind: PortKind,
    pub ip: Ipv4Addr,
    /// Of the first lane; lane i has this plus i.
    pub udp_port: u16,
    /// The same, for other servers.
    pub peer_port: u16,
    pub mtu: u16,
    /// Name or number of the port among those of DPDK; else what Multus says of a pod's devices counts, or they are taken in order.
    pub device: Option<String>,
    /// Which addresses are on the link.
    pub prefix_bits: u8,
    pub gateway: Option<Ipv4Addr>,
}

/// The places of all `fast+` locators in these lists.
///
/// # Errors
/// One cannot be read, or is of another protocol than `tcp`, `fast+udp` and `fast+dpdk`.
pub fn places(lists: &[String]) -> Result<Vec<PortAddress>, PortsError> {
    let mut places = Vec::new();
    for list in lists {
        for locator in parse_list(list)? {
            match Target::of(&locator)? {
                Target::Tcp(_) => {}
                Target::Fast(peer) => places.push(place(&locator, peer.kind, peer.address)?),
            }
        }
    }
    Ok(places)
}

fn place(
    locator: &Locator,
    kind: PortKind,
    address: SocketAddrV4,
) -> Result<PortAddress, PortsError> {
    let wrong = |option, text: &str, what| PortsError::Option {
        locator: locator.to_string(),
        option,
        text: text.to_owned(),
        what,
    };
    let number = |option: &'static str, usual: u16| match locator.option(option) {
        Some(text) => text.parse().map_err(|_| wrong(option, text, "number")),
        None => Ok(usual),
    };
    let gateway = match locator.option("gateway") {
        Some(text) => {
            let gateway = text.parse();
            Some(gateway.map_err(|_| wrong("gateway", text, "address"))?)
        }
        None => None,
    };
    let prefix_bits = number("prefix", 24)?;
    let prefix_bits = u8::try_from(prefix_bits).ok().filter(|bits| *bits <= 32);
    Ok(PortAddress {
        kind,
        ip: *address.ip(),
        udp_port: address.port(),
        peer_port: number("peerPort", offset_port(address.port(), PEER_PORT_OFFSET)?)?,
        mtu: number("mtu", USUAL_MTU as u16)?,
        device: locator.option("device").map(str::to_owned),
        prefix_bits: prefix_bits.ok_or_else(|| PortsError::Prefix(locator.to_string()))?,
        gateway,
    })
}

/// The ports of a program.
pub struct Ports {
    places: Vec<PortAddress>,
    /// For each place, its device if it is one of DPDK.
    #[cfg(feature = "dpdk")]
    devices: Vec<Option<Device>>,
    /// DPDK's memory that is in ordinary pages.
    ordinary_bytes: usize,
}

/// One lane of one place, and the locators under which others reach it.
pub struct Lane {
    /// One, or another for other servers besides.
    pub ports: Vec<Port>,
    pub locator: String,
    /// For other servers, if they were wanted.
    pub peer_locator: Option<String>,
}

/// Who is to be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serves {
    Clients,
    /// And other servers, at UDP ports of their own.
    PeersToo,
}

impl Ports {
    /// Starts DPDK if a place needs it, and takes its devices, each for so many lanes.
    ///
    /// # Errors
    /// DPDK does not start, or has no such device.
    pub fn open(
        places: Vec<PortAddress>,
        eal: &EalOptions,
        lanes: u16,
    ) -> Result<Ports, PortsError> {
        #[cfg(not(feature = "dpdk"))]
        {
            let _ = (eal, lanes);
            match places.iter().any(|place| place.kind == PortKind::Dpdk) {
                true => Err(PortsError::WithoutDpdk),
                false => Ok(Ports {
                    places,
                    ordinary_bytes: 0,
                }),
            }
        }
        #[cfg(feature = "dpdk")]
        {
            let (devices, ordinary_bytes) = devices(&places, eal, lanes)?;
            Ok(Ports {
                places,
                devices,
                ordinary_bytes,
            })
        }
    }

    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Memory for packets that counts as this process's: none where it is in huge pages.
    pub fn ordinary_bytes(&self) -> usize {
        self.ordinary_bytes
    }

    /// The lane with this number of every port.
    pub fn lanes(&self, lane: u16, serves: Serves) -> Result<Vec<Lane>, PortsError> {
        (0..self.places.len())
            .map(|at| self.lane(at, lane, serves))
            .collect()
    }

    /// What is known of each port now, but for whom it reaches. Asks the kernel and drivers, which may take milliseconds: not for a thread that polls.
    pub fn states(&self) -> Vec<PortReport> {
        let interfaces = Interfaces::read();
        if let Err(error) = &interfaces {
            tracing::debug!("{error}");
        }
        let interfaces = interfaces.ok();
        let cores_numa_node = cores_numa_node();
        let state = |at: usize| PortReport {
            mtu: self.places[at].mtu.into(),
            ip: self.places[at].ip.to_string(),
            cores_numa_node,
            ..match self.places[at].kind {
                PortKind::Udp => udp_state(self.places[at].ip, interfaces.as_ref()),
                PortKind::Dpdk => self.dpdk_state(at, interfaces.as_ref()),
            }
        };
        (0..self.places.len().min(MAX_PORTS)).map(state).collect()
    }

    /// How often it was tried to open a port of DPDK anew, since it was dead.
    #[cfg(feature = "dpdk")]
    pub fn opened_anew(&self) -> u64 {
        self.devices.iter().flatten().map(Device::opened_anew).sum()
    }

    #[cfg(not(feature = "dpdk"))]
    pub fn opened_anew(&self) -> u64 {
        0
    }

    #[cfg(not(feature = "dpdk"))]
    fn dpdk_state(&self, _at: usize, _interfaces: Option<&Interfaces>) -> PortReport {
        PortReport::default()
    }

    #[cfg(feature = "dpdk")]
    fn dpdk_state(&self, at: usize, interfaces: Option<&Interfaces>) -> PortReport {
        let Some(device) = &self.devices[at] else {
            return PortReport::default();
        };
        let info = device.info();
        let (link_up, link_mbps) = device.link();
        // Some drivers work through an interface of the kernel, which then knows better.
        let below = interfaces.and_then(|all| all.with_mac(device.mac()));
        let kernels = below.map(interface_state).unwrap_or_default();
        let pci = match dpdk::is_pci_address(&info.name) {
            true => info.name.clone(),
            false => kernels.pci,
        };
        PortReport {
            pci,
            mac: net::mac_text(device.mac()),
            driver: info.driver.clone(),
            link_up: Some(link_up && kernels.link_up != Some(false)),
            link_mbps: if link_mbps == 0 {
                kernels.link_mbps
            } else {
                link_mbps
            },
            numa_node: u32::try_from(info.socket).ok().or(kernels.numa_node),
            ..kernels
        }
    }

    fn lane(&self, at: usize, lane: u16, serves: Serves) -> Result<Lane, PortsError> {
        let place = &self.places[at];
        let udp_port = offset_port(place.udp_port, lane)?;
        let peer_port = match serves {
            Serves::Clients => None,
            Serves::PeersToo => Some(offset_port(place.peer_port, lane)?),
        };
        match place.kind {
            PortKind::Udp => udp_lane(at, place, udp_port, peer_port),
            PortKind::Dpdk => self.dpdk_lane(at, lane, udp_port, peer_port),
        }
    }

    #[cfg(not(feature = "dpdk"))]
    fn dpdk_lane(
        &self,
        _at: usize,
        _lane: u16,
        _udp_port: u16,
        _peer_port: Option<u16>,
    ) -> Result<Lane, PortsError> {
        Err(PortsError::WithoutDpdk)
    }

    #[cfg(feature = "dpdk")]
    fn dpdk_lane(
        &self,
        at: usize,
        lane: u16,
        udp_port: u16,
        peer_port: Option<u16>,
    ) -> Result<Lane, PortsError> {
        let place = &self.places[at];
        let Some(device) = &self.devices[at] else {
            return Err(PortsError::NoDevice(place.ip));
        };
        // Nobody chooses for us: one of those that are for everybody, another for each process.
        let chosen = 49_152 + (std::process::id() % 16_000) as u16 + lane;
        let udp_port = if udp_port == 0 { chosen } else { udp_port };
        let peer_port = peer_port.map(|peer_port| match peer_port {
            0 => chosen + PEER_PORT_OFFSET,
            given => given,
        });
        let queue = device.queue_with_peers(lane, udp_port, peer_port);
        let (receiver, sender) = queue.map_err(PortsError::Dpdk)?;
        let mac = net::mac_text(device.mac());
        let info = device.info();
        tracing::info!(
            port = info.name,
            driver = info.driver,
            %mac,
            lane,
            steering = ?device.steering(lane),
            "a port of DPDK"
        );
        let locator = |udp_port: u16| match device.mac_is_sure() {
            true => format!("fast+dpdk:host={},mac={mac},port={udp_port}", place.ip),
            // They will ask.
            false => format!("fast+dpdk:host={},port={udp_port}", place.ip),
        };
        Ok(Lane {
            // Both UDP ports are the driver's.
            ports: vec![Port {
                kind: PortKind::Dpdk,
                number: at,
                audience: Audience::Clients,
                receiver: Box::new(receiver),
                sender: Box::new(sender),
            }],
            locator: locator(udp_port),
            peer_locator: peer_port.map(locator),
        })
    }
}

/// Of a port that is a socket of the kernel.
fn udp_state(ip: Ipv4Addr, interfaces: Option<&Interfaces>) -> PortReport {
    let Some(interfaces) = interfaces.filter(|_| !ip.is_unspecified()) else {
        return PortReport {
            driver: KERNEL.to_owned(),
            ..PortReport::default()
        };
    };
    match interfaces.with_ip(ip) {
        Some(interface) => interface_state(&interface),
        // An address that no interface has any more is on no link.
        None => PortReport {
            driver: KERNEL.to_owned(),
            link_up: Some(false),
            ..PortReport::default()
        },
    }
}

fn interface_state(interface: &Interface) -> PortReport {
    let device = hardware(&interface.name);
    PortReport {
        interface: interface.name.clone(),
        mac: interface.mac.map(net::mac_text).unwrap_or_default(),
        link_up: Some(interface.is_up),
        driver: match device.driver.is_empty() {
            true => KERNEL.to_owned(),
            false => device.driver,
        },
        pci: device.pci,
        link_mbps: device.link_mbps,
        numa_node: device.numa_node,
        ..PortReport::default()
    }
}

/// The driver of an interface without a device.
const KERNEL: &str = "kernel";

fn udp_lane(
    number: usize,
    place: &PortAddress,
    udp_port: u16,
    peer_port: Option<u16>,
) -> Result<Lane, PortsError> {
    let (first, locator) = udp_port_of(number, place, udp_port, Audience::Clients)?;
    let peers = peer_port.map(|port| udp_port_of(number, place, port, Audience::Peers));
    let (second, peer_locator) = peers.transpose()?.unzip();
    Ok(Lane {
        ports: [Some(first), second].into_iter().flatten().collect(),
        locator,
        peer_locator,
    })
}

/// A socket of the kernel, and the locator under which it is reached.
fn udp_port_of(
    number: usize,
    place: &PortAddress,
    udp_port: u16,
    audience: Audience,
) -> Result<(Port, String), PortsError> {
    let address = SocketAddrV4::new(place.ip, udp_port);
    let (receiver, sender) = net::open_udp(address, place.mtu.into())
        .map_err(|error| PortsError::Receive { address, error })?;
    let bound = transport::datagram::Transmit::address(&sender);
    let port = Port {
        kind: PortKind::Udp,
        number,
        audience,
        receiver: Box::new(receiver),
        sender: Box::new(sender),
    };
    let locator = format!("fast+udp:host={},port={}", bound.ip(), bound.port());
    Ok((port, locator))
}

/// A device for each place that needs one, and what DPDK has in ordinary memory.
#[cfg(feature = "dpdk")]
fn devices(
    places: &[PortAddress],
    eal: &EalOptions,
    lanes: u16,
) -> Result<(Vec<Option<Device>>, usize), PortsError> {
    if places.iter().all(|place| place.kind != PortKind::Dpdk) {
        return Ok((places.iter().map(|_| None).collect(), 0));
    }
    let unnamed = places
        .iter()
        .filter(|place| place.kind == PortKind::Dpdk && place.device.is_none());
    let ips: Vec<_> = unnamed.map(|place| place.ip).collect();
    let told = crate::attached::devices(&ips)?;
    let in_order = || (0..ips.len()).map(|number| number.to_string()).collect();
    let mut unnamed = told.unwrap_or_else(in_order).into_iter();
    let started = Eal::init(eal).map_err(PortsError::Dpdk)?;
    let mut devices = Vec::new();
    for place in places {
        if place.kind != PortKind::Dpdk {
            devices.push(None);
            continue;
        }
        let port = place.device.clone().or_else(|| unnamed.next());
        let port = port.unwrap_or_default(); // There is one for each that is not named.
        let options = DeviceOptions {
            mtu: place.mtu,
            lanes,
            prefix_bits: place.prefix_bits,
            gateway: place.gateway,
            ..DeviceOptions::new(&port, place.ip)
        };
        let device = Device::open(&started, &options).map_err(PortsError::Dpdk)?;
        devices.push(Some(device));
    }
    Ok((devices, started.ordinary_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_from_lists_of_locators() {
        let lists = [
            "tcp:host=0.0.0.0,port=1;fast+udp:host=10.0.0.1,port=2,mtu=9000".to_owned(),
            "fast+dpdk:host=10.0.1.1,port=3,device=net_memif0,prefix=16,gateway=10.0.1.254"
                .to_owned(),
        ];
        let found = places(&lists).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].udp_port, found[0].peer_port), (2, 102));
        let other = places(&["fast+udp:host=10.0.0.1,port=2,peerPort=9".to_owned()]).unwrap();
        assert_eq!((other[0].udp_port, other[0].peer_port), (2, 9));
        assert_eq!((found[0].kind, found[0].mtu), (PortKind::Udp, 9000));
        assert_eq!(found[1].device.as_deref(), Some("net_memif0"));
        assert_eq!(found[1].gateway, Some("10.0.1.254".parse().unwrap()));
        assert_eq!((found[1].prefix_bits, found[1].mtu), (16, 1500));
    }

    #[test]
    fn a_port_of_the_kernel_is_as_the_interface_with_its_address() {
        let interfaces = Interfaces::read().unwrap();
        let state = |ip: &str| udp_state(ip.parse().unwrap(), Some(&interfaces));
        let loopback = state("127.0.0.1");
        assert_eq!(loopback.link_up, Some(true));
        assert_eq!(
            (loopback.driver.as_str(), loopback.mac.as_str()),
            (KERNEL, "")
        );
        assert!(!loopback.interface.is_empty());
        // Of a block that is for documents only: nobody has it.
        let nowhere = state("192.0.2.1");
        assert_eq!(
            (nowhere.link_up, nowhere.interface.as_str()),
            (Some(false), "")
        );
        // At all addresses, or the kernel does not tell.
        assert_eq!(state("0.0.0.0").link_up, None);
        assert_eq!(udp_state(Ipv4Addr::LOCALHOST, None).link_up, None);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_the_locator() {
        for (text, part) in [
            ("infrc:host=1.2.3.4,port=1", "fast+dpdk"),
            ("fast+udp:host=name,port=1", "IPv4 address"),
            ("fast+udp:host=1.2.3.4,port=1,mtu=x", "mtu=x"),
            ("fast+udp:host=1.2.3.4,port=1,prefix=33", "32 bits"),
            ("fast+udp:host=1.2.3.4,port=1,gateway=y", "gateway=y"),
        ] {
            let error = places(&[text.to_owned()]).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("1"), "{error}");
        }
    }
}
