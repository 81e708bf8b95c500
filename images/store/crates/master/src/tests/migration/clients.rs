//! Clients, each with a key of its own, which make sure that every answer is the right one.

use base::ids::ReplyTo;
use wire::keys::KeysAndValue;
use wire::rpc::{
    Increment, IncrementRequest, IncrementResponse, ReadResponse, RejectRules, WriteRequest,
    WriteResponse,
};
use wire::status::Status;

use super::super::harness::*;
use super::world::{Nodes, Random};

/// Versions, 0 without an object, and values.
type State = (u64, Vec<u8>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Write,
    /// Only if there is none.
    Create,
    Increment,
    Remove,
}

/// A numbered RPC.
#[derive(Clone, Debug)]
struct Rpc {
    what: What,
    value: Vec<u8>,
    payload: Vec<u8>,
}

/// One at a time changes the key; it also reads the key at any time.
pub struct Client {
    key: Vec<u8>,
    lease_id: u64,
    rpc_id: u64,
    pending: Option<Rpc>,
    /// Nonces of its attempts, by node.
    attempts: Vec<(usize, u64)>,
    /// The last RPCs: copies of them may be on the way for ever.
    sent: Vec<Vec<u8>>,
    /// What the key held after each RPC, newest last.
    states: Vec<State>,
    top_version: u64,
    read: Option<Read>,
    /// What a read has shown of the pending RPC: later reads show no less.
    shown: Option<State>,
    pub done: usize,
}

/// A read that waits for its answer.
struct Read {
    at: usize,
    nonce: u64,
    /// The first state that it may show.
    from: usize,
    /// What was shown before of the pending RPC then.
    shown: Option<State>,
}

impl Client {
    pub fn new(number: u64) -> Client {
        Client {
            key: vec![number as u8],
            lease_id: 1 + number,
            rpc_id: 0,
            pending: None,
            attempts: Vec::new(),
            sent: Vec::new(),
            states: vec![(0, Vec::new())],
            top_version: 0,
            read: None,
            shown: None,
            done: 0,
        }
    }

    pub fn is_idle(&self) -> bool {
        self.pending.is_none()
    }

    /// What was sent to a process that is gone will not be answered.
    pub fn lost(&mut self, node: usize) {
        self.attempts.retain(|(at, _)| *at != node);
        self.read.take_if(|read| read.at == node);
    }

    fn now(&self) -> &State {
        self.states.last().unwrap()
    }

    pub fn begin(&mut self, random: &mut Random) {
        assert!(self.pending.is_none());
        self.rpc_id += 1;
        let what = match random.below(10) {
            0..3 => What::Write,
            3..5 => What::Create,
            5..7 => What::Increment,
            _ => What::Remove,
        };
        let mut value = random.next().to_le_bytes().to_vec();
        if what != What::Increment && random.one_in(2) {
            value.resize(8 + random.below(1000), 7);
        }
        let rules = RejectRules {
            exists: what == What::Create,
            ..RejectRules::default()
        };
        let (lease, ack_id) = (lease(self.lease_id), self.rpc_id - 1);
        let mut payload = Vec::new();
        match what {
            What::Write | What::Create => WriteRequest {
                table_id: TABLE,
                lease,
                rpc_id: self.rpc_id,
                ack_id,
                rules,
                is_async: false,
                object: KeysAndValue::single(&self.key, &value).unwrap(),
            }
            .encode(&mut payload),
            What::Increment => IncrementRequest {
                table_id: TABLE,
                lease,
                rpc_id: self.rpc_id,
                ack_id,
                by: Increment {
                    int64: 1,
                    double: 0.0,
                },
                rules,
                key: &self.key,
            }
            .encode(&mut payload),
            What::Remove => payload = remove(lease, self.rpc_id, ack_id, &self.key, rules),
        }
        self.sent.push(payload.clone());
        self.sent.drain(..self.sent.len().saturating_sub(4));
        self.pending = Some(Rpc {
            what,
            value,
            payload,
        });
    }

    /// Sends the RPC, perhaps not for the first time, or a late copy of an older one; or reads.
    pub fn send(&mut self, nodes: &mut Nodes, at: usize) {
        match nodes.random.below(4) {
            0 if self.read.is_none() => {
                let nonce = call(nodes, at, &read(&self.key));
                self.read = Some(Read {
                    at,
                    nonce,
                    from: self.states.len() - 1,
                    shown: self.shown.clone(),
                });
            }
            1 if !self.sent.is_empty() => {
                let which = nodes.random.below(self.sent.len());
                call(nodes, at, &self.sent[which].clone());
            }
            _ => {
                if let Some(rpc) = &self.pending {
                    let nonce = call(nodes, at, &rpc.payload);
                    self.attempts.push((at, nonce));
                }
            }
        }
    }

