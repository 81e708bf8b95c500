//! What a client may count on, over real sockets: general errors, exactly-once writes, liveness, bounds.

use std::io::{Read, Write};
use std::time::Duration;

use crate::common::{Rpc, Server, Store, hex, http_get, to_hex, wait_for};
use client::{RejectRules, Status, WriteObject};
use wire::rpc::{Lease, RemoveRequest, WriteRequest};

const OK: u32 = 0;
const MESSAGE_TOO_SHORT: u32 = 7;
const UNIMPLEMENTED_REQUEST: u32 = 8;
const REQUEST_FORMAT_ERROR: u32 = 9;
const SERVICE_NOT_AVAILABLE: u32 = 18;

const PING: &str = "0700030000000000ffffffff";

fn create_table(store: &Store, name: &str, span: u32) -> u64 {
    store.cluster().create_table(name, span).unwrap().0
}

/// A write with chosen lease, RPC id and acknowledgement.
fn write_request(
    table: u64,
    lease: Lease,
    rpc_id: u64,
    ack_id: u64,
    key: &[u8],
    value: &[u8],
) -> Vec<u8> {
    let mut request = hex("0e000000");
    request.extend_from_slice(&table.to_le_bytes());
    for part in [
        lease.id,
        lease.expiration_ns,
        lease.timestamp_ns,
        rpc_id,
        ack_id,
    ] {
        request.extend_from_slice(&part.to_le_bytes());
    }
    let keys_and_value = [&[1][..], &(key.len() as u16).to_le_bytes(), key, value].concat();
    request.extend_from_slice(&(keys_and_value.len() as u32).to_le_bytes());
    request.extend_from_slice(&[0; 13]);
    request.extend_from_slice(&keys_and_value);
    assert!(WriteRequest::decode(&request).is_ok());
    request
}

#[test]
fn malformed_requests_get_the_documented_status_and_the_connection_lives_on() {
    let store = Store::start(1, &[]);
    create_table(&store, "t", 1);
    let (mut client, mut master) = (store.client(), store.master());
    // Either process: too short for a header; illegal opcode; illegal service; a service that runs elsewhere.
    for (connection, wrong_service) in [(&mut client, "0d000000"), (&mut master, "0a000200")] {
        assert_eq!(connection.status(b"x\0\0"), MESSAGE_TOO_SHORT);
        assert_eq!(connection.call(b""), MESSAGE_TOO_SHORT.to_le_bytes());
        assert_eq!(connection.status(&hex("51000000")), UNIMPLEMENTED_REQUEST);
        assert_eq!(connection.status(&hex("07000400")), SERVICE_NOT_AVAILABLE);
        assert_eq!(
            connection.status(&hex(wrong_service)),
            SERVICE_NOT_AVAILABLE
        );
        assert_eq!(connection.call(&hex(PING)), OK.to_le_bytes());
        assert_eq!(
            connection.status(&hex("07000300")),
            MESSAGE_TOO_SHORT,
            "PING without its caller id"
        );
    }
    // An opcode of another service, and one that nobody uses.
    assert_eq!(client.status(&hex("0d000200")), UNIMPLEMENTED_REQUEST);
    assert_eq!(master.status(&hex("00000000")), UNIMPLEMENTED_REQUEST);
    // Strings: empty, without NUL at the end, running past the message.
    assert_eq!(
        client.status(&hex("0b00020000000000")),
        REQUEST_FORMAT_ERROR
    );
    assert_eq!(
        client.status(&hex("0b0002000300000063617078")),
        REQUEST_FORMAT_ERROR
    );
    assert_eq!(
        client.status(&hex("0b0002000900000063617000")),
        MESSAGE_TOO_SHORT
    );
    // READ whose key runs past the message.
    assert_eq!(
        master.status(&hex(
            "0d00000001000000000000000900000000000000000000000000616263"
        )),
        MESSAGE_TOO_SHORT
    );
    assert_eq!(client.call(&hex(PING)), OK.to_le_bytes());
    assert_eq!(master.call(&hex(PING)), OK.to_le_bytes());
}

