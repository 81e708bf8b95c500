//! A store that is lost and brought back in parts by others.

use std::collections::{BTreeMap, VecDeque};

use base::ids::ServerId;
use log::{Change, Durability, LogPosition, Origin, last_digest};
use proptest::prelude::*;
use wire::keys::KeysAndValue;
use wire::peer::Role;
use wire::rpc::Increment;
use wire::status::Status;

use super::*;
use crate::config::Config;
use crate::data::admission::Admitted;
use crate::data::operation::Once;
use crate::data::{Action, Operation, Outcome, Shown};

mod again;

const TABLE: TableId = TableId(1);
const LEASE: u64 = 5;

fn config(segments: usize) -> Config {
    Config {
        segment_bytes: 4096,
        log_bytes: segments * 4096,
        hash_table_bytes: 1 << 16,
        durability: Durability::External,
        ..Config::from_memory(20 << 20, 10).unwrap()
    }
}

fn whole() -> TabletRange {
    TabletRange {
        table_id: TABLE.0,
        start_key_hash: 0,
        end_key_hash: u64::MAX,
    }
}

fn execute(
    store: &mut Store,
    table: TableId,
    key: &[u8],
    action: Action<'_>,
    once: impl Into<Option<Once>>,
) -> Outcome {
    let operation = Operation::new(HashedKey::of(table, key), action);
    store.execute(&operation, Admitted::in_test(once.into()))
}

/// Versions and values.
type Objects = BTreeMap<Vec<u8>, (u64, Vec<u8>)>;

#[derive(Clone, Default)]
struct Model {
    objects: Objects,
    /// The highest version that each key ever had.
    versions: BTreeMap<Vec<u8>, u64>,
    /// What RPCs that are not acknowledged were answered.
    results: BTreeMap<u64, (Status, u64)>,
    last_rpc_id: u64,
}

#[derive(Clone, Debug)]
enum Step {
    Write { key: u8, bytes: u16 },
    Increment { key: u8 },
    Remove { key: u8 },
    Clean { budget: u16 },
    Durable { part: u8 },
}

fn any_step(keys: u8) -> impl Strategy<Value = Step> {
    let key = 0..keys;
    prop_oneof![
        6 => (key.clone(), 0u16..700).prop_map(|(key, bytes)| Step::Write { key, bytes }),
        2 => (key.clone()).prop_map(|key| Step::Increment { key }),
        3 => (key).prop_map(|key| Step::Remove { key }),
        4 => (1u16..8000).prop_map(|budget| Step::Clean { budget }),
        3 => any::<u8>().prop_map(|part| Step::Durable { part }),
    ]
}

/// A store, its replicas, and what it held at each position.
struct Original {
    store: Store,
    model: Model,
    snapshots: VecDeque<(LogPosition, Model)>,
    /// Segments by id: role and bytes.
    replicas: BTreeMap<u64, (Role, Vec<u8>)>,
    /// Log positions of heads.
    starts: BTreeMap<u64, LogPosition>,
    closed: VecDeque<u64>,
}

impl Original {
    fn new() -> Original {
        let origin = Origin {
            cluster_id: 1,
            server_id: ServerId::new(1, 0),
        };
        Original::from(Store::new(config(32), origin), Model::default())
    }

    /// With what a store holds already.
    fn from(mut store: Store, model: Model) -> Original {
        store.keeper.results.admit(LEASE, 1, 10);
        Original {
            store,
            snapshots: VecDeque::from([(LogPosition::START, model.clone())]),
            model,
            replicas: BTreeMap::new(),
            starts: BTreeMap::new(),
            closed: VecDeque::new(),
        }
    }

    /// The next RPC, of a client that is done with all but the last three.
    fn number(&mut self) -> Once {
        let rpc_id = self.model.last_rpc_id + 1;
        let ack_id = rpc_id.saturating_sub(4);
        let (results, log) = (&mut self.store.keeper.results, &mut self.store.log);
        results.acknowledge(LEASE, ack_id, |record| log.kill(record));
        Once {
            lease_id: LEASE,
            rpc_id,
            ack_id,
            ask_at_ns: 1,
        }
    }

