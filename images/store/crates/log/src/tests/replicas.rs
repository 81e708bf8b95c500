//! What replicas hold is enough: whenever everything in memory is lost, replaying the segments that the last digest names brings
//! back what was durable.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;
use wire::entry::{Kind, RawEntry, SegmentHeader};
use wire::format::Formats;
use wire::peer::Role;

use super::*;

/// Versions and values by key.
type Objects = BTreeMap<Vec<u8>, (u64, Vec<u8>)>;

/// Copies of segments as backups would hold them.
#[derive(Default)]
pub struct Replicas {
    copies: BTreeMap<u64, Copy>,
    /// Closed ones that are still to be settled.
    closed: VecDeque<u64>,
}

struct Copy {
    role: Role,
    bytes: Vec<u8>,
    settled: bool,
}

impl Replicas {
    /// Goes part of the way: some bytes of heads get durable, some closed segments are settled.
    pub fn follow(&mut self, log: &mut Log, part: u8) {
        self.copy(log);
        let (from, to) = (log.durable_position().0, log.head_position().0);
        log.advance_durable(LogPosition(from + (to - from) * u64::from(part) / 255));
        let settled = self.closed.len() * usize::from(part) / 255;
        for id in self.closed.drain(..settled) {
            if let Some(copy) = self.copies.get_mut(&id) {
                copy.settled = true;
            }
            log.settle(id);
        }
        self.copy(log);
    }

    /// Everything is on backups.
    pub fn follow_all(&mut self, log: &mut Log) {
        self.follow(log, 255);
    }

    fn copy(&mut self, log: &mut Log) {
        while let Some(change) = log.take_change() {
            match change {
                Change::Opened { segment_id, role } => {
                    let copy = Copy {
                        role,
                        bytes: Vec::new(),
                        settled: false,
                    };
                    assert!(self.copies.insert(segment_id, copy).is_none());
                }
                Change::Closed { segment_id } => self.closed.push_back(segment_id),
                Change::Discarded { segment_id, .. } | Change::Freed { segment_id } => {
                    assert!(self.copies.remove(&segment_id).is_some());
                }
            }
        }
        for (&id, copy) in &mut self.copies {
            if let Some(bytes) = log.segment(id) {
                copy.bytes = bytes.to_vec();
            }
        }
        assert!(self.copies.len() <= log.config().max_frames() as usize);
    }

    /// In which formats entries of a kind lie on backups.
    fn formats_of(&self, kind: Kind) -> BTreeSet<u8> {
        let mut formats = BTreeSet::new();
        for copy in self.copies.values() {
            let mut bytes = &copy.bytes[..];
            while !bytes.is_empty() {
                let entry = RawEntry::read_checked(bytes).unwrap();
                if entry.kind == kind {
                    formats.insert(entry.format);
                }
                bytes = &bytes[entry.bytes.len()..];
            }
        }
        formats
    }

    /// All objects, from what was durable alone.
    pub fn recover(&self, log: &Log) -> Objects {
        let segment_bytes = u64::from(log.config().segment_bytes);
        let heads = || {
            self.copies
                .iter()
                .filter(|(_, copy)| copy.role == Role::Head)
        };
        // Heads are opened one after the other, and positions count them whole.
        let durable = log.durable_position().0;
        let first_start = log.head_position().0.div_ceil(segment_bytes) - 1;
        let mut start = first_start * segment_bytes;
        let mut newest = heads().rev();
        let (_, head) = loop {
            let found = newest.next().expect("a head that is durable in part");
            if start < durable {
                break found;
            }
            start -= segment_bytes;
        };
        let head = &head.bytes[..(durable - start) as usize];
        let mut replay = Replay::default();
        replay.segment(head);
        let digest = last_digest(head)
            .unwrap()
            .expect("every head begins with one");
        for id in digest {
            let copy = &self.copies[&id];
            let is_there = copy.role == Role::Head || copy.settled;
            assert!(
                is_there,
                "a digest names a segment that backups may not have"
            );
            replay.segment(&copy.bytes);
        }
        replay.objects
    }
}

