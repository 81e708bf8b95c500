//! A coordinator with a driver that writes down what it is told.

pub mod replicated;

use std::collections::BTreeMap;
use std::time::Duration;

use base::ids::{ReplyTo, ServerId, TableId};
use base::time::Time;
use coordinator::state::{Changes, Pair};
use coordinator::{Config, Coordinator, CoordinatorEffects, CoordinatorEvent};
use prost::Message;
use wire::member::{self, Hello, ToCoordinator, ToShard};
use wire::proto::TableConfig;
use wire::rpc;
use wire::status::Status;

/// What the coordinator asked its driver to do.
#[derive(Debug, PartialEq)]
pub enum Action {
    Reply(ReplyTo, Vec<u8>),
    Send(u64, member::coordinator::Kind),
    Close(u64),
}

#[derive(Default)]
pub struct Recorder {
    pub actions: Vec<Action>,
    pub events: Vec<CoordinatorEvent>,
    pub ended: bool,
}

impl CoordinatorEffects for Recorder {
    fn reply(&mut self, to: ReplyTo, payload: &[u8]) {
        self.actions.push(Action::Reply(to, payload.to_vec()));
    }
    fn send_member(&mut self, connection: u64, message: ToShard) {
        let kind = message
            .kind
            .expect("the coordinator sends no empty message");
        self.actions.push(Action::Send(connection, kind));
    }
    fn close_member(&mut self, connection: u64) {
        self.actions.push(Action::Close(connection));
    }
    fn report(&mut self, event: CoordinatorEvent) {
        self.events.push(event);
    }
    fn end_process(&mut self) {
        self.ended = true;
    }
}

pub const CLUSTER: u64 = 0xc1;

pub struct Harness {
    pub coordinator: Coordinator,
    pub now: Time,
    pub out: Recorder,
    /// What was noted of the state so far: a driver notes it before it lets anything out.
    pub kept: Kept,
    config: Config,
    nonce: u64,
}

pub fn hello(member: &str, process: u64, shard: u32, shards: u32) -> Hello {
    Hello {
        cluster_id: 0,
        server_id: ServerId::INVALID.0,
        credentials: Vec::new(),
        member: member.to_owned(),
        instance: format!("instance-{process}"),
        process,
        host_id: "host".to_owned(),
        shard_index: shard,
        shard_count: shards,
        locator: format!("tcp:host=127.0.0.1,port={}", 12100 + shard),
        log_capacity_bytes: 1 << 20,
        build_version: "test".to_owned(),
        ..Hello::default()
    }
}

/// Of a member, whoever its processes are.
pub fn removal(name: &str) -> coordinator::Removal {
    coordinator::Removal {
        name: name.to_owned(),
        ..Default::default()
    }
}

