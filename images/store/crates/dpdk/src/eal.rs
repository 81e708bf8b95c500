//! DPDK's environment: started once a process, cleaned up when nothing uses it any more.

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::ffi;
use crate::ffi::PortInfo;
use crate::options::{EalOptions, Machine, ordinary_bytes, pci_addresses};

/// That DPDK has started. Devices keep it alive.
#[derive(Clone)]
pub struct Eal(Arc<Running>);

struct Running {
    /// Ports that were taken: each once, since DPDK forgets a port that is closed.
    taken: Mutex<BTreeSet<u16>>,
    ordinary_bytes: usize,
}

impl Drop for Running {
    fn drop(&mut self) {
        ffi::eal_cleanup();
    }
}

static STARTED: AtomicBool = AtomicBool::new(false);

impl Eal {
    /// Starts DPDK. The thread keeps the cores that it may run on.
    ///
    /// # Errors
    /// It was started before by this process, or it does not start.
    pub fn init(options: &EalOptions) -> Result<Eal, String> {
        let arguments = options.to_eal(&machine())?;
        if STARTED.swap(true, Ordering::AcqRel) {
            return Err("DPDK can be started once by a process".to_owned());
        }
        let shown = arguments.join(" ");
        ffi::eal_init(&arguments).map_err(|error| {
            format!("DPDK does not start: {error} (arguments: {shown}); what it says itself is on standard error, more of it with --dpdk \"--log-level 8\"")
        })?;
        Ok(Eal(Arc::new(Running {
            taken: Mutex::default(),
            ordinary_bytes: ordinary_bytes(&arguments),
        })))
    }

    /// Memory for packets that is in ordinary pages, and counts as this process's.
    pub fn ordinary_bytes(&self) -> usize {
        self.0.ordinary_bytes
    }

    /// All ports, by number.
    pub fn ports(&self) -> Vec<(u16, PortInfo)> {
        let ports = ffi::ports().into_iter();
        // One that cannot be asked cannot be used.
        ports
            .filter_map(|port| Some((port, ffi::port_info(port).ok()?)))
            .collect()
    }

    /// Takes a port, for good; false if it was taken before.
    pub(crate) fn take(&self, port: u16) -> bool {
        // A set is as good as before when a thread that had it has panicked.
        self.0
            .taken
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(port)
    }

    /// The number of the port with this name, or, if it is a number, of the port with this number.
    ///
    /// # Errors
    /// There is none; the text says which there are.
    pub fn port(&self, name: &str) -> Result<(u16, PortInfo), String> {
        let ports = self.ports();
        let number = name.parse().ok();
        let found = ports
            .iter()
            .find(|(port, info)| number == Some(*port) || info.name == name);
        found.cloned().ok_or_else(|| {
            let names: Vec<&str> = ports.iter().map(|(_, info)| info.name.as_str()).collect();
            match names[..] {
                [] => format!(
                    "DPDK has no port, so none is {name:?}: name a device in --dpdk, for example --dpdk \"-a 0000:03:00.1\" (bound to vfio-pci) \
                     or --dpdk \"--vdev net_af_packet0,iface=eth1\""
                ),
                _ => format!("DPDK has no port {name:?}; there are: {}", names.join(", ")),
            }
        })
    }
}

fn machine() -> Machine {
    let cores = rustix::thread::sched_getaffinity(None);
    let cores = cores.map(|set| {
        (0..rustix::thread::CpuSet::MAX_CPU)
            .filter(|core| set.is_set(*core))
            .collect()
    });
    Machine {
        cores: cores.unwrap_or_default(),
        free_hugepages_mb: free_hugepages_mb(),
        process: std::process::id(),
        pci: pci_addresses(std::env::vars()),
    }
}

/// Free hugepages of the machine, or what this process may still have of them, whichever is less.
fn free_hugepages_mb() -> u64 {
    let number =
        |path: String| -> Option<u64> { fs::read_to_string(path).ok()?.trim().parse().ok() };
    let mut free_kb = 0;
    for (size_kb, name) in [(2048, "2MB"), (1_048_576, "1GB")] {
        let Some(pages) = number(format!(
            "/sys/kernel/mm/hugepages/hugepages-{size_kb}kB/free_hugepages"
        )) else {
            continue;
        };
        // In a pod: what its resources allow. "max", or no such file: no limit.
        let cgroup = |what: &str| number(format!("/sys/fs/cgroup/hugetlb.{name}.{what}"));
        let allowed_kb =
            cgroup("max").map(|max| max.saturating_sub(cgroup("current").unwrap_or(0)) / 1024);
        free_kb += (pages * size_kb).min(allowed_kb.unwrap_or(u64::MAX));
    }
    free_kb / 1024
}
