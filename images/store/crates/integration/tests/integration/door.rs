//! Hostile and broken clients by the thousand, against real processes: they stop neither PING nor other clients, and their memory stays
//! within its account.

use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::time::{Duration, Instant};

use crate::common::{self, Server, Store, http_get, wait_for};
use rustix::process::{Resource, getrlimit, setrlimit};

/// Far above what an answer takes, even while hundreds of megabytes are asked for and not read (below a second): whoever waits for longer
/// is kept out.
const PROMPT: Duration = Duration::from_secs(20);
/// What the server may use for all connections' buffers with `-t 64`: the least that there is.
const BUFFER_BYTES: u64 = 32 << 20;
/// What a connection costs beside its buffers: its state here and there, and what the allocator keeps for later.
const CONNECTION_BYTES: u64 = 4 << 10;
const SLACK_BYTES: u64 = 24 << 20;

/// Both ends of every connection are files of this machine; here are ours.
fn allow_many_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
}

/// A client as there should be: everything that it asks is answered promptly, PING among it.
struct Good {
    cluster: client::Cluster,
    table: client::TableId,
    pings: TcpStream,
    slowest: Duration,
}

impl Good {
    fn new(store: &Store) -> Good {
        let mut cluster = store.cluster();
        let table = cluster.create_table("good", 1).unwrap();
        cluster.write(table, b"key", b"value").unwrap();
        let pings = connect(store.servers[0].shards[0]);
        Good {
            cluster,
            table,
            pings,
            slowest: Duration::ZERO,
        }
    }

    fn is_served(&mut self) {
        let start = Instant::now();
        assert_eq!(
            self.cluster.read(self.table, b"key").unwrap().value,
            b"value"[..]
        );
        self.cluster.write(self.table, b"other", b"value").unwrap();
        let mut ping = Vec::new();
        let caller = client::ServerId::INVALID;
        wire::rpc::PingRequest { caller }.encode(&mut ping);
        self.pings
            .write_all(&transport::rpc::header(7, ping.len() as u32))
            .unwrap();
        self.pings.write_all(&ping).unwrap();
        let mut pong = [0; 16];
        self.pings.read_exact(&mut pong).unwrap();
        assert_eq!(pong[12..], [0; 4]);
        let took = start.elapsed();
        self.slowest = self.slowest.max(took);
        assert!(took < PROMPT, "a read, a write and a ping took {took:?}");
    }
}

fn connect(address: SocketAddrV4) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(common::DEADLINE)).unwrap();
    stream
        .set_write_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    stream
}

/// Opens connections, gives each to `greet`, and looks after the good client and the server's memory meanwhile.
fn besiege(
    store: &Store,
    good: &mut Good,
    count: usize,
    before: u64,
    mut greet: impl FnMut(&mut TcpStream),
) -> Vec<TcpStream> {
    let server = &store.servers[0];
    let mut streams = Vec::with_capacity(count);
    for number in 0..count {
        let mut stream = connect(server.shards[0]);
        greet(&mut stream);
        streams.push(stream);
        if number % 100 == 99 {
            good.is_served();
            let bound = before + BUFFER_BYTES + count as u64 * CONNECTION_BYTES + SLACK_BYTES;
            let now = server.process.resident_bytes();
            assert!(now <= bound, "{} MiB, {} allowed", now >> 20, bound >> 20);
        }
    }
    good.is_served();
    let slowest = std::mem::take(&mut good.slowest);
    eprintln!("beside {count} bad clients: at most {slowest:?}");
    streams
}

/// A read of the object under "large".
fn large_read(table: client::TableId) -> Vec<u8> {
    let mut payload = Vec::new();
    let rules = client::RejectRules::default();
    wire::rpc::ReadRequest {
        table_id: table,
        rules,
        key: b"large",
    }
    .encode(&mut payload);
    [
        &transport::rpc::header(1, payload.len() as u32)[..],
        &payload,
    ]
    .concat()
}

#[test]
fn thousands_of_bad_clients_harm_nobody() {
    allow_many_files();
    let store = Store::start(1, &["-t", "64", "--commitAhead", "false"]);
    let mut good = Good::new(&store);
    good.cluster
        .write(good.table, b"large", &vec![7; 1 << 20])
        .unwrap();
    good.is_served();
    let before = store.servers[0].process.resident_bytes();
    let table = good.table;

    // Silent.
    drop(besiege(&store, &mut good, 2000, before, |_| {}));
    // Half of a header, and no more.
    drop(besiege(&store, &mut good, 2000, before, |stream| {
        stream.write_all(&[1, 2, 3, 4, 5, 6]).unwrap();
    }));
    // The largest message announced, a little of it sent: what is announced takes no memory.
    drop(besiege(&store, &mut good, 2000, before, |stream| {
        stream
            .write_all(&transport::rpc::header(1, 8_000_000))
            .unwrap();
        stream.write_all(&[0; 3000]).unwrap();
    }));
    // Other protocols. Their first bytes read as a length of anything.
    drop(besiege(&store, &mut good, 1000, before, |stream| {
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: store\r\n\r\n")
            .unwrap();
    }));
    drop(besiege(&store, &mut good, 1000, before, |stream| {
        stream
            .write_all(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\xff\xff\xff\xff\xff")
            .unwrap();
    }));
    // Those that ask for megabytes and never read them; some are closed for it.
    let request = large_read(table);
    drop(besiege(&store, &mut good, 300, before, |stream| {
        for _ in 0..20 {
            let _ = stream.write(&request);
        }
    }));
    // Large messages that stop in the middle, more of them than there is memory for.
    drop(besiege(&store, &mut good, 100, before, |stream| {
        let _ = stream.write_all(&transport::rpc::header(1, 8_000_000));
        let _ = stream.write_all(&[0; 1_000_000]);
    }));
    good.is_served();

    // When all are gone, so is what they took.
    wait_for("connections and buffers to be gone", || {
        let (_, metrics) = http_get(store.servers[0].http, "/metrics");
        let value = |name: &str| -> Option<f64> {
            let line = metrics.lines().find(|line| line.starts_with(name))?;
            line.rsplit(' ').next()?.parse().ok()
        };
        let (open, bytes) = (value("rcbox_connections{")?, value("rcbox_buffers_bytes{")?);
        (open < 10.0 && bytes < 4e6).then_some(())
    });
    good.is_served();
}

#[test]
fn silent_connections_do_not_keep_probes_and_administrators_out() {
    allow_many_files();
    let store = Store::start(1, &[]);
    let (coordinator, server) = (&store.coordinator, &store.servers[0]);
    let mut held = Vec::new();
    for address in [
        coordinator.http,
        coordinator.admin,
        coordinator.member,
        server.http,
    ] {
        for number in 0..600 {
            let mut stream = connect(address);
            // Every other one says a little of what could be a request.
            if number % 2 == 0 {
                let _ = stream.write_all(b"GET /re");
            }
            held.push(stream);
        }
        assert_eq!(http_get(coordinator.http, "/readyz").0, 200);
        assert_eq!(http_get(server.http, "/readyz").0, 200);
        assert_eq!(coordinator.wait_for_members(1)["members"][0]["name"], "m0");
    }
    // Another member still gets in.
    let another = Server::start(coordinator, "m1", &[]);
    another.wait_ready();
    coordinator.wait_for_members(2);
}
