//! A shard with a coordinator and clients that a test plays.

use base::ids::{ReplyTo, ServerId, TableId};
use base::time::Time;
use wire::format::Formats;
use wire::keys::KeysAndValue;
use wire::member::{self, TabletRange, ToCoordinator, ToShard, coordinator, shard};
use wire::rpc::{
    Lease, MultiWritePart, MultiWriteRequest, ReadRequest, ReadResponse, RejectRules,
    RemoveRequest, WriteRequest, WriteResponse,
};
use wire::status::Status;

use crate::*;

pub const TABLE: TableId = TableId(1);
pub const WHOLE_TABLE: TabletRange = whole(TABLE.0);
pub const CLUSTER: u64 = 77;

pub const fn whole(table_id: u64) -> TabletRange {
    TabletRange {
        table_id,
        start_key_hash: 0,
        end_key_hash: u64::MAX,
    }
}

/// What the shard said.
#[derive(Default)]
pub struct Said {
    pub replies: Vec<(ReplyTo, Vec<u8>)>,
    pub messages: Vec<shard::Kind>,
    pub events: Vec<ShardEvent>,
    pub counters: DriverCounters,
    /// Where it wanted to connect to; the number of a connection is 1 + its place here.
    pub connects: Vec<String>,
    /// No connection can be made.
    pub is_cut_off: bool,
    pub sent: Vec<(u64, u64, Vec<u8>)>,
    pub closed: Vec<u64>,
    pub ended: bool,
    pub backups_connected: Vec<ServerId>,
    pub backups_disconnected: Vec<ServerId>,
    /// Backup, nonce and payload.
    pub to_backups: Vec<(ServerId, u64, Vec<u8>)>,
    /// The same three for what recoveries read.
    pub sources_connected: Vec<ServerId>,
    pub sources_disconnected: Vec<ServerId>,
    pub to_sources: Vec<(ServerId, u64, Vec<u8>)>,
    /// And for what migrations read.
    pub migrations_connected: Vec<ServerId>,
    pub migrations_disconnected: Vec<ServerId>,
    pub to_migrations: Vec<(ServerId, u64, Vec<u8>)>,
    pub settings: Option<member::Settings>,
}

impl ShardEffects for Said {
    fn reply(&mut self, to: ReplyTo, parts: &[&[u8]]) {
        self.replies.push((to, parts.concat()));
    }
    fn send_coordinator(&mut self, message: ToCoordinator) {
        self.messages.push(message.kind.expect("a kind"));
    }
    fn report(&mut self, event: ShardEvent) {
        self.events.push(event);
    }
    fn driver_counters(&self) -> DriverCounters {
        self.counters
    }
    fn connect_server(&mut self, locator: &str) -> Option<u64> {
        self.connects.push(locator.to_owned());
        (!self.is_cut_off).then_some(self.connects.len() as u64)
    }
    fn send_server(&mut self, connection: u64, nonce: u64, payload: &[u8]) {
        self.sent.push((connection, nonce, payload.to_vec()));
    }
    fn close_server(&mut self, connection: u64) {
        self.closed.push(connection);
    }
    fn use_settings(&mut self, settings: &member::Settings) {
        self.settings = Some(*settings);
    }
    fn end_process(&mut self) {
        self.ended = true;
    }
    fn connect_backup(&mut self, channel: Channel, backup: ServerId, _: &str) {
        match channel {
            Channel::Replication => self.backups_connected.push(backup),
            Channel::Recovery => self.sources_connected.push(backup),
            Channel::Migration => self.migrations_connected.push(backup),
        }
    }
    fn disconnect_backup(&mut self, channel: Channel, backup: ServerId) {
        match channel {
            Channel::Replication => self.backups_disconnected.push(backup),
            Channel::Recovery => self.sources_disconnected.push(backup),
            Channel::Migration => self.migrations_disconnected.push(backup),
        }
    }
    fn send_backup(&mut self, channel: Channel, backup: ServerId, nonce: u64, parts: &[&[u8]]) {
        let to = match channel {
            Channel::Replication => &mut self.to_backups,
            Channel::Recovery => &mut self.to_sources,
            Channel::Migration => &mut self.to_migrations,
        };
        to.push((backup, nonce, parts.concat()));
    }
}

pub struct Driver {
    pub shard: Shard,
    pub said: Said,
    pub now: Time,
    pub next_nonce: u64,
}

pub fn small(durability: Durability) -> Config {
    Config {
        segment_bytes: 1 << 14,
        log_bytes: 64 << 14,
        hash_table_bytes: 1 << 18,
        durability,
        replication: None,
        max_clients: 16,
        max_result_slots: 16 * 512,
        max_held_replies: 64,
        enumerated_slots: 1024,
        enumerated_bytes: 128 << 10,
        migrated_bytes: 64 << 10,
        lend_bytes: 8 << 10,
        allow_test_rpcs: false,
        formats: Formats::CURRENT,
    }
}

pub fn identity() -> Identity {
    Identity {
        member: "m-0".to_owned(),
        instance: "pod".to_owned(),
        process: 5,
        host_id: "node".to_owned(),
        shard_index: 0,
        shard_count: 1,
        locator: "tcp:host=127.0.0.1,port=12100".to_owned(),
        coordinator: "tcp:host=127.0.0.1,port=11100".to_owned(),
        build_version: "test".to_owned(),
        backup_locator: String::new(),
        peer_locator: String::new(),
        domain: String::new(),
    }
}