    /// Takes in an answer, if it is one to this client.
    pub fn answered(&mut self, at: usize, nonce: u64, payload: &[u8]) {
        if self
            .read
            .as_ref()
            .is_some_and(|read| (read.at, read.nonce) == (at, nonce))
        {
            let read = self.read.take().unwrap();
            return self.was_read(&read, payload);
        }
        let Some(attempt) = self.attempts.iter().position(|one| *one == (at, nonce)) else {
            return;
        };
        self.attempts.swap_remove(attempt);
        let status = Status::try_from(u32::from_le_bytes(payload[..4].try_into().unwrap()));
        let status = status.unwrap();
        if matches!(status, Status::Retry | Status::UnknownTablet) {
            return;
        }
        let rpc = self.pending.take().expect("attempts are forgotten");
        self.attempts.clear();
        self.check(&rpc, status, payload);
        if let Some(shown) = self.shown.take() {
            assert_eq!(shown, *self.now(), "{rpc:?} was shown otherwise");
        }
        self.done += 1;
    }

    fn check(&mut self, rpc: &Rpc, status: Status, payload: &[u8]) {
        let before = self.now().clone();
        let version = u64::from_le_bytes(payload[4..12].try_into().unwrap());
        let text = format!(
            "{:?} of RPC {} on {before:?} came to {status:?} with version {version}",
            rpc.what, self.rpc_id
        );
        let exists = before.0 > 0;
        let after = match (rpc.what, status) {
            (_, Status::NoTableSpace) => {
                // That memory was full is known where it was only.
                self.sent.clear();
                before
            }
            (What::Create, Status::ObjectExists) => {
                assert!(exists && version == before.0, "{text}");
                before
            }
            (What::Write | What::Create, Status::Ok) => {
                WriteResponse::decode(payload).unwrap();
                assert!(!exists || rpc.what == What::Write, "{text}");
                (version, rpc.value.clone())
            }
            (What::Increment, Status::Ok) => {
                let response = IncrementResponse::decode(payload).unwrap();
                let old = if exists {
                    u64::from_le_bytes(before.1[..].try_into().expect(&text))
                } else {
                    0
                };
                let new = response.new_value;
                assert_eq!(u64::from_le_bytes(new), old.wrapping_add(1), "{text}");
                (version, new.to_vec())
            }
            (What::Increment, Status::InvalidObject) => {
                assert!(before.1.len() != 8, "{text}");
                before
            }
            (What::Remove, Status::Ok) => {
                assert_eq!(version, before.0, "{text}");
                (0, Vec::new())
            }
            _ => panic!("{text}"),
        };
        let last = self.now();
        if after != *last && after.0 > 0 {
            let is_next = if exists {
                after.0 == last.0 + 1
            } else {
                after.0 > self.top_version
            };
            assert!(is_next, "{text}, after {}", self.top_version);
            self.top_version = after.0;
        }
        self.states.push(after);
    }

    fn was_read(&mut self, read: &Read, payload: &[u8]) {
        let response = ReadResponse::decode(payload).unwrap();
        let state = match response.status {
            Status::Ok => (response.version, response.value.to_vec()),
            Status::ObjectDoesntExist => (0, Vec::new()),
            _ => return,
        };
        let known = &self.states[read.from..];
        let is_stale = read.shown.as_ref().is_some_and(|shown| {
            // What was pending then is known by now, or still pending.
            let seen = known.iter().position(|one| one == shown);
            let at = known.iter().rposition(|one| *one == state);
            *shown != state && at.is_some() && at < seen.or(Some(known.len()))
        });
        assert!(!is_stale, "{state:?} after {:?}", read.shown);
        if known.contains(&state) {
            return;
        }
        assert!(
            self.pending.is_some(),
            "{state:?} was read of {:?}, which is one of {known:?}",
            self.key
        );
        let shown = self.shown.get_or_insert_with(|| state.clone());
        assert_eq!(*shown, state);
    }

    /// Nothing is under way: a read shows what there is.
    pub fn check_end(&self, nodes: &mut Nodes, owner: usize) {
        let nonce = call(nodes, owner, &read(&self.key));
        let reply = nodes.nodes[owner].driver.reply_to(nonce);
        let reply = reply.expect("all is durable");
        let response = ReadResponse::decode(&reply).unwrap();
        let (version, value) = self.now();
        let is = (response.version, response.value);
        assert_eq!(is, (*version, &value[..]), "{:?}", response.status);
    }
}

fn call(nodes: &mut Nodes, at: usize, payload: &[u8]) -> u64 {
    let driver = &mut nodes.nodes[at].driver;
    driver.now = nodes.now;
    let nonce = driver.next_nonce;
    driver.next_nonce += 1;
    let to = ReplyTo {
        connection: 1,
        nonce,
    };
    let said = &mut driver.said;
    driver.shard.request(nodes.now, to, payload, said);
    nonce
}
