//! What the kernel knows of its network interfaces, and of this process's cores.

use std::fs::{read_link, read_to_string};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;

/// An interface with one of its addresses, if it has any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    pub name: String,
    pub mac: Option<[u8; 6]>,
    pub ip: Option<Ipv4Addr>,
    /// It is to be up, and there is a link.
    pub is_up: bool,
    is_loopback: bool,
}

/// The device behind an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hardware {
    /// Empty where there is none: a veth has no device.
    pub driver: String,
    pub pci: String,
    pub numa_node: Option<u32>,
    /// 0: not known.
    pub link_mbps: u32,
}

/// The kernel does not tell which interfaces there are.
#[derive(Debug, thiserror::Error)]
#[error("cannot list interfaces: {0}")]
pub struct NoInterfaces(nix::Error);

/// All of this network namespace, at one moment.
pub struct Interfaces(Vec<Interface>);

impl Interfaces {
    /// # Errors
    /// The kernel does not tell.
    pub fn read() -> Result<Interfaces, NoInterfaces> {
        let found = getifaddrs().map_err(NoInterfaces)?;
        let interface = |one: nix::ifaddrs::InterfaceAddress| {
            let address = one.address.as_ref();
            let mac = address.and_then(|address| address.as_link_addr()?.addr());
            let running = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING;
            Interface {
                name: one.interface_name,
                mac: mac.filter(|mac| *mac != [0; 6]),
                ip: address.and_then(|address| Some(address.as_sockaddr_in()?.ip())),
                is_up: one.flags.contains(running),
                is_loopback: one.flags.contains(InterfaceFlags::IFF_LOOPBACK),
            }
        };
        Ok(Interfaces(found.map(interface).collect()))
    }

    /// The one with this address, and its MAC.
    pub fn with_ip(&self, ip: Ipv4Addr) -> Option<Interface> {
        let has_it = |one: &&Interface| one.ip == Some(ip) || ip.is_loopback() && one.is_loopback;
        let found = self.0.iter().find(has_it)?;
        // Each address comes by itself, that of the hardware, too.
        let same = self.0.iter().filter(|one| one.name == found.name);
        Some(Interface {
            mac: same.filter_map(|one| one.mac).next(),
            ..found.clone()
        })
    }

    #[cfg(any(test, feature = "dpdk"))]
    pub fn with_mac(&self, mac: [u8; 6]) -> Option<&Interface> {
        self.0.iter().find(|one| one.mac == Some(mac))
    }
}

/// Of the interface with this name.
pub fn hardware(name: &str) -> Hardware {
    hardware_at(&Path::new("/sys/class/net").join(name))
}

fn hardware_at(interface: &Path) -> Hardware {
    let speed = number(&interface.join("speed")).unwrap_or(0);
    let link_mbps = u32::try_from(speed).unwrap_or(0);
    let Ok(device) = interface.join("device").canonicalize() else {
        return Hardware {
            link_mbps,
            ..Hardware::default()
        };
    };
    // What lies on a bus of its own, such as virtio's, has its PCI device above it.
    let pci = device
        .ancestors()
        .find(|at| target(at, "subsystem") == "pci");
    let numa_node = number(&device.join("numa_node"));
    Hardware {
        driver: target(&device, "driver"),
        pci: pci.map(last_part).unwrap_or_default(),
        numa_node: numa_node.and_then(|node| u32::try_from(node).ok()),
        link_mbps,
    }
}

fn number(path: &Path) -> Option<i64> {
    read_to_string(path).ok()?.trim().parse().ok()
}

/// The last part of what a link of a device points to; empty if there is none.
fn target(device: &Path, link: &str) -> String {
    let path = read_link(device.join(link));
    path.map(|path| last_part(&path)).unwrap_or_default()
}

