//! The log, the index and the cleaner together, against a model that is a map.

use std::collections::BTreeMap;

use base::ids::{ServerId, TableId};
use proptest::prelude::*;
use wire::entry::{self, Object, ObjectView, RpcResult, Tombstone};
use wire::hash::key_hash;
use wire::keys::KeysAndValue;

use crate::*;

mod changes;
mod ends;
mod heads;
mod loans;
mod replicas;

use replicas::Replicas;

const TABLE: TableId = TableId(1);

/// What refers to entries, as a master would.
struct Keeper {
    index: Index,
    results: BTreeMap<u64, Reference>,
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
    fn is_live(&self, result: &RpcResult<'_>, at: Reference) -> bool {
        self.results.get(&result.rpc_id) == Some(&at)
    }

    fn moved(&mut self, result: &RpcResult<'_>, from: Reference, to: Reference) {
        assert_eq!(self.results.insert(result.rpc_id, to), Some(from));
    }
}

/// The least store that a log can serve.
struct Store {
    log: Log,
    keeper: Keeper,
    next_rpc_id: u64,
    /// Operations without a number leave no record.
    numbers: bool,
}

impl Store {
    fn new(segment_bytes: u32, segment_count: u32, durability: Durability) -> Store {
        let config = Config {
            segment_bytes,
            segment_count,
            durability,
        };
        let origin = Origin {
            cluster_id: 7,
            server_id: ServerId::new(1, 0),
        };
        Store {
            log: Log::new(config, origin).unwrap(),
            keeper: Keeper {
                index: Index::new(1 << 20),
                results: BTreeMap::new(),
            },
            next_rpc_id: 1,
            numbers: true,
        }
    }

    fn slot(&self, key: &[u8]) -> Option<Slot> {
        self.keeper.index.find(key_hash(TABLE, key), |found| {
            ObjectView::of(&self.log.entry(found)).unwrap().primary_key == key
        })
    }

    fn object(&self, key: &[u8]) -> Option<ObjectView<'_>> {
        let at = self.keeper.index.get(self.slot(key)?);
        Some(ObjectView::of(&self.log.entry(at)).unwrap())
    }

    fn write(&mut self, key: &[u8], value: &[u8]) -> Result<u64, NoRoom> {
        let content = KeysAndValue::single(key, value).unwrap();
        let object_bytes = Object::entry_bytes_of(content.encoded_bytes());
        let result_bytes = RpcResult::entry_bytes_of(12);
        let slot = self.slot(key);
        let old = slot.map(|slot| self.keeper.index.get(slot));
        let dying = old.map_or(0, |old| self.log.entry(old).bytes.len());
        self.log.prepare(
            object_bytes + result_bytes + Tombstone::entry_bytes_of(key.len()),
            object_bytes as i64 - dying as i64,
            Admission::Write,
        )?;
        let version = match self.object(key) {
            Some(object) => object.version + 1,
            None => self.log.take_safe_version(),
        };
        let object = Object {
            table_id: TABLE,
            version,
            expires_ns: None,
            content,
        };
        let at = self.log.append(&object);
        match (slot, old) {
            (Some(slot), Some(old)) => {
                if self.log.needs_tombstone(old) {
                    self.log.append_tombstone(TABLE, version - 1, key, old);
                }
                self.log.kill(old);
                self.keeper.index.set(slot, at);
            }
            _ => self.keeper.index.insert(key_hash(TABLE, key), at).unwrap(),
        }
        self.record_result();
        Ok(version)
    }

    /// Every operation leaves a record, and makes the one of four operations before needless.
    fn record_result(&mut self) {
        if !self.numbers {
            return;
        }
        let rpc_id = self.next_rpc_id;
        self.next_rpc_id += 1;
        let at = self.log.append(&RpcResult {
            lease_id: 1,
            rpc_id,
            ack_id: rpc_id.saturating_sub(4),
            table_id: TABLE,
            key_hash: 0,
            response: &[0; 12],
        });
        self.keeper.results.insert(rpc_id, at);
        if let Some(done) = self.keeper.results.remove(&rpc_id.saturating_sub(4)) {
            self.log.kill(done);
        }
    }

    fn remove(&mut self, key: &[u8]) -> Result<bool, NoRoom> {
        let Some(slot) = self.slot(key) else {
            return Ok(false);
        };
        let bytes = Tombstone::entry_bytes_of(key.len()) + RpcResult::entry_bytes_of(12);
        self.log.prepare(bytes, 0, Admission::Remove)?;
        let old = self.keeper.index.get(slot);
        let version = self.object(key).unwrap().version;
        self.log.append_tombstone(TABLE, version, key, old);
        self.log.kill(old);
        self.log.raise_safe_version(version + 1);
        self.keeper.index.remove(slot);
        self.record_result();
        Ok(true)
    }

    fn clean(&mut self, budget: usize) -> Cleaning {
        self.log.clean(&mut self.keeper, budget)
    }

    /// Writes; cleans where that is what is missing.
    fn write_cleaning(&mut self, key: &[u8], value: &[u8]) -> Result<u64, NoRoom> {
        for _ in 0..1000 {
            match self.write(key, value) {
                Err(NoRoom::Cleaning) => assert_ne!(self.clean(1 << 16), Cleaning::Waiting),
                done => return done,
            }
        }
        panic!("the cleaner makes no room");
    }

    fn check(&self, model: &BTreeMap<Vec<u8>, (u64, Vec<u8>)>) {
        assert_eq!(self.log.audit(&self.keeper), Ok(()));
        assert_eq!(self.keeper.index.len(), model.len());
        for (key, (version, value)) in model {
            let object = self.object(key).expect("a key of the model");
            assert_eq!((object.version, object.value), (*version, &value[..]));
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write { key: u16, bytes: u16 },
    Remove { key: u16 },
    Clean { budget: u16 },
    Durable { part: u8 },
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u16..60, 0u16..900).prop_map(|(key, bytes)| Step::Write { key, bytes }),
        2 => (0u16..60).prop_map(|key| Step::Remove { key }),
        4 => (1u16..6000).prop_map(|budget| Step::Clean { budget }),
        2 => any::<u8>().prop_map(|part| Step::Durable { part }),
    ]
}

