//! From flags, environment and what the machine has to the arguments of DPDK's EAL.

use std::collections::BTreeSet;

use clap::{Args, ValueEnum};

/// The most cores that DPDK knows of (RTE_MAX_LCORE of Debian's).
const MAX_CORES: usize = 128;

/// How DPDK is started.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct EalOptions {
    /// Arguments for DPDK's EAL, for example "--vdev net_af_packet0,iface=eth1" or "-a 0000:03:00.1". PCI devices in PCIDEVICE_* variables,
    /// as the SR-IOV device plugin sets them, are taken in any case
    #[arg(
        long = "dpdk",
        env = "RCBOX_DPDK",
        value_name = "ARGUMENTS",
        allow_hyphen_values = true
    )]
    pub arguments: Option<String>,
    /// Whether packet buffers lie in hugepages; auto: when there are enough free ones
    #[arg(long = "dpdkHugepages", value_enum, default_value_t = Hugepages::Auto, value_name = "WHEN")]
    pub hugepages: Hugepages,
    /// Memory for packet buffers. Without hugepages it is reserved at the start, and taken as it is used
    #[arg(long = "dpdkMemoryMB", default_value_t = 256, value_name = "MB", value_parser = clap::value_parser!(u32).range(16..=1 << 20))]
    pub memory_mb: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Hugepages {
    Auto,
    Always,
    Never,
}

impl Default for EalOptions {
    fn default() -> Self {
        EalOptions {
            arguments: None,
            hugepages: Hugepages::Auto,
            memory_mb: 256,
        }
    }
}

/// What the arguments depend on beside the options.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// Cores that this process may use.
    pub cores: Vec<usize>,
    /// Hugepages that are free, for this process too.
    pub free_hugepages_mb: u64,
    /// What no other process on this machine has.
    pub process: u32,
    /// PCI devices that this process was given.
    pub pci: Vec<String>,
}

impl EalOptions {
    /// Whether anybody asked for DPDK.
    pub fn wanted(&self) -> bool {
        self.arguments.is_some() || !pci_addresses(std::env::vars()).is_empty()
    }

    /// The arguments, the program's name first. What `--dpdk` says goes before what would be chosen here.
    ///
    /// # Errors
    /// The text of `--dpdk` has an open quote.
    pub fn to_eal(&self, machine: &Machine) -> Result<Vec<String>, String> {
        let text = self.arguments.as_deref().unwrap_or_default();
        let given =
            shlex::split(text).ok_or_else(|| format!("--dpdk {text:?}: a quote is not closed"))?;
        let has = |names: &[&str]| given.iter().any(|argument| is_one_of(argument, names));
        let mut arguments = vec!["rcbox".to_owned()];
        let mut add = |text: &str| arguments.extend(text.split(' ').map(str::to_owned));
        if !has(&["-l", "-c", "--lcores", "-s", "-S"]) {
            add(&lcores(&machine.cores));
        }
        if !has(&["--in-memory", "--no-huge", "--huge-dir", "--legacy-mem"]) {
            add(&self.memory(machine, has(&["-m", "--socket-mem"]))?);
        }
        if !has(&["--file-prefix"]) {
            add(&format!("--file-prefix rcbox-{}", machine.process));
        }
        if !has(&["--telemetry", "--no-telemetry"]) {
            add("--no-telemetry");
        }
        if !has(&["--log-level"]) {
            add("--log-level warning");
            // Says each time that it does not share its port with other processes.
            add("--log-level pmd.net.memif:error");
        }
        if !has(&["-a", "--allow", "-b", "--block", "--no-pci"]) {
            // Without a list, the EAL would take whatever it finds.
            if machine.pci.is_empty() {
                add("--no-pci");
            }
            for address in &machine.pci {
                add(&format!("-a {address}"));
            }
        }
        arguments.extend(given);
        Ok(arguments)
    }

