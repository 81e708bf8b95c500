//! The reply gate: nothing is shown that a crash could take back.

use std::collections::BTreeMap;

use base::ids::ServerId;
use proptest::prelude::*;
use wire::rpc::{
    EnumerateRequest, EnumerateResponse, EnumeratedObject, Increment, IncrementRequest,
    IncrementResponse, MultiReadPart, MultiReadRequest, MultiReadResponse, ReadResponse,
    RejectRules, RetryResponse, WriteResponse,
};
use wire::status::Status;

use super::harness::*;
use crate::*;

#[test]
fn replies_wait_for_what_they_show() {
    let mut driver = Driver::enlisted(small(Durability::External));
    let write = driver.send(&write(lease(1), 1, 0, b"key", b"1", RejectRules::default()));
    let read_it = driver.send(&read(b"key"));
    let duplicate = driver.send(&super::harness::write(
        lease(1),
        1,
        0,
        b"key",
        b"1",
        RejectRules::default(),
    ));
    let absent = driver.send(&read(b"other"));
    assert!(driver.reply_to(absent).is_some(), "it shows nothing");
    assert_eq!(driver.shard.stats().held_replies, 3);
    let head = driver.shard.head_position();
    driver
        .shard
        .advance_durable(LogPosition(head.0 - 1), &mut driver.said);
    assert!(
        driver.said.replies.is_empty(),
        "an append is durable as a whole"
    );
    driver.shard.advance_durable(head, &mut driver.said);
    let value = driver.reply_to(read_it).expect("durable");
    assert_eq!(ReadResponse::decode(&value).unwrap().value, b"1");
    for nonce in [write, duplicate] {
        let reply = driver.reply_to(nonce).expect("durable");
        assert_eq!(WriteResponse::decode(&reply).unwrap().version, 1);
    }
    assert_eq!(driver.read(b"key").1, 1);
}

#[test]
fn not_found_waits_for_the_tombstone() {
    let mut driver = Driver::enlisted(small(Durability::External));
    driver.send(&write(lease(1), 1, 0, b"key", b"1", RejectRules::default()));
    let head = driver.shard.head_position();
    driver.shard.advance_durable(head, &mut driver.said);
    driver.send(&remove(lease(1), 2, 0, b"key", RejectRules::default()));
    let absent = driver.send(&read(b"key"));
    assert!(driver.reply_to(absent).is_none());
    let head = driver.shard.head_position();
    driver.shard.advance_durable(head, &mut driver.said);
    let reply = driver.reply_to(absent).expect("durable");
    assert_eq!(
        ReadResponse::decode(&reply).unwrap().status,
        Status::ObjectDoesntExist
    );
    assert_eq!(driver.read(b"key").0, Status::ObjectDoesntExist);
    assert_eq!(driver.shard.audit(), Ok(()));
}

/// What shows several objects waits for the newest of them; what shows that one is gone, for its tombstone.
#[test]
fn multi_reads_and_enumerations_wait_for_all_that_they_show() {
    let mut driver = Driver::enlisted(small(Durability::External));
    let mut multi_read = Vec::new();
    let parts = [&b"old"[..], b"new"].map(|key| MultiReadPart {
        table_id: TABLE,
        rules: RejectRules::default(),
        key,
    });
    MultiReadRequest::encode_parts(&parts, &mut multi_read);
    let mut enumerate = Vec::new();
    EnumerateRequest {
        table_id: TABLE,
        keys_only: true,
        tablet_first_hash: 0,
        iterator: &[],
    }
    .encode(&mut enumerate);
    let durable = |driver: &mut Driver| {
        let head = driver.shard.head_position();
        driver.shard.advance_durable(head, &mut driver.said);
    };
    let rules = RejectRules::default();
    driver.send(&write(lease(1), 1, 0, b"old", b"1", rules));
    durable(&mut driver);
    assert_eq!(driver.call(&multi_read)[4], 2, "nothing else is shown");
    driver.send(&write(lease(1), 2, 0, b"new", b"2", rules));
    for round in 0..2 {
        let waiting = [driver.send(&multi_read), driver.send(&enumerate)];
        for nonce in waiting {
            assert!(driver.reply_to(nonce).is_none(), "round {round}");
        }
        durable(&mut driver);
        let [read, enumerated] = waiting.map(|nonce| driver.reply_to(nonce).expect("durable"));
        let read = MultiReadResponse::decode(&read).unwrap();
        let there = read.parts().filter(|part| part.status == Status::Ok);
        assert_eq!(there.count(), 2 - round);
        let enumerated = EnumerateResponse::decode(&enumerated).unwrap();
        let objects = EnumeratedObject::decode_all(enumerated.objects);
        assert_eq!(objects.count(), 2 - round);
        // In the second round, one of them is gone.
        driver.send(&remove(lease(1), 3, 0, b"old", rules));
    }
}