/// Objects and tombstones in any order: the highest version wins, and a tombstone takes what is not newer.
#[derive(Default)]
struct Replay {
    objects: Objects,
    dead: BTreeMap<Vec<u8>, u64>,
}

impl Replay {
    fn segment(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let entry = RawEntry::read_checked(bytes).unwrap();
            match entry.kind {
                Kind::Object => {
                    let object = ObjectView::of(&entry).unwrap();
                    let key = object.primary_key;
                    let known = self.objects.get(key).map_or(0, |known| known.0);
                    let dead = self.dead.get(key).copied().unwrap_or(0);
                    if object.version > known.max(dead) {
                        let value = object.value.to_vec();
                        self.objects.insert(key.to_vec(), (object.version, value));
                    }
                }
                Kind::Tombstone => {
                    let tombstone: Tombstone<'_> = entry.decode().unwrap();
                    let dead = self.dead.entry(tombstone.key.to_vec()).or_insert(0);
                    *dead = (*dead).max(tombstone.version);
                    if self
                        .objects
                        .get(tombstone.key)
                        .is_some_and(|known| known.0 <= tombstone.version)
                    {
                        self.objects.remove(tombstone.key);
                    }
                }
                Kind::SegmentHeader => {
                    entry.decode::<SegmentHeader>().unwrap();
                }
                Kind::RpcResult | Kind::Digest => {}
            }
            bytes = &bytes[entry.bytes.len()..];
        }
    }
}

/// The store beside snapshots of what it held at each position.
struct Checked {
    store: Store,
    replicas: Replicas,
    model: Objects,
    snapshots: VecDeque<(LogPosition, Objects)>,
}

impl Checked {
    fn new(segments: u32) -> Checked {
        let empty = (LogPosition::START, BTreeMap::new());
        Checked {
            store: Store::new(4096, segments, Durability::External),
            replicas: Replicas::default(),
            model: BTreeMap::new(),
            snapshots: VecDeque::from([empty]),
        }
    }

    fn run(&mut self, n: usize, step: &Step) {
        match *step {
            Step::Write { key, bytes } => {
                let key = format!("key-{key}").into_bytes();
                let value = vec![n as u8; usize::from(bytes)];
                if let Ok(version) = self.store.write(&key, &value) {
                    self.model.insert(key, (version, value));
                }
            }
            Step::Remove { key } => {
                let key = format!("key-{key}").into_bytes();
                if let Ok(true) = self.store.remove(&key) {
                    self.model.remove(&key);
                }
            }
            Step::Clean { budget } => {
                self.store.clean(usize::from(budget));
            }
            Step::Durable { part } => self.replicas.follow(&mut self.store.log, part),
        }
        let position = self.store.log.head_position();
        self.snapshots.push_back((position, self.model.clone()));
    }