    fn memory(&self, machine: &Machine, amount_given: bool) -> Result<String, String> {
        let needed = u64::from(self.memory_mb);
        let enough = machine.free_hugepages_mb >= needed;
        match self.hugepages {
            Hugepages::Always if !enough => Err(format!(
                "--dpdkHugepages always: {} MB of hugepages are free, {needed} are needed; reserve them (sysctl vm.nr_hugepages=N; in a pod, the \
                 resource hugepages-2Mi), lower --dpdkMemoryMB, or use --dpdkHugepages auto",
                machine.free_hugepages_mb
            )),
            Hugepages::Never | Hugepages::Auto if !enough || self.hugepages == Hugepages::Never => {
                let amount = if amount_given {
                    String::new()
                } else {
                    format!(" -m {needed}")
                };
                Ok(format!("--no-huge --no-shconf{amount}"))
            }
            // Taken as it is needed; nothing is left in a file system when the process is gone.
            _ => Ok("--in-memory".to_owned()),
        }
    }
}

/// Memory for packets that these arguments of the EAL take in ordinary pages, which count as this process's; 0 where it is in huge ones.
pub(crate) fn ordinary_bytes(arguments: &[String]) -> usize {
    /// Without huge pages, and without a word on how much.
    const USUAL_MB: usize = 64;
    if !arguments
        .iter()
        .any(|argument| is_one_of(argument, &["--no-huge"]))
    {
        return 0;
    }
    let given = arguments
        .iter()
        .rposition(|argument| is_one_of(argument, &["-m"]));
    let amount = given.and_then(|at| match arguments[at].strip_prefix("-m")? {
        "" => arguments.get(at + 1)?.parse().ok(),
        rest => rest.trim_start_matches('=').parse().ok(),
    });
    amount.unwrap_or(USUAL_MB) << 20
}

/// One core for the EAL, which is all of ours: nothing is pinned, neither our threads nor the EAL's own.
fn lcores(cores: &[usize]) -> String {
    let known: Vec<String> = cores
        .iter()
        .filter(|core| **core < MAX_CORES)
        .map(usize::to_string)
        .collect();
    if known.is_empty() {
        return "--lcores 0".to_owned();
    }
    format!("--lcores 0@({})", known.join(","))
}

/// `--allow=X`, `-aX` and `-a` are all the option `-a`.
fn is_one_of(argument: &str, names: &[&str]) -> bool {
    names.iter().any(|name| {
        let rest = argument.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('=') || !name.starts_with("--"))
    })
}

/// The PCI addresses in the variables of the SR-IOV device plugin: `PCIDEVICE_<RESOURCE>=0000:03:02.0,0000:03:02.1`. Each once, in order.
pub fn pci_addresses(variables: impl IntoIterator<Item = (String, String)>) -> Vec<String> {
    let ours = variables
        .into_iter()
        .filter(|(name, _)| name.starts_with("PCIDEVICE_"));
    // The plugin also describes the devices, in JSON, in variables that end with _INFO.
    let found: BTreeSet<String> = ours
        .filter(|(_, value)| !value.trim_start().starts_with('{'))
        .flat_map(|(_, value)| {
            value
                .split(',')
                .map(|word| word.trim().to_owned())
                .collect::<Vec<_>>()
        })
        .filter(|word| is_pci_address(word))
        .collect();
    found.into_iter().collect()
}