/// Valid in the cluster's time of the tests.
pub fn lease(id: u64) -> Lease {
    Lease {
        id,
        expiration_ns: 1_000_000_000_000,
        timestamp_ns: 0,
    }
}

impl Driver {
    pub fn new(config: Config) -> Driver {
        Driver {
            shard: Shard::new(config, identity(), Time(0)),
            said: Said::default(),
            now: Time(0),
            next_nonce: 1,
        }
    }

    /// A shard that is let in as 1.0 and owns the whole table.
    pub fn enlisted(config: Config) -> Driver {
        let mut driver = Driver::new(config);
        let session = driver.welcome(CLUSTER, ServerId::new(1, 0), 1, &[WHOLE_TABLE]);
        assert_eq!(session, Session::Continue);
        driver
    }

    pub fn order(&mut self, kind: coordinator::Kind) -> Session {
        let message = ToShard::from(kind);
        self.shard
            .coordinator_message(self.now, message, &mut self.said)
    }

    pub fn welcome(
        &mut self,
        cluster_id: u64,
        server_id: ServerId,
        first_version: u64,
        tablets: &[TabletRange],
    ) -> Session {
        self.order(coordinator::Kind::Welcome(member::Welcome {
            cluster_id,
            server_id: server_id.0,
            cluster_time_ns: 1000,
            first_version,
            tablets: tablets.to_vec(),
            silence_timeout_ms: 5000,
            ..Default::default()
        }))
    }

    /// Sends a payload; answers its nonce.
    pub fn send(&mut self, payload: &[u8]) -> u64 {
        let nonce = self.next_nonce;
        self.next_nonce += 1;
        let to = ReplyTo {
            connection: 1,
            nonce,
        };
        self.shard.request(self.now, to, payload, &mut self.said);
        nonce
    }

    /// The reply to this request, if it came.
    pub fn reply_to(&mut self, nonce: u64) -> Option<Vec<u8>> {
        let replies = &mut self.said.replies;
        let at = replies.iter().position(|(to, _)| to.nonce == nonce)?;
        Some(replies.swap_remove(at).1)
    }

    pub fn call(&mut self, payload: &[u8]) -> Vec<u8> {
        let nonce = self.send(payload);
        self.reply_to(nonce).expect("a reply at once")
    }

    pub fn read(&mut self, key: &[u8]) -> (Status, u64, Vec<u8>) {
        let reply = self.call(&read(key));
        let response = ReadResponse::decode(&reply).unwrap();
        (response.status, response.version, response.value.to_vec())
    }

    pub fn write(&mut self, rpc_id: u64, key: &[u8], value: &[u8]) -> (Status, u64) {
        let payload = write(lease(1), rpc_id, 0, key, value, RejectRules::default());
        self.simple(&payload)
    }

    pub fn remove(&mut self, rpc_id: u64, key: &[u8]) -> (Status, u64) {
        self.simple(&remove(lease(1), rpc_id, 0, key, RejectRules::default()))
    }

    /// A call whose answer is a status and a version.
    pub fn simple(&mut self, payload: &[u8]) -> (Status, u64) {
        let reply = self.call(payload);
        let response = WriteResponse::decode(&reply).unwrap();
        (response.status, response.version)
    }

    /// Ticks until there is nothing left to do at once.
    pub fn settle(&mut self) {
        for _ in 0..100_000 {
            if self.shard.tick(self.now, &mut self.said) > self.now {
                return;
            }
        }
        panic!("background work does not end");
    }
}

pub fn read(key: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    ReadRequest {
        table_id: TABLE,
        rules: RejectRules::default(),
        key,
    }
    .encode(&mut out);
    out
}

pub fn write(
    lease: Lease,
    rpc_id: u64,
    ack_id: u64,
    key: &[u8],
    value: &[u8],
    rules: RejectRules,
) -> Vec<u8> {
    let mut out = Vec::new();
    WriteRequest {
        table_id: TABLE,
        lease,
        rpc_id,
        ack_id,
        rules,
        is_async: false,
        object: KeysAndValue::single(key, value).unwrap(),
    }
    .encode(&mut out);
    out
}

pub fn remove(lease: Lease, rpc_id: u64, ack_id: u64, key: &[u8], rules: RejectRules) -> Vec<u8> {
    let mut out = Vec::new();
    RemoveRequest {
        table_id: TABLE,
        lease,
        rpc_id,
        ack_id,
        rules,
        key,
    }
    .encode(&mut out);
    out
}

pub fn multi_write(objects: &[(TableId, &[u8], &[u8])]) -> Vec<u8> {
    let parts: Vec<_> = objects
        .iter()
        .map(|&(table_id, key, value)| MultiWritePart {
            table_id,
            rules: RejectRules::default(),
            object: KeysAndValue::single(key, value).unwrap(),
        })
        .collect();
    let mut out = Vec::new();
    MultiWriteRequest::encode_parts(&parts, &mut out);
    out
}
