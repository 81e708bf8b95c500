//! Which of a pod's devices is in which network, as Multus has said it in the pod's annotation `network-status`, which is there as a file.

use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Deserialize;

/// Where that file is.
const VARIABLE: &str = "RCBOX_NETWORK_STATUS";
/// A kubelet may write the file after it has started the container: with its next look at the pod, which is a minute or two away at worst.
const PATIENCE: Duration = Duration::from_secs(150);
const LOOK: Duration = Duration::from_millis(200);

/// The file does not say it.
#[derive(Debug, thiserror::Error)]
#[error("{VARIABLE}: {}: {problem}", file.display())]
pub struct NetworkStatusError {
    file: PathBuf,
    problem: Problem,
}

#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error(transparent)]
    Unreadable(#[from] io::Error),
    #[error("no network-status: {0}")]
    NotOfMultus(#[from] serde_json::Error),
}

/// What is said of one network. There is more; this is what counts here.
#[derive(Deserialize)]
struct Network {
    #[serde(default)]
    ips: Vec<String>,
    #[serde(rename = "device-info")]
    device: Option<DeviceInfo>,
}

#[derive(Deserialize)]
struct DeviceInfo {
    pci: Option<Pci>,
}

#[derive(Deserialize)]
struct Pci {
    #[serde(rename = "pci-address")]
    address: String,
}

/// The PCI addresses of the devices that were attached with these IP addresses; `None` unless all are told.
///
/// # Errors
/// It is not what Multus writes.
fn devices_in(status: &str, ips: &[Ipv4Addr]) -> Result<Option<Vec<String>>, serde_json::Error> {
    if status.trim().is_empty() {
        return Ok(None);
    }
    let networks: Vec<Network> = serde_json::from_str(status)?;
    let of = |ip: &Ipv4Addr| {
        let has_it = |network: &&Network| network.ips.iter().any(|text| is_ip(text, *ip));
        let pci = networks
            .iter()
            .find(has_it)?
            .device
            .as_ref()?
            .pci
            .as_ref()?;
        Some(pci.address.clone())
    };
    Ok(ips.iter().map(of).collect())
}

/// Some plugins say it with the length of the prefix.
fn is_ip(text: &str, ip: Ipv4Addr) -> bool {
    let address = text.split('/').next().unwrap_or(text);
    address.parse() == Ok(ip)
}

/// The PCI address of the device for each of these IP addresses, in a pod with several devices; waits until the pod's file tells. `None` where
/// nobody will tell, or has not within [`PATIENCE`]: then the order of their PCI addresses is as good as any.
///
/// # Errors
/// The file cannot be read, or is none of Multus'.
pub fn devices(ips: &[Ipv4Addr]) -> Result<Option<Vec<String>>, NetworkStatusError> {
    let of_pci = |name: &str| name.starts_with("PCIDEVICE_") && !name.ends_with("_INFO");
    let has_pci = std::env::vars_os().any(|(name, _)| name.to_str().is_some_and(of_pci));
    let Some(file) = std::env::var_os(VARIABLE).filter(|_| ips.len() > 1 && has_pci) else {
        return Ok(None);
    };
    let found = wait(&PathBuf::from(file), ips, PATIENCE)?;
    if found.is_none() {
        tracing::warn!(
            "the pod's network-status does not say which PCI device has which of the addresses {ips:?}: they are taken in the order of their PCI addresses; \
             an IPAM plugin such as `static` in each NetworkAttachmentDefinition has it say so"
        );
    }
    Ok(found)
}

fn wait(
    file: &Path,
    ips: &[Ipv4Addr],
    patience: Duration,
) -> Result<Option<Vec<String>>, NetworkStatusError> {
    let failed = |problem| NetworkStatusError {
        file: file.to_owned(),
        problem,
    };
    let end = Instant::now() + patience;
    let mut is_told = false;
    loop {
        let status = std::fs::read_to_string(file).map_err(|error| failed(error.into()))?;
        let found = devices_in(&status, ips).map_err(|error| failed(error.into()))?;
        if found.is_some() || Instant::now() >= end {
            return Ok(found);
        }
        if !std::mem::replace(&mut is_told, true) {
            tracing::info!("waiting for the pod's network-status to name the devices of {ips:?}");
        }
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = r#"[
        {"name":"kindnet","interface":"eth0","ips":["10.244.1.5"],"mac":"c2:11:22:33:44:55","default":true,"dns":{}},
        {"name":"team/left","interface":"net1","ips":["192.168.101.5"],"mac":"02:52:c0:a8:65:05","dns":{},
         "device-info":{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:3b:0a.1"}}},
        {"name":"team/right","interface":"net2","ips":["192.168.102.5/24"],"dns":{},
         "device-info":{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:3b:02.1"}}}]"#;
    const LEFT: Ipv4Addr = Ipv4Addr::new(192, 168, 101, 5);
    const RIGHT: Ipv4Addr = Ipv4Addr::new(192, 168, 102, 5);

    #[test]
    fn devices_are_found_by_their_addresses() {
        let found = devices_in(STATUS, &[RIGHT, LEFT]).unwrap().unwrap();
        assert_eq!(found, ["0000:3b:02.1", "0000:3b:0a.1"]);
        // Of the pod network there is no device, of others nothing at all.
        let pod = "10.244.1.5".parse().unwrap();
        for (status, ips) in [
            (STATUS, &[pod][..]),
            (STATUS, &[LEFT, Ipv4Addr::LOCALHOST]),
            ("", &[LEFT]),
        ] {
            assert_eq!(devices_in(status, ips).unwrap(), None);
        }
        assert!(devices_in("{}", &[LEFT]).is_err());
    }

    #[test]
    fn what_is_said_later_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("status");
        let absent = wait(&file, &[LEFT], Duration::ZERO);
        let absent = absent.unwrap_err().to_string();
        assert!(
            absent.contains(VARIABLE) && absent.contains("status"),
            "{absent}"
        );
        std::fs::write(&file, "").unwrap();
        assert_eq!(wait(&file, &[LEFT], Duration::ZERO).unwrap(), None);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| wait(&file, &[LEFT, RIGHT], PATIENCE));
            // As kubelets do it: another file takes the place of the first.
            let other = folder.path().join("other");
            std::fs::write(&other, STATUS).unwrap();
            std::fs::rename(&other, &file).unwrap();
            let found = waiting.join().unwrap().unwrap();
            assert_eq!(found.unwrap()[0], "0000:3b:0a.1");
        });
    }
}
