//! `clusterperf ping` between real processes: over shared memory, between network namespaces, over the kernel. The shape of what comes out, never how
//! fast it was.

#![cfg(feature = "dpdk")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_clusterperf");

/// A server, ended with SIGTERM as Kubernetes would, and killed if the test has failed before.
struct Server(Child);

impl Server {
    fn start(command: &mut Command) -> Server {
        Server(command.stderr(Stdio::piped()).spawn().unwrap())
    }

    fn end(mut self) -> String {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let mut text = String::new();
        std::io::Read::read_to_string(self.0.stderr.as_mut().unwrap(), &mut text).unwrap();
        assert!(self.0.wait().unwrap().success(), "{text}");
        text
    }
}

impl Server {
    /// As [`Server::end`], of one whose peer over memif has gone. DPDK's driver may crash then (docs/dpdk.md, Holes): what was measured before stands.
    fn end_after_memif(mut self) {
        if let Some(status) = self.0.try_wait().unwrap() {
            assert_eq!(status.signal(), Some(11), "{status}");
            eprintln!("net_memif crashed when its peer went, as it is known to");
            return;
        }
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let status = self.0.wait().unwrap();
        assert!(status.success() || status.signal() == Some(11), "{status}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `program ping`, with a part of its arguments that has spaces.
fn ping(mut program: Command, arguments: &str, dpdk: Option<&str>) -> Command {
    program
        .arg("ping")
        .args(arguments.split(' '))
        .stdout(Stdio::piped())
        .env("RUST_BACKTRACE", "1");
    if let Some(dpdk) = dpdk {
        program.args([
            "--dpdkHugepages",
            "never",
            "--dpdkMemoryMB",
            "64",
            "--dpdk",
            dpdk,
        ]);
    }
    program
}

fn result(output: Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

const MEASURE: &str = "--json --count 200 --warmup 10 --patience 60";

fn check(result: &Value, size: u64) {
    assert_eq!(
        (&result["test"], &result["samples"], &result["size"]),
        (&"ping".into(), &200.into(), &size.into())
    );
    let order = ["best_us", "median_us", "p90_us", "p99_us", "p999_us"]
        .map(|name| result[name].as_f64().unwrap());
    assert!(order[0] > 0.0 && order.is_sorted(), "{result}");
}

fn root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The program where a user without rights can run it.
fn for_everybody(folder: &Path) -> PathBuf {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
    let copy = folder.join("clusterperf");
    fs::copy(PROGRAM, &copy).unwrap();
    copy
}

/// Two processes of a user without rights, without hugepages: frames go through memory that they share.
#[test]
fn over_shared_memory_without_any_rights() {
    let folder = tempfile::tempdir().unwrap();
    let program = for_everybody(folder.path());
    let nobody = || {
        let mut command = Command::new(&program);
        command.current_dir("/");
        if root() {
            command.uid(65534).gid(65534);
        }
        command
    };
    let socket = folder.path().join("memif.sock");
    let device = |role: &str| {
        format!(
            "--vdev net_memif0,role={role},socket={},socket-abstract=no,bsize=9216",
            socket.display()
        )
    };
    for size in [100, 8972] {
        let server = Server::start(&mut ping(
            nobody(),
            "--serve --local 10.9.0.1:7000 --mtu 9000",
            Some(&device("server")),
        ));
        wait_for_file(&socket);
        let arguments =
            format!("{MEASURE} --local 10.9.0.2:7000 --mtu 9000 --size {size} 10.9.0.1:7000");
        let result = result(
            ping(nobody(), &arguments, Some(&device("client")))
                .output()
                .unwrap(),
        );
        check(&result, size);
        let over = result["over"].as_str().unwrap();
        assert!(over.starts_with("net_memif0 (net_memif, "), "{over}");
        server.end_after_memif();
        let _ = fs::remove_file(&socket); // It may be gone with its server.
    }
}

/// A client of memif that finds no server never connects to one that comes later.
fn wait_for_file(path: &Path) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !path.exists() {
        assert!(Instant::now() < deadline, "no {}", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Two network namespaces with a link between them; deleted with it.
struct LinkedNamespaces {
    names: [String; 2],
}

impl LinkedNamespaces {
    /// `None`, with what to do, where this may not be done.
    fn new() -> Option<LinkedNamespaces> {
        let prefix = format!("rcbox-ping-{}", std::process::id());
        let link = LinkedNamespaces {
            names: [format!("{prefix}-a"), format!("{prefix}-b")],
        };
        let [a, b] = &link.names;
        for arguments in [
            format!("netns add {a}"),
            format!("netns add {b}"),
            format!("link add port netns {a} type veth peer name port netns {b}"),
            format!("-n {a} address add 10.9.0.1/24 dev port"),
            format!("-n {b} address add 10.9.0.2/24 dev port"),
            format!("-n {a} link set port up"),
            format!("-n {b} link set port up"),
        ] {
            if let Err(error) = run("ip", &arguments) {
                eprintln!(
                    "SKIPPED: no network namespaces ({error}); run the tests as root, with iproute2 installed"
                );
                return None;
            }
        }
        Some(link)
    }

    fn inside(&self, end: usize) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[end], PROGRAM]);
        command
    }
}

impl Drop for LinkedNamespaces {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = run("ip", &format!("netns delete {name}"));
        }
    }
}

fn run(program: &str, arguments: &str) -> Result<(), String> {
    let output = Command::new(program).args(arguments.split(' ')).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    let text = || {
        format!(
            "{program} {arguments}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )
    };
    output.status.success().then_some(()).ok_or_else(text)
}

const PORT: &str = "--vdev net_af_packet0,iface=port,qdisc_bypass=1";

/// Between namespaces, with addresses beside the kernel's: 10.9.0.1 and 10.9.0.2 are the kernel's, 10.9.0.11 and 10.9.0.12 are ours.
#[test]
fn between_network_namespaces() {
    let Some(link) = LinkedNamespaces::new() else {
        return;
    };
    let server = Server::start(&mut ping(
        link.inside(0),
        "--serve --local 10.9.0.11:7000",
        Some(PORT),
    ));
    let arguments = format!("{MEASURE} --local 10.9.0.12:7000 10.9.0.11:7000");
    check(
        &result(
            ping(link.inside(1), &arguments, Some(PORT))
                .output()
                .unwrap(),
        ),
        100,
    );

    // The kernel finds us by ARP, takes our frames, and we take its.
    let from_kernel = format!("{MEASURE} --socket 10.9.0.11:7000");
    let sums = ["tx", "rx"].map(|way| {
        run(
            "ip",
            &format!("netns exec {} ethtool -K port {way} off", link.names[1]),
        )
    });
    match sums.into_iter().collect::<Result<Vec<()>, String>>() {
        Ok(_) => check(
            &result(ping(link.inside(1), &from_kernel, None).output().unwrap()),
            100,
        ),
        Err(error) => {
            eprintln!("SKIPPED: a kernel's socket to ours ({error}); apt-get install ethtool")
        }
    }
    assert!(server.end().contains("arp_answered"));

    // And the other way round: we find the kernel, which answers as it answers anybody.
    let server = Server::start(&mut ping(
        link.inside(1),
        "--serve --socket --local 10.9.0.2:7000",
        None,
    ));
    let arguments = format!("{MEASURE} --local 10.9.0.11:7000 10.9.0.2:7000");
    check(
        &result(
            ping(link.inside(0), &arguments, Some(PORT))
                .output()
                .unwrap(),
        ),
        100,
    );
    server.end();
}

#[test]
fn over_the_kernel() {
    let server = Server::start(&mut ping(
        Command::new(PROGRAM),
        "--serve --socket --local 127.0.0.1:17654",
        None,
    ));
    let arguments = format!("{MEASURE} --socket 127.0.0.1:17654");
    check(
        &result(
            ping(Command::new(PROGRAM), &arguments, None)
                .output()
                .unwrap(),
        ),
        100,
    );
    server.end();
}

#[test]
fn wrong_use_is_explained() {
    let error = |arguments: &str, dpdk: Option<&str>| {
        let output = ping(Command::new(PROGRAM), arguments, dpdk)
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(error("--serve", None).contains("--local"));
    let local = "--local 10.9.0.1:7000 --serve";
    assert!(error(local, Some("--no-pci")).contains("DPDK has no port"));
    let text = error(&format!("{local} --device eth0"), Some("--vdev net_null0"));
    assert!(text.contains("there are: net_null0"), "{text}");
    let text = error(&format!("{local} --mtu 9001"), Some("--vdev net_null0"));
    assert!(text.contains("from 576 to 9000"), "{text}");
    let text = error("--socket --size 100 --patience 0 127.0.0.1:9", None);
    assert!(text.contains("does not answer"), "{text}");
}
