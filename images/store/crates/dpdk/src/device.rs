//! One port with an address: how many queues it has, and which lane takes what from which.

mod plan;
mod port;

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, OnceLock};

use frames::{HEADERS_BYTES, IPV4_BYTES, Limits, Mac, Route, UDP_BYTES};

use crate::counters::Counters;
use crate::eal::Eal;
use crate::ffi::{Pool, PortInfo, PortStats, RunningPort};
use crate::gate::Gate;
use crate::keeper::{self, Keeper};
use crate::options::is_pci_address;
use crate::receiver::Receiver;
use crate::sender::Sender;

use plan::{buffers, check, plan};
use port::{NO_PORT, Slot, TryLock, packed};

pub(crate) use port::Port;
pub use port::Steering;

/// Frames that wait for a lane, received by another.
const RING: usize = 256;
/// VLAN tag and check sequence, for which a buffer must have room beside the headers.
const FRAME_EXTRA_BYTES: u16 = 14 + 4 + 4;

/// What a port of DPDK becomes.
#[derive(Clone, Debug)]
pub struct DeviceOptions {
    /// Name (`0000:03:00.1`, `net_memif0`) or number of the port.
    pub port: String,
    /// Our address on it: of this process alone, and not the kernel's.
    pub ip: Ipv4Addr,
    /// The longest IPv4 packet, in bytes.
    pub mtu: u16,
    /// How many [`Device::queue`]s there will be at most.
    pub lanes: u16,
    /// Which addresses are on the link: those that have so many leading bits in common with ours.
    pub prefix_bits: u8,
    /// The router to all others; without one, everybody is looked for on the link.
    pub gateway: Option<Ipv4Addr>,
}

impl DeviceOptions {
    /// A port with everything as usual.
    pub fn new(port: &str, ip: Ipv4Addr) -> DeviceOptions {
        DeviceOptions {
            port: port.to_owned(),
            ip,
            mtu: 1500,
            lanes: 1,
            prefix_bits: 24,
            gateway: None,
        }
    }
}

/// A port that has started.
pub struct Device {
    /// Of a NIC. Before the port: it ends first.
    _keeper: Option<Keeper>,
    port: Arc<Port>,
    mac_is_sure: bool,
}

impl Device {
    /// Takes a port of DPDK and starts it.
    ///
    /// # Errors
    /// There is no such port, it was taken before, it cannot do what is wanted, or memory is short.
    pub fn open(eal: &Eal, options: &DeviceOptions) -> Result<Device, String> {
        let (number, info) = eal.port(&options.port)?;
        let describe =
            |error: String| format!("DPDK port {} ({}): {error}", info.name, info.driver);
        check(options, &info).map_err(describe)?;
        if !eal.take(number) {
            return Err(describe("it is in use by this process already".to_owned()));
        }
        let start = plan(options, &info, number);
        let pool = Pool::new(
            &format!("rcbox-{number}"),
            buffers(options.lanes, &start),
            options.mtu + FRAME_EXTRA_BYTES,
            info.socket,
        )
        .map_err(|error| {
            describe(format!(
                "{error}; raise --dpdkMemoryMB, or reserve more hugepages"
            ))
        })?;
        let running = RunningPort::new(start, pool)
            .map_err(|error| describe(format!("it does not start; {error}")))?;
        let is_kept = is_pci_address(&info.name) && running.can_be_opened_anew();
        let (mac, mac_is_sure) = match is_kept {
            true => keeper::settle(&running, options.ip, &info),
            false => (info.mac, true),
        };
        let slot = |_| Slot {
            udp_ports: [AtomicU32::new(NO_PORT), AtomicU32::new(NO_PORT)],
            ring: OnceLock::new(),
            counters: Counters::default(),
            steering: OnceLock::new(),
        };
        let port = Port {
            tx: (0..running.start.tx_queues)
                .map(|_| TryLock::default())
                .collect(),
            running,
            gate: Gate::new(options.lanes),
            mac: AtomicU64::new(packed(mac)),
            route: Route {
                us: options.ip,
                prefix_bits: options.prefix_bits,
                gateway: options.gateway,
            },
            mtu: options.mtu,
            slots: (0..options.lanes).map(slot).collect(),
            info,
            rules: Mutex::default(),
            announce: AtomicBool::new(false),
            dead: AtomicBool::new(false),
            attempts: AtomicU64::new(0),
            common: TryLock::default(),
            _eal: eal.clone(),
        };
        let port = Arc::new(port);
        let keeper = is_kept.then(|| Keeper::start(&port)).transpose()?;
        Ok(Device {
            _keeper: keeper,
            port,
            mac_is_sure,
        })
    }

    /// The two halves of lane `index`, which receives what comes to `udp_port`. They belong into one thread.
    ///
    /// # Errors
    /// There are fewer lanes, or this one or another with this UDP port is taken.
    pub fn queue(&self, index: u16, udp_port: u16) -> Result<(Receiver, Sender), String> {
        self.queue_with_peers(index, udp_port, None)
    }

