//! ENUMERATE misses nothing: pieces, splits, moves between hash tables of different sizes, and changes under way.

use std::collections::{BTreeMap, BTreeSet};

use base::ids::TableId;
use proptest::prelude::*;
use wire::hash::key_hash;
use wire::keys::KeysAndValue;
use wire::member::TabletRange;
use wire::rpc::{
    EnumerateRequest, EnumerateResponse, EnumeratedObject, MultiWritePart, MultiWriteRequest,
    RejectRules,
};
use wire::status::Status;

use super::harness::*;
use crate::*;

/// A client in the middle of an enumeration.
#[derive(Default)]
struct Scan {
    keys_only: bool,
    cursor: u64,
    iterator: Vec<u8>,
    /// Keys in the order in which they came.
    keys: Vec<Vec<u8>>,
    requests: usize,
}

impl Scan {
    /// Asks for a piece; answers whether the enumeration is over.
    fn next(&mut self, driver: &mut Driver) -> bool {
        self.requests += 1;
        let reply = driver.call(&self.request());
        let response = EnumerateResponse::decode(&reply).unwrap();
        assert_eq!(response.status, Status::Ok);
        for object in EnumeratedObject::decode_all(response.objects) {
            let object = object.unwrap();
            assert_eq!(object.table_id, TABLE);
            assert!(!self.keys_only || object.object.value().is_empty());
            self.keys.push(object.object.primary_key().to_vec());
        }
        self.cursor = response.tablet_first_hash;
        self.iterator = response.iterator.to_vec();
        response.objects.is_empty() && self.cursor == 0
    }

    fn request(&self) -> Vec<u8> {
        enumerate(TABLE, self.keys_only, self.cursor, &self.iterator)
    }

    fn finish(&mut self, driver: &mut Driver) {
        while !self.next(driver) {
            assert!(self.requests < 10_000, "an enumeration without end");
        }
    }
}

fn enumerate(table_id: TableId, keys_only: bool, cursor: u64, iterator: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    EnumerateRequest {
        table_id,
        keys_only,
        tablet_first_hash: cursor,
        iterator,
    }
    .encode(&mut out);
    out
}

fn with_hash_table(hash_table_bytes: usize) -> Config {
    Config {
        hash_table_bytes,
        log_bytes: 128 << 14,
        ..small(Durability::Unreplicated)
    }
}

#[test]
fn everything_comes_once_when_nothing_changes() {
    for hash_table_bytes in [1 << 14, 1 << 22] {
        let mut driver = Driver::enlisted(with_hash_table(hash_table_bytes));
        let keys: BTreeSet<_> = (0..600u32).map(|n| n.to_le_bytes().to_vec()).collect();
        for key in &keys {
            driver.call(&multi_write(&[
                (TABLE, key, &[7; 500]),
                (TableId(2), key, b"of another table"),
            ]));
        }
        for keys_only in [false, true] {
            let mut scan = Scan {
                keys_only,
                ..Scan::default()
            };
            scan.finish(&mut driver);
            assert_eq!(scan.keys.len(), keys.len(), "no key twice");
            assert_eq!(scan.keys.into_iter().collect::<BTreeSet<_>>(), keys);
            assert!(keys_only || scan.requests > 2, "in pieces");
        }
    }
}

#[test]
fn objects_come_whole_and_multi_key_objects_with_all_keys() {
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    let object = KeysAndValue::parse(b"\x03\x03\x00\x03\x00\x06\x00pk1secvalue").unwrap();
    let mut payload = Vec::new();
    let part = MultiWritePart {
        table_id: TABLE,
        rules: RejectRules::default(),
        object,
    };
    MultiWriteRequest::encode_parts(&[part], &mut payload);
    driver.call(&payload);
    let reply = driver.call(&enumerate(TABLE, false, 0, b""));
    let response = EnumerateResponse::decode(&reply).unwrap();
    let objects: Vec<_> = EnumeratedObject::decode_all(response.objects).collect();
    assert_eq!(objects.len(), 1);
    assert_eq!(objects[0].unwrap().object, object);
    assert_eq!(objects[0].unwrap().version, 1);
}

#[test]
fn an_empty_table_ends_at_once_or_goes_on_at_another_hash_than_0() {
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    let reply = driver.call(&enumerate(TABLE, false, 0, b""));
    assert_eq!(reply, [0; 20]);
    // Too many buckets for one request.
    let mut driver = Driver::enlisted(with_hash_table(1 << 22));
    let mut scan = Scan::default();
    while !scan.next(&mut driver) {
        assert_ne!(scan.cursor, 0, "that would be the end");
    }
    assert!(scan.requests > 2 && scan.keys.is_empty());
}

