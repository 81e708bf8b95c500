//! Plans, what they reserve, and what becomes of them; many keys in one plan, too.

use std::collections::BTreeMap;

#[cfg(feature = "planted-bugs")]
use base::bugs::{Bug, plant};
use base::ids::{ServerId, TableId};
use log::{Durability, Index, LogPosition, Origin};
use proptest::prelude::*;
use smallvec::SmallVec;
use wire::entry::RpcResult;
use wire::keys::KeysAndValue;
use wire::rpc::{Increment, RejectRules};
use wire::status::Status;

use super::admission::Admitted;
use super::operation::Once;
use super::plan::Plan;
use super::reserve::Refusal;
use super::results::Known;
use super::*;
use crate::config::Config;

const TABLE: TableId = TableId(1);
const LEASE: u64 = 5;

/// With the smallest hash table, so that it is full before the log is.
fn store(segments: usize) -> Store {
    let config = Config {
        segment_bytes: 4096,
        log_bytes: segments * 4096,
        hash_table_bytes: Index::MIN_BYTES,
        durability: Durability::External,
        ..Config::from_memory(20 << 20, 10).unwrap()
    };
    let origin = Origin {
        cluster_id: 1,
        server_id: ServerId::new(1, 0),
    };
    Store::new(config, origin)
}

fn write<'a>(key: &'a [u8], value: &'a [u8]) -> Operation<'a> {
    let content = KeysAndValue::single(key, value).unwrap();
    Operation::new(HashedKey::of(TABLE, key), Action::Write(content))
}

/// One plan of all these operations, as a transaction would have it.
fn together<'a>(store: &Store, operations: &[Operation<'a>]) -> Plan<'a> {
    let plans = operations
        .iter()
        .map(|operation| store.plan(operation, None));
    let mutations: SmallVec<[_; 1]> = plans.flat_map(|plan| plan.mutations).collect();
    let needs = store.needs_of(&mutations);
    Plan {
        needs,
        mutations,
        ..store.plan(&operations[0], None)
    }
}

fn value_of(store: &Store, key: &[u8]) -> Option<Vec<u8>> {
    let found = store.look_up(&HashedKey::of(TABLE, key));
    found.object.map(|at| store.object(at).value.to_vec())
}

/// Writes new keys, three in one plan, until there is no room; says how many plans there was room for.
fn fill(store: &mut Store, first_key: u32) -> usize {
    for plans in 0.. {
        let keys: Vec<[u8; 4]> = (0..3u32)
            .map(|n| (first_key + 3 * plans as u32 + n).to_le_bytes())
            .collect();
        let operations: Vec<_> = keys.iter().map(|key| write(key, b"value")).collect();
        let plan = together(store, &operations);
        let (objects, head) = (store.object_count, store.log.head_position());
        match store.reserve(&plan) {
            Ok(reserved) => drop(store.apply(reserved)),
            Err(refusal) => {
                assert_eq!(refusal, Refusal::Full);
                // All of it, or nothing.
                assert_eq!(
                    (store.object_count, store.log.head_position()),
                    (objects, head)
                );
                assert!(keys.iter().all(|key| value_of(store, key).is_none()));
                return plans;
            }
        }
    }
    unreachable!("memory has an end");
}

/// Each fills the table in another way.
fn first_keys() -> impl Iterator<Item = u32> {
    (0..60).map(|n| 1000 * n)
}

