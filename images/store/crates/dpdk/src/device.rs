//! One port with an address: how many queues it has, and which lane takes what from which.

use std::hint::spin_loop;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use frames::{HEADERS_BYTES, IPV4_BYTES, Interface, Limits, Mac, Route, UDP_BYTES};
use transport::datagram::BURST;

use crate::counters::{Count, Counters};
use crate::eal::Eal;
use crate::ffi::{Buffer, Flow, Pool, PortInfo, PortStats, RunningPort, Start};
use crate::gate::Gate;
use crate::keeper::{self, Keeper};
use crate::options::is_pci_address;
use crate::receiver::Receiver;
use crate::sender::{MAX_PENDING, Sender};
use crate::watch::Seen;

/// Frames that wait for a lane, received by another.
const RING: usize = 256;
const RX_DESCRIPTORS: u16 = 1024;
const TX_DESCRIPTORS: u16 = 512;
/// What a thread's cache of a pool may hold back.
const CACHED: u32 = 384;
/// Within which a lane answers that wants to; each polls all the time.
const PATIENCE: Duration = Duration::from_secs(2);
/// VLAN tag and check sequence, for which a buffer must have room beside the headers.
const FRAME_EXTRA_BYTES: u16 = 14 + 4 + 4;
/// The MTU that every IPv4 host takes, and the largest that is common.
const MTUS: std::ops::RangeInclusive<u16> = 576..=9000;

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

/// How frames find a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Steering {
    /// The NIC puts them into the lane's own queue.
    Nic,
    /// They come into the common queue, from which whichever lane looks first hands them over. Why the NIC does not do it.
    Common(String),
}

/// A lane, as the others see it.
pub(crate) struct Slot {
    /// What it receives at, from everybody and from other servers; above all ports: nothing.
    udp_ports: [AtomicU32; 2],
    ring: OnceLock<SyncSender<Buffer>>,
    pub counters: Counters,
    steering: OnceLock<Steering>,
}

const NO_PORT: u32 = u32::MAX;

/// A rule by which the NIC puts what comes to a UDP port into a queue.
struct Rule {
    udp_port: u16,
    queue: u16,
    /// Not while the NIC does not have it: after an attempt to open the port anew that has failed, or where it refused the rule then.
    flow: Option<Flow>,
}

/// What all lanes of a device share. Dropped after the last of them.
pub(crate) struct Port {
    pub running: RunningPort,
    pub gate: Gate,
    pub route: Route,
    pub mtu: u16,
    pub slots: Box<[Slot]>,
    /// Its first bytes.
    mac: AtomicU64,
    info: PortInfo,
    /// Whoever adds a lane or opens the port anew has them.
    rules: Mutex<Vec<Rule>>,
    /// Lane 0 is to say that we are here.
    announce: AtomicBool,
    /// It sends nothing, though it shows a link.
    dead: AtomicBool,
    /// To open it anew, with success or without.
    attempts: AtomicU64,
    common: TryLock,
    tx: Box<[TryLock]>,
    /// Last: DPDK is cleaned up after its ports.
    _eal: Eal,
}