#[test]
fn what_is_not_owned_or_makes_no_sense_is_refused() {
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    let mut refused = |table, iterator: &[u8], status: u8| {
        let reply = driver.call(&enumerate(table, false, 0, iterator));
        assert_eq!(reply.len(), EnumerateResponse::FIXED_BYTES);
        assert_eq!(reply[..4], [status, 0, 0, 0], "{iterator:?}");
    };
    refused(TableId(9), b"", 1);
    refused(TABLE, b"\xff", 9);
    // A frame of another server's kind of table: 5 buckets.
    refused(
        TABLE,
        b"\x0a\x0a\x08\x00\x10\x01\x18\x05\x20\x00\x28\x00",
        9,
    );
    // Frames without number.
    refused(TABLE, &[0x0a, 0].repeat(65), 9);
    let whole = enumerate(TABLE, false, 0, b"abc");
    for length in 25..whole.len() {
        assert_eq!(driver.call(&whole[..length])[..4], [7, 0, 0, 0]);
    }
    assert_eq!(driver.call(&whole[..24]), [7, 0, 0, 0]);
}

/// The 16-byte key number `n` whose hash is `hash`: the key hash computed backwards.
fn key_with_hash(hash: u64, n: u64) -> Vec<u8> {
    const C1: u64 = 0x87c3_7b91_1142_53d5;
    const C2: u64 = 0x4cf5_ad43_2745_937f;
    let inverse = |odd: u64| {
        (0..6).fold(odd, |inverse, _| {
            inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse)))
        })
    };
    let divide = |a: u64, b: u64| a.wrapping_mul(inverse(b));
    let unmix = |a: u64| {
        let a = divide(a ^ a >> 33, 0xc4ce_b9fe_1a85_ec53);
        let a = divide(a ^ a >> 33, 0xff51_afd7_ed55_8ccd);
        a ^ a >> 33
    };
    let (h1, h2) = (unmix(hash.wrapping_sub(n)), unmix(n));
    let h2 = h2.wrapping_sub(h1);
    let (h1, h2) = (h1.wrapping_sub(h2) ^ 16, h2 ^ 16);
    let seed = TABLE.0;
    let k1 = divide(h1.wrapping_sub(0x52dc_e729), 5).wrapping_sub(seed);
    let k2 = divide(h2.wrapping_sub(0x3849_5ab5), 5).wrapping_sub(h1);
    let (k1, k2) = (k1.rotate_right(27) ^ seed, k2.rotate_right(31) ^ seed);
    let k1 = divide(divide(k1, C2).rotate_right(31), C1);
    let k2 = divide(divide(k2, C1).rotate_right(33), C2);
    let key = [k1.to_le_bytes(), k2.to_le_bytes()].concat();
    assert_eq!(key_hash(TABLE, &key), hash);
    key
}

/// More objects than one piece holds, all with one hash; and with hash 0, which clients take for the end.
#[test]
fn keys_with_one_hash_come_once_each() {
    const COMMON: u64 = 0x1234_5678_9abc_def0;
    for splits in [
        &[][..],
        &[1],
        &[COMMON],
        &[1, 2, COMMON, COMMON + 1, u64::MAX],
    ] {
        let mut cluster = Cluster::new();
        for n in 0..60 {
            for hash in [0, 1, COMMON, u64::MAX] {
                cluster.write(&key_with_hash(hash, n), 4000);
            }
        }
        let mut scan = Scan::default();
        let mut is_over = false;
        while !is_over {
            // In the middle of the objects with hash 0, and while they lie in the other hash table.
            if scan.requests == 1 {
                splits.iter().for_each(|&hash| cluster.split(hash));
                cluster.move_tablet(0);
            }
            let cursor = scan.cursor;
            is_over = scan.next(cluster.owner(cursor));
            assert!(scan.requests < 1000, "an enumeration without end");
        }
        assert_eq!(scan.keys.len(), 240, "no key twice");
        assert_eq!(scan.keys.iter().collect::<BTreeSet<_>>().len(), 240);
    }
}

/// Two masters that share the table's tablets, and what is in it.
struct Cluster {
    masters: [Driver; 2],
    tablets: Vec<(TabletRange, usize)>,
    objects: BTreeMap<Vec<u8>, usize>,
}