#[test]
fn an_over_long_message_is_cut_and_the_next_one_is_understood() {
    let store = Store::start(1, &[]);
    let mut master = store.master();
    let length = wire::rpc::MAX_RPC_BYTES + 1_000_000;
    let mut long = vec![0; length];
    long[..2].copy_from_slice(&80u16.to_le_bytes()); // ECHO, which says how long it is
    let behind_the_fixed_part = u32::try_from(length - 12).unwrap();
    long[4..8].copy_from_slice(&behind_the_fixed_part.to_le_bytes());
    master.send(1, &long);
    let mut too_short = MESSAGE_TOO_SHORT.to_le_bytes().to_vec();
    too_short.resize(12, 0);
    assert_eq!(master.receive(), (1, too_short));
    assert_eq!(master.call(&hex(PING)), OK.to_le_bytes());
    store.servers[0].process.line(&["was cut"]);
}

#[test]
fn a_retried_write_takes_effect_once() {
    let store = Store::start(1, &[]);
    let table = create_table(&store, "t", 1);
    let lease = store.cluster().acquire_lease().unwrap();
    let first = write_request(table, lease, 1, 0, b"key", b"first");
    let mut master = store.master();
    let answer = master.call(&first);
    assert_eq!(to_hex(&answer), "000000000100000000000000");
    assert_eq!(
        master.call(&first),
        answer,
        "the recorded answer, on the same connection"
    );
    let mut other = store.master();
    assert_eq!(other.call(&first), answer, "and on another one");
    assert_eq!(
        to_hex(&other.call(&write_request(table, lease, 2, 1, b"key", b"second"))),
        "000000000200000000000000"
    );
    const STALE_RPC: u32 = 31;
    assert_eq!(
        master.status(&first),
        STALE_RPC,
        "acknowledged by the second"
    );
    let mut cluster = store.cluster();
    let object = cluster.read(base::ids::TableId(table), b"key").unwrap();
    assert_eq!((object.version, &object.value[..]), (2, &b"second"[..]));
}

#[test]
fn leases_are_honoured() {
    let store = Store::start(1, &[]);
    let table = create_table(&store, "t", 1);
    let mut master = store.master();
    const EXPIRED_LEASE: u32 = 32;
    let unknown = Lease {
        id: 999,
        expiration_ns: 0,
        timestamp_ns: 0,
    };
    let answer = master.call_until_done(&write_request(table, unknown, 1, 0, b"key", b"x"));
    assert_eq!(answer[..4], EXPIRED_LEASE.to_le_bytes());
    let mut remove = Vec::new();
    RemoveRequest {
        table_id: base::ids::TableId(table),
        lease: unknown,
        rpc_id: 1,
        ack_id: 0,
        rules: RejectRules::default(),
        key: b"key",
    }
    .encode(&mut remove);
    assert_eq!(
        master.call_until_done(&remove)[..4],
        EXPIRED_LEASE.to_le_bytes()
    );
}

#[test]
fn pings_are_answered_while_a_request_waits() {
    // No server at all: CREATE_TABLE is told to come again in seconds, and a client would wait; PING does not.
    let store = Store::start(0, &[]);
    let mut client = store.client();
    client.send(1, &hex("0a000200040000000100000063617000"));
    client.send(2, &hex(PING));
    let mut nonces = [client.receive().0, client.receive().0];
    nonces.sort_unstable();
    assert_eq!(nonces, [1, 2]);
    // A stopped server: the coordinator holds the answer back until it has done its part, and answers pings meanwhile.
    let store = Store::start(1, &[]);
    store.servers[0].process.stop();
    let mut client = store.client();
    client.send(1, &hex("0a000200040000000100000063617000"));
    client.send(2, &hex(PING));
    assert_eq!(client.receive().0, 2, "the ping overtakes");
    store.servers[0].process.signal("CONT");
    assert_eq!(client.receive(), (1, hex("000000000100000000000000")));
}