fn run_against_model(durability: Durability, steps: Vec<Step>) {
    let mut store = Store::new(4096, 12, durability);
    let mut replicas = Replicas::default();
    let mut model = BTreeMap::new();
    for (n, step) in steps.into_iter().enumerate() {
        match step {
            Step::Write { key, bytes } => {
                let key = format!("key-{key}").into_bytes();
                let value = vec![n as u8; usize::from(bytes)];
                if let Ok(version) = store.write(&key, &value) {
                    let old = model.insert(key, (version, value));
                    assert!(old.is_none_or(|(old, _)| version == old + 1));
                }
            }
            Step::Remove { key } => {
                let key = format!("key-{key}").into_bytes();
                if let Ok(removed) = store.remove(&key) {
                    assert_eq!(model.remove(&key).is_some(), removed);
                }
            }
            Step::Clean { budget } => {
                store.clean(usize::from(budget));
            }
            Step::Durable { part } if durability == Durability::External => {
                replicas.follow(&mut store.log, part);
            }
            Step::Durable { .. } => {}
        }
        if n % 16 == 0 {
            store.check(&model);
        }
    }
    store.check(&model);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn behaves_like_a_map_whatever_the_cleaner_does(steps in proptest::collection::vec(any_step(), 1..600)) {
        run_against_model(Durability::Unreplicated, steps);
    }

    #[test]
    fn behaves_like_a_map_while_durability_lags(steps in proptest::collection::vec(any_step(), 1..600)) {
        run_against_model(Durability::External, steps);
    }
}

/// Random numbers that are the same in every run.
struct Lcg(u64);

impl Lcg {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % n
    }
}

/// Fills a small log until it is full, removes down to `percent` of what it may hold, and overwrites at random.
fn overwrite_for_ever(percent: u64, overwrites: u64, value_bytes: u64) {
    let mut store = Store::new(1 << 15, 64, Durability::Unreplicated);
    let mut random = Lcg(percent + value_bytes);
    let mut model = BTreeMap::new();
    let mut keys = Vec::new();
    let limit = |store: &Store| {
        let usage = store.log.usage();
        (
            usage.live_bytes - usage.tombstone_bytes,
            usage.capacity_bytes * percent / 100,
        )
    };
    while limit(&store).0 < limit(&store).1 {
        let key = format!("{:08}", keys.len()).into_bytes();
        let value = vec![1; random.below(2 * value_bytes) as usize];
        let version = store.write_cleaning(&key, &value).expect("below the limit");
        model.insert(key.clone(), (version, value));
        keys.push(key);
    }
    for n in 0..overwrites {
        let key = &keys[random.below(keys.len() as u64) as usize];
        // Of the old size: utilization stays what it is.
        let value = vec![n as u8; model[key].1.len()];
        let version = store
            .write_cleaning(key, &value)
            .expect("an overwrite of the same size");
        model.insert(key.clone(), (version, value));
    }
    store.check(&model);
    let stats = store.log.cleaner_stats();
    assert!(stats.segments_cleaned > 100, "{stats:?}");
}