impl Cluster {
    /// The masters' hash tables differ in size: one is walked in several steps even where it is empty.
    fn new() -> Cluster {
        let mut masters = [1 << 22, 1 << 15].map(|bytes| Driver::new(with_hash_table(bytes)));
        for (at, master) in masters.iter_mut().enumerate() {
            let tablets: &[_] = if at == 0 { &[WHOLE_TABLE] } else { &[] };
            let id = base::ids::ServerId::new(1 + at as u32, 0);
            master.welcome(CLUSTER, id, 1, tablets);
        }
        Cluster {
            masters,
            tablets: vec![(WHOLE_TABLE, 0)],
            objects: BTreeMap::new(),
        }
    }

    fn owner(&mut self, hash: u64) -> &mut Driver {
        let covers =
            |tablet: &TabletRange| tablet.start_key_hash <= hash && hash <= tablet.end_key_hash;
        let (_, owner) = self
            .tablets
            .iter()
            .find(|(tablet, _)| covers(tablet))
            .unwrap();
        &mut self.masters[*owner]
    }

    fn write(&mut self, key: &[u8], bytes: usize) {
        let master = self.owner(key_hash(TABLE, key));
        let reply = master.call(&multi_write(&[(TABLE, key, &vec![1; bytes])]));
        assert_eq!(reply[8..12], [0; 4]);
        master.settle();
        self.objects.insert(key.to_vec(), bytes);
    }

    fn remove(&mut self, key: &[u8]) {
        let mut payload = Vec::new();
        let part = wire::rpc::MultiRemovePart {
            table_id: TABLE,
            rules: RejectRules::default(),
            key,
        };
        wire::rpc::MultiRemoveRequest::encode_parts(&[part], &mut payload);
        let reply = self.owner(key_hash(TABLE, key)).call(&payload);
        assert_eq!(reply[8..12], [0; 4]);
        self.objects.remove(key);
    }

    fn split(&mut self, hash: u64) {
        let at = self
            .tablets
            .iter()
            .position(|(tablet, _)| tablet.start_key_hash < hash && hash <= tablet.end_key_hash);
        let Some(at) = at else { return };
        let (tablet, owner) = self.tablets[at];
        assert!(self.masters[owner].shard.store().tablets.split(TABLE, hash));
        self.tablets[at].0.end_key_hash = hash - 1;
        let right = TabletRange {
            start_key_hash: hash,
            ..tablet
        };
        self.tablets.push((right, owner));
    }

    /// Makes one tablet of the two that meet at this hash, if one master has both.
    fn merge(&mut self, hash: u64) {
        let place = |is_it: &dyn Fn(&TabletRange) -> bool| {
            let mut tablets = self.tablets.iter();
            tablets.position(|(tablet, _)| is_it(tablet))
        };
        let first = place(&|tablet| tablet.end_key_hash == hash.wrapping_sub(1));
        let second = place(&|tablet| tablet.start_key_hash == hash);
        let (Some(first), Some(second)) = (first, second) else {
            return;
        };
        let ((one, owner), (other, other_owner)) = (self.tablets[first], self.tablets[second]);
        if hash == 0 || owner != other_owner {
            return;
        }
        let end_key_hash = other.end_key_hash;
        let whole = TabletRange {
            end_key_hash,
            ..one
        };
        assert!(self.masters[owner].shard.store().tablets.merge(&whole));
        self.tablets[first].0 = whole;
        self.tablets.remove(second);
    }

    /// Hands a tablet over to the other master, object by object.
    fn move_tablet(&mut self, at: usize) {
        let (tablet, from) = self.tablets[at];
        let to = 1 - from;
        self.masters[to].settle();
        assert!(self.masters[to].shard.store().tablets.take(tablet));
        self.tablets[at].1 = to;
        for (key, bytes) in self.objects.clone() {
            let hash = key_hash(TABLE, &key);
            if tablet.start_key_hash <= hash && hash <= tablet.end_key_hash {
                self.write(&key, bytes);
            }
        }
        self.masters[from].shard.store().drop_tablets(&[tablet]);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Next,
    Write {
        key: u8,
        large: bool,
    },
    Remove {
        key: u8,
    },
    /// Before the hash of a key, or at 1: so that the first tablet has only the hash 0.
    Split {
        key: Option<u8>,
    },
    Move {
        tablet: proptest::sample::Index,
    },
    /// With the tablet before it.
    Merge {
        tablet: proptest::sample::Index,
    },
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Next),
        3 => (any::<u8>(), any::<bool>()).prop_map(|(key, large)| Step::Write { key, large }),
        1 => any::<u8>().prop_map(|key| Step::Remove { key }),
        2 => proptest::option::weighted(0.9, any::<u8>()).prop_map(|key| Step::Split { key }),
        2 => any::<proptest::sample::Index>().prop_map(|tablet| Step::Move { tablet }),
        2 => any::<proptest::sample::Index>().prop_map(|tablet| Step::Merge { tablet }),
    ]
}