    /// As [`Device::queue`], with a second UDP port for other servers.
    ///
    /// # Errors
    /// As there.
    pub fn queue_with_peers(
        &self,
        index: u16,
        udp_port: u16,
        peer_port: Option<u16>,
    ) -> Result<(Receiver, Sender), String> {
        let udp_ports: Vec<u16> = [Some(udp_port), peer_port].into_iter().flatten().collect();
        let lanes = self.port.slots.len();
        let slot = self.port.slots.get(usize::from(index));
        let slot =
            slot.ok_or_else(|| format!("lane {index} of a device that was opened with {lanes}"))?;
        if udp_ports.contains(&0) {
            return Err("UDP port 0 is nobody's: choose another".to_owned());
        }
        if peer_port == Some(udp_port) {
            return Err(format!(
                "UDP port {udp_port} for clients and for other servers: choose two"
            ));
        }
        let (to_ring, ring) = sync_channel(if lanes > 1 { RING } else { 0 });
        // To the end: one lane at a time, and the port is not opened anew while one comes into being.
        let mut rules = self.port.rules();
        let is_taken = |udp_port: &&u16| self.port.lane_of(**udp_port).is_some();
        if let Some(udp_port) = udp_ports.iter().find(is_taken) {
            return Err(format!("UDP port {udp_port} has a lane already"));
        }
        if slot.ring.set(to_ring).is_err() {
            return Err(format!("lane {index} is in use already"));
        }
        let steering = self.port.steer(index, &udp_ports, &mut rules);
        let _ = slot.steering.set(steering);
        for (place, udp_port) in slot.udp_ports.iter().zip(&udp_ports) {
            place.store(u32::from(*udp_port), Ordering::Release);
        }
        let ring = (lanes > 1).then_some(ring);
        let own_queue = slot.steering.get() == Some(&Steering::Nic);
        let receiver = Receiver::new(
            Arc::clone(&self.port),
            index,
            [Some(udp_port), peer_port],
            ring,
            own_queue,
        );
        let sender = Sender::new(
            Arc::clone(&self.port),
            index,
            udp_port,
            peer_port,
            Limits::default(),
        );
        Ok((receiver, sender))
    }

    /// Closes the port, takes it again and starts it with what it had; lanes stay. What was on its way is lost. For a port that is dead, which
    /// is found out without being asked: see `keeper.rs`.
    ///
    /// # Errors
    /// It is not there any more, or does not start; lanes get and send nothing until it is tried again. Or a lane did not answer: nothing was done.
    pub fn open_anew(&self) -> Result<(), String> {
        self.port.open_anew()
    }

    /// How often it was tried to open its port anew, since it was dead.
    pub fn opened_anew(&self) -> u64 {
        self.port.attempts.load(Ordering::Relaxed)
    }

    /// How frames find lane `index`, once it is there.
    pub fn steering(&self, index: u16) -> Option<&Steering> {
        self.port.slots.get(usize::from(index))?.steering.get()
    }

    /// As it was when it was taken: see [`Device::mac`].
    pub fn info(&self) -> &PortInfo {
        &self.port.info
    }

    pub fn ip(&self) -> Ipv4Addr {
        self.port.us().ip
    }

    /// Now: another one may come when the port is opened anew.
    pub fn mac(&self) -> Mac {
        self.port.us().mac
    }

    /// Whether the address that the port had at first is the one that it will have: it was seen to work with it.
    pub fn mac_is_sure(&self) -> bool {
        self.mac_is_sure
    }

    pub fn mtu(&self) -> u16 {
        self.port.mtu
    }

    /// Whether the port has a link, as far as it is of use, and its speed in Mbit/s; 0: unknown. Reading it can take a NIC's driver milliseconds: not for a thread that polls.
    pub fn link(&self) -> (bool, u32) {
        let (up, speed_mbps) = self.port.running.link();
        (up && !self.port.is_dead(), speed_mbps)
    }

    /// What the port itself has counted.
    pub fn port_stats(&self) -> PortStats {
        self.port.running.stats()
    }

    /// What lane `index` has counted, by name.
    pub fn counters(&self, index: u16) -> Vec<(&'static str, u64)> {
        let slot = self.port.slots.get(usize::from(index));
        slot.map(|slot| slot.counters.values().collect())
            .unwrap_or_default()
    }

    /// Packet buffers that are not free.
    pub fn buffers_in_use(&self) -> u32 {
        self.port.running.pool.in_use()
    }
}

/// The longest payload of a datagram.
pub(crate) fn max_payload_bytes(mtu: u16) -> usize {
    usize::from(mtu) - IPV4_BYTES - UDP_BYTES
}

const _: () = assert!(HEADERS_BYTES > IPV4_BYTES + UDP_BYTES);