#[test]
fn bad_connections_do_not_stop_others() {
    let store = Store::start(1, &[]);
    let table = create_table(&store, "t", 1);
    let mut cluster = store.cluster();
    cluster
        .write(base::ids::TableId(table), b"key", &vec![7; 1_000_000])
        .unwrap();

    let mut half_open: Vec<Rpc> = (0..20).map(|_| store.master()).collect();
    for connection in &mut half_open {
        // A header, and a part of what it announces.
        connection
            .stream
            .write_all(&transport::rpc::header(1, 1000))
            .unwrap();
        connection.stream.write_all(b"part").unwrap();
    }
    let mut garbage = store.master();
    garbage.stream.write_all(&[0xff; 10_000]).unwrap();
    let mut greedy = store.master();
    let mut read = hex("0d000000");
    read.extend_from_slice(&table.to_le_bytes());
    read.extend_from_slice(&3u16.to_le_bytes());
    read.extend_from_slice(&[0; 12]);
    read.extend_from_slice(b"key");
    for nonce in 0..100 {
        greedy.send(nonce, &read); // 100 MB that nobody reads.
    }
    let mut member = Rpc::connect(store.coordinator.member);
    member.stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    // The preface comes, then the end: what a closed socket still had to read may turn that into a reset.
    let mut end = Vec::new();
    let _ = member.stream.read_to_end(&mut end);

    for version in 1..=100 {
        assert_eq!(
            cluster
                .write(base::ids::TableId(table), b"other", b"value")
                .unwrap(),
            version + 1
        );
    }
    assert_eq!(
        store.coordinator.wait_for_members(1)["members"][0]["name"],
        "m0"
    );
    for nonce in 0..100 {
        let (got, answer) = greedy.receive();
        assert_eq!((got, answer.len()), (nonce, 1_000_016));
    }
}

#[test]
fn a_full_memory_refuses_writes_at_once_and_serves_reads_and_removes() {
    let store = Store::start(1, &["-t", "32"]);
    let table = base::ids::TableId(create_table(&store, "t", 1));
    let mut cluster = store.cluster();
    let value = vec![1; 100_000];
    let mut written = 0u32;
    let error = loop {
        match cluster.write(table, &written.to_le_bytes(), &value) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 1000, "the memory has an end");
    };
    assert_eq!(error.status(), Some(Status::NoTableSpace), "{error}");
    assert!(error.to_string().contains("full"), "{error}");
    assert!(written > 50, "{written} objects of 100 kB in 32 MB");
    for key in 0..written {
        assert_eq!(
            cluster.read(table, &key.to_le_bytes()).unwrap().value,
            value
        );
    }
    for key in 0..written / 2 {
        cluster.remove(table, &key.to_le_bytes()).unwrap();
    }
    // The room comes back, for as many overwrites as anybody likes.
    for round in 0..3 {
        for key in 0..written / 2 {
            wait_for("room for a write", || {
                cluster
                    .write(table, &key.to_le_bytes(), &[round; 90_000])
                    .ok()
            });
        }
    }
    assert_eq!(
        cluster.read(table, &0u32.to_le_bytes()).unwrap().value,
        [2; 90_000][..]
    );
}

#[test]
fn multi_writes_and_conditions_work_through_the_library() {
    let store = Store::start(1, &[]);
    let mut cluster = store.cluster();
    let table = cluster.create_table("t", 1).unwrap();
    let keys: Vec<[u8; 4]> = (0..5000u32).map(u32::to_le_bytes).collect();
    let objects: Vec<WriteObject<'_>> = keys
        .iter()
        .map(|key| WriteObject {
            table,
            key,
            value: b"value",
            rules: RejectRules::default(),
        })
        .collect();
    let versions = cluster.multi_write(&objects).unwrap();
    assert!(versions.iter().all(Result::is_ok));
    assert_eq!(
        cluster.read(table, &keys[4999]).unwrap().value,
        b"value"[..]
    );

    let only_new = RejectRules {
        exists: true,
        ..RejectRules::default()
    };
    let error = cluster
        .write_if(table, &keys[0], b"x", &only_new)
        .unwrap_err();
    assert_eq!(error.status(), Some(Status::ObjectExists));
    let version = cluster.read(table, &keys[0]).unwrap().version;
    let only_this = RejectRules {
        version_ne_given: true,
        given_version: version,
        ..RejectRules::default()
    };
    assert_eq!(
        cluster.write_if(table, &keys[0], b"y", &only_this).unwrap(),
        version + 1
    );
    assert_eq!(
        cluster
            .write_if(table, &keys[0], b"z", &only_this)
            .unwrap_err()
            .status(),
        Some(Status::WrongVersion)
    );
    assert_eq!(cluster.remove(table, &keys[0]).unwrap(), version + 1);
    assert!(cluster.read(table, &keys[0]).unwrap_err().is_absent());
    assert_eq!(cluster.remove(table, &keys[0]).unwrap(), 0);
}

