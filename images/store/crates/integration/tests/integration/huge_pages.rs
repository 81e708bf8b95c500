//! Servers whose memory is made of reserved huge pages.

use std::collections::BTreeMap;
use std::process::Command;

use crate::common::{Coordinator, Process, Server, program, wait_for};
use client::Cluster;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

/// Free on this machine, and promised to nobody.
fn free_pages() -> u64 {
    let number = |name: &str| {
        let path = format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{name}");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    };
    number("free_hugepages") - number("resv_hugepages")
}

/// Says so where there are not as many.
fn are_free(pages: u64) -> bool {
    let free = free_pages();
    if free < pages {
        eprintln!(
            "SKIPPED: {free} reserved huge pages are free, {pages} are needed: sysctl vm.nr_hugepages=160"
        );
    }
    free >= pages
}

/// Memory of a process that is in reserved pages.
fn reserved_bytes(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("HugetlbPages"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn a_server_for_which_there_are_not_enough_pages_ends_and_says_how_to_get_them() {
    for (pages, size) in [("reserved", "2 MiB"), ("Reserved1G", "1 GiB")] {
        let output = Command::new(program("server"))
            .args(["-C", "tcp:host=127.0.0.1,port=1"])
            .args(["-L", "tcp:host=127.0.0.1,port=0"])
            .args(["-t", "1000000000", "--hugePages", pages])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(
            text.contains(&format!("reserved pages of {size} are needed")),
            "{text}"
        );
        assert!(
            text.contains("nr_hugepages=") || text.contains("hugepagesz="),
            "{text}"
        );
    }
}

#[test]
fn objects_are_kept_in_reserved_pages() {
    const MIB: u64 = 48;
    if !are_free(MIB / 2) {
        return;
    }
    let coordinator = Coordinator::start(&[]);
    let arguments = ["-t", "48", "--cores", "2", "--hugePages", "reserved"];
    let server = Server::start(&coordinator, "huge", &arguments);
    server.process.line(&["memory is committed"]);
    server.wait_ready();
    let reserved = reserved_bytes(server.process.child.id());
    // But for the results of RPCs, and segments that do not fit.
    assert!(
        ((MIB - 8) << 20..=MIB << 20).contains(&reserved),
        "{reserved}"
    );

    let mut cluster = Cluster::connect(&coordinator.locator).unwrap();
    let table = cluster.create_table("fruit", 2).unwrap();
    let value = vec![7; 100_000];
    // Overwritten often enough for the cleaner to go round.
    for round in 0..20_u32 {
        for key in 0..100_u32 {
            cluster
                .write(
                    table,
                    &key.to_le_bytes(),
                    &[&value[..], &round.to_le_bytes()].concat(),
                )
                .unwrap();
        }
    }
    for key in 0..100_u32 {
        let object = cluster.read(table, &key.to_le_bytes()).unwrap();
        assert_eq!(object.value[100_000..], 19_u32.to_le_bytes());
    }
    let locator = format!("tcp:host=127.0.0.1,port={}", server.shards[0].port());
    let config = cluster.server_config(&locator).unwrap();
    assert!(config.master.unwrap().use_hugepages);

    let before = free_pages();
    drop(server);
    wait_for("the pages to be free again", || {
        (free_pages() > before).then_some(())
    });
}

/// As the usual seccomp profile of containers does for whoever lacks CAP_SYS_NICE: what asks for memory of a NUMA node is not permitted.
fn without_numa() -> BpfProgram {
    let refused = [
        libc::SYS_mbind,
        libc::SYS_set_mempolicy,
        libc::SYS_get_mempolicy,
    ];
    let rules: BTreeMap<_, _> = refused.map(|call| (call, Vec::new())).into();
    let refusal = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refusal, TargetArch::x86_64);
    filter.unwrap().try_into().unwrap()
}

#[test]
#[cfg(feature = "dpdk")]
fn dpdk_has_its_huge_pages_under_the_seccomp_profile_of_containers() {
    if !are_free(64 / 2) {
        return;
    }
    let coordinator = Coordinator::start(&[]);
    let arguments = [
        ("-C", coordinator.locator.as_str()),
        ("-L", "tcp:host=127.0.0.1,port=0"),
        ("-L", "fast+dpdk:host=10.9.0.1,port=7000"),
        ("-t", "64"),
        ("--dpdk", "--vdev net_null0"),
        ("--dpdkHugepages", "always"),
        ("--dpdkMemoryMB", "64"),
    ];
    let arguments: Vec<String> = arguments
        .iter()
        .flat_map(|(name, value)| [(*name).to_owned(), (*value).to_owned()])
        .collect();
    // A filter is its thread's, and that of the processes that the thread starts.
    let start = || {
        seccompiler::apply_filter(&without_numa()).unwrap();
        Process::start(&program("server"), &arguments)
    };
    let process = std::thread::scope(|scope| scope.spawn(start).join().unwrap());
    process.line(&["a port of DPDK", "net_null0"]);
    assert!(reserved_bytes(process.child.id()) > 0);
}