impl Harness {
    pub fn new() -> Harness {
        Harness::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut Config)) -> Harness {
        let mut config = Config::new(CLUSTER, 0, "test");
        change(&mut config);
        let mut harness = Harness {
            coordinator: Coordinator::new(config.clone(), Time(1_000)),
            now: Time(1_000),
            out: Recorder::default(),
            kept: Kept::default(),
            config,
            nonce: 0,
        };
        harness.commit();
        harness
    }

    pub fn take(&mut self) -> Vec<Action> {
        self.commit();
        std::mem::take(&mut self.out.actions)
    }

    /// Notes what has changed. What was noted change by change is always all there is, and a coordinator that is made of it is
    /// the same but for its time.
    pub fn commit(&mut self) {
        assert_eq!(self.coordinator.audit(), Ok(()));
        let changes = self.coordinator.take_changes(self.now);
        let mut keys: Vec<_> = changes.puts.iter().map(|pair| &pair.key).collect();
        keys.extend(&changes.deletes);
        let count = keys.len();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), count, "a key is in a batch twice");
        let is_empty = changes.is_empty();
        self.kept.apply(changes);
        let all = Kept::all_of(&self.coordinator);
        assert_eq!(self.kept, all);
        if !is_empty {
            let restored = self.restored();
            let again = Kept::all_of(&restored);
            assert_eq!(again.without_counters(), all.without_counters());
        }
    }

    fn restored(&self) -> Coordinator {
        // Which store it is must come from what was noted.
        let config = Config {
            cluster_id: 0xbad,
            cluster_tag: 0xbad,
            ..self.config.clone()
        };
        Coordinator::restore(config, self.kept.pairs(), self.now).expect("what was noted")
    }

    /// Of processes from the next restart on.
    pub fn change_config(&mut self, change: impl FnOnce(&mut Config)) {
        change(&mut self.config);
    }

    /// The process dies, and the next one starts `down` later with what was noted.
    pub fn restart(&mut self, down: Duration) {
        self.out.actions.clear();
        self.now += down;
        self.coordinator = self.restored();
        self.commit();
    }

    /// Sends a request on client connection 1 and returns what happened.
    pub fn request(&mut self, payload: &[u8]) -> Vec<Action> {
        self.request_on(1, payload).1
    }

    pub fn request_on(&mut self, connection: u64, payload: &[u8]) -> (ReplyTo, Vec<Action>) {
        self.nonce += 1;
        let to = ReplyTo {
            connection,
            nonce: self.nonce,
        };
        self.coordinator
            .request(self.now, to, payload, &mut self.out);
        (to, self.take())
    }

    /// Sends a request that is answered at once, and returns the answer.
    pub fn answer(&mut self, payload: &[u8]) -> Vec<u8> {
        let mut actions = self.request(payload);
        match actions.pop() {
            Some(Action::Reply(_, bytes)) if actions.is_empty() => bytes,
            other => panic!("no immediate answer: {actions:?} {other:?}"),
        }
    }

    pub fn shard_says(&mut self, connection: u64, kind: member::shard::Kind) -> Vec<Action> {
        let message = ToCoordinator::from(kind);
        self.coordinator
            .member_message(self.now, connection, message, &mut self.out);
        self.take()
    }

    /// Says hello; if the coordinator asks whether the shard is alive, it is.
    pub fn hello(&mut self, connection: u64, hello: Hello) -> Vec<Action> {
        let actions = self.shard_says(connection, member::shard::Kind::Hello(hello));
        match &actions[..] {
            [Action::Send(to, member::coordinator::Kind::Ping(_))] if *to == connection => {
                let pong = member::Pong::default();
                self.shard_says(connection, member::shard::Kind::Pong(pong))
            }
            _ => actions,
        }
    }

    /// Lets a shard in that must be let in; everything else that happens is returned, too.
    pub fn enlist(&mut self, connection: u64, message: Hello) -> (member::Welcome, Vec<Action>) {
        let mut actions = self.hello(connection, message);
        let is_welcome = |action: &Action| matches!(action, Action::Send(to, member::coordinator::Kind::Welcome(_)) if *to == connection);
        match actions
            .iter()
            .position(is_welcome)
            .map(|at| actions.remove(at))
        {
            Some(Action::Send(_, member::coordinator::Kind::Welcome(welcome))) => {
                (welcome, actions)
            }
            _ => panic!("no welcome: {actions:?}"),
        }
    }

    /// Expects a refusal, and that the connection is closed.
    pub fn refused(&mut self, connection: u64, message: Hello) -> member::Refused {
        match self.hello(connection, message).as_slice() {
            [
                Action::Send(to, member::coordinator::Kind::Refused(refused)),
                Action::Close(closed),
            ] => {
                assert_eq!((*to, *closed), (connection, connection));
                refused.clone()
            }
            other => panic!("not refused: {other:?}"),
        }
    }

    pub fn done(&mut self, connection: u64, sequence: u64) -> Vec<Action> {
        self.shard_says(
            connection,
            member::shard::Kind::TabletDone(member::TabletDone { sequence }),
        )
    }

    /// Makes a table, carrying out the orders that this takes. Returns its id.
    pub fn create(&mut self, name: &str, span: u32) -> TableId {
        let mut actions = self.request(&create_table(name, span));
        let mut reply = None;
        while let Some(action) = actions.pop() {
            match action {
                Action::Send(connection, member::coordinator::Kind::TakeTablet(order)) => {
                    actions.extend(self.done(connection, order.sequence));
                }
                Action::Reply(_, bytes) => reply = Some(bytes),
                other => panic!("{other:?}"),
            }
        }
        let response = rpc::TableIdResponse::decode(&reply.expect("a reply")).unwrap();
        assert_eq!(response.status, Status::Ok);
        response.table_id
    }

    pub fn config(&mut self, table: TableId) -> TableConfig {
        let bytes = self.answer(&encode(|out| {
            rpc::GetTableConfigRequest { table_id: table }.encode(out);
        }));
        let response = rpc::GetTableConfigResponse::decode(&bytes).unwrap();
        assert_eq!(response.status, Status::Ok);
        TableConfig::decode(response.table_config).unwrap()
    }

    pub fn owners(&mut self, table: TableId) -> Vec<ServerId> {
        let config = self.config(table);
        config
            .tablet
            .iter()
            .map(|tablet| ServerId(tablet.server_id.expect("always there")))
            .collect()
    }

    pub fn close(&mut self, connection: u64) -> Vec<Action> {
        self.coordinator
            .member_closed(self.now, connection, &mut self.out);
        self.take()
    }

    /// Lets time pass, with a tick whenever one is due.
    pub fn advance(&mut self, by: Duration) -> Vec<Action> {
        let end = self.now + by;
        loop {
            let next = self.coordinator.tick(self.now, &mut self.out);
            assert!(next > self.now, "a tick leaves nothing due");
            if next > end {
                break;
            }
            self.now = next;
        }
        self.now = end;
        self.take()
    }
}