#[test]
fn tables_are_spread_over_the_shards_of_all_servers() {
    let store = Store::start(2, &["--cores", "2"]);
    let mut cluster = store.cluster();
    let table = cluster.create_table("wide", 2).unwrap();
    for key in 0..1000u32 {
        cluster
            .write(table, &key.to_le_bytes(), &key.to_be_bytes())
            .unwrap();
    }
    for key in 0..1000u32 {
        assert_eq!(
            cluster.read(table, &key.to_le_bytes()).unwrap().value,
            key.to_be_bytes()[..]
        );
    }
    let tables = store.coordinator.tables();
    let tablets = tables[0]["tablets"].as_array().unwrap();
    let mut servers: Vec<&str> = tablets
        .iter()
        .map(|tablet| tablet["serverId"].as_str().unwrap())
        .collect();
    servers.sort_unstable();
    assert_eq!(
        servers,
        ["1.0", "2.0", "3.0", "4.0"],
        "each shard has one part"
    );
    for server in &store.servers {
        let (status, metrics) = http_get(server.http, "/metrics");
        assert_eq!(status, 200);
        for shard in ["0", "1"] {
            let name = format!("rcbox_messages_received_total{{shard=\"{shard}\"}} ");
            let line = metrics
                .lines()
                .find_map(|line| line.strip_prefix(&name))
                .unwrap();
            assert!(
                line.parse::<u64>().unwrap() > 200,
                "shard {shard} had its part of 2000 requests: {line}"
            );
        }
    }
}

#[test]
fn an_idle_store_uses_no_cpu() {
    let store = Store::start(1, &["--cores", "2"]);
    let mut cluster = store.cluster();
    let table = cluster.create_table("t", 2).unwrap();
    for key in 0..1000u32 {
        cluster.write(table, &key.to_le_bytes(), b"x").unwrap();
    }
    let used = || store.servers[0].process.cpu_time() + store.coordinator.process.cpu_time();
    let before = used();
    // The one wait for time itself: this is how long idleness is watched.
    std::thread::sleep(Duration::from_secs(2));
    let spent = used() - before;
    assert!(
        spent < Duration::from_millis(500),
        "{spent:?} of CPU time in 2 s; one endless spin would be 2 s"
    );
}

#[test]
fn health_is_told_over_http() {
    let store = Store::start(1, &[]);
    for address in [store.coordinator.http, store.servers[0].http] {
        assert_eq!(http_get(address, "/healthz"), (200, "ok\n".to_owned()));
        assert_eq!(http_get(address, "/readyz"), (200, "ok\n".to_owned()));
        assert_eq!(http_get(address, "/nothing").0, 404);
        let metrics = http_get(address, "/metrics").1;
        let types = metrics
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE "));
        let documented = include_str!("../../../../../../docs/metrics.md");
        for (name, kind) in types.filter_map(|line| line.split_once(' ')) {
            let total = if kind == "counter" { "_total" } else { "" };
            let row = format!("| `{name}{total}` | {kind} |");
            assert!(documented.contains(&row), "docs/metrics.md has no {row}");
        }
    }
    assert!(
        http_get(store.coordinator.http, "/metrics")
            .1
            .contains("rcbox_members_up 1\n")
    );
    // A server without a coordinator is not ready; one that has been let in stays so while its coordinator is away.
    let Store {
        mut coordinator,
        servers,
    } = store;
    coordinator.process.signal("KILL");
    coordinator.process.wait();
    let stranger = Server::start(&coordinator, "m1", &[]);
    let (status, text) = http_get(stranger.http, "/readyz");
    assert_eq!(status, 503);
    assert!(text.contains("not enlisted"), "{text}");
    servers[0]
        .process
        .line(&["connection to the coordinator lost"]);
    assert_eq!(http_get(servers[0].http, "/readyz").0, 200);
}