#[test]
fn many_new_keys_have_their_slots_together_or_none() {
    for first_key in first_keys() {
        let mut store = store(32);
        let plans = fill(&mut store, first_key);
        assert!(plans > 20, "{plans}");
        assert_eq!(store.object_count, 3 * plans as u64);
        assert_eq!(store.audit(), Ok(()));
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
#[should_panic(expected = "room was reserved")]
fn a_reservation_key_by_key_is_found() {
    plant(Some(Bug::ReserveKeysSeparately));
    for first_key in first_keys() {
        fill(&mut store(32), first_key);
    }
}

#[test]
fn what_one_plan_appends_becomes_durable_together() {
    let mut store = store(32);
    let operations = [write(b"a", &[1; 300]), write(b"b", &[2; 300])];
    let before = store.log.durable_position();
    let plan = together(&store, &operations);
    let Ok(reserved) = store.reserve(&plan) else {
        panic!("no room in an empty store");
    };
    let outcome = store.apply(reserved);
    assert_eq!(outcome.seen, store.log.head_position());
    store.advance_durable(LogPosition(outcome.seen.0 - 8));
    assert_eq!(store.log.durable_position(), before);
    store.advance_durable(outcome.seen);
    assert_eq!(store.log.durable_position(), outcome.seen);
}

#[test]
#[should_panic(expected = "two changes of one key")]
fn a_plan_changes_a_key_once() {
    let mut store = store(32);
    let operations = [write(b"a", b"1"), write(b"b", b"2"), write(b"a", b"3")];
    let plan = together(&store, &operations);
    let _ = store.reserve(&plan);
}

/// A refusal for want of room is an outcome: a late copy of the RPC must not come out otherwise once there is room.
#[test]
fn a_refusal_is_remembered_and_one_that_passes_is_not() {
    let mut store = store(8);
    let mut rpc_id = 0;
    let refused = loop {
        rpc_id += 1;
        let once = Once {
            lease_id: LEASE,
            rpc_id,
            ack_id: rpc_id - 1,
            ask_at_ns: 1,
        };
        let key = rpc_id.to_le_bytes();
        let outcome = store.execute(&write(&key, &[7; 500]), Admitted::in_test(Some(once)));
        match outcome.status {
            Status::Ok => {}
            Status::NoTableSpace => break rpc_id,
            Status::Retry => {
                // It has had no effect, and is not known.
                let known = store.keeper.results.look_up(LEASE, rpc_id, rpc_id - 1);
                assert_eq!(known, Known::Nothing);
                store.clean(1 << 16);
                store.advance_durable(store.log.head_position());
                store.settle_closed();
            }
            status => panic!("{status:?}"),
        }
    };
    let known = store.keeper.results.look_up(LEASE, refused, refused - 1);
    assert_eq!(known, Known::Refused);
    let large = vec![0; store.log.config().max_append_bytes()];
    let outcome = store.execute(&write(b"large", &large), Admitted::in_test(None));
    assert_eq!(outcome.status, Status::RequestTooLarge);
}

#[derive(Clone, Debug)]
struct Step {
    key: u8,
    action: u8,
    bytes: u16,
    rules: RejectRules,
    is_numbered: bool,
}

fn any_step() -> impl Strategy<Value = Step> {
    let rules = (any::<bool>(), any::<bool>()).prop_map(|(exists, doesnt_exist)| RejectRules {
        exists,
        doesnt_exist,
        ..RejectRules::default()
    });
    let rules = prop_oneof![3 => Just(RejectRules::default()), 1 => rules];
    let step = (0u8..20, 0u8..8, 0u16..600, rules, any::<bool>());
    step.prop_map(|(key, action, bytes, rules, is_numbered)| Step {
        key,
        action,
        bytes,
        rules,
        is_numbered,
    })
}

proptest! {
    /// A plan says what will be, and until it is applied nothing is otherwise than before: planned twice, it is the same plan.
    #[test]
    fn planning_changes_nothing_and_foretells(steps in proptest::collection::vec(any_step(), 1..200)) {
        let mut store = store(8);
        let mut model = BTreeMap::<[u8; 1], Vec<u8>>::new();
        for (rpc_id, step) in (1..).zip(&steps) {
            let (key, value) = ([step.key], vec![step.action; step.bytes.into()]);
            let content = KeysAndValue::single(&key, &value).unwrap();
            let by = Increment { int64: 1, double: 0.0 };
            let action = match step.action {
                0 => Action::Read,
                1 | 2 => Action::Remove,
                3 => Action::Increment(by),
                _ => Action::Write(content),
            };
            let operation = Operation { place: HashedKey::of(TABLE, &key), rules: step.rules, action };
            let ack_id = rpc_id - 1;
            let (results, log) = (&mut store.keeper.results, &mut store.log);
            results.acknowledge(LEASE, ack_id, |record| log.kill(record));
            let once = Once { lease_id: LEASE, rpc_id, ack_id, ask_at_ns: 1 };
            let once = Some(once).filter(|_| step.is_numbered && step.action > 0);
            let before = (store.log.appended(), store.object_count, store.next_version());
            let plan = store.plan(&operation, once);
            let again = store.plan(&operation, once);
            prop_assert_eq!(format!("{plan:?}"), format!("{again:?}"));
            let after = (store.log.appended(), store.object_count, store.next_version());
            prop_assert_eq!(before, after);

            let Ok(reserved) = store.reserve(&plan) else {
                prop_assert_eq!(before.0, store.log.appended());
                store.clean(1 << 16);
                store.advance_durable(store.log.head_position());
                store.settle_closed();
                continue;
            };
            let outcome = store.apply(reserved);
            prop_assert_eq!((outcome.status, outcome.shown), (plan.outcome.status, plan.outcome.shown));
            if plan.mutations.is_empty() || matches!(action, Action::Remove) {
                prop_assert_eq!(outcome.version, plan.outcome.version);
            }
            // The record is the outcome.
            let known = store.keeper.results.look_up(LEASE, rpc_id, ack_id);
            match (once, known) {
                (None, Known::Nothing) => {}
                (Some(_), Known::Answered(at)) => {
                    let record: RpcResult<'_> = store.log.entry(at).decode().unwrap();
                    let response = outcome.response(0);
                    prop_assert_eq!(record.response, response.as_bytes());
                }
                (once, known) => panic!("{once:?}: {known:?}"),
            }
            if outcome.status == Status::Ok {
                match action {
                    Action::Read => {}
                    Action::Remove => drop(model.remove(&key)),
                    Action::Write(_) => drop(model.insert(key, value.clone())),
                    Action::Increment(_) => {
                        let Shown::Number(number) = outcome.shown else { panic!("{outcome:?}") };
                        model.insert(key, number.to_vec());
                    }
                }
            }
            prop_assert_eq!(value_of(&store, &key), model.get(&key).cloned());
        }
        prop_assert_eq!(store.audit(), Ok(()));
    }
}
