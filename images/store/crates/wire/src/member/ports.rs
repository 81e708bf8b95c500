//! What a shard tells of the ports for datagrams of its process: docs/network.md.

use prost::Message;

/// Ports that one shard tells of, and peers of one port; a shard tells of the first ones.
pub const MAX_PORTS: usize = 8;
pub const MAX_PORT_PINGS: usize = 16;

/// A port beside TCP on the pod network, and whom this shard reaches by it.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PortReport {
    /// Of the kernel; empty where the process drives the device.
    #[prost(string, tag = "1")]
    pub interface: String,
    /// Address on the PCI bus; empty where there is none.
    #[prost(string, tag = "2")]
    pub pci: String,
    #[prost(string, tag = "3")]
    pub mac: String,
    #[prost(string, tag = "4")]
    pub ip: String,
    #[prost(string, tag = "5")]
    pub driver: String,
    /// Not set where the process does not know.
    #[prost(bool, optional, tag = "6")]
    pub link_up: Option<bool>,
    /// 0: not known.
    #[prost(uint32, tag = "7")]
    pub link_mbps: u32,
    #[prost(uint32, tag = "8")]
    pub mtu: u32,
    /// Of the device, where that is known.
    #[prost(uint32, optional, tag = "9")]
    pub numa_node: Option<u32>,
    /// Of the cores that the process may use, if all are on one.
    #[prost(uint32, optional, tag = "10")]
    pub cores_numa_node: Option<u32>,
    #[prost(message, repeated, tag = "11")]
    pub pings: Vec<PortPing>,
}

/// Another server that has a port which this one should reach.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PortPing {
    #[prost(fixed64, tag = "1")]
    pub server_id: u64,
    /// Of the peer's port.
    #[prost(string, tag = "2")]
    pub ip: String,
    /// Of the last ping that was answered; 0: its port is not reached, and it is spoken to by TCP.
    #[prost(uint64, tag = "3")]
    pub round_trip_ns: u64,
    /// Since the answer; 0 if it is not reached.
    #[prost(uint64, tag = "4")]
    pub age_ms: u64,
}
