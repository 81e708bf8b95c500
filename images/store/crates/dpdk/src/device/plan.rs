//! What a port can do for a device: queues, offloads and buffers, and wishes that are refused.

use frames::Limits;
use transport::datagram::BURST;

use super::{DeviceOptions, RING};
use crate::ffi::{PortInfo, Start};
use crate::options::is_pci_address;
use crate::sender::MAX_PENDING;

const RX_DESCRIPTORS: u16 = 1024;
const TX_DESCRIPTORS: u16 = 512;
/// What a thread's cache of a pool may hold back.
const CACHED: u32 = 384;
/// The MTU that every IPv4 host takes, and the largest that is common.
const MTUS: std::ops::RangeInclusive<u16> = 576..=9000;

pub(super) fn check(options: &DeviceOptions, info: &PortInfo) -> Result<(), String> {
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
pub(super) fn plan(options: &DeviceOptions, info: &PortInfo, number: u16) -> Start {
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
        // A device that is no NIC takes longer frames than it says, if it was made for them.
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
pub(super) fn buffers(lanes: u16, start: &Start) -> u32 {
    let of_queues = u32::from(start.rx_queues) * u32::from(start.rx_descriptors)
        + u32::from(start.tx_queues) * u32::from(start.tx_descriptors);
    let of_lane = (RING + MAX_PENDING + 4 * BURST + Limits::default().waiting) as u32 + CACHED;
    of_queues + u32::from(lanes) * of_lane
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

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
}