#[test]
fn overwrites_go_on_for_ever_at_80_percent_of_all_memory() {
    overwrite_for_ever(80, 700_000, 100);
}

#[test]
fn overwrites_go_on_for_ever_at_90_percent_of_all_memory() {
    overwrite_for_ever(90, 300_000, 100);
}

#[test]
fn overwrites_of_tiny_objects_go_on_although_their_tombstones_are_larger() {
    overwrite_for_ever(88, 100_000, 4);
}

#[test]
fn overwrites_of_large_objects_go_on_although_they_pack_badly() {
    overwrite_for_ever(55, 50_000, 9000);
}

/// Full means full: a clear answer at once, removals always go on, and make room again.
#[test]
fn a_full_log_refuses_writes_and_takes_every_removal() {
    for value_bytes in [0, 100, 3000] {
        let mut store = Store::new(1 << 15, 32, Durability::Unreplicated);
        let mut count = 0;
        let full = loop {
            match store.write_cleaning(&u64_key(count), &vec![1; value_bytes]) {
                Ok(_) => count += 1,
                Err(full) => break full,
            }
        };
        assert_eq!(full, NoRoom::Full);
        assert_eq!(
            store.write(&u64_key(count), &vec![1; value_bytes]),
            Err(NoRoom::Full)
        );
        let same = store.write_cleaning(&u64_key(0), &vec![2; value_bytes]);
        assert_eq!(same, Ok(2), "an overwrite that takes no more room");
        for key in 0..count {
            for attempt in 0.. {
                match store.remove(&u64_key(key)) {
                    Err(NoRoom::Cleaning) if attempt < 100 => {
                        store.clean(1 << 16);
                    }
                    removed => {
                        assert_eq!(removed, Ok(true));
                        break;
                    }
                }
            }
        }
        assert_eq!(store.log.audit(&store.keeper), Ok(()));
        assert!(store.keeper.index.is_empty());
        while store.clean(1 << 20) == Cleaning::More {}
        for key in 0..count * 9 / 10 {
            store
                .write_cleaning(&u64_key(key), &vec![1; value_bytes])
                .expect("room again");
        }
    }
}

fn u64_key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

/// With nothing left to gain the cleaner stops, however little memory is free: going on would copy the same live data round
/// and round for ever.
#[test]
fn the_cleaner_of_a_nearly_full_log_comes_to_rest() {
    for seed in 0..300 {
        let mut random = Lcg(seed);
        let mut store = Store::new(4096, 9, Durability::Unreplicated);
        store.numbers = false;
        let most = [40, 100, 200, 2000][seed as usize % 4];
        let keys = 20 + random.below(400);
        for _ in 0..300 {
            let value = vec![7; random.below(most) as usize];
            // Some find the log full.
            let _ = store.write_cleaning(&u64_key(random.below(keys)), &value);
            let mut steps = 0;
            while store.clean(4096) == Cleaning::More {
                steps += 1;
                assert!(steps < 100, "seed {seed}: no rest");
            }
        }
        // Removing makes room again.
        for key in 0..keys {
            let removed = (0..100).find_map(|_| match store.remove(&u64_key(key)) {
                Err(NoRoom::Cleaning) => {
                    store.clean(1 << 16);
                    None
                }
                done => Some(done),
            });
            assert!(matches!(removed, Some(Ok(_))));
        }
        store.write_cleaning(&u64_key(0), &[7; 2000]).unwrap();
    }
}

#[test]
fn an_overwrite_in_the_same_segment_needs_no_tombstone() {
    let mut store = Store::new(4096, 8, Durability::Unreplicated);
    store.write(b"key", b"1").unwrap();
    store.write(b"key", b"2").unwrap();
    assert_eq!(store.log.usage().tombstone_bytes, 0);
    while store.log.head_position().0 < 4096 {
        store.write(b"other", &[0; 500]).unwrap();
    }
    store.write(b"key", b"3").unwrap();
    let tombstone = Tombstone::entry_bytes_of(3) as u64;
    assert!(store.log.usage().tombstone_bytes >= tombstone);
    assert_eq!(store.log.audit(&store.keeper), Ok(()));
}

