//! The port that all lanes of a device share: who receives and sends at which queue, and how the port is opened anew.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use frames::{Interface, Mac, Route};

use crate::counters::{Count, Counters};
use crate::eal::Eal;
use crate::ffi::{Buffer, Flow, PortInfo, RunningPort};
use crate::gate::Gate;
use crate::keeper;
use crate::options::is_pci_address;
use crate::watch::Seen;

/// Within which a lane answers that wants to; each polls all the time.
const PATIENCE: Duration = Duration::from_secs(2);

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
    pub(super) udp_ports: [AtomicU32; 2],
    pub(super) ring: OnceLock<SyncSender<Buffer>>,
    pub counters: Counters,
    pub(super) steering: OnceLock<Steering>,
}

pub(super) const NO_PORT: u32 = u32::MAX;

/// A rule by which the NIC puts what comes to a UDP port into a queue.
pub(super) struct Rule {
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
    pub(super) mac: AtomicU64,
    pub(super) info: PortInfo,
    /// Whoever adds a lane or opens the port anew has them.
    pub(super) rules: Mutex<Vec<Rule>>,
    /// Lane 0 is to say that we are here.
    pub(super) announce: AtomicBool,
    /// It sends nothing, though it shows a link.
    pub(super) dead: AtomicBool,
    /// To open it anew, with success or without.
    pub(super) attempts: AtomicU64,
    pub(super) common: TryLock,
    pub(super) tx: Box<[TryLock]>,
    /// Last: DPDK is cleaned up after its ports.
    pub(super) _eal: Eal,
}

impl Drop for Port {
    fn drop(&mut self) {
        let rules = self.rules.get_mut().unwrap_or_else(PoisonError::into_inner);
        for flow in rules.drain(..).filter_map(|rule| rule.flow) {
            self.running.unsteer(flow);
        }
    }
}

impl Port {
    pub fn us(&self) -> Interface {
        Interface {
            ip: self.route.us,
            mac: unpacked(self.mac.load(Ordering::Relaxed)),
        }
    }

    pub(super) fn rules(&self) -> MutexGuard<'_, Vec<Rule>> {
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

    pub(super) fn steer(&self, index: u16, udp_ports: &[u16], rules: &mut Vec<Rule>) -> Steering {
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

pub(super) fn packed(mac: Mac) -> u64 {
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
pub(super) struct TryLock(AtomicBool);

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_free_again_and_nobody_waits_for_it() {
        let lock = TryLock::default();
        let inner = lock.run(0, || lock.run(3, || ()));
        assert_eq!(inner, Some(None));
        assert_eq!(lock.run(0, || 7), Some(7));
    }
}
