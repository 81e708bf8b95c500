//! What a shard takes for one request, without network.

use base::ids::{ReplyTo, ServerId, TableId};
use base::time::Time;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use master::{Config, Identity, Shard, ShardEffects, ShardEvent};
use wire::keys::KeysAndValue;
use wire::member::{TabletRange, ToCoordinator, ToShard, Welcome, coordinator};
use wire::rpc::{
    EnumerateRequest, EnumerateResponse, Lease, MultiReadPart, MultiReadRequest, MultiWritePart,
    MultiWriteRequest, ReadRequest, RejectRules, WriteRequest,
};

const TABLE: TableId = TableId(1);
const KEYS: u64 = 1_000_000;
const TO: ReplyTo = ReplyTo {
    connection: 1,
    nonce: 1,
};

/// A connection's buffer: replies are copied into it, as a driver does.
struct Buffer(Vec<u8>);

impl ShardEffects for Buffer {
    fn reply(&mut self, _to: ReplyTo, parts: &[&[u8]]) {
        self.0.clear();
        for part in parts {
            self.0.extend_from_slice(part);
        }
    }
    fn send_coordinator(&mut self, _message: ToCoordinator) {}
    fn report(&mut self, _event: ShardEvent) {}
}

struct Bed {
    shard: Shard,
    out: Buffer,
    payload: Vec<u8>,
    rpc_id: u64,
    random: u64,
    /// Where the enumeration goes on.
    cursor: u64,
    iterator: Vec<u8>,
}

impl Bed {
    fn new() -> Bed {
        let config = Config::from_memory(512 << 20, 10).expect("enough memory");
        let identity = Identity {
            member: "m".to_owned(),
            instance: "i".to_owned(),
            process: 1,
            host_id: "h".to_owned(),
            shard_index: 0,
            shard_count: 1,
            locator: "tcp:host=127.0.0.1,port=1".to_owned(),
            coordinator: "tcp:host=127.0.0.1,port=11100".to_owned(),
            build_version: "bench".to_owned(),
            backup_locator: String::new(),
            peer_locator: String::new(),
            domain: String::new(),
        };
        let mut bed = Bed {
            shard: Shard::new(config, identity, Time::ZERO),
            out: Buffer(Vec::new()),
            payload: Vec::new(),
            rpc_id: 0,
            random: 1,
            cursor: 0,
            iterator: Vec::new(),
        };
        let tablet = TabletRange {
            table_id: TABLE.0,
            start_key_hash: 0,
            end_key_hash: u64::MAX,
        };
        let welcome = Welcome {
            cluster_id: 1,
            server_id: ServerId::new(1, 0).0,
            cluster_time_ns: 1,
            first_version: 1,
            tablets: vec![tablet],
            silence_timeout_ms: 1000,
            ..Default::default()
        };
        let kind = coordinator::Kind::Welcome(welcome);
        let message = ToShard::from(kind);
        bed.shard
            .coordinator_message(Time::ZERO, message, &mut bed.out);
        for key in 0..KEYS {
            bed.write(key);
        }
        bed
    }

    fn random_key(&mut self) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.random >> 33) % KEYS
    }

    fn send(&mut self) {
        let (payload, out) = (&self.payload, &mut self.out);
        self.shard.request(Time::ZERO, TO, payload, out);
        self.shard.tick(Time::ZERO, out);
    }

    fn write(&mut self, key: u64) {
        self.rpc_id += 1;
        self.payload.clear();
        WriteRequest {
            table_id: TABLE,
            lease: Lease {
                id: 1,
                expiration_ns: u64::MAX,
                timestamp_ns: 0,
            },
            rpc_id: self.rpc_id,
            ack_id: self.rpc_id - 1,
            rules: RejectRules::default(),
            is_async: false,
            object: KeysAndValue::single(&key_bytes(key), &[7; 100]).expect("a short key"),
        }
        .encode(&mut self.payload);
        self.send();
    }

    fn read(&mut self, key: u64) {
        self.payload.clear();
        ReadRequest {
            table_id: TABLE,
            rules: RejectRules::default(),
            key: &key_bytes(key),
        }
        .encode(&mut self.payload);
        self.send();
    }

    fn multi_read(&mut self, objects: usize) {
        let keys: Vec<_> = (0..objects).map(|_| key_bytes(self.random_key())).collect();
        self.payload.clear();
        let parts = keys.iter().map(|key| MultiReadPart {
            table_id: TABLE,
            rules: RejectRules::default(),
            key,
        });
        MultiReadRequest::encode_parts(&parts.collect::<Vec<_>>(), &mut self.payload);
        self.send();
    }

    /// One request of an enumeration of the whole table, which starts anew at its end. Tells how many bytes came.
    fn enumerate(&mut self, keys_only: bool) -> usize {
        self.payload.clear();
        EnumerateRequest {
            table_id: TABLE,
            keys_only,
            tablet_first_hash: self.cursor,
            iterator: &self.iterator,
        }
        .encode(&mut self.payload);
        self.send();
        let response = EnumerateResponse::decode(&self.out.0).expect("an answer");
        self.cursor = response.tablet_first_hash;
        self.iterator.clear();
        self.iterator.extend_from_slice(response.iterator);
        response.objects.len()
    }

    fn multi_write(&mut self) {
        let keys: [[u8; 30]; 20] = std::array::from_fn(|_| key_bytes(self.random_key()));
        let parts: Vec<_> = keys
            .iter()
            .map(|key| MultiWritePart {
                table_id: TABLE,
                rules: RejectRules::default(),
                object: KeysAndValue::single(key, &[7; 100]).expect("a short key"),
            })
            .collect();
        self.payload.clear();
        MultiWriteRequest::encode_parts(&parts, &mut self.payload);
        self.send();
    }
}

/// As ClusterPerf makes keys of 30 bytes.
fn key_bytes(key: u64) -> [u8; 30] {
    let mut bytes = [0x78; 30];
    bytes[..4].copy_from_slice(&(key as u32).to_le_bytes());
    bytes
}

fn requests(c: &mut Criterion) {
    let mut bed = Bed::new();
    c.bench_function("read 100 bytes of the same key", |b| b.iter(|| bed.read(7)));
    c.bench_function("read 100 bytes of a random key", |b| {
        b.iter(|| {
            let key = bed.random_key();
            bed.read(key);
        });
    });
    c.bench_function("overwrite 100 bytes of the same key", |b| {
        b.iter(|| bed.write(7))
    });
    c.bench_function("overwrite 100 bytes of a random key", |b| {
        b.iter(|| {
            let key = bed.random_key();
            bed.write(key);
        });
    });
    c.bench_function("multi-write of 20 random keys", |b| {
        b.iter(|| bed.multi_write())
    });
    let mut group = c.benchmark_group("multi-read of random keys");
    for objects in [20, 100] {
        group.throughput(Throughput::Elements(objects));
        group.bench_function(objects.to_string(), |b| {
            b.iter(|| bed.multi_read(objects as usize))
        });
    }
    group.finish();
    let mut group = c.benchmark_group("enumerate, one request");
    for keys_only in [false, true] {
        let name = if keys_only { "keys" } else { "keys and values" };
        group.bench_function(name, |b| b.iter(|| bed.enumerate(keys_only)));
    }
    group.finish();
}

criterion_group!(benches, requests);
criterion_main!(benches);
