//! How fast a shard brings a table back from the segments of another log, which are in memory.

use std::cell::RefCell;

use base::ids::{ReplyTo, ServerId, TableId};
use base::time::Time;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use master::{Config, Identity, Shard, ShardEffects, ShardEvent};
use wire::entry::{self, Entry, Object, SegmentHeader};
use wire::format::FIRST_FORMAT;
use wire::keys::KeysAndValue;
use wire::member::{TabletRange, ToCoordinator, ToShard, Welcome, coordinator};

const TABLE: TableId = TableId(1);

/// Nobody listens.
struct Silence;

impl ShardEffects for Silence {
    fn reply(&mut self, _: ReplyTo, _: &[&[u8]]) {}
    fn send_coordinator(&mut self, _: ToCoordinator) {}
    fn report(&mut self, _: ShardEvent) {}
}

struct Bed {
    shard: Shard,
    generation: u32,
}

impl Bed {
    fn new() -> Bed {
        let config = Config::from_memory(1 << 30, 20).expect("enough memory");
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
            generation: 0,
        };
        bed.start_over();
        bed
    }

    /// Another incarnation, which holds nothing.
    fn start_over(&mut self) {
        self.generation += 1;
        let welcome = Welcome {
            cluster_id: 1,
            server_id: ServerId::new(1, self.generation).0,
            cluster_time_ns: 1,
            first_version: 1,
            tablets: Vec::new(),
            silence_timeout_ms: 1000,
            ..Default::default()
        };
        let kind = coordinator::Kind::Welcome(welcome);
        let message = ToShard::from(kind);
        self.shard
            .coordinator_message(Time::ZERO, message, &mut Silence);
    }

    fn replay(&mut self, segments: &[Vec<u8>]) {
        let tablet = TabletRange {
            table_id: TABLE.0,
            start_key_hash: 0,
            end_key_hash: u64::MAX,
        };
        let begun = self.shard.begin_replay(vec![tablet]);
        let mut replay = begun.expect("there is room");
        for segment in segments {
            let replayed = self.shard.replay(&mut replay, segment);
            replayed.expect("sound, and there is room");
        }
        self.shard.end_replay(replay);
    }
}

/// Segments of another log, full of objects.
fn segments(count: u64, value_bytes: usize) -> Vec<Vec<u8>> {
    const SEGMENT_BYTES: usize = 8 << 20;
    let value = vec![7; value_bytes];
    let mut keys = 0u64..;
    let segment = |id| {
        let mut bytes = vec![0; SEGMENT_BYTES];
        let header = SegmentHeader {
            cluster_id: 1,
            server_id: ServerId::new(2, 0),
            segment_id: id,
            safe_version: 1,
            segment_bytes: SEGMENT_BYTES as u32,
        };
        let mut used = entry::write(&header, FIRST_FORMAT, &mut bytes);
        for number in keys.by_ref() {
            let key = format!("{number:030}");
            let content = KeysAndValue::single(key.as_bytes(), &value).expect("one key");
            let object = Object {
                table_id: TABLE,
                version: 1,
                expires_ns: None,
                content,
            };
            if used + object.entry_bytes() > SEGMENT_BYTES {
                break;
            }
            used += entry::write(&object, FIRST_FORMAT, &mut bytes[used..]);
        }
        bytes.truncate(used);
        bytes
    };
    (1..=count).map(segment).collect()
}

/// Bringing a table back from 20 segments, as in RAMCloud's RecoverSegment.
fn replay(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("replay 20 segments");
    group.sample_size(10);
    for value_bytes in [64, 1024] {
        let segments = segments(20, value_bytes);
        let bytes: usize = segments.iter().map(Vec::len).sum();
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(format!("objects of {value_bytes} B"), |bencher| {
            // Memory that was touched before, as a server's is.
            let bed = RefCell::new(Bed::new());
            bed.borrow_mut().replay(&segments);
            let start_over = || bed.borrow_mut().start_over();
            let replay = |()| bed.borrow_mut().replay(&segments);
            bencher.iter_batched(start_over, replay, BatchSize::PerIteration);
        });
    }
    group.finish();
}

criterion_group!(benches, replay);
criterion_main!(benches);
