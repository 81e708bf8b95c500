//! What requests ask of the allocator, counted: the fast path nothing, and a request that is refused next to nothing.

use base::ids::{ReplyTo, ServerId, TableId};
use base::time::Time;
use master::{Config, Identity, Shard, ShardEffects, ShardEvent};
use test_memory::{allocations, peak_of};
use wire::keys::KeysAndValue;
use wire::member::{TabletRange, ToCoordinator, ToShard, Welcome, coordinator};
use wire::rpc::{
    EnumerateRequest, Increment, IncrementRequest, Lease, MAX_RPC_BYTES, MultiIncrementPart,
    MultiIncrementRequest, MultiReadPart, MultiReadRequest, MultiRemovePart, MultiRemoveRequest,
    MultiWritePart, MultiWriteRequest, ReadRequest, RejectRules, RemoveRequest, WriteRequest,
};

/// Counts replies and looks at their first byte: 0 is OK.
struct Replies {
    good: u64,
    bad: u64,
}

impl ShardEffects for Replies {
    fn reply(&mut self, _to: ReplyTo, parts: &[&[u8]]) {
        match parts[0][0] {
            0 => self.good += 1,
            _ => self.bad += 1,
        }
    }
    fn send_coordinator(&mut self, _message: ToCoordinator) {}
    fn report(&mut self, event: ShardEvent) {
        panic!("{event}");
    }
}

const TABLE: TableId = TableId(1);

fn enlisted(out: &mut Replies) -> Shard {
    let config = Config::from_memory(64 << 20, 10).unwrap();
    let identity = Identity {
        member: "m".to_owned(),
        instance: "i".to_owned(),
        process: 1,
        host_id: "h".to_owned(),
        shard_index: 0,
        shard_count: 1,
        locator: "tcp:host=127.0.0.1,port=1".to_owned(),
        coordinator: "tcp:host=127.0.0.1,port=11100".to_owned(),
        build_version: "test".to_owned(),
        backup_locator: String::new(),
        peer_locator: String::new(),
        domain: String::new(),
    };
    let mut shard = Shard::new(config, identity, Time::ZERO);
    let welcome = Welcome {
        cluster_id: 1,
        server_id: ServerId::new(1, 0).0,
        cluster_time_ns: 1,
        first_version: 1,
        tablets: vec![TabletRange {
            table_id: TABLE.0,
            start_key_hash: 0,
            end_key_hash: u64::MAX,
        }],
        silence_timeout_ms: 1000,
        ..Default::default()
    };
    let kind = coordinator::Kind::Welcome(welcome);
    shard.coordinator_message(Time::ZERO, ToShard::from(kind), out);
    shard
}

const LEASE: Lease = Lease {
    id: 1,
    expiration_ns: u64::MAX,
    timestamp_ns: 0,
};

fn write(payload: &mut Vec<u8>, rpc_id: u64, key: &[u8]) {
    payload.clear();
    WriteRequest {
        table_id: TABLE,
        lease: LEASE,
        rpc_id,
        ack_id: rpc_id - 1,
        rules: RejectRules::default(),
        is_async: false,
        object: KeysAndValue::single(key, &[1; 100]).unwrap(),
    }
    .encode(payload);
}

#[test]
fn reads_writes_and_cleaning_allocate_nothing() {
    let mut out = Replies { good: 0, bad: 0 };
    let mut shard = enlisted(&mut out);
    let to = ReplyTo {
        connection: 1,
        nonce: 1,
    };
    let mut payload = Vec::with_capacity(1000);
    let (mut rpc_id, keys) = (0, 20_000u64);
    let mut write_all = |shard: &mut Shard, out: &mut Replies| {
        for key in 0..keys {
            rpc_id += 1;
            write(&mut payload, rpc_id, &key.to_le_bytes());
            shard.request(Time::ZERO, to, &payload, out);
            shard.tick(Time::ZERO, out);
        }
    };
    // All keys are there, and the cleaner has been round once.
    while shard.stats().segments_cleaned == 0 {
        write_all(&mut shard, &mut out);
    }
    let mut read = Vec::new();
    ReadRequest {
        table_id: TABLE,
        rules: RejectRules::default(),
        key: &7u64.to_le_bytes(),
    }
    .encode(&mut read);

    let cleaned = shard.stats().segments_cleaned;
    let before = allocations();
    for _ in 0..keys {
        shard.request(Time::ZERO, to, &read, &mut out);
    }
    assert_eq!(allocations() - before, 0, "reads");

    let some: [[u8; 8]; 100] = std::array::from_fn(|key| (key as u64 * 31).to_le_bytes());
    let parts: Vec<_> = some
        .iter()
        .map(|key| MultiReadPart {
            table_id: TABLE,
            rules: RejectRules::default(),
            key,
        })
        .collect();
    let mut multi_read = Vec::new();
    MultiReadRequest::encode_parts(&parts, &mut multi_read);
    // The first one makes the room that later ones use again.
    shard.request(Time::ZERO, to, &multi_read, &mut out);
    let reads = shard.stats().reads;
    let before = allocations();
    for _ in 0..1000 {
        shard.request(Time::ZERO, to, &multi_read, &mut out);
    }
    assert_eq!(allocations() - before, 0, "multi-reads");
    assert_eq!(shard.stats().reads - reads, 100 * 1000);

    let before = allocations();
    for _ in 0..10 {
        write_all(&mut shard, &mut out);
    }
    let asked = allocations() - before;
    assert!(shard.stats().segments_cleaned > cleaned + 5);
    assert_eq!(out.bad, 0);
    // Counting tombstones by segment may allocate once per pair of segments, never per request.
    let segments = shard.stats().segments_cleaned - cleaned;
    assert!(
        asked <= 64 * segments,
        "{asked} allocations, {segments} segments cleaned"
    );
}