impl Drop for Port {
    fn drop(&mut self) {
        let rules = self.rules.get_mut().unwrap_or_else(PoisonError::into_inner);
        for flow in rules.drain(..).filter_map(|rule| rule.flow) {
            self.running.unsteer(flow);
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

impl Port {
    pub fn us(&self) -> Interface {
        Interface {
            ip: self.route.us,
            mac: unpacked(self.mac.load(Ordering::Relaxed)),
        }
    }

    fn rules(&self) -> MutexGuard<'_, Vec<Rule>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Once each time that somebody has wanted it.
    pub fn is_to_announce(&self) -> bool {
        self.announce.load(Ordering::Relaxed) && self.announce.swap(false, Ordering::Relaxed)
    }

    pub fn want_announcement(&self) {
        self.announce.store(true, Ordering::Relaxed);
    }

    pub fn name(&self) -> &str {
        &self.info.name
    }

    pub fn seen(&self) -> Seen {
        let stats = self.running.stats();
        let slots = self.slots.iter();
        Seen {
            link_up: self.running.link().0,
            asked: self.running.wants_anew(),
            taken: slots.map(|slot| slot.counters.get(Count::Sent)).sum(),
            left: stats.tx_packets,
            received: stats.rx_packets,
        }
    }

    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    pub fn set_dead(&self, dead: bool) {
        self.dead.store(dead, Ordering::Relaxed);
    }

    pub fn open_anew(&self) -> Result<(), String> {
        if !self.running.can_be_opened_anew() {
            return Err("its device is not its own, or cannot be named".to_owned());
        }
        let mut rules = self.rules();
        if !self.gate.close(PATIENCE) {
            return Err("one of its lanes is not polled".to_owned());
        }
        self.attempts.fetch_add(1, Ordering::Relaxed);
        for flow in rules.iter_mut().filter_map(|rule| rule.flow.take()) {
            self.running.unsteer(flow);
        }
        // When it fails, lanes stay outside: there is nothing to poll.
        let mac = self.running.open_anew()?;
        let us = Interface { mac, ..self.us() };
        // A virtual function has an address of its own making until its physical function has answered.
        if is_pci_address(&self.info.name)
            && self.running.link().0
            && !keeper::sends(&self.running, us)
        {
            return Err("still nothing leaves it".to_owned());
        }
        self.mac.store(packed(mac), Ordering::Relaxed);
        for rule in rules.iter_mut() {
            // Without it, its lane gets its frames from the one that gets all the rest.
            rule.flow = self.running.steer(rule.udp_port, rule.queue).ok();
        }
        self.gate.open();
        Ok(())
    }

    /// The lane that receives at a UDP port.
    pub fn lane_of(&self, udp_port: u16) -> Option<usize> {
        let mut slots = self.slots.iter();
        let is_here = |place: &AtomicU32| place.load(Ordering::Acquire) == u32::from(udp_port);
        slots.position(|slot| slot.udp_ports.iter().any(is_here))
    }

    /// Gives a frame to another lane; false, and it is dropped, if that one has too many already.
    pub fn hand_over(&self, lane: usize, buffer: Buffer) -> bool {
        let ring = self.slots.get(lane).and_then(|slot| slot.ring.get());
        ring.is_some_and(|ring| ring.try_send(buffer).is_ok())
    }

    /// Runs `receive` on the common queue, unless another lane does at the moment.
    pub fn with_common(&self, receive: impl FnOnce() -> usize) -> usize {
        if self.slots.len() == 1 {
            receive()
        } else {
            self.common.run(0, receive).unwrap_or(0)
        }
    }

    /// Runs `send` on the transmit queue of a lane, unless another lane with the same queue has it for long.
    pub fn with_tx(&self, lane: u16, send: impl FnOnce(u16)) {
        let queue = lane % self.running.start.tx_queues;
        if self.slots.len() == self.tx.len() {
            send(queue);
        } else {
            self.tx[usize::from(queue)].run(SEND_SPINS, || send(queue));
        }
    }

    fn steer(&self, index: u16, udp_ports: &[u16], rules: &mut Vec<Rule>) -> Steering {
        // Whatever nobody asked for comes into queue 0.
        if index == 0 {
            return Steering::Common(
                "lane 0 takes the queue into which everything else comes".to_owned(),
            );
        }
        if index >= self.running.start.rx_queues {
            return Steering::Common(match self.running.start.rx_queues {
                1 => "the port has one queue".to_owned(),
                queues => format!("the port has {queues} queues"),
            });
        }
        let before = rules.len();
        for &udp_port in udp_ports {
            match self.running.steer(udp_port, index) {
                Ok(flow) => rules.push(Rule {
                    udp_port,
                    queue: index,
                    flow: Some(flow),
                }),
                Err(error) => {
                    // All of a lane's frames come one way.
                    for flow in rules.drain(before..).filter_map(|rule| rule.flow) {
                        self.running.unsteer(flow);
                    }
                    return Steering::Common(error);
                }
            }
        }
        Steering::Nic
    }
}

fn packed(mac: Mac) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

fn unpacked(packed: u64) -> Mac {
    let [a, b, c, d, e, f, _, _] = packed.to_le_bytes();
    [a, b, c, d, e, f]
}

/// How often a sender looks again for a queue that another one has: about as long as that one needs for a burst.
const SEND_SPINS: u32 = 200;

/// A lock on which nobody sleeps.
#[derive(Default)]
struct TryLock(AtomicBool);

impl TryLock {
    fn run<T>(&self, spins: u32, act: impl FnOnce() -> T) -> Option<T> {
        for _ in 0..=spins {
            let free = !self.0.load(Ordering::Relaxed);
            if free
                && self
                    .0
                    .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                let result = act();
                self.0.store(false, Ordering::Release);
                return Some(result);
            }
            spin_loop();
        }
        None
    }
}

fn check(options: &DeviceOptions, info: &PortInfo) -> Result<(), String> {
    if options.lanes == 0 {
        return Err("it needs a lane at least".to_owned());
    }
    if !MTUS.contains(&options.mtu) {
        return Err(format!(
            "mtu={}: from {} to {}",
            options.mtu,
            MTUS.start(),
            MTUS.end()
        ));
    }
    if is_pci_address(&info.name) && options.mtu > info.max_mtu {
        return Err(format!(
            "mtu={}: its driver takes {} at most",
            options.mtu, info.max_mtu
        ));
    }
    if options.ip.is_unspecified()
        || options.ip.is_loopback()
        || options.ip.is_multicast()
        || options.ip.is_broadcast()
    {
        return Err(format!("it cannot have the address {}", options.ip));
    }
    Ok(())
}

/// Queues and offloads for a port. What is no NIC has one queue: both ends of a memif, for example, have to agree on their number, and none of them steers.
fn plan(options: &DeviceOptions, info: &PortInfo, number: u16) -> Start {
    let nic = is_pci_address(&info.name);
    let queues = |max: u16| {
        if nic {
            options.lanes.min(max).max(1)
        } else {
            1
        }
    };
    Start {
        port: number,
        rx_queues: queues(info.max_rx_queues),
        tx_queues: queues(info.max_tx_queues),
        // What is no NIC takes longer frames than it says, if it was made for them.
        mtu: if options.mtu <= info.max_mtu {
            options.mtu
        } else {
            0
        },
        // Others pass on what is unfinished, or compute in software what we leave out.
        tx_sums: u32::from(nic && info.has_tx_sums),
        rx_sums: u32::from(nic && info.has_rx_sums),
        link_interrupt: u32::from(info.has_link_interrupt),
        rx_descriptors: RX_DESCRIPTORS,
        tx_descriptors: TX_DESCRIPTORS,
    }
}

/// So many that none runs out: on the rings of the NIC, in hand, waiting, and in caches.
fn buffers(lanes: u16, start: &Start) -> u32 {
    let of_queues = u32::from(start.rx_queues) * u32::from(start.rx_descriptors)
        + u32::from(start.tx_queues) * u32::from(start.tx_descriptors);
    let of_lane = (RING + MAX_PENDING + 4 * BURST + Limits::default().waiting) as u32 + CACHED;
    of_queues + u32::from(lanes) * of_lane
}

/// The longest payload of a datagram.
pub(crate) fn max_payload_bytes(mtu: u16) -> usize {
    usize::from(mtu) - IPV4_BYTES - UDP_BYTES
}

const _: () = assert!(HEADERS_BYTES > IPV4_BYTES + UDP_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    fn info(name: &str) -> PortInfo {
        PortInfo {
            name: name.to_owned(),
            driver: "net_x".to_owned(),
            mac: [2, 0, 0, 0, 0, 1],
            max_rx_queues: 4,
            max_tx_queues: 2,
            max_mtu: 1600,
            socket: 0,
            has_tx_sums: true,
            has_rx_sums: true,
            has_link_interrupt: false,
        }
    }

    fn options(lanes: u16, mtu: u16) -> DeviceOptions {
        DeviceOptions {
            lanes,
            mtu,
            ..DeviceOptions::new("0", Ipv4Addr::new(10, 0, 0, 1))
        }
    }

    #[test]
    fn a_nic_has_a_queue_for_each_lane_as_far_as_it_can() {
        let start = plan(&options(3, 1500), &info("0000:03:00.0"), 7);
        assert_eq!(
            (start.port, start.rx_queues, start.tx_queues, start.mtu),
            (7, 3, 2, 1500)
        );
        assert_eq!((start.tx_sums, start.rx_sums), (1, 1));
        assert_eq!(
            plan(&options(9, 1500), &info("0000:03:00.0"), 7).rx_queues,
            4
        );
    }

    #[test]
    fn what_is_no_nic_has_one_queue_and_computes_nothing() {
        let start = plan(&options(3, 9000), &info("net_memif0"), 0);
        assert_eq!((start.rx_queues, start.tx_queues, start.mtu), (1, 1, 0));
        assert_eq!((start.tx_sums, start.rx_sums), (0, 0));
    }

    #[test]
    fn impossible_wishes_are_refused_with_a_reason() {
        let nic = info("0000:03:00.0");
        assert_eq!(check(&options(1, 1600), &nic), Ok(()));
        assert!(check(&options(1, 1601), &nic).is_err_and(|error| error.contains("1600 at most")));
        assert_eq!(check(&options(1, 9000), &info("net_memif0")), Ok(()));
        assert!(check(&options(1, 9001), &info("net_memif0")).is_err());
        assert!(check(&options(0, 1500), &nic).is_err());
        let nowhere = DeviceOptions::new("0", Ipv4Addr::UNSPECIFIED);
        assert!(check(&nowhere, &nic).is_err());
    }

    #[test]
    fn a_lock_is_free_again_and_nobody_waits_for_it() {
        let lock = TryLock::default();
        let inner = lock.run(0, || lock.run(3, || ()));
        assert_eq!(inner, Some(None));
        assert_eq!(lock.run(0, || 7), Some(7));
    }
}