    fn note(&mut self, status: Status, version: u64, number: Once) {
        if status == Status::Retry || status == Status::NoTableSpace {
            return;
        }
        self.model.last_rpc_id = number.rpc_id;
        let results = &mut self.model.results;
        results.insert(number.rpc_id, (status, version));
        results.retain(|&rpc_id, _| rpc_id > number.ack_id);
    }

    fn run(&mut self, n: usize, step: &Step) {
        match *step {
            Step::Write { key, bytes } => {
                let (key, number) = ([key], self.number());
                let value = vec![n as u8; usize::from(bytes)];
                let content = KeysAndValue::single(&key, &value).unwrap();
                let outcome = execute(&mut self.store, TABLE, &key, Action::Write(content), number);
                if outcome.status == Status::Ok {
                    self.wrote(&key, outcome.version, value);
                }
                self.note(outcome.status, outcome.version, number);
            }
            Step::Increment { key } => {
                let (key, number) = ([key], self.number());
                let by = Increment {
                    int64: 1,
                    double: 0.0,
                };
                let action = Action::Increment(by);
                let outcome = execute(&mut self.store, TABLE, &key, action, number);
                if let (Status::Ok, Shown::Number(value)) = (outcome.status, outcome.shown) {
                    self.wrote(&key, outcome.version, value.to_vec());
                }
                self.note(outcome.status, outcome.version, number);
            }
            Step::Remove { key } => {
                let (key, number) = ([key], self.number());
                let outcome = execute(&mut self.store, TABLE, &key, Action::Remove, number);
                if outcome.status == Status::Ok {
                    self.model.objects.remove(&key[..]);
                }
                self.note(outcome.status, outcome.version, number);
            }
            Step::Clean { budget } => {
                self.store.clean(budget.into());
            }
            Step::Durable { part } => self.follow(part),
        }
        self.snapshots
            .push_back((self.store.log.head_position(), self.model.clone()));
    }

    fn wrote(&mut self, key: &[u8], version: u64, value: Vec<u8>) {
        self.model.objects.insert(key.to_vec(), (version, value));
        self.model.versions.insert(key.to_vec(), version);
    }

    fn follow(&mut self, part: u8) {
        self.copy();
        let (from, to) = (
            self.store.log.durable_position().0,
            self.store.log.head_position().0,
        );
        let position = from + (to - from) * u64::from(part) / 255;
        self.store.advance_durable(LogPosition(position));
        for _ in 0..self.closed.len() * usize::from(part) / 255 {
            let Some(&id) = self.closed.front() else {
                break;
            };
            // Replicas of a head are closed when all of it is on them.
            let (role, bytes) = &self.replicas[&id];
            let end = self.store.log.position_in(id, bytes.len() as u32);
            if *role == Role::Head && end > Some(self.store.log.durable_position()) {
                break;
            }
            self.closed.pop_front();
            self.store.log.settle(id);
        }
        self.copy();
    }

    fn copy(&mut self) {
        while let Some(change) = self.store.log.take_change() {
            match change {
                Change::Opened { segment_id, role } => {
                    self.replicas.insert(segment_id, (role, Vec::new()));
                }
                Change::Closed { segment_id } => self.closed.push_back(segment_id),
                Change::Discarded { segment_id, .. } | Change::Freed { segment_id } => {
                    self.replicas.remove(&segment_id);
                }
            }
        }
        for (&id, (_, bytes)) in &mut self.replicas {
            if let Some(now) = self.store.log.segment(id) {
                *bytes = now.to_vec();
            }
            if let Some(start) = self.store.log.position_in(id, 0) {
                self.starts.insert(id, start);
            }
        }
    }