fn last_part(path: &Path) -> String {
    let name = path.file_name();
    name.map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// The NUMA node of all cores that this process may use; `None` if they are on several, or the kernel does not tell.
pub fn cores_numa_node() -> Option<u32> {
    let allowed = rustix::thread::sched_getaffinity(None).ok()?;
    let most = rustix::thread::CpuSet::MAX_CPU;
    let allowed: Vec<usize> = (0..most).filter(|&core| allowed.is_set(core)).collect();
    node_of(&allowed, Path::new("/sys/devices/system/node"))
}

fn node_of(cores: &[usize], nodes: &Path) -> Option<u32> {
    for entry in nodes.read_dir().ok()?.flatten() {
        let path: PathBuf = entry.path();
        let Some(node) = last_part(&path)
            .strip_prefix("node")
            .and_then(|n| n.parse().ok())
        else {
            continue;
        };
        let ranges = read_to_string(path.join("cpulist")).ok()?;
        if cores.iter().all(|&core| is_in(core, ranges.trim())) {
            return Some(node);
        }
    }
    None
}

/// Whether a list such as `0-3,8` has a number.
fn is_in(core: usize, ranges: &str) -> bool {
    ranges.split(',').any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        match (first.parse::<usize>(), last.parse::<usize>()) {
            (Ok(first), Ok(last)) => (first..=last).contains(&core),
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, write};
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn loopback_has_a_link_and_no_mac() {
        let interfaces = Interfaces::read().unwrap();
        let loopback = interfaces.with_ip("127.0.0.9".parse().unwrap()).unwrap();
        assert_eq!((loopback.is_up, loopback.mac), (true, None));
        assert_eq!(hardware(&loopback.name).driver, "");
        // Of a block that is for documents only.
        assert_eq!(interfaces.with_ip("192.0.2.1".parse().unwrap()), None);
        assert_eq!(interfaces.with_mac([0; 6]), None);
    }

    #[test]
    fn a_device_is_found_behind_its_interface() {
        let sys = tempfile::tempdir().unwrap();
        let pci = sys.path().join("devices/0000:00:03.0");
        let virtio = pci.join("virtio0");
        let interface = sys.path().join("class/net/eth0");
        for folder in [&virtio, &interface] {
            create_dir_all(folder).unwrap();
        }
        symlink("/x/bus/pci", pci.join("subsystem")).unwrap();
        symlink("/x/bus/virtio", virtio.join("subsystem")).unwrap();
        symlink("/x/drivers/virtio_net", virtio.join("driver")).unwrap();
        symlink(&virtio, interface.join("device")).unwrap();
        write(virtio.join("numa_node"), "1\n").unwrap();
        write(interface.join("speed"), "10000\n").unwrap();
        let found = Hardware {
            driver: "virtio_net".to_owned(),
            pci: "0000:00:03.0".to_owned(),
            numa_node: Some(1),
            link_mbps: 10_000,
        };
        assert_eq!(hardware_at(&interface), found);
        // As the kernel says that it does not know.
        write(virtio.join("numa_node"), "-1\n").unwrap();
        write(interface.join("speed"), "-1\n").unwrap();
        let unknown = hardware_at(&interface);
        assert_eq!((unknown.numa_node, unknown.link_mbps), (None, 0));
        assert_eq!(hardware_at(&sys.path().join("none")), Hardware::default());
    }

    #[test]
    fn cores_are_on_a_node_if_all_are() {
        let nodes = tempfile::tempdir().unwrap();
        for (node, cores) in [("node0", "0-3,8\n"), ("node1", "4-7\n"), ("possible", "")] {
            create_dir_all(nodes.path().join(node)).unwrap();
            write(nodes.path().join(node).join("cpulist"), cores).unwrap();
        }
        assert_eq!(node_of(&[0, 3, 8], nodes.path()), Some(0));
        assert_eq!(node_of(&[5], nodes.path()), Some(1));
        assert_eq!(node_of(&[3, 4], nodes.path()), None);
        assert_eq!(node_of(&[9], nodes.path()), None);
        assert_eq!(node_of(&[1], &nodes.path().join("none")), None);
    }
}