#[test]
fn positions_grow_with_every_append_and_stay_with_the_entry() {
    let mut store = Store::new(4096, 8, Durability::External);
    let mut last = LogPosition::START;
    for n in 0..40 {
        store.write(&u64_key(n), &[0; 200]).unwrap();
        let at = store.keeper.index.get(store.slot(&u64_key(n)).unwrap());
        let position = store.log.position_of(at);
        assert!(last < position && position < store.log.head_position());
        last = position;
    }
    let first = store.keeper.index.get(store.slot(&u64_key(0)).unwrap());
    let digest_bytes = entry::Digest::entry_bytes_of(0);
    let object_end = (56 + digest_bytes + Object::entry_bytes_of(3 + 8 + 200)) as u64;
    assert_eq!(store.log.position_of(first), LogPosition(object_end));
}

#[test]
fn a_segment_says_whose_it_is_and_which_versions_are_used_up() {
    let mut store = Store::new(4096, 8, Durability::Unreplicated);
    store.log.raise_safe_version(77);
    store.write(b"key", b"value").unwrap();
    let bytes = store.log.entries_from(0, 0);
    let header = entry::RawEntry::read_checked(bytes).unwrap();
    let header: entry::SegmentHeader = header.decode().unwrap();
    assert_eq!(header.cluster_id, 7);
    assert_eq!(header.server_id, ServerId::new(1, 0));
    assert_eq!((header.segment_id, header.safe_version), (1, 77));
    assert_eq!(header.segment_bytes, 4096);
}

#[test]
fn a_log_and_a_table_in_lent_memory_stay_there_and_are_cleared() {
    let mut store = Store::new(4096, 8, Durability::Unreplicated);
    let log: &'static mut [u8] = vec![0; 8 * 4096].leak();
    let words: &'static mut [u64] = vec![0; Index::words_for(Index::MIN_BYTES)].leak();
    let (log_at, words_at) = (log.as_ptr(), words.as_ptr());
    store.keeper.index = Index::new(Index::MIN_BYTES);
    store.log.use_memory(log);
    store.keeper.index.use_memory(words);
    assert!(store.log.is_lent());
    for round in 0..2 {
        for key in 0..20_u64 {
            store.write(&key.to_le_bytes(), b"value").unwrap();
        }
        assert_eq!(store.log.audit(&store.keeper), Ok(()));
        assert_eq!(store.keeper.index.len(), 20, "round {round}");
        assert_eq!(store.log.memory().start, log_at);
        assert_eq!(store.keeper.index.memory().start, words_at);
        let origin = Origin {
            cluster_id: 5,
            server_id: ServerId::new(6, 0),
        };
        store.log.reset(origin);
        store.keeper.index.clear();
        store.keeper.results.clear();
        assert!(store.keeper.index.is_empty() && store.log.is_lent());
        assert_eq!(store.keeper.index.references().count(), 0);
    }
}

#[test]
fn a_reset_log_is_empty_and_belongs_to_the_new_origin() {
    let mut store = Store::new(4096, 8, Durability::Unreplicated);
    store.write(b"key", b"value").unwrap();
    let origin = Origin {
        cluster_id: 8,
        server_id: ServerId::new(2, 0),
    };
    store.log.reset(origin);
    store.keeper.index.clear();
    store.keeper.results.clear();
    assert_eq!(store.log.usage().live_bytes, 0);
    assert_eq!(store.write(b"key", b"value"), Ok(1));
    assert_eq!(store.log.audit(&store.keeper), Ok(()));
}

#[test]
fn configurations_that_cannot_work_say_why() {
    let check = |segment_bytes, segment_count| {
        let config = Config {
            segment_bytes,
            segment_count,
            durability: Durability::Unreplicated,
        };
        config.check().map_err(|error| error.to_string())
    };
    assert_eq!(check(8 << 20, 8), Ok(()));
    assert!(check(5000, 8).unwrap_err().contains("power of two"));
    assert!(check(2048, 8).unwrap_err().contains("power of two"));
    assert!(check(4096, 7).unwrap_err().contains("more memory"));
}