#[test]
fn increments_and_reads_of_all_keys_wait_too() {
    let mut driver = Driver::enlisted(small(Durability::External));
    let mut increment = Vec::new();
    IncrementRequest {
        table_id: TABLE,
        lease: lease(1),
        rpc_id: 1,
        ack_id: 0,
        by: Increment {
            int64: 3,
            double: 0.0,
        },
        rules: RejectRules::default(),
        key: b"key",
    }
    .encode(&mut increment);
    let mut read_keys = read(b"key");
    read_keys[0] = wire::opcode::Opcode::ReadKeysAndValue as u8;
    let waiting = [&increment, &increment, &read_keys].map(|payload| driver.send(payload));
    assert!(driver.said.replies.is_empty());
    let head = driver.shard.head_position();
    driver.shard.advance_durable(head, &mut driver.said);
    let [first, again, read] = waiting.map(|nonce| driver.reply_to(nonce).expect("durable"));
    assert_eq!(first, again, "executed once");
    let response = IncrementResponse::decode(&first).unwrap();
    assert_eq!((response.version, response.new_value[0]), (1, 3));
    assert_eq!(read.len(), 16 + 3 + 3 + 8, "key and value");
}

#[test]
fn held_replies_are_bounded_and_nothing_is_begun_beyond() {
    let mut driver = Driver::enlisted(small(Durability::External));
    for rpc_id in 1..=64 {
        driver.send(&write(
            lease(1),
            rpc_id,
            0,
            b"key",
            b"",
            RejectRules::default(),
        ));
    }
    let head = driver.shard.head_position();
    let reply = driver.call(&multi_write(&[(TABLE, b"key", b"")]));
    assert_eq!(
        RetryResponse::decode(&reply),
        Ok(RetryResponse::new(1000, 2000))
    );
    assert_eq!(driver.shard.head_position(), head);
}

#[test]
fn a_new_incarnation_sends_waiting_clients_away() {
    let mut driver = Driver::enlisted(small(Durability::External));
    let nonce = driver.send(&write(lease(1), 1, 0, b"key", b"", RejectRules::default()));
    driver.shard.coordinator_lost(driver.now);
    driver.welcome(CLUSTER + 1, ServerId::new(1, 0), 1, &[]);
    let reply = driver.reply_to(nonce).expect("it will never be durable");
    assert_eq!(wire::rpc::status(&reply), Ok(Status::Retry));
}

#[derive(Clone, Debug)]
enum Step {
    Write { key: u8, if_absent: bool },
    Remove { key: u8 },
    Read { key: u8 },
    Repeat { back: usize },
    MultiWrite { key: u8 },
    Durable { part: u8 },
    Tick,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u8..3, any::<bool>()).prop_map(|(key, if_absent)| Step::Write { key, if_absent }),
        3 => (0u8..3).prop_map(|key| Step::Remove { key }),
        4 => (0u8..3).prop_map(|key| Step::Read { key }),
        1 => (0usize..4).prop_map(|back| Step::Repeat { back }),
        1 => (0u8..3).prop_map(|key| Step::MultiWrite { key }),
        4 => any::<u8>().prop_map(|part| Step::Durable { part }),
        1 => Just(Step::Tick),
    ]
}

/// For every request, how far the log was when the newest thing was appended that its answer depends on; worked out here
/// from what the requests mean, not from what the shard says.
struct Watch {
    driver: Driver,
    durable: LogPosition,
    /// By key: the position behind the last change of it.
    changed: BTreeMap<u8, LogPosition>,
    needs: BTreeMap<u64, LogPosition>,
    sent: Vec<(Vec<u8>, LogPosition)>,
}

impl Watch {
    fn new(config: Config) -> Watch {
        Watch {
            driver: Driver::enlisted(config),
            durable: LogPosition::START,
            changed: BTreeMap::new(),
            needs: BTreeMap::new(),
            sent: Vec::new(),
        }
    }

