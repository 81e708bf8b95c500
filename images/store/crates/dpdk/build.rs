//! Compiles the shim against the installed DPDK. Asks `pkg-config` itself, since the flags that the data path's inline code needs
//! (`-include rte_config.h`) are among those that the usual crate leaves out.

use std::process::Command;

/// What the shim calls. Drivers of devices are plugins that DPDK loads when it starts.
const LIBRARIES: [&str; 6] = [
    "rte_ethdev",
    "rte_mbuf",
    "rte_mempool",
    "rte_ring",
    "rte_eal",
    "rte_kvargs",
];

fn main() {
    println!("cargo::rerun-if-changed=shim");
    println!("cargo::rerun-if-env-changed=PKG_CONFIG_PATH");
    let flags = pkg_config(&["--cflags", "libdpdk"]);
    let mut build = cc::Build::new();
    build.file("shim/shim.c").opt_level(3).warnings(true);
    let mut words = flags.split_whitespace();
    while let Some(word) = words.next() {
        match word.strip_prefix("-I") {
            // Their headers warn; that is not for us to see.
            Some(folder) => {
                build.flag("-isystem").flag(folder);
            }
            None if word == "-include" => {
                build.flag(word).flag(words.next().unwrap_or_default());
            }
            // The images run on every x86-64 with SSE4.2, which is what Debian's DPDK asks for: no more, whatever this machine has.
            None if word.starts_with("-march") => {
                build.flag("-march=x86-64-v2");
            }
            None => {
                build.flag(word);
            }
        }
    }
    build.compile("rcbox_dpdk_shim");
    for folder in pkg_config(&["--libs-only-L", "libdpdk"]).split_whitespace() {
        println!(
            "cargo::rustc-link-search=native={}",
            folder.trim_start_matches("-L")
        );
    }
    for library in LIBRARIES {
        println!("cargo::rustc-link-lib=dylib={library}");
    }
}

fn pkg_config(arguments: &[&str]) -> String {
    let output = Command::new("pkg-config").args(arguments).output();
    match output {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).into_owned()
        }
        Ok(output) => fail(&String::from_utf8_lossy(&output.stderr)),
        Err(error) => fail(&error.to_string()),
    }
}

fn fail(why: &str) -> ! {
    println!(
        "cargo::error=DPDK's headers are not there: run hack/setup.sh store (Debian: apt-get install libdpdk-dev pkg-config), \
         or build with --no-default-features to do without DPDK. pkg-config says: {}",
        why.trim().replace('\n', " ")
    );
    std::process::exit(1);
}
