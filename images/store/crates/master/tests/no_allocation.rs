//! The fast path asks the allocator for nothing: counted, not believed.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use master::{Config, Identity, Output, Shard};
use wire::ids::{ReplyTo, ServerId, TableId};
use wire::keys::KeysAndValue;
use wire::member::{TabletRange, ToCoordinator, ToShard, Welcome, coordinator};
use wire::rpc::{Lease, MultiReadPart, MultiReadRequest, ReadRequest, RejectRules, WriteRequest};
use wire::time::Time;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator as it came; counting touches no memory of the caller.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are the system allocator's requirements.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Counts replies and looks at their first byte: 0 is OK.
struct Replies {
    good: u64,
    bad: u64,
}

impl Output for Replies {
    fn reply(&mut self, _to: ReplyTo, parts: &[&[u8]]) {
        match parts[0][0] {
            0 => self.good += 1,
            _ => self.bad += 1,
        }
    }
    fn send_coordinator(&mut self, _message: ToCoordinator) {}
    fn log_message(&mut self, _level: u32, text: &str) {
        panic!("{text}");
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

fn write(payload: &mut Vec<u8>, rpc_id: u64, key: &[u8]) {
    payload.clear();
    let lease = Lease {
        id: 1,
        expiration_ns: u64::MAX,
        timestamp_ns: 0,
    };
    WriteRequest {
        table_id: TABLE,
        lease,
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
    let before = ALLOCATIONS.with(Cell::get);
    for _ in 0..keys {
        shard.request(Time::ZERO, to, &read, &mut out);
    }
    assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0, "reads");

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
    let before = ALLOCATIONS.with(Cell::get);
    for _ in 0..1000 {
        shard.request(Time::ZERO, to, &multi_read, &mut out);
    }
    assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0, "multi-reads");
    assert_eq!(shard.stats().reads - reads, 100 * 1000);

    let before = ALLOCATIONS.with(Cell::get);
    for _ in 0..10 {
        write_all(&mut shard, &mut out);
    }
    let allocations = ALLOCATIONS.with(Cell::get) - before;
    assert!(shard.stats().segments_cleaned > cleaned + 5);
    assert_eq!(out.bad, 0);
    // Counting tombstones by segment may allocate once per pair of segments, never per request.
    let segments = shard.stats().segments_cleaned - cleaned;
    assert!(
        allocations <= 64 * segments,
        "{allocations} allocations, {segments} segments cleaned"
    );
}