    fn run(&mut self, steps: &[Step]) -> Result<(), String> {
        for step in steps {
            self.step(step);
            self.check_replies()?;
        }
        self.driver.shard.audit()
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Write { key, if_absent } => {
                let rules = RejectRules {
                    exists: if_absent,
                    ..RejectRules::default()
                };
                let rpc_id = self.sent.len() as u64 + 1;
                self.numbered(key, write(lease(1), rpc_id, 0, &[key], &[0; 100], rules));
            }
            Step::Remove { key } => {
                let rpc_id = self.sent.len() as u64 + 1;
                self.numbered(
                    key,
                    remove(lease(1), rpc_id, 0, &[key], RejectRules::default()),
                );
            }
            Step::Read { key } => {
                let nonce = self.driver.send(&read(&[key]));
                let seen = self.changed.get(&key).copied().unwrap_or_default();
                self.needs.insert(nonce, seen);
            }
            Step::Repeat { back } => {
                let at = self.sent.len().checked_sub(back + 1);
                if let Some((payload, seen)) = at.map(|at| self.sent[at].clone()) {
                    let nonce = self.driver.send(&payload);
                    self.needs.insert(nonce, seen);
                }
            }
            Step::MultiWrite { key } => {
                let nonce = self.driver.send(&multi_write(&[(TABLE, &[key], b"multi")]));
                let head = self.driver.shard.head_position();
                self.changed.insert(key, head);
                self.needs.insert(nonce, head);
            }
            Step::Durable { part } => {
                let (from, to) = (self.durable.0, self.driver.shard.head_position().0);
                self.durable = LogPosition(from + (to - from) * u64::from(part) / 255);
                let Driver { shard, said, .. } = &mut self.driver;
                shard.advance_durable(self.durable, said);
            }
            Step::Tick => {
                let Driver {
                    shard, said, now, ..
                } = &mut self.driver;
                shard.tick(*now, said);
            }
        }
    }

    /// A numbered RPC: its own record, at least, must be durable.
    fn numbered(&mut self, key: u8, payload: Vec<u8>) {
        let changes = |stats: Stats| (stats.writes, stats.removes);
        let before = changes(self.driver.shard.stats());
        let nonce = self.driver.send(&payload);
        let head = self.driver.shard.head_position();
        if changes(self.driver.shard.stats()) != before {
            self.changed.insert(key, head);
        }
        self.needs.insert(nonce, head);
        let replies = &self.driver.said.replies;
        let sent_away = replies.iter().any(|(to, payload)| {
            to.nonce == nonce && wire::rpc::status(payload) == Ok(Status::Retry)
        });
        if !sent_away {
            self.sent.push((payload, head));
        }
    }

    fn check_replies(&mut self) -> Result<(), String> {
        for (to, payload) in std::mem::take(&mut self.driver.said.replies) {
            let need = self.needs.remove(&to.nonce).expect("one reply per request");
            let is_retry = wire::rpc::status(&payload) == Ok(Status::Retry);
            if !is_retry && need > self.durable {
                return Err(format!(
                    "reply {} shows {need:?}, durable is {:?}",
                    to.nonce, self.durable
                ));
            }
        }
        Ok(())
    }
}

fn lagging() -> Config {
    Config {
        segment_bytes: 4096,
        log_bytes: 16 * 4096,
        ..small(Durability::External)
    }
}

proptest! {
    #[test]
    fn nothing_is_shown_before_it_is_durable(steps in proptest::collection::vec(any_step(), 1..400)) {
        prop_assert_eq!(Watch::new(lagging()).run(&steps), Ok(()));
    }
}

/// The check above is worth something only if it finds a gate that is broken.
#[cfg(feature = "planted-bugs")]
mod planted {
    use super::*;
    use base::bugs::{Bug, plant};

    /// What a watch sees of a shard that is broken.
    fn watch(bug: Bug, steps: &[Step]) -> Result<(), String> {
        assert_eq!(Watch::new(lagging()).run(steps), Ok(()));
        plant(Some(bug));
        let seen = Watch::new(lagging()).run(steps);
        plant(None);
        seen
    }

    #[test]
    fn an_early_gate_is_found() {
        let steps = [
            Step::Write {
                key: 1,
                if_absent: false,
            },
            Step::Read { key: 1 },
        ];
        assert!(watch(Bug::OpenGateEarly, &steps).is_err());
    }

    #[test]
    fn an_early_not_found_is_found() {
        let steps = [
            Step::Write {
                key: 1,
                if_absent: false,
            },
            Step::Durable { part: 255 },
            Step::Remove { key: 1 },
            Step::Read { key: 1 },
        ];
        assert!(watch(Bug::DropTombstoneEarly, &steps).is_err());
    }

    #[test]
    fn a_forgotten_result_and_a_version_that_goes_back_show() {
        let config = small(Durability::Unreplicated);
        plant(Some(Bug::ForgetRpcResult));
        let mut driver = Driver::enlisted(config);
        assert_eq!(driver.write(1, b"key", b"").1, 1);
        assert_eq!(driver.write(1, b"key", b"").1, 2);

        plant(Some(Bug::VersionRestartsAfterRemove));
        let mut driver = Driver::enlisted(config);
        driver.write(1, b"key", b"");
        driver.write(2, b"key", b"");
        assert_eq!(driver.remove(3, b"key").1, 2);
        assert_eq!(driver.write(4, b"key", b"").1, 2);
        plant(None);
    }
}
