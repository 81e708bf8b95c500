//! A server and its driver.

use std::time::Duration;

use backup::testing::MemoryStorage;
use backup::{Backup, Durability, Layout, Scope};
use base::ids::{ReplyTo, ServerId};
use base::time::Time;
use master::{Channel, Identity, Session, ShardEvent};
use wire::member::{self, ToCoordinator, ToShard, coordinator, shard};
use wire::peer::{Answer, Append, ReplicaId, Role, Status};

use crate::{BackupConfig, Config, Server, ServerEffects, ServerEvent};

pub const CLUSTER: u64 = 77;
pub const OWN: ServerId = ServerId(1 << 32 | 1);
pub const PEER: u64 = 5;
const SEGMENT_BYTES: u32 = 1 << 14;
pub const FRAMES: u32 = 40;

/// What the server said.
#[derive(Default)]
pub struct Said {
    pub replies: Vec<(ReplyTo, Vec<u8>)>,
    pub messages: Vec<shard::Kind>,
    pub events: Vec<ServerEvent>,
    pub to_open: Option<backup::Config>,
    pub answers: Vec<(ReplyTo, Vec<u8>)>,
    pub peers_closed: Vec<u64>,
    pub backups_to_connect: Vec<ServerId>,
    pub to_backups: Vec<(ServerId, u64, Vec<u8>)>,
}

impl master::ShardEffects for Said {
    fn reply(&mut self, to: ReplyTo, parts: &[&[u8]]) {
        self.replies.push((to, parts.concat()));
    }
    fn send_coordinator(&mut self, message: ToCoordinator) {
        self.messages.push(message.kind.expect("a kind"));
    }
    fn report(&mut self, event: ShardEvent) {
        self.report_server(event.into());
    }
    fn connect_backup(&mut self, _channel: Channel, backup: ServerId, _locator: &str) {
        self.backups_to_connect.push(backup);
    }
    fn send_backup(&mut self, _channel: Channel, backup: ServerId, nonce: u64, parts: &[&[u8]]) {
        self.to_backups.push((backup, nonce, parts.concat()));
    }
}

impl ServerEffects for Said {
    fn open_backup(&mut self, config: backup::Config) {
        let before = self.to_open.replace(config);
        assert_eq!(before, None, "opened once");
    }
    fn answer_peer(&mut self, to: ReplyTo, parts: &[&[u8]]) {
        self.answers.push((to, parts.concat()));
    }
    fn close_peer(&mut self, connection: u64) {
        self.peers_closed.push(connection);
    }
    fn report_server(&mut self, event: ServerEvent) {
        self.events.push(event);
    }
}

pub struct Rig {
    pub server: Server<MemoryStorage>,
    pub said: Said,
    pub now: Time,
    next_nonce: u64,
    /// Of the peer that asks.
    pub peer: u64,
}

pub fn master_config() -> master::Config {
    let sized = master::Config::from_memory(32 << 20, 10).expect("enough memory");
    master::Config {
        segment_bytes: SEGMENT_BYTES,
        log_bytes: 64 * SEGMENT_BYTES as usize,
        hash_table_bytes: 1 << 18,
        ..sized
    }
}

/// A log with one replica.
pub fn replicated() -> master::Config {
    master::Config {
        durability: master::Durability::External,
        replication: Some(master::Replication {
            replicas: 1,
            min_replicas: 1,
            copy_bytes: 1 << 17,
            repair_bytes_per_second: 1 << 40,
        }),
        ..master_config()
    }
}

pub fn backup_config(durability: Durability) -> BackupConfig {
    BackupConfig {
        segment_bytes: SEGMENT_BYTES,
        frame_count: FRAMES,
        durability,
        boot_id: [1; 16],
    }
}

/// A master without replicas beside a backup.
pub fn with_backup(durability: Durability) -> Config {
    Config {
        master: master_config(),
        backup: Some(backup_config(durability)),
        backup_only: false,
    }
}

pub fn identity(name: &str) -> Identity {
    Identity {
        member: name.to_owned(),
        instance: "pod".to_owned(),
        process: 5,
        host_id: format!("host of {name}"),
        shard_index: 0,
        shard_count: 1,
        locator: "tcp:host=127.0.0.1,port=12100".to_owned(),
        coordinator: "tcp:host=127.0.0.1,port=11100".to_owned(),
        build_version: "test".to_owned(),
        backup_locator: "tcp:host=127.0.0.1,port=12200".to_owned(),
        peer_locator: String::new(),
        domain: String::new(),
    }
}

pub fn empty_storage() -> MemoryStorage {
    let layout = Layout {
        segment_bytes: SEGMENT_BYTES,
        frame_count: FRAMES,
    };
    MemoryStorage::new(layout.total_bytes())
}

