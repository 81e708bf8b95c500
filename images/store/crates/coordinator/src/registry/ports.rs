//! What servers tell of the ports of their processes, for people and for the operator. They tell again and again, so none of it is noted, and nothing is
//! decided by it.

use std::collections::BTreeMap;

use base::ids::ServerId;
use base::time::Time;
use wire::member::{PortPing, PortReport};

/// A port beside TCP on the pod network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Port {
    /// Of the kernel; empty where the process drives the device.
    pub interface: String,
    /// Address on the PCI bus; empty where there is none.
    pub pci: String,
    pub mac: String,
    pub ip: String,
    pub driver: String,
    /// `None`: the process does not know.
    pub link_up: Option<bool>,
    /// 0: not known.
    pub link_mbps: u32,
    pub mtu: u32,
    /// Of the device, and of the cores that the process may use.
    pub numa_node: Option<u32>,
    pub cores_numa_node: Option<u32>,
    /// By member and address; of several shards' the one that is reached worst.
    pub pings: Vec<Ping>,
}

/// A port of another member, as it is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ping {
    pub member: String,
    pub ip: String,
    /// 0: it is not, and the member is spoken to over the pod network.
    pub round_trip_ns: u64,
    /// Since it answered; where it is not reached, since that was told.
    pub age_ms: u64,
}

/// Of one port, by member and address of the peer.
type Pings = BTreeMap<(String, String), Ping>;

/// What one shard told last.
#[derive(Debug, Default)]
pub struct Told {
    ports: Vec<PortReport>,
    at: Time,
}

impl Told {
    /// Takes what a Pong says; one that says nothing has nothing new.
    pub(crate) fn hear(&mut self, now: Time, ports: Vec<PortReport>) {
        if !ports.is_empty() {
            *self = Told { ports, at: now };
        }
    }
}

/// Of what all shards of a process told, in the order in which the first tells of them. `member_of`: the member of a server that is there.
pub(crate) fn views<'a>(
    now: Time,
    shards: impl Iterator<Item = &'a Told>,
    member_of: impl Fn(ServerId) -> Option<String>,
) -> Vec<Port> {
    let mut views: Vec<(Port, Pings)> = Vec::new();
    for shard in shards {
        let since_ms = now.since(shard.at).as_millis() as u64;
        for told in &shard.ports {
            let at = views.iter().position(|(port, _)| port.ip == told.ip);
            let at = at.unwrap_or_else(|| {
                views.push((port(told), BTreeMap::new()));
                views.len() - 1
            });
            for ping in &told.pings {
                // A peer that is gone will be missed by whoever needs it.
                if let Some(member) = member_of(ServerId(ping.server_id)) {
                    add_ping(&mut views[at].1, member, ping, since_ms);
                }
            }
        }
    }
    let with_pings = |(port, pings): (Port, Pings)| Port {
        pings: pings.into_values().collect(),
        ..port
    };
    views.into_iter().map(with_pings).collect()
}

fn add_ping(pings: &mut Pings, member: String, told: &PortPing, since_ms: u64) {
    let ping = Ping {
        member,
        ip: told.ip.clone(),
        round_trip_ns: told.round_trip_ns,
        age_ms: told.age_ms.saturating_add(since_ms),
    };
    let known = pings.entry((ping.member.clone(), ping.ip.clone()));
    let worst = known.or_insert_with(|| ping.clone());
    let is_worse = |one: &Ping, other: &Ping| match (one.round_trip_ns, other.round_trip_ns) {
        (0, _) => true,
        (_, 0) => false,
        (one, other) => one > other,
    };
    if is_worse(&ping, worst) {
        *worst = ping;
    }
}

fn port(told: &PortReport) -> Port {
    Port {
        interface: told.interface.clone(),
        pci: told.pci.clone(),
        mac: told.mac.clone(),
        ip: told.ip.clone(),
        driver: told.driver.clone(),
        link_up: told.link_up,
        link_mbps: told.link_mbps,
        mtu: told.mtu,
        numa_node: told.numa_node,
        cores_numa_node: told.cores_numa_node,
        pings: Vec::new(),
    }
}