/// One request of each kind that the store executes on objects, with the n-th number of its client.
fn one_of_each(n: u64, requests: &mut [Vec<u8>; 9]) {
    let rules = RejectRules::default();
    let by = Increment {
        int64: 1,
        double: 0.0,
    };
    let table_id = TABLE;
    let rpc_id = |nth: u64| 3 * n + nth;
    for request in &mut *requests {
        request.clear();
    }
    let [
        read,
        whole,
        written,
        incremented,
        removed,
        reads,
        writes,
        increments,
        removes,
    ] = requests;
    let (key, number) = (&b"key"[..], &b"number"[..]);
    let request = ReadRequest {
        table_id,
        rules,
        key,
    };
    request.encode(read);
    request.encode_for_keys_and_value(whole);
    write(written, rpc_id(1), key);
    IncrementRequest {
        table_id,
        lease: LEASE,
        rpc_id: rpc_id(2),
        ack_id: rpc_id(1),
        by,
        rules,
        key: number,
    }
    .encode(incremented);
    RemoveRequest {
        table_id,
        lease: LEASE,
        rpc_id: rpc_id(3),
        ack_id: rpc_id(2),
        rules,
        key,
    }
    .encode(removed);
    let keys = [key, b"a", b"b", b"c"];
    let parts = keys.map(|key| MultiReadPart {
        table_id,
        rules,
        key,
    });
    MultiReadRequest::encode_parts(&parts, reads);
    let parts = keys.map(|key| MultiWritePart {
        table_id,
        rules,
        object: KeysAndValue::single(key, &[2; 8]).unwrap(),
    });
    MultiWriteRequest::encode_parts(&parts, writes);
    let parts = keys.map(|key| MultiIncrementPart {
        table_id,
        by,
        rules,
        key,
    });
    MultiIncrementRequest::encode_parts(&parts, increments);
    let parts = keys.map(|key| MultiRemovePart {
        table_id,
        rules,
        key,
    });
    MultiRemoveRequest::encode_parts(&parts, removes);
}

#[test]
fn no_kind_of_operation_allocates() {
    let mut out = Replies { good: 0, bad: 0 };
    let mut shard = enlisted(&mut out);
    let to = ReplyTo {
        connection: 1,
        nonce: 1,
    };
    let mut requests: [Vec<u8>; 9] = std::array::from_fn(|_| Vec::with_capacity(1000));
    // The first rounds make the room that later ones use again.
    let mut asked = [0; 9];
    for round in 0..1000 {
        one_of_each(round, &mut requests);
        for (at, request) in requests.iter().enumerate() {
            let before = allocations();
            shard.request(Time::ZERO, to, request, &mut out);
            if round >= 10 {
                asked[at] += allocations() - before;
            }
        }
        shard.tick(Time::ZERO, &mut out);
    }
    assert_eq!(asked, [0; 9]);
    // The first READ and READ_KEYS_AND_VALUE of each round find nothing: the round before has removed everything.
    assert_eq!((out.good, out.bad), (7 * 1000, 2 * 1000));
}

/// A scan allocates what its state and its answer need, however many objects there are.
#[test]
fn a_scan_allocates_by_the_request_and_not_by_the_object() {
    let mut out = Replies { good: 0, bad: 0 };
    let mut shard = enlisted(&mut out);
    let to = ReplyTo {
        connection: 1,
        nonce: 1,
    };
    let mut payload = Vec::new();
    for key in 0..10_000u64 {
        write(&mut payload, key + 1, &key.to_le_bytes());
        shard.request(Time::ZERO, to, &payload, &mut out);
    }
    payload.clear();
    EnumerateRequest {
        table_id: TABLE,
        keys_only: false,
        tablet_first_hash: 0,
        iterator: &[],
    }
    .encode(&mut payload);
    // The first one makes the room that later ones use again.
    shard.request(Time::ZERO, to, &payload, &mut out);
    let enumerated = shard.stats().enumerated;
    let before = allocations();
    shard.request(Time::ZERO, to, &payload, &mut out);
    let (asked, objects) = (
        allocations() - before,
        shard.stats().enumerated - enumerated,
    );
    assert!(objects > 100, "{objects} objects");
    assert!(asked <= 32, "{asked} allocations for {objects} objects");
    assert_eq!(out.bad, 0);
}

/// A megabyte of the shortest ranges was hundreds of megabytes, decoded: they are counted first.
#[test]
fn an_enumeration_costs_what_it_was_sent() {
    let mut out = Replies { good: 0, bad: 0 };
    let mut shard = enlisted(&mut out);
    let to = ReplyTo {
        connection: 1,
        nonce: 1,
    };
    let fixed = EnumerateRequest::FIXED_BYTES;
    let ranges = [0x0a, 0].repeat((MAX_RPC_BYTES - fixed) / 2);
    let longest = [0x32, 0].repeat((MAX_RPC_BYTES - fixed) / 2);
    for iterator in [&ranges[..], &longest, &ranges[..2 * 65]] {
        let mut payload = Vec::new();
        EnumerateRequest {
            table_id: TABLE,
            keys_only: false,
            tablet_first_hash: 0,
            iterator,
        }
        .encode(&mut payload);
        let bad = out.bad;
        let ((), peak) = peak_of(|| shard.request(Time::ZERO, to, &payload, &mut out));
        assert_eq!(out.bad, bad + 1);
        assert!(peak < 64 << 10, "{peak} bytes for {}", iterator.len());
    }
}