impl Rig {
    pub fn new(name: &str, config: Config) -> Rig {
        Rig {
            server: Server::new(config, identity(name), Time::ZERO),
            said: Said::default(),
            now: Time::ZERO,
            next_nonce: 1,
            peer: PEER,
        }
    }

    /// A server whose storage is open, and whose coordinator knows it.
    pub fn ready(durability: Durability) -> Rig {
        let mut rig = Rig::new("m", with_backup(durability));
        assert_eq!(rig.welcome(CLUSTER), Session::Continue);
        rig.open(empty_storage());
        rig.tick();
        rig.said.messages.clear();
        rig
    }

    pub fn order(&mut self, kind: coordinator::Kind) -> Session {
        let message = ToShard::from(kind);
        self.server
            .coordinator_message(self.now, message, &mut self.said)
    }

    /// An order, and what was noted when it left.
    pub fn order_at(&mut self, kind: coordinator::Kind, position: member::Position) -> Session {
        let message = ToShard {
            kind: Some(kind),
            position: Some(position),
            numbers: None,
        };
        self.server
            .coordinator_message(self.now, message, &mut self.said)
    }

    pub fn welcome(&mut self, cluster_id: u64) -> Session {
        self.welcome_as(cluster_id, OWN, Vec::new())
    }

    pub fn welcome_as(
        &mut self,
        cluster_id: u64,
        server_id: ServerId,
        tablets: Vec<member::TabletRange>,
    ) -> Session {
        self.order(coordinator::Kind::Welcome(member::Welcome {
            cluster_id,
            server_id: server_id.0,
            cluster_time_ns: 1000,
            first_version: 1,
            tablets,
            silence_timeout_ms: 60_000,
            ..Default::default()
        }))
    }

    /// Does what the server has asked for.
    pub fn open(&mut self, storage: MemoryStorage) {
        let config = self.said.to_open.take().expect("a storage is asked for");
        let opened = Backup::open(self.now, config, storage);
        self.server.backup_opened(self.now, opened);
    }

    pub fn tick(&mut self) -> Time {
        self.server.tick(self.now, &mut self.said)
    }

    pub fn pass(&mut self, time: Duration) {
        self.now += time;
        self.tick();
    }

    /// Sends a peer's request; answers its nonce.
    pub fn ask(&mut self, payload: &[u8]) -> u64 {
        let nonce = self.next_nonce;
        self.next_nonce += 1;
        let connection = self.peer;
        let to = ReplyTo { connection, nonce };
        self.server
            .peer_request(self.now, to, payload, &mut self.said);
        self.server.storage_completed(self.now, &mut self.said);
        nonce
    }

    pub fn answer_to(&mut self, nonce: u64) -> Option<Vec<u8>> {
        let is_it = |(to, _): &(ReplyTo, Vec<u8>)| to.nonce == nonce;
        let at = self.said.answers.iter().position(is_it)?;
        Some(self.said.answers.swap_remove(at).1)
    }

    /// Puts all of a replica's data, which closes nothing.
    pub fn append(&mut self, replica: ReplicaId, data: &[u8]) -> u64 {
        let append = Append {
            replica,
            role: Role::Head,
            offset: 0,
            closes: false,
            crc: crc(data),
            data,
        };
        self.ask(&[&append.fixed_bytes()[..], data].concat())
    }

    /// Of the answer that must have come.
    pub fn status_of(&mut self, nonce: u64) -> Status {
        let answer = self.answer_to(nonce).expect("an answer");
        Answer::decode(&answer).expect("a sound one").status
    }

    pub fn finish_sync(&mut self, scope: Scope) {
        let backup = self.server.backup_mut().expect("an open storage");
        backup.storage_mut().finish_sync(scope);
        self.tick();
    }

    /// Takes the next message of a kind, if it came.
    pub fn message<T>(&mut self, wanted: impl Fn(&shard::Kind) -> Option<T>) -> Option<T> {
        let at = self
            .said
            .messages
            .iter()
            .position(|kind| wanted(kind).is_some())?;
        wanted(&self.said.messages.remove(at))
    }

    pub fn report(&mut self) -> Option<member::BackupReport> {
        self.message(|kind| match kind {
            shard::Kind::BackupReport(report) => Some(report.clone()),
            _ => None,
        })
    }

    pub fn inventory(&mut self) -> Option<member::LogInventory> {
        self.message(|kind| match kind {
            shard::Kind::LogInventory(inventory) => Some(inventory.clone()),
            _ => None,
        })
    }
}

/// Bit by bit: independent of the code under test.
fn crc(data: &[u8]) -> u32 {
    !data.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg())
        })
    })
}

pub fn replica(segment_id: u64) -> ReplicaId {
    let log = ServerId::new(9, 2);
    ReplicaId { log, segment_id }
}