    /// What comes back after a crash at this moment is what was there at the durable position.
    fn check(&mut self) {
        let durable = self.store.log.durable_position();
        if durable == LogPosition::START {
            return;
        }
        while self.snapshots.get(1).is_some_and(|next| next.0 <= durable) {
            self.snapshots.pop_front();
        }
        self.replicas.copy(&mut self.store.log);
        assert_eq!(self.replicas.recover(&self.store.log), self.snapshots[0].1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn what_was_durable_is_what_a_replay_brings_back(
        segments in 8u32..40,
        steps in proptest::collection::vec(any_step(), 1..600),
        activated_at in 0usize..600,
    ) {
        let mut checked = Checked::new(segments);
        for (n, step) in steps.iter().enumerate() {
            if n == activated_at {
                checked.store.log.set_format(Formats::NEXT.newest);
            }
            checked.run(n, step);
            if n % 7 == 0 {
                checked.check();
            }
        }
        checked.check();
    }
}

/// However long it goes on: replicas are freed as fast as they are made.
#[test]
fn overwrites_go_on_for_ever_with_a_bounded_number_of_replicas() {
    for (seed, keys) in [(1, 4), (2, 60), (3, 150), (4, 250)] {
        let mut checked = Checked::new(32);
        let mut random = Lcg(seed);
        for n in 0..40_000 {
            if n == 20_000 {
                checked.store.log.set_format(Formats::NEXT.newest);
            }
            let key = random.below(keys) as u16;
            let step = match random.below(10) {
                0 => Step::Remove { key },
                1 | 2 => Step::Clean { budget: 4000 },
                3 => Step::Durable { part: 255 },
                _ => Step::Write {
                    key,
                    bytes: random.below(400) as u16,
                },
            };
            checked.run(n, &step);
            if n % 500 == 0 {
                checked.check();
            }
        }
        let formats = checked.replicas.formats_of(Kind::Tombstone);
        assert!(formats.contains(&2), "{keys} keys: {formats:?}");
        let cleaned = checked.store.log.cleaner_stats().segments_cleaned;
        assert!(cleaned > 300, "{keys} keys: {cleaned} segments cleaned");
    }
}

/// Nothing is cleaned that is not safe, and no replica goes before what replaces it is durable.
#[test]
fn a_segment_is_cleaned_when_it_is_settled_and_its_replica_freed_when_a_durable_digest_leaves_it_out()
 {
    let mut store = Store::new(4096, 8, Durability::External);
    let mut replicas = Replicas::default();
    for n in 0..200 {
        match store.write(&u64_key(n % 4), &[n as u8; 300]) {
            Ok(_) => {}
            Err(NoRoom::Cleaning) => break,
            Err(NoRoom::Full) => panic!("the log is not full, only not durable"),
        }
    }
    assert_eq!(
        store.clean(1 << 20),
        Cleaning::Waiting,
        "nothing is durable"
    );
    let head = store.log.head_position();
    store.log.advance_durable(LogPosition(head.0 - 1));
    assert!(
        store.log.durable_position().0 < head.0 - 1,
        "the last append is not whole"
    );
    assert_eq!(
        store.clean(1 << 20),
        Cleaning::Waiting,
        "nothing is settled"
    );
    let free = store.log.usage().free_bytes;
    replicas.follow_all(&mut store.log);
    let before = replicas.copies.len();
    assert_eq!(store.log.durable_position(), head);
    store.clean(1 << 20);
    assert!(store.log.usage().free_bytes > free);
    replicas.copy(&mut store.log);
    assert!(
        replicas.copies.len() >= before,
        "no digest is durable that leaves them out"
    );
    store.log.advance_durable(LogPosition(head.0 + 100_000));
    assert_eq!(
        store.log.durable_position(),
        store.log.head_position(),
        "what is not written is not durable"
    );
    replicas.copy(&mut store.log);
    assert!(replicas.copies.len() < before);
    assert_eq!(store.log.audit(&store.keeper), Ok(()));
}

/// A copy of a head may be begun anew when most of it is durable already: pieces are cut there, too, or it would never be sent.
#[test]
fn pieces_of_a_head_end_with_appends_and_anywhere_in_what_is_durable() {
    let mut store = Store::new(4096, 8, Durability::External);
    let mut ends = vec![0];
    for n in 0..8 {
        store.write(&u64_key(n), &[0; 300]).expect("there is room");
        let written = store.log.segment(1).expect("the head").len();
        ends.push(written as u32);
    }
    let end_of = |store: &Store, from: u32, max| store.log.end_of_appends(1, from, max);
    assert_eq!(end_of(&store, 0, ends[2] + 1), ends[2], "appends are whole");
    assert_eq!(end_of(&store, ends[2], 100), ends[2], "the next is longer");
    let durable = store.log.position_in(1, ends[5]).expect("of the head");
    store.log.advance_durable(durable);
    assert_eq!(end_of(&store, 0, ends[2] + 1), ends[2] + 1);
    assert_eq!(end_of(&store, ends[2], 4096), ends[8]);
    assert_eq!(end_of(&store, ends[4], ends[6] - ends[4] + 1), ends[6]);
    assert_eq!(end_of(&store, ends[5], 100), ends[5], "the next is longer");
}