pub fn encode(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes);
    bytes
}

pub fn create_table(name: &str, span: u32) -> Vec<u8> {
    encode(|out| {
        rpc::CreateTableRequest {
            name: name.as_bytes(),
            server_span: span,
        }
        .encode(out);
    })
}

pub fn drop_table(name: &str) -> Vec<u8> {
    encode(|out| {
        rpc::DropTableRequest {
            name: name.as_bytes(),
        }
        .encode(out);
    })
}

pub fn split_tablet(name: &str, split_key_hash: u64) -> Vec<u8> {
    encode(|out| {
        rpc::SplitTabletRequest {
            name: name.as_bytes(),
            split_key_hash,
        }
        .encode(out);
    })
}

pub fn renew_lease(lease_id: u64) -> Vec<u8> {
    encode(|out| rpc::RenewLeaseRequest { lease_id }.encode(out))
}

/// What a driver keeps of the coordinator's state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kept(pub BTreeMap<Vec<u8>, Vec<u8>>);

impl Kept {
    pub fn apply(&mut self, changes: Changes) {
        for pair in changes.puts {
            self.0.insert(pair.key, pair.value);
        }
        for key in changes.deletes {
            self.0.remove(&key);
        }
    }

    pub fn pairs(&self) -> impl Iterator<Item = Pair> {
        let pairs = self.0.clone().into_iter();
        pairs.map(|(key, value)| Pair { key, value })
    }

    pub fn without_counters(&self) -> Kept {
        let mut kept = self.clone();
        kept.0.remove([1].as_slice()).expect("the counters");
        kept
    }

    /// Everything that a coordinator would note.
    pub fn all_of(coordinator: &Coordinator) -> Kept {
        Kept(
            coordinator
                .pairs()
                .map(|pair| (pair.key, pair.value))
                .collect(),
        )
    }
}

/// Bytes of a hexadecimal text.
pub fn hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2)
        .map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).expect("hexadecimal"))
        .collect()
}
