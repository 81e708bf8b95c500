//! The client against a scripted peer.

mod at;
mod captured;
mod enumerate;
mod faults;
mod idle;
mod increments;
mod kinds;
mod multi;
mod rules;
mod ways;

use core::time::Duration;
use std::collections::VecDeque;

use base::ids::{ServerId, TableId};
use base::time::Time;
use prost::Message;
use wire::proto;
use wire::rpc::{
    self, GetTableConfigResponse, Increment, Lease, RejectRules, RenewLeaseResponse, RetryResponse,
    WriteResponse,
};
use wire::status::Status;

use super::*;

const MILLI: Duration = Duration::from_millis(1);
const COORDINATOR: &str = "tcp:host=10.0.0.1,port=11100";
const TABLE: TableId = TableId(7);
const NO_RULES: RejectRules = RejectRules {
    given_version: 0,
    doesnt_exist: false,
    exists: false,
    version_le_given: false,
    version_ne_given: false,
};

#[derive(Clone, Debug, PartialEq, Eq)]
struct Sent {
    session: u64,
    nonce: u64,
    payload: Vec<u8>,
}

/// Writes down what the client asks its driver to do.
#[derive(Default)]
struct Recorder {
    connects: VecDeque<(u64, String)>,
    sent: VecDeque<Sent>,
    closed: VecDeque<u64>,
    completed: VecDeque<(OperationId, Result<Owned, Error>)>,
}

impl ClientEffects for Recorder {
    fn connect(&mut self, session: u64, locator: &str) {
        self.connects.push_back((session, locator.to_owned()));
    }
    fn send(&mut self, session: u64, nonce: u64, payload: &[u8]) {
        let payload = payload.to_vec();
        self.sent.push_back(Sent {
            session,
            nonce,
            payload,
        });
    }
    fn close(&mut self, session: u64) {
        self.closed.push_back(session);
    }
    fn complete(&mut self, operation: OperationId, result: Result<Outcome<'_>, Error>) {
        let result = result.map(Owned::from);
        self.completed.push_back((operation, result));
    }
}

struct Script {
    client: Client,
    now: Time,
    out: Recorder,
}

fn encode(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes);
    bytes
}

fn tablet(start: u64, end: u64, locator: Option<&str>) -> proto::Tablet {
    proto::Tablet {
        table_id: TABLE.0,
        start_key_hash: start,
        end_key_hash: end,
        state: i32::from(locator.is_none()),
        server_id: Some(1),
        service_locator: locator.map(str::to_owned),
        user_data: None,
        ctime_log_head_id: 0,
        ctime_log_head_offset: 0,
    }
}

fn config(tablet: Vec<proto::Tablet>) -> Vec<u8> {
    let table_config = if tablet.is_empty() {
        Vec::new()
    } else {
        proto::TableConfig { tablet }.encode_to_vec()
    };
    encode(|out| {
        GetTableConfigResponse {
            status: Status::Ok,
            table_config: &table_config,
        }
        .encode(out);
    })
}

fn whole(locator: &str) -> Vec<u8> {
    config(vec![tablet(0, u64::MAX, Some(locator))])
}

fn object(version: u64, value: &[u8]) -> Vec<u8> {
    encode(|out| {
        rpc::ReadResponse {
            status: Status::Ok,
            version,
            value,
        }
        .encode(out);
    })
}

fn version(status: Status, version: u64) -> Vec<u8> {
    encode(|out| WriteResponse { status, version }.encode(out))
}

fn retry(min_us: u32, max_us: u32) -> Vec<u8> {
    encode(|out| RetryResponse::new(min_us, max_us).encode(out))
}

fn u64_at(payload: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(payload[at..at + 8].try_into().unwrap())
}

/// (lease id, RPC id, ack id) of a WRITE, REMOVE or INCREMENT.
fn ids(sent: &Sent) -> (u64, u64, u64) {
    [12, 36, 44].map(|at| u64_at(&sent.payload, at)).into()
}

const SECOND_NS: u64 = 1_000_000_000;

fn lease(id: u64, timestamp_s: u64) -> Vec<u8> {
    encode(|out| {
        RenewLeaseResponse {
            status: Status::Ok,
            lease: Lease {
                id,
                expiration_ns: (timestamp_s + 1800) * SECOND_NS,
                timestamp_ns: timestamp_s * SECOND_NS,
            },
        }
        .encode(out);
    })
}