/// `0000:03:02.0`, the form in which Linux writes it, perhaps with something behind it.
pub fn is_pci_address(text: &str) -> bool {
    let parts: Vec<&str> = text.split([':', '.', '_', ',']).collect();
    let hex = |text: &str, digits: usize| {
        text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    match parts[..] {
        [domain, bus, device, function, ..] => {
            hex(domain, 4)
                && hex(bus, 2)
                && hex(device, 2)
                && hex(function, 1)
                && text.as_bytes()[4] == b':'
                && text.as_bytes()[10] == b'.'
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        Machine {
            cores: vec![2, 5],
            free_hugepages_mb: 0,
            process: 17,
            pci: vec![],
        }
    }

    fn options(arguments: &str) -> EalOptions {
        EalOptions {
            arguments: Some(arguments.to_owned()),
            ..EalOptions::default()
        }
    }

    fn line(options: &EalOptions, machine: &Machine) -> String {
        options.to_eal(machine).expect("arguments").join(" ")
    }

    #[test]
    fn without_hugepages_and_devices() {
        let text = line(&options("--vdev net_memif0,socket=/tmp/s"), &machine());
        assert_eq!(
            text,
            "rcbox --lcores 0@(2,5) --no-huge --no-shconf -m 256 --file-prefix rcbox-17 --no-telemetry --log-level warning --log-level pmd.net.memif:error --no-pci \
             --vdev net_memif0,socket=/tmp/s"
        );
    }

    #[test]
    fn hugepages_are_used_when_there_are_enough() {
        let enough = Machine {
            free_hugepages_mb: 256,
            ..machine()
        };
        assert!(line(&options(""), &enough).contains(" --in-memory "));
        let few = Machine {
            free_hugepages_mb: 255,
            ..machine()
        };
        assert!(line(&options(""), &few).contains(" --no-huge "));
        let never = EalOptions {
            hugepages: Hugepages::Never,
            ..options("")
        };
        assert!(line(&never, &enough).contains(" --no-huge "));
        let always = EalOptions {
            hugepages: Hugepages::Always,
            ..options("")
        };
        assert!(line(&always, &enough).contains(" --in-memory "));
        assert!(always.to_eal(&few).expect_err("too few").contains("255 MB"));
    }

    #[test]
    fn memory_in_ordinary_pages_is_counted() {
        let bytes = |options: &EalOptions, free_hugepages_mb| {
            let machine = Machine {
                free_hugepages_mb,
                ..machine()
            };
            ordinary_bytes(&options.to_eal(&machine).expect("arguments")) >> 20
        };
        assert_eq!(bytes(&options(""), 0), 256);
        assert_eq!(bytes(&options(""), 256), 0);
        let less = EalOptions {
            memory_mb: 64,
            hugepages: Hugepages::Never,
            ..options("")
        };
        assert_eq!(bytes(&less, 256), 64);
        assert_eq!(bytes(&options("--no-huge -m 100"), 0), 100);
        assert_eq!(bytes(&options("--no-huge -m100"), 0), 100);
        assert_eq!(bytes(&options("--no-huge"), 0), 64);
    }

    #[test]
    fn what_is_given_is_not_chosen_again() {
        let text = line(
            &options(
                "-l 3 --no-huge -m64 --file-prefix=mine --log-level=8 -a0000:03:00.1 --telemetry",
            ),
            &Machine {
                pci: vec!["0000:04:00.0".to_owned()],
                ..machine()
            },
        );
        assert_eq!(
            text,
            "rcbox -l 3 --no-huge -m64 --file-prefix=mine --log-level=8 -a0000:03:00.1 --telemetry"
        );
        let text = line(&options("-m 64"), &machine());
        assert!(
            text.contains("--no-huge --no-shconf --file-prefix") && text.ends_with("-m 64"),
            "{text}"
        );
        assert!(options("'").to_eal(&machine()).is_err());
    }

    #[test]
    fn devices_of_the_plugin_are_allowed_and_no_others() {
        let variables = [
            ("PCIDEVICE_INTEL_COM_ATOM_DPDK", "0000:03:02.1,0000:03:02.0"),
            (
                "PCIDEVICE_INTEL_COM_ATOM_DPDK_INFO",
                r#"{"0000:03:02.7":{"generic":{"deviceID":"0000:03:02.7"}}}"#,
            ),
            (
                "PCIDEVICE_OTHER",
                "0000:03:02.0, 0000:81:1f.7,mlx5_core.sf.4",
            ),
            ("PATH", "0000:09:00.0"),
        ];
        let pci = pci_addresses(variables.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(pci, ["0000:03:02.0", "0000:03:02.1", "0000:81:1f.7"]);
        let text = line(&EalOptions::default(), &Machine { pci, ..machine() });
        assert!(
            text.ends_with("-a 0000:03:02.0 -a 0000:03:02.1 -a 0000:81:1f.7"),
            "{text}"
        );
    }

    #[test]
    fn pci_addresses_are_told_from_names() {
        for good in ["0000:03:02.1", "0001:ff:1f.7", "0000:03:00.0_representor_0"] {
            assert!(is_pci_address(good), "{good}");
        }
        for bad in [
            "net_memif0",
            "",
            "03:02.1",
            "0000.03.02:1",
            "0000:03:02",
            "000g:03:02.1",
        ] {
            assert!(!is_pci_address(bad), "{bad}");
        }
    }
}
