//! How fast a backup finds the entries of some tablets in a segment of 8 MiB, out of memory: one master's read of a replica that was compared
//! with its checksum before, and the first one's, which has that done.

use backup::testing::MemoryStorage;
use backup::{Backup, BackupEffects, BackupEvent, Config, Durability, Inventory};
use base::ids::{ReplyTo, ServerId, TableId};
use base::time::Time;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use wire::entry::{self, Entry, Object, SegmentHeader};
use wire::format::{FIRST_FORMAT, Formats};
use wire::keys::KeysAndValue;
use wire::member::TabletRange;
use wire::peer::{Answer, Append, ReadEntries, ReplicaId, Request, Role, Status};

const SEGMENT_BYTES: usize = 8 << 20;
const REPLICA: ReplicaId = ReplicaId {
    log: ServerId(1),
    segment_id: 1,
};

/// How many bytes of entries have come, and where to go on.
#[derive(Default)]
struct Heard {
    bytes: usize,
    next_offset: u32,
}

impl BackupEffects for Heard {
    fn answer(&mut self, _: ReplyTo, answer: Answer) {
        assert_eq!(answer.status, Status::Ok);
    }
    fn data(&mut self, _: ReplyTo, _: Status, _: &[u8]) {}
    fn entries(&mut self, _: ReplyTo, status: Status, next_offset: u32, data: &[u8]) {
        assert_eq!(status, Status::Ok);
        (self.bytes, self.next_offset) = (self.bytes + data.len(), next_offset);
    }
    fn checkpoint(&mut self, _: Option<Vec<u8>>) {}
    fn report(&mut self, _: BackupEvent) {}
    fn released(&mut self, _: Inventory) {}
}

/// Full of objects with keys of 30 bytes.
fn segment(value_bytes: usize) -> Vec<u8> {
    let value = vec![7; value_bytes];
    let mut bytes = vec![0; SEGMENT_BYTES];
    let header = SegmentHeader {
        cluster_id: 1,
        server_id: REPLICA.log,
        segment_id: 1,
        safe_version: 1,
        segment_bytes: SEGMENT_BYTES as u32,
    };
    let mut used = entry::write(&header, FIRST_FORMAT, &mut bytes);
    for number in 0.. {
        let key = format!("{number:030}");
        let content = KeysAndValue::single(key.as_bytes(), &value).expect("one key");
        let object = Object {
            table_id: TableId(1),
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
}

fn backup_with(segment: &[u8]) -> Backup<MemoryStorage> {
    let config = Config {
        cluster_id: 1,
        segment_bytes: SEGMENT_BYTES as u32,
        frame_count: 1,
        durability: Durability::Buffered,
        boot_id: [0; 16],
        formats: Formats::CURRENT,
        format: FIRST_FORMAT,
    };
    let storage = MemoryStorage::new(SEGMENT_BYTES as u64 + (1 << 20));
    let mut backup = Backup::open(Time::ZERO, config, storage).expect("an empty storage");
    let mut offset = 0;
    for data in segment.chunks(1 << 20) {
        let end = offset + data.len();
        let append = Append {
            replica: REPLICA,
            role: Role::Side,
            offset: offset as u32,
            closes: end == segment.len(),
            crc: crc32c::crc32c(&segment[..end]),
            data,
        };
        let to = ReplyTo {
            connection: 1,
            nonce: 1,
        };
        backup.append(Time::ZERO, &append, to, &mut Heard::default());
        offset = end;
    }
    backup.complete(Time::ZERO, &mut Heard::default());
    backup
}

/// Every other of twice as many tablets of equal size, so about half of all objects.
fn half_of(tablets: u64) -> Vec<TabletRange> {
    let width = u64::MAX / (2 * tablets);
    let tablet = |number| TabletRange {
        table_id: 1,
        start_key_hash: 2 * number * width,
        end_key_hash: (2 * number + 1) * width - 1,
    };
    (0..tablets).map(tablet).collect()
}

/// All of it, 256 KiB at a time.
fn read(backup: &mut Backup<MemoryStorage>, tablets: &[TabletRange], length: u32) -> usize {
    let (mut request, mut heard) = (Vec::new(), Heard::default());
    while heard.next_offset < length {
        request.clear();
        ReadEntries::encode(REPLICA, heard.next_offset, 256 << 10, tablets, &mut request);
        let Ok(Request::ReadEntries(read)) = Request::decode(&request) else {
            unreachable!("it was just written");
        };
        let to = ReplyTo {
            connection: 1,
            nonce: 2,
        };
        backup.read_entries(&read, to, &mut heard);
        backup.complete(Time::ZERO, &mut heard);
    }
    heard.bytes
}

fn entries(c: &mut Criterion) {
    for value_bytes in [64, 1024] {
        let segment = segment(value_bytes);
        let length = segment.len() as u32;
        let mut group = c.benchmark_group(format!("values of {value_bytes} bytes"));
        group.throughput(Throughput::Bytes(length.into()));
        for count in [1, 8, 100] {
            let tablets = half_of(count);
            let mut backup = backup_with(&segment);
            group.bench_function(BenchmarkId::new("tablets", count), |b| {
                b.iter(|| read(&mut backup, &tablets, length));
            });
        }
        let tablets = half_of(8);
        group.bench_function("8 tablets, and the first comparison", |b| {
            b.iter_batched_ref(
                || backup_with(&segment),
                |backup| read(backup, &tablets, length),
                criterion::BatchSize::LargeInput,
            );
        });
        group.finish();
    }
}

criterion_group!(benches, entries);
criterion_main!(benches);