impl Script {
    fn new() -> Script {
        Script::with(COORDINATOR, |_| {})
    }

    fn with(coordinator: &str, change: impl FnOnce(&mut Config)) -> Script {
        let mut config = Config::new(coordinator, 1).unwrap();
        // Tests of long silences would have to open everything again.
        config.idle_timeout = Duration::from_secs(1_000_000);
        change(&mut config);
        Script {
            client: Client::new(config, Time::ZERO),
            now: Time::ZERO,
            out: Recorder::default(),
        }
    }

    /// A client that knows its table (at one master) and holds lease 9.
    fn ready() -> Script {
        Script::ready_with(|_| {})
    }

    fn ready_with(change: impl FnOnce(&mut Config)) -> Script {
        let mut script = Script::with(COORDINATOR, change);
        let id = script.client.acquire_lease(script.now, &mut script.out);
        script.expect_connect(COORDINATOR);
        script.expect_sent(60);
        script.answer_last(&lease(9, 0));
        assert!(matches!(script.completed(), (done, Ok(Owned::Lease(_))) if done == id));
        let id = script.read(b"k");
        script.expect_sent(18);
        script.answer_last(&whole("tcp:host=m,port=1"));
        script.expect_connect("tcp:host=m,port=1");
        script.expect_sent(13);
        script.answer_last(&object(3, b"v"));
        assert_eq!(
            script.completed(),
            (id, Ok(Owned::Object(3, b"v"[..].into())))
        );
        script.quiet();
        script
    }

    fn read(&mut self, key: &[u8]) -> OperationId {
        self.client
            .read(self.now, TABLE, key, &NO_RULES, &mut self.out)
    }

    fn write(&mut self, key: &[u8], value: &[u8]) -> OperationId {
        self.client
            .write(self.now, TABLE, key, value, &NO_RULES, &mut self.out)
    }

    /// Expects a connection attempt, and lets it succeed.
    fn expect_connect(&mut self, locator: &str) -> u64 {
        let session = self.expect_attempt(locator);
        self.client.connected(self.now, session, &mut self.out);
        session
    }

    fn expect_attempt(&mut self, locator: &str) -> u64 {
        let (session, tried) = self
            .out
            .connects
            .pop_front()
            .expect("no connection attempt");
        assert_eq!(tried, locator);
        session
    }

    /// Expects a request with this opcode; it stays at hand for [`Script::answer_last`].
    fn expect_sent(&mut self, opcode: u8) -> Sent {
        let sent = self.out.sent.front().expect("nothing sent").clone();
        assert_eq!(sent.payload[0], opcode);
        sent
    }

    /// Answers the request that was sent first of those not answered.
    fn answer_last(&mut self, payload: &[u8]) {
        let sent = self.out.sent.pop_front().expect("nothing to answer");
        self.answer(&sent, payload);
    }

    fn answer(&mut self, sent: &Sent, payload: &[u8]) {
        self.client
            .received(self.now, sent.session, sent.nonce, payload, &mut self.out);
    }

    fn take_sent(&mut self, opcode: u8) -> Sent {
        let sent = self.expect_sent(opcode);
        self.out.sent.pop_front();
        sent
    }

    fn completed(&mut self) -> (OperationId, Result<Owned, Error>) {
        self.out.completed.pop_front().expect("nothing completed")
    }

    /// Nothing else happened.
    fn quiet(&mut self) {
        assert_eq!(self.out.connects, []);
        assert_eq!(self.out.sent, []);
        assert_eq!(self.out.completed, []);
        assert_eq!(self.out.closed, []);
    }

    /// Lets time pass until something happens; returns how long that took.
    fn wait(&mut self) -> Duration {
        let start = self.now;
        loop {
            let next = self.client.tick(self.now, &mut self.out);
            let idle = self.out.connects.is_empty()
                && self.out.sent.is_empty()
                && self.out.completed.is_empty()
                && self.out.closed.is_empty();
            if !idle {
                return self.now - start;
            }
            assert_ne!(next, Time::NEVER, "nothing will ever happen");
            assert!(next > self.now, "a tick leaves nothing due");
            self.now = next;
        }
    }
}
