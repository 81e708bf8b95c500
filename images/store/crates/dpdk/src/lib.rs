//! DPDK ports as drivers of datagrams: a NIC, a virtual function of one, or what DPDK has in place of a NIC, that belongs to this process alone.
//!
//! [`Eal::init`] starts DPDK, once a process. [`Device::open`] takes one of its ports and gives it an address. [`Device::queue`] makes
//! the two halves that a thread polls, its lane: one for each UDP port that is received at, for example one for each shard. docs/dpdk.md describes it all.

#![deny(unsafe_code)]

mod counters;
mod device;
mod eal;
#[allow(unsafe_code)]
mod ffi;
mod gate;
mod keeper;
mod options;
mod receiver;
mod sender;
mod watch;

pub use counters::Count;
pub use device::{Device, DeviceOptions, Steering};
pub use eal::Eal;
pub use ffi::{PortInfo, PortStats};
pub use frames::{mac_text, parse_mac};
pub use options::{EalOptions, Hugepages, Machine, is_pci_address, pci_addresses};
pub use receiver::Receiver;
pub use sender::Sender;
