//! Real processes that speak the `fast` protocol over UDP.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use client::Cluster;
use serde_json::{Value, json};

use crate::common::{self, Coordinator, DEADLINE, Server, Store, http_get, wait_for};

const UDP: [&str; 2] = ["-L", "fast+udp:host=127.0.0.1,port=0"];

fn metric(server: &Server, name: &str) -> u64 {
    let (_, text) = http_get(server.http, "/metrics");
    let starts = [format!("rcbox_{name}{{"), format!("rcbox_{name}_total{{")];
    let is_wanted = |line: &&str| starts.iter().any(|start| line.starts_with(start));
    let line = text.lines().find(is_wanted);
    let line = line.unwrap_or_else(|| panic!("no {name} in {text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

fn value(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}

#[test]
fn objects_of_every_length_go_over_datagrams() {
    let store = Store::start(1, &[&UDP[..], &["-t", "128"]].concat());
    let mut cluster = store.cluster();
    let table = cluster.create_table("lengths", 1).unwrap();
    for length in [0, 1, 100, 1391, 1392, 1393, 16_000, 100_000, 1 << 20] {
        let key = length.to_string();
        cluster
            .write(table, key.as_bytes(), &value(length))
            .unwrap();
        assert!(
            cluster.read(table, key.as_bytes()).unwrap().value == value(length),
            "{length}"
        );
    }
    let keys: Vec<String> = (0..500).map(|number: u32| format!("k{number}")).collect();
    let tickets: Vec<_> = keys
        .iter()
        .map(|key| {
            let (key, value) = (key.as_bytes(), key.as_bytes());
            let rules = client::RejectRules::default();
            cluster
                .submit(client::ops::Write {
                    table,
                    key,
                    value,
                    rules,
                })
                .unwrap()
        })
        .collect();
    for ticket in tickets {
        cluster.wait(ticket).unwrap();
    }
    let server = &store.servers[0];
    assert_eq!(metric(server, "fast_sessions"), 1);
    // 728 of them for a value of a megabyte.
    assert!(metric(server, "fast_packets_received") > 1300);
    assert_eq!(metric(server, "fast_packets_malformed"), 0);
}

/// Long values go out from where they lie in the log, which is cleaned meanwhile: what a reader gets is a whole value all the same, one that was written.
#[test]
fn long_values_are_whole_whatever_the_cleaner_does() {
    // So many that what is cleaned holds some that are read.
    const KEYS: u64 = 60;
    const BYTES: usize = 900_000;
    let store = Store::start(1, &[&UDP[..], &["-t", "96"]].concat());
    let table = store.cluster().create_table("long", 1).unwrap();
    let written = |key: u64, round: u64| -> Vec<u8> {
        let seed = (key << 32 | round).to_le_bytes();
        seed.into_iter().cycle().take(BYTES).collect()
    };
    let is_over = AtomicBool::new(false);
    let reads = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut cluster = store.cluster();
            let rules = client::RejectRules::default();
            while !is_over.load(Ordering::Relaxed) {
                let tickets: Vec<_> = (0..KEYS)
                    .map(|key| {
                        let key = key.to_le_bytes();
                        let read = client::ops::Read { table, key, rules };
                        cluster.submit(read).unwrap()
                    })
                    .collect();
                for (key, ticket) in (0..KEYS).zip(tickets) {
                    // It may not have been written yet.
                    let Ok(object) = cluster.wait(ticket) else {
                        continue;
                    };
                    let seed = u64::from_le_bytes(object.value[..8].try_into().unwrap());
                    assert_eq!(seed >> 32, key);
                    assert!(object.value == written(key, seed & 0xffff_ffff));
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        // Also if something fails here.
        let _guard = SetAtEnd(&is_over);
        let mut cluster = store.cluster();
        let server = &store.servers[0];
        let mut round = 0;
        while metric(server, "cleaned_segments") < 40 || reads.load(Ordering::Relaxed) < 300 {
            for number in 0..KEYS {
                // Some are overwritten often, others seldom.
                let key = number * number * (round + 1) % KEYS;
                let value = written(key, round);
                cluster.write(table, &key.to_le_bytes(), &value).unwrap();
            }
            round += 1;
            assert!(!reader.is_finished(), "the reader has failed");
            assert!(round < 2000, "nothing is cleaned, or nothing read");
        }
    });
}

struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_client_that_does_not_want_it_uses_tcp() {
    let store = Store::start(1, &UDP);
    let options = client::Options {
        fast: false,
        timeout: DEADLINE,
        ..client::Options::default()
    };
    let mut cluster = Cluster::with_options(&store.coordinator.locator, options).unwrap();
    let table = cluster.create_table("tcp", 1).unwrap();
    cluster.write(table, b"k", b"v").unwrap();
    assert_eq!(metric(&store.servers[0], "fast_packets_received"), 0);
}

#[test]
fn copies_and_recovery_go_over_datagrams() {
    let coordinator = Coordinator::start(&["--clusterTag", "0"]);
    let start = |name: &str| {
        Server::start(
            &coordinator,
            name,
            &[&UDP[..], &["--hostId", name, "-r", "2"]].concat(),
        )
    };
    let mut servers: Vec<Server> = ["a", "b", "c", "d"].map(start).into();
    for server in &servers {
        server.wait_ready();
    }
    let options = client::Options {
        timeout: DEADLINE,
        ..client::Options::default()
    };
    let mut cluster = Cluster::with_options(&coordinator.locator, options).unwrap();
    let table = cluster.create_table("copies", 4).unwrap();
    for number in 0..300u32 {
        cluster
            .write(table, &number.to_le_bytes(), &value(3000 + number as usize))
            .unwrap();
    }
    for server in &servers {
        // Clients' sessions and those of other masters.
        assert!(metric(server, "fast_sessions") >= 1);
        assert!(metric(server, "fast_packets_received") > 100);
    }
    let mut dead = servers.remove(0);
    dead.process.child.kill().unwrap();
    dead.process.wait();
    for number in 0..300u32 {
        let object = cluster.read(table, &number.to_le_bytes()).unwrap();
        assert!(object.value == value(3000 + number as usize), "{number}");
    }
}

/// Carries datagrams between clients and a server until it is cut.
struct Relay {
    address: SocketAddr,
    is_cut: Arc<AtomicBool>,
    carried: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Relay {
    /// `target` is where to; it may be set later.
    fn start(target: Arc<std::sync::Mutex<Option<SocketAddr>>>) -> Relay {
        let outside = UdpSocket::bind("127.0.0.1:0").unwrap();
        let inside = UdpSocket::bind("127.0.0.1:0").unwrap();
        for socket in [&outside, &inside] {
            socket.set_nonblocking(true).unwrap();
        }
        let address = outside.local_addr().unwrap();
        let (is_cut, carried, stop) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let state = (Arc::clone(&is_cut), Arc::clone(&carried), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let (is_cut, carried, stop) = state;
            let mut client = None;
            let mut bytes = [0; 2048];
            while !stop.load(Ordering::Relaxed) {
                let mut idle = true;
                if let Ok((length, from)) = outside.recv_from(&mut bytes) {
                    idle = false;
                    client = Some(from);
                    let target = *target.lock().unwrap();
                    if let Some(target) = target.filter(|_| !is_cut.load(Ordering::Relaxed)) {
                        inside.send_to(&bytes[..length], target).unwrap();
                        carried.fetch_add(1, Ordering::Relaxed);
                    }
                }
                if let Ok((length, _)) = inside.recv_from(&mut bytes) {
                    idle = false;
                    if let Some(client) = client.filter(|_| !is_cut.load(Ordering::Relaxed)) {
                        outside.send_to(&bytes[..length], client).unwrap();
                    }
                }
                if idle {
                    std::thread::yield_now();
                }
            }
        });
        Relay {
            address,
            is_cut,
            carried,
            stop,
            thread: Some(thread),
        }
    }

    fn carried(&self) -> u64 {
        self.carried.load(Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

#[test]
fn a_client_falls_back_to_tcp_when_the_faster_way_dies_and_comes_back_to_it() {
    let target = Arc::new(std::sync::Mutex::new(None));
    let relay = Relay::start(Arc::clone(&target));
    let coordinator = Coordinator::start(&["--clusterTag", "0"]);
    let advertise = format!(
        "tcp:host=127.0.0.1,port=0;fast+udp:host=127.0.0.1,port={}",
        relay.address.port()
    );
    let udp = UdpSocket::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let listen = format!("fast+udp:host=127.0.0.1,port={}", udp.port());
    let server = Server::start(
        &coordinator,
        "m",
        &["-L", &listen, "--advertise", &advertise],
    );
    *target.lock().unwrap() = Some(udp);
    server.wait_ready();
    let options = client::Options {
        timeout: DEADLINE,
        ..client::Options::default()
    };
    let mut cluster = Cluster::with_options(&coordinator.locator, options).unwrap();
    let table = cluster.create_table("ways", 1).unwrap();
    for number in 0..50u32 {
        cluster
            .write(table, &number.to_le_bytes(), b"before")
            .unwrap();
    }
    assert!(relay.carried() >= 50, "{} carried", relay.carried());

    relay.is_cut.store(true, Ordering::Relaxed);
    for number in 0..50u32 {
        cluster
            .write(table, &number.to_le_bytes(), b"meanwhile")
            .unwrap();
        assert_eq!(
            cluster.read(table, &number.to_le_bytes()).unwrap().value,
            b"meanwhile"[..]
        );
    }
    let while_cut = relay.carried();

    relay.is_cut.store(false, Ordering::Relaxed);
    wait_for("operations that take the faster way again", || {
        cluster.write(table, b"k", b"after").unwrap();
        std::thread::sleep(Duration::from_millis(1));
        (relay.carried() > while_cut + 100).then_some(())
    });
    for number in 0..50u32 {
        assert_eq!(
            cluster.read(table, &number.to_le_bytes()).unwrap().value,
            b"meanwhile"[..]
        );
    }
}

/// What the store shows of a member's only port, once it is so.
fn wait_for_port(
    coordinator: &Coordinator,
    member: &str,
    what: &str,
    is_so: impl Fn(&Value) -> bool,
) -> Value {
    wait_for(what, || {
        let status = coordinator.status();
        let mut members = status["members"].as_array().unwrap().iter();
        let member = members.find(|one| one["name"] == member)?;
        let port = &member["network"][0];
        is_so(port).then(|| port.clone())
    })
}

/// How long each ping of a port took, in nanoseconds, by the peer's name.
fn round_trips(port: &Value) -> BTreeMap<String, u64> {
    let pings = port["pings"].as_array().into_iter().flatten();
    let times = pings.map(|ping| {
        let member = ping["member"].as_str().unwrap().to_owned();
        (member, ping["roundTripNs"].as_u64().unwrap())
    });
    times.collect()
}

#[test]
fn a_server_tells_of_its_port_and_of_whom_it_reaches_by_it() {
    let coordinator = Coordinator::start(&["--clusterTag", "0"]);
    let start = |name: &str| {
        let own = ["--hostId", name, "-r", "2", "--cores", "2"];
        Server::start(&coordinator, name, &[&UDP[..], &own].concat())
    };
    let without = Server::start(&coordinator, "d", &["-r", "2", "--hostId", "d"]);
    let servers: Vec<Server> = ["a", "b", "c"].map(start).into();
    for server in servers.iter().chain([&without]) {
        server.wait_ready();
    }
    let port = wait_for_port(&coordinator, "a", "a port that reaches others", |port| {
        let reached = round_trips(port);
        !reached.is_empty() && reached.values().all(|&time| time > 0)
    });
    for (what, told) in [
        ("ip", json!("127.0.0.1")),
        ("mac", json!("")),
        ("pci", json!("")),
        ("driver", json!("kernel")),
        ("linkUp", json!(true)),
        ("mtu", json!(1500)),
    ] {
        assert_eq!(port[what], told, "{what} of {port}");
    }
    assert_ne!(port["interface"], "");
    assert!(
        round_trips(&port)
            .keys()
            .all(|peer| peer == "b" || peer == "c")
    );
    // Two ports for two shards are one for people, and who has none is not missed.
    let status = coordinator.status();
    for member in status["members"].as_array().unwrap() {
        let ports = usize::from(member["name"] != "d");
        assert_eq!(member["network"].as_array().unwrap().len(), ports);
    }
    let shown = common::rcbox(&coordinator.locator, &["status"], b"");
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("PORT OF"), "{shown}");
}

#[test]
fn a_server_says_over_which_way_it_reaches_others_when_one_is_cut() {
    let target = Arc::new(std::sync::Mutex::new(None));
    let relay = Relay::start(Arc::clone(&target));
    let coordinator = Coordinator::start(&["--clusterTag", "0"]);
    let start = |name: &str, more: &[&str]| {
        let own = ["--hostId", name, "-r", "1"];
        Server::start(&coordinator, name, &[more, &own].concat())
    };
    // Other servers are told the port that is 100 above the one for clients: there is the relay.
    let advertise = format!(
        "tcp:host=127.0.0.1,port=0;fast+udp:host=127.0.0.1,port={}",
        relay.address.port() - 100
    );
    let free = || UdpSocket::bind("127.0.0.1:0").unwrap();
    let (clients, peers) = (free(), free());
    let [clients, peers] = [clients, peers].map(|socket| socket.local_addr().unwrap());
    let listen = format!(
        "fast+udp:host=127.0.0.1,port={},peerPort={}",
        clients.port(),
        peers.port()
    );
    let far = start("far", &["-L", &listen, "--advertise", &advertise]);
    *target.lock().unwrap() = Some(peers);
    let near = start("near", &UDP);
    far.wait_ready();
    near.wait_ready();
    let ways = || {
        let ways = ["fast_backups", "fast_backups_over_tcp"];
        ways.map(|name| metric(&near, name))
    };
    let by_port = |port: &Value| round_trips(port).get("far").is_some_and(|&time| time > 0);
    let over_tcp = |port: &Value| round_trips(port).get("far") == Some(&0);
    wait_for_port(&coordinator, "near", "a peer that is reached", by_port);
    assert_eq!(ways(), [1, 0]);

    relay.is_cut.store(true, Ordering::Relaxed);
    wait_for_port(&coordinator, "near", "a peer that is not reached", over_tcp);
    assert_eq!(ways(), [0, 1]);
    // It is the way that is cut, and not the store.
    let options = client::Options {
        // The relay is for one at a time.
        fast: false,
        timeout: DEADLINE,
        ..client::Options::default()
    };
    let mut cluster = Cluster::with_options(&coordinator.locator, options).unwrap();
    let table = cluster.create_table("meanwhile", 2).unwrap();
    cluster.write(table, b"k", b"v").unwrap();

    relay.is_cut.store(false, Ordering::Relaxed);
    wait_for_port(
        &coordinator,
        "near",
        "a peer that is reached again",
        by_port,
    );
    assert_eq!(ways(), [1, 0]);
}

#[test]
fn a_wrong_listener_is_explained() {
    let coordinator = Coordinator::start(&[]);
    for (listen, part) in [
        ("fast+udp:host=name,port=1", "IPv4 address"),
        ("fast+udp:host=127.0.0.1,port=0,mtu=100", "MTU of 100"),
        (
            "infrc:host=127.0.0.1,port=1",
            "use tcp, fast+udp or fast+dpdk",
        ),
    ] {
        let output = std::process::Command::new(common::program("server"))
            .args([
                "-C",
                &coordinator.locator,
                "-L",
                "tcp:host=127.0.0.1,port=0",
                "-L",
                listen,
            ])
            .output()
            .unwrap();
        assert!(!output.status.success());
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(part), "{text}");
    }
}