fn key_of(number: u8) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_there_throughout_comes_at_least_once(
        steps in proptest::collection::vec(any_step(), 1..40),
    ) {
        let mut cluster = Cluster::new();
        for number in 0..=255 {
            cluster.write(&key_of(number), if number % 2 == 0 { 2500 } else { 10 });
        }
        let mut throughout: BTreeSet<_> = cluster.objects.keys().cloned().collect();
        let mut scan = Scan::default();
        let mut is_over = false;
        for step in steps {
            match step {
                Step::Next if is_over => {}
                Step::Next => {
                    let cursor = scan.cursor;
                    is_over = scan.next(cluster.owner(cursor));
                }
                Step::Write { key, large } => cluster.write(&key_of(key), if large { 2000 } else { 0 }),
                Step::Remove { key } => {
                    cluster.remove(&key_of(key));
                    if !is_over {
                        throughout.remove(&key_of(key));
                    }
                }
                Step::Split { key } => {
                    cluster.split(key.map_or(1, |key| key_hash(TABLE, &key_of(key))));
                }
                Step::Move { tablet } => {
                    let at = tablet.index(cluster.tablets.len());
                    cluster.move_tablet(at);
                }
                Step::Merge { tablet } => {
                    let at = tablet.index(cluster.tablets.len());
                    cluster.merge(cluster.tablets[at].0.start_key_hash);
                }
            }
        }
        while !is_over {
            prop_assert!(scan.requests < 10_000, "an enumeration without end");
            let cursor = scan.cursor;
            is_over = scan.next(cluster.owner(cursor));
        }
        let returned: BTreeSet<_> = scan.keys.iter().cloned().collect();
        let missed: Vec<_> = throughout.difference(&returned).collect();
        prop_assert!(missed.is_empty(), "{missed:?}");
        for master in &mut cluster.masters {
            master.settle();
            prop_assert_eq!(master.shard.audit(), Ok(()));
        }
    }
}

/// The state names ranges of hashes, and no tablets: one that was begun in one part is gone on with there, and none is left out.
#[test]
fn tablets_that_become_one_between_two_pieces_give_every_key_once() {
    let boundaries = [1, 1 << 61, 1 << 62, 3 << 62];
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]] {
        for pieces_between in 1..4 {
            let mut cluster = Cluster::new();
            for number in 0..=255 {
                cluster.write(&key_of(number), 2500);
            }
            boundaries.iter().for_each(|&hash| cluster.split(hash));
            let (mut scan, mut is_over) = (Scan::default(), false);
            for at in order {
                for _ in 0..pieces_between {
                    let cursor = scan.cursor;
                    is_over = is_over || scan.next(cluster.owner(cursor));
                }
                cluster.merge(boundaries[at]);
            }
            assert_eq!(cluster.tablets, [(WHOLE_TABLE, 0)]);
            while !is_over {
                let cursor = scan.cursor;
                is_over = scan.next(cluster.owner(cursor));
                assert!(scan.requests < 1000, "an enumeration without end");
            }
            assert_eq!(scan.keys.len(), 256, "no key twice");
            assert_eq!(scan.keys.iter().collect::<BTreeSet<_>>().len(), 256);
        }
    }
}

/// Splits of the tablet in the middle of its enumeration, many times.
#[test]
fn very_many_splits_under_way_stop_no_enumeration() {
    let mut cluster = Cluster::new();
    for number in 0..=255 {
        cluster.write(&key_of(number), 2500);
    }
    let mut scan = Scan::default();
    let mut random = 1u64;
    for _ in 0..400 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        cluster.split(random);
        if scan.requests < 2 {
            let cursor = scan.cursor;
            scan.next(cluster.owner(cursor));
        }
    }
    let mut longest = 0;
    loop {
        let cursor = scan.cursor;
        if scan.next(cluster.owner(cursor)) {
            break;
        }
        longest = longest.max(scan.iterator.len());
        assert!(scan.requests < 10_000, "an enumeration without end");
    }
    assert_eq!(scan.keys.iter().collect::<BTreeSet<_>>().len(), 256);
    assert!(longest < 4096, "{longest} bytes of state");
}
