//! Hash lookups, appends and cleaning, each by itself.

use std::hint::black_box;

use base::ids::{ServerId, TableId};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rcbox_log::*;
use wire::entry::{Object, ObjectView, RpcResult};
use wire::hash::key_hash;
use wire::keys::KeysAndValue;

const TABLE: TableId = TableId(1);
const VALUE_BYTES: usize = 100;

struct Keeper {
    index: Index,
}

impl Keeps<ObjectView<'_>> for Keeper {
    fn is_live(&self, object: &ObjectView<'_>, at: Reference) -> bool {
        let hash = key_hash(object.table_id, object.primary_key);
        self.index.find(hash, |found| found == at).is_some()
    }
    fn moved(&mut self, object: &ObjectView<'_>, from: Reference, to: Reference) {
        let hash = key_hash(object.table_id, object.primary_key);
        let slot = self.index.find(hash, |found| found == from).unwrap();
        self.index.set(slot, to);
    }
}

impl Keeps<RpcResult<'_>> for Keeper {
    fn is_live(&self, _: &RpcResult<'_>, _: Reference) -> bool {
        false
    }
    fn moved(&mut self, _: &RpcResult<'_>, _: Reference, _: Reference) {}
}

struct Bed {
    log: Log,
    keeper: Keeper,
    keys: u64,
    random: u64,
}

impl Bed {
    /// A log of 128 MiB that live objects fill to `percent`.
    fn new(percent: u64) -> Bed {
        let config = Config {
            segment_bytes: 1 << 20,
            segment_count: 128,
            durability: Durability::Unreplicated,
        };
        let origin = Origin {
            cluster_id: 1,
            server_id: ServerId::new(1, 0),
        };
        let mut bed = Bed {
            log: Log::new(config, origin).unwrap(),
            keeper: Keeper {
                index: Index::new(16 << 20),
            },
            keys: 0,
            random: 1,
        };
        let enough = bed.log.usage().capacity_bytes * percent / 100;
        while bed.log.usage().live_bytes < enough {
            bed.keys += 1;
            bed.write(bed.keys);
        }
        bed
    }

    fn random_key(&mut self) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.random >> 33) % self.keys + 1
    }

    fn look_up(&self, hash: u64, key: &[u8]) -> Option<Slot> {
        let is_key = |found: Reference| {
            let object = ObjectView::of(&self.log.entry(found)).unwrap();
            object.primary_key == key
        };
        self.keeper.index.find(hash, is_key)
    }

    fn write(&mut self, key: u64) {
        let key = key.to_le_bytes();
        let hash = key_hash(TABLE, &key);
        let content = KeysAndValue::single(&key, &[7; VALUE_BYTES]).unwrap();
        let slot = self.look_up(hash, &key);
        while let Err(no_room) = self.log.prepare(300, 0, Admission::Write) {
            assert_eq!(no_room, NoRoom::Cleaning);
            self.log.clean(&mut self.keeper, 1 << 20);
        }
        let at = self.log.append(&Object {
            table_id: TABLE,
            version: 1,
            expires_ns: None,
            content,
        });
        match slot {
            Some(slot) => {
                let old = self.keeper.index.get(slot);
                if self.log.needs_tombstone(old) {
                    self.log.append_tombstone(TABLE, 1, &key, old);
                }
                self.log.kill(old);
                self.keeper.index.set(slot, at);
            }
            None => self.keeper.index.insert(hash, at).unwrap(),
        }
    }
}

fn lookups(c: &mut Criterion) {
    let mut bed = Bed::new(70);
    c.bench_function("lookup of a random key", |b| {
        b.iter(|| {
            let key = bed.random_key().to_le_bytes();
            black_box(bed.look_up(key_hash(TABLE, &key), &key))
        });
    });
}

/// Overwrites of random keys, cleaning included, at several utilizations of the memory.
fn overwrites(c: &mut Criterion) {
    let mut group = c.benchmark_group("overwrite, cleaning included");
    for percent in [50, 70, 80, 90] {
        let mut bed = Bed::new(percent);
        let before = bed.log.cleaner_stats();
        group.throughput(Throughput::Elements(1));
        group.bench_function(format!("{percent}% live"), |b| {
            b.iter(|| {
                let key = bed.random_key();
                bed.write(key);
            });
        });
        let after = bed.log.cleaner_stats();
        let cleaned = after.segments_cleaned - before.segments_cleaned;
        let copied = after.survivor_bytes - before.survivor_bytes;
        if cleaned > 0 {
            let live = copied as f64 / (cleaned << 20) as f64;
            println!(
                "{percent}% live: {cleaned} segments cleaned, {:.0}% of each copied",
                100.0 * live
            );
        }
    }
    group.finish();
}

criterion_group!(benches, lookups, overwrites);
criterion_main!(benches);