    /// The log's segments as backups have them, the head cut where it is durable; and what it held there.
    fn crash(&mut self) -> (BTreeMap<u64, Vec<u8>>, Model) {
        self.copy();
        let durable = self.store.log.durable_position();
        while self.snapshots.get(1).is_some_and(|next| next.0 <= durable) {
            self.snapshots.pop_front();
        }
        let model = self.snapshots[0].1.clone();
        if durable == LogPosition::START {
            return (BTreeMap::new(), model);
        }
        // Heads that were given up while they were bare have positions, too, and hold nothing.
        let is_head = |(_, (role, _)): &(&u64, &(Role, Vec<u8>))| *role == Role::Head;
        let heads = self.replicas.iter().filter(is_head);
        let starts = heads.filter_map(|(id, _)| Some((self.starts.get(id)?.0, *id)));
        let (start, id) = starts
            .filter(|(start, _)| *start < durable.0)
            .max()
            .expect("it was opened");
        let head = &self.replicas[&id].1;
        let head = head[..head.len().min((durable.0 - start) as usize)].to_vec();
        let digest = last_digest(&head).unwrap().expect("a head begins with one");
        let named = digest.iter().map(|id| (*id, self.replicas[id].1.clone()));
        let mut segments: BTreeMap<_, _> = named.collect();
        segments.insert(id, head);
        (segments, model)
    }
}

/// Splits all hashes at these.
fn partitions(mut cuts: Vec<u64>) -> Vec<TabletRange> {
    cuts.sort_unstable();
    cuts.dedup();
    cuts.retain(|&cut| cut > 0);
    let mut start = 0;
    let mut ranges = Vec::new();
    for cut in cuts {
        ranges.push(TabletRange {
            start_key_hash: start,
            end_key_hash: cut - 1,
            ..whole()
        });
        start = cut;
    }
    ranges.push(TabletRange {
        start_key_hash: start,
        ..whole()
    });
    ranges
}

/// Another store, of a later server.
fn survivor(number: u32) -> Store {
    small_survivor(number, 56)
}

fn small_survivor(number: u32, segments: usize) -> Store {
    let origin = Origin {
        cluster_id: 1,
        server_id: ServerId::new(number, 0),
    };
    Store::new(config(segments), origin)
}

fn check_part(store: &mut Store, tablet: TabletRange, model: &Model) {
    let is_mine = |key: &[u8]| holds(&[tablet], TABLE, HashedKey::of(TABLE, key).hash);
    for key in 0..40 {
        let key = [key];
        if !is_mine(&key) {
            continue;
        }
        let found = store.look_up(&HashedKey::of(TABLE, &key));
        let is = found
            .object
            .map(|at| (found.version, store.object(at).value.to_vec()));
        assert_eq!(is.as_ref(), model.objects.get(&key[..]), "key {key:?}");
        // A key that is made again gets a version that it never had.
        let content = KeysAndValue::single(&key, b"again").unwrap();
        let outcome = execute(store, TABLE, &key, Action::Write(content), None);
        assert_eq!(outcome.status, Status::Ok);
        assert!(outcome.version > model.versions.get(&key[..]).copied().unwrap_or(0));
    }
    assert_eq!(store.audit(), Ok(()));
}

/// Which RPCs of the model the store knows; their answers are the model's.
fn known_results(store: &mut Store, model: &Model) -> Vec<u64> {
    let mut ids = Vec::new();
    for (&rpc_id, &answer) in &model.results {
        let known = store.keeper.results.look_up(LEASE, rpc_id, 0);
        if let Known::Answered(at) = known {
            let record: RpcResult<'_> = store.log.entry(at).decode().unwrap();
            let status = u32::from_le_bytes(record.response[..4].try_into().unwrap());
            let version = u64::from_le_bytes(record.response[4..12].try_into().unwrap());
            assert_eq!((Status::try_from(status).unwrap(), version), answer);
            ids.push(rpc_id);
        }
    }
    ids
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn what_was_durable_comes_back_in_parts_and_in_any_order(
        steps in proptest::collection::vec(any_step(40), 1..400),
        cuts in proptest::collection::vec(any::<u64>(), 0..4),
        order in any::<prop::sample::Index>(),
        twice in any::<prop::sample::Index>(),
    ) {
        let mut original = Original::new();
        for (n, step) in steps.iter().enumerate() {
            original.run(n, step);
        }
        let (segments, model) = original.crash();
        if segments.is_empty() {
            return Ok(());
        }
        let mut segments: Vec<_> = segments.into_values().collect();
        let again = segments[twice.index(segments.len())].clone();
        segments.push(again);
        let turn = order.index(segments.len());
        segments.rotate_left(turn);
        let mut results = BTreeMap::new();
        for (number, tablet) in partitions(cuts).into_iter().enumerate() {
            let mut store = survivor(number as u32 + 2);
            let mut replay = store.begin_replay(vec![tablet]).unwrap();
            for segment in &segments {
                store.replay(&mut replay, segment).unwrap();
            }
            store.complete_replay(&mut replay);
            store.commit_replay(&replay, &[tablet]);
            for rpc_id in known_results(&mut store, &model) {
                assert!(results.insert(rpc_id, number).is_none(), "two have the result of RPC {rpc_id}");
            }
            check_part(&mut store, tablet, &model);
        }
        assert!(results.keys().eq(model.results.keys()), "{results:?} of {:?}", model.results);
    }
}

