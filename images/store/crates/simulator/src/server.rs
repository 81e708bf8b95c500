//! A server process: its shards, and what a driver would keep for each.

use std::collections::BTreeMap;

use master::{Config, Durability, Identity, LogPosition, Output, Shard};
use transport::member::MemberReader;
use transport::rpc::RpcReader;
use wire::ids::ReplyTo;
use wire::member::ToCoordinator;
use wire::time::Time;

use crate::oracle::Oracle;
use crate::scenario::{Durable, Scenario};

/// First client port of a server; shard i listens i further.
pub const FIRST_PORT: u16 = 12100;

/// What a shard told its driver to do.
#[derive(Default)]
pub struct ShardActions {
    pub replies: Vec<(ReplyTo, Vec<u8>)>,
    pub to_coordinator: Vec<ToCoordinator>,
    pub log: Vec<String>,
}

impl Output for ShardActions {
    fn reply(&mut self, to: ReplyTo, parts: &[&[u8]]) {
        self.replies.push((to, parts.concat()));
    }
    fn send_coordinator(&mut self, message: ToCoordinator) {
        self.to_coordinator.push(message);
    }
    fn log_message(&mut self, _level: u32, text: &str) {
        self.log.push(text.to_owned());
    }
}

/// The connection of a shard to the coordinator.
pub struct Link {
    pub connection: u64,
    pub reader: MemberReader,
    pub is_open: bool,
    /// The coordinator has let the shard in; from then on the shard itself watches for silence.
    pub is_welcomed: bool,
}

pub struct ShardNode {
    pub core: Shard,
    pub link: Option<Link>,
    /// Connections in a row on which the shard was not let in.
    pub failed_links: u32,
    /// Clients' connections.
    pub clients: BTreeMap<u64, RpcReader>,
    pub oracle: Oracle,
    /// The log is durable up to here.
    pub durable: LogPosition,
    /// The log's head when its durability was last put on its way.
    pub flushing: LogPosition,
    /// Counts how often the shard began anew, for another store or as another server; then its log begins anew, too.
    pub epoch: u64,
    /// Ticks in a row after which the shard still had more to do.
    pub busy_ticks: u32,
    /// When the flush that was started last ends: flushes end in order.
    pub last_flush_ends: u64,
}

/// A server, running or not.
pub struct ServerNode {
    pub name: String,
    /// Counts processes; what was meant for an earlier one is ignored.
    pub incarnation: u64,
    pub is_up: bool,
    pub shards: Vec<ShardNode>,
}

impl ServerNode {
    pub fn new(name: String) -> ServerNode {
        ServerNode {
            name,
            incarnation: 0,
            is_up: false,
            shards: Vec::new(),
        }
    }

    /// Starts a process with this many shards.
    pub fn start(&mut self, scenario: &Scenario, shards: u32, now: Time) {
        self.incarnation += 1;
        self.is_up = true;
        let incarnation = self.incarnation;
        self.shards = (0..shards)
            .map(|shard| {
                let identity = Identity {
                    member: self.name.clone(),
                    instance: format!("{}-{incarnation}", self.name),
                    process: incarnation,
                    host_id: self.name.clone(),
                    shard_index: shard,
                    shard_count: shards,
                    locator: format!(
                        "tcp:host={},port={}",
                        self.name,
                        u32::from(FIRST_PORT) + shard
                    ),
                    coordinator: "tcp:host=127.0.0.1,port=11100".to_owned(),
                    build_version: "simulated".to_owned(),
                    backup_locator: String::new(),
                    domain: String::new(),
                };
                let core = Shard::new(shard_config(scenario), identity, now);
                ShardNode {
                    durable: LogPosition::START,
                    flushing: core.head_position(),
                    epoch: 0,
                    busy_ticks: 0,
                    last_flush_ends: 0,
                    core,
                    link: None,
                    failed_links: 0,
                    clients: BTreeMap::new(),
                    oracle: Oracle::default(),
                }
            })
            .collect();
    }
}

fn shard_config(scenario: &Scenario) -> Config {
    Config {
        segment_bytes: scenario.segment_bytes,
        log_bytes: scenario.segment_bytes as usize * scenario.segments as usize,
        hash_table_bytes: scenario.hash_table_bytes,
        durability: match scenario.durable {
            Durable::AtOnce => Durability::Unreplicated,
            Durable::Later(_) => Durability::External,
        },
        replication: None,
        max_clients: 100,
        max_result_slots: 100 * 512,
        max_held_replies: 100,
        enumerated_slots: scenario.enumerated_slots,
        enumerated_bytes: scenario.enumerated_bytes,
        allow_test_rpcs: false,
        #[cfg(feature = "planted-bugs")]
        planted_bug: scenario.planted_bug,
    }
}