#[test]
fn a_replay_that_is_given_up_leaves_nothing() {
    let mut original = Original::new();
    for key in 0..30 {
        original.run(0, &Step::Write { key, bytes: 100 });
    }
    original.follow(255);
    let segments: Vec<_> = original.crash().0.into_values().collect();
    let mut store = survivor(2);
    let mut replay = store.begin_replay(vec![whole()]).unwrap();
    store.replay(&mut replay, &segments[0]).unwrap();
    assert!(store.object_count > 0);
    // A walk for another tablet's sake leaves what is being replayed.
    store.drop_tablets(&[TabletRange {
        table_id: 9,
        ..whole()
    }]);
    while !store.purge(100) {}
    assert!(store.object_count > 0);
    store.give_up_replay(replay);
    while !store.purge(100) {}
    assert_eq!(store.object_count, 0);
    assert_eq!(store.audit(), Ok(()));
}

#[test]
fn replays_that_overlap_share_segments_until_something_is_purged() {
    let mut original = Original::new();
    for key in 0..30 {
        original.run(0, &Step::Write { key, bytes: 100 });
    }
    original.follow(255);
    let segments: Vec<_> = original.crash().0.into_values().collect();
    let mut store = survivor(2);
    let parts = partitions(vec![1 << 61, 1 << 62, 1 << 63, 3 << 62]);
    let begin = |part: &TabletRange| store.begin_replay(vec![*part]).unwrap();
    let mut replays: Vec<Replay> = parts.iter().map(begin).collect();
    for replay in &mut replays {
        for segment in &segments {
            store.replay(replay, segment).unwrap();
        }
        store.complete_replay(replay);
    }
    let first = replays[0].from_segment();
    assert!(replays.iter().all(|replay| replay.from_segment() == first));
    let taken = store.log.newest_segment_id() + 1 - first;
    let needed = segments.len() as u64;
    assert!(
        taken <= needed + 1,
        "{taken} segments for what was in {needed}"
    );
    assert_eq!(store.audit(), Ok(()));

    let last = replays.pop().unwrap();
    store.give_up_replay(last);
    while !store.purge(100) {}
    let newest = store.log.newest_segment_id();
    let again = store.begin_replay(vec![parts[4]]).unwrap();
    assert!(
        again.from_segment() > newest,
        "older ones hold what is dead"
    );
    assert_eq!(store.audit(), Ok(()));
}

#[test]
fn damage_and_want_of_room_are_told_apart() {
    let mut original = Original::new();
    for key in 0..30 {
        original.run(0, &Step::Write { key, bytes: 600 });
    }
    original.follow(255);
    let segments: Vec<_> = original.crash().0.into_values().collect();
    let mut small = Store::new(
        config(8),
        Origin {
            cluster_id: 1,
            server_id: ServerId::new(2, 0),
        },
    );
    let mut replay = small.begin_replay(vec![whole()]).unwrap();
    let results: Vec<_> = segments
        .iter()
        .map(|segment| small.replay(&mut replay, segment))
        .collect();
    let full = Err(ReplayError::NoRoom(NoRoom::Full));
    assert!(results.contains(&full), "{results:?}");
    let mut rotten = segments[1].clone();
    let last = rotten.len() - 20;
    rotten[last] ^= 1;
    let mut store = survivor(3);
    let mut replay = store.begin_replay(vec![whole()]).unwrap();
    let error = store.replay(&mut replay, &rotten).unwrap_err();
    assert!(
        matches!(
            error,
            ReplayError::Damaged {
                error: EntryError::Checksum,
                ..
            }
        ),
        "{error:?}"
    );
}
