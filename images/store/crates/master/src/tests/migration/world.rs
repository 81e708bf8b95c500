//! Two masters that take a table from each other, and the backup of their logs, which is real. What goes between them can be late, or lost.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use backup::testing::MemoryStorage;
use backup::{Backup, BackupEvent, Inventory, State};
use base::ids::{ReplyTo, ServerId};
use base::time::Time;
use wire::format::{FIRST_FORMAT, Formats};
use wire::member::{self, SegmentSource, TabletRange, ToShard, coordinator, shard};
use wire::peer::{Answer, Data, Entries, Request, Role, Status as PeerStatus};

use super::super::harness::*;
use crate::*;

pub const BACKUP: ServerId = ServerId(100);
const SEGMENT_BYTES: u32 = 4096;

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// A process, and what is on its way to it.
pub struct Node {
    pub driver: Driver,
    pub generation: u32,
    pub orders: VecDeque<coordinator::Kind>,
    /// Answers that its migration has not got yet.
    pub pieces: VecDeque<(ServerId, u64, Vec<u8>)>,
    /// Recoveries that its welcomes name.
    pub recoveries: Vec<u64>,
}

/// What the backup said.
#[derive(Default)]
struct FromBackup {
    answers: Vec<Answer>,
    read: Option<Vec<u8>>,
    released: Vec<Inventory>,
}

impl backup::BackupEffects for FromBackup {
    fn answer(&mut self, _to: ReplyTo, answer: Answer) {
        self.answers.push(answer);
    }
    fn data(&mut self, _to: ReplyTo, status: PeerStatus, data: &[u8]) {
        self.read = Some([&Data::fixed_bytes(status)[..], data].concat());
    }
    fn entries(&mut self, _to: ReplyTo, status: PeerStatus, next_offset: u32, data: &[u8]) {
        self.read = Some([&Entries::fixed_bytes(status, next_offset)[..], data].concat());
    }
    fn checkpoint(&mut self, _bytes: Option<Vec<u8>>) {}
    fn report(&mut self, _event: BackupEvent) {}
    fn released(&mut self, inventory: Inventory) {
        self.released.push(inventory);
    }
}

pub struct Nodes {
    pub random: Random,
    pub now: Time,
    pub nodes: [Node; 2],
    pub config: Config,
    backup: Backup<MemoryStorage>,
    /// Of dead servers' logs.
    pub found: BTreeMap<ServerId, Inventory>,
    /// Connections and answers of migrations are lost now and then.
    pub is_flaky: bool,
}

pub fn config(segments: usize) -> Config {
    Config {
        segment_bytes: SEGMENT_BYTES,
        log_bytes: segments * SEGMENT_BYTES as usize,
        hash_table_bytes: 1 << 12,
        replication: Some(Replication {
            replicas: 1,
            min_replicas: 1,
            copy_bytes: 1 << 12,
            repair_bytes_per_second: 1 << 40,
        }),
        migrated_bytes: 300,
        lend_bytes: 8 << 10,
        ..small(Durability::External)
    }
}

fn node(config: Config, generation: u32) -> Node {
    Node {
        driver: Driver::new(config),
        generation,
        orders: VecDeque::new(),
        pieces: VecDeque::new(),
        recoveries: Vec::new(),
    }
}

impl Nodes {
    pub fn new(seed: u64, config: Config) -> Nodes {
        let of_backup = backup::Config {
            cluster_id: CLUSTER,
            segment_bytes: SEGMENT_BYTES,
            frame_count: 512,
            durability: backup::Durability::Buffered,
            boot_id: [1; 16],
            formats: Formats::CURRENT,
            format: FIRST_FORMAT,
        };
        let storage = MemoryStorage::new(of_backup.layout().total_bytes());
        Nodes {
            random: Random(seed),
            now: Time(1),
            nodes: [node(config, 0), node(config, 0)],
            config,
            backup: Backup::open(Time(0), of_backup, storage).unwrap(),
            found: BTreeMap::new(),
            is_flaky: false,
        }
    }

    pub fn id(&self, at: usize) -> ServerId {
        ServerId::new(at as u32 + 1, self.nodes[at].generation)
    }

    /// The coordinator lets a server in.
    pub fn welcome(&mut self, at: usize, tablets: &[TabletRange]) {
        let server_id = self.id(at);
        let node = &mut self.nodes[at];
        node.driver.now = self.now;
        node.driver.shard.coordinator_lost(self.now);
        node.orders.clear();
        node.driver.said.messages.clear();
        let session = node
            .driver
            .order(coordinator::Kind::Welcome(member::Welcome {
                cluster_id: CLUSTER,
                server_id: server_id.0,
                cluster_time_ns: 1000,
                first_version: u64::from(server_id.generation()) << 40 | 1,
                tablets: tablets.to_vec(),
                silence_timeout_ms: 1_000_000,
                recoveries: node.recoveries.clone(),
                version_floor: 0,
                position: None,
                format: FIRST_FORMAT,
                settings: None,
            }));
        assert_eq!(session, Session::Continue, "{:?}", node.driver.said.events);
        let backup = member::Backup {
            server_id: BACKUP.0,
            host_id: "another".to_owned(),
            locator: "tcp:host=another,port=1".to_owned(),
            segment_bytes: SEGMENT_BYTES,
            ..member::Backup::default()
        };
        node.driver
            .order(coordinator::Kind::Backups(member::Backups {
                backups: vec![backup],
                number: 1,
            }));
    }

    /// Another process takes the place of one that is dead.
    pub fn crash(&mut self, at: usize) {
        let generation = self.nodes[at].generation + 1;
        self.nodes[at] = node(self.config, generation);
        self.welcome(at, &[]);
        let gone = ServerId::new(at as u32 + 1, generation - 1);
        let (now, channel) = (self.now, Channel::Migration);
        let other = &mut self.nodes[1 - at];
        other.pieces.clear();
        let said = &mut other.driver.said;
        said.to_migrations.clear();
        let shard = &mut other.driver.shard;
        shard.backup_disconnected(now, channel, gone, said);
    }

    /// Refuses a dead server's log; what it holds is in `found` later.
    pub fn fence(&mut self, log: ServerId) {
        let mut out = FromBackup::default();
        self.backup.begin_recovery(self.now, log, &mut out);
        self.tend_backup(out);
    }

    pub fn forget_log(&mut self, log: ServerId) {
        self.found.remove(&log);
        self.backup.forget_log(self.now, log);
    }

    fn tend_backup(&mut self, mut out: FromBackup) -> Vec<Answer> {
        self.backup.tick(self.now, &mut out);
        for scope in self.backup.storage().syncs_under_way() {
            self.backup.storage_mut().finish_sync(scope);
            self.backup.complete(self.now, &mut out);
        }
        for inventory in out.released {
            self.found.insert(inventory.log, inventory);
        }
        out.answers
    }

    /// The segments of a dead server's log from one on, as the coordinator would name them.
    pub fn segments(&self, log: ServerId, from_segment: u64, floor: u64) -> Vec<SegmentSource> {
        let replicas = &self.found[&log].replicas;
        let is_head = |one: &&backup::ReplicaInfo| {
            one.state == State::Open && one.role == Role::Head && one.segment_id >= floor
        };
        if floor == 0 {
            return Vec::new();
        }
        let head = replicas.iter().find(is_head).expect("an open head");
        let source = |one: &backup::ReplicaInfo| SegmentSource {
            log: log.0,
            segment_id: one.segment_id,
            backups: vec![BACKUP.0],
            bytes: one.bytes,
        };
        let named = head.digest.iter().map(|id| {
            let mut closed = replicas.iter().filter(|one| one.state == State::Closed);
            let found = closed.find(|one| one.segment_id == *id);
            found.expect("a digest names what is closed")
        });
        let all = named.chain([head]);
        all.filter(|one| one.segment_id >= from_segment)
            .map(source)
            .collect()
    }

    pub fn tick(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        node.driver.now = self.now;
        node.driver.shard.tick(self.now, &mut node.driver.said);
        self.connect(at);
    }

    /// Connections that were asked for are there, or, of migrations, cannot be made.
    fn connect(&mut self, at: usize) {
        let (now, is_flaky) = (self.now, self.is_flaky);
        let driver = &mut self.nodes[at].driver;
        let said = &mut driver.said;
        for id in std::mem::take(&mut said.backups_connected) {
            let channel = Channel::Replication;
            driver.shard.backup_connected(now, channel, id, said);
        }
        for id in std::mem::take(&mut said.sources_connected) {
            let channel = Channel::Recovery;
            driver.shard.backup_connected(now, channel, id, said);
        }
        if !std::mem::take(&mut said.migrations_disconnected).is_empty() {
            said.to_migrations.clear();
            self.nodes[at].pieces.clear();
        }
        for id in std::mem::take(&mut self.nodes[at].driver.said.migrations_connected) {
            let is_there = (0..2).any(|other| self.id(other) == id);
            let fails = !is_there || is_flaky && self.random.one_in(10);
            let driver = &mut self.nodes[at].driver;
            let (channel, said) = (Channel::Migration, &mut driver.said);
            if fails {
                driver.shard.backup_disconnected(now, channel, id, said);
            } else {
                driver.shard.backup_connected(now, channel, id, said);
            }
        }
    }

    /// The backup gets the next message for it, and answers.
    pub fn replicate(&mut self, at: usize) {
        let said = &mut self.nodes[at].driver.said;
        if said.to_backups.is_empty() {
            return;
        }
        let (id, nonce, request) = said.to_backups.remove(0);
        let answer = self.ask_backup(&request);
        let (now, channel) = (self.now, Channel::Replication);
        let driver = &mut self.nodes[at].driver;
        driver
            .shard
            .backup_answer(now, channel, id, nonce, &answer, &mut driver.said);
    }

    /// The same for what a recovery reads.
    pub fn read_source(&mut self, at: usize) {
        let said = &mut self.nodes[at].driver.said;
        if said.to_sources.is_empty() {
            return;
        }
        let (id, nonce, request) = said.to_sources.remove(0);
        let answer = self.ask_backup(&request);
        let (now, channel) = (self.now, Channel::Recovery);
        let driver = &mut self.nodes[at].driver;
        driver
            .shard
            .backup_answer(now, channel, id, nonce, &answer, &mut driver.said);
    }

    fn ask_backup(&mut self, request: &[u8]) -> Vec<u8> {
        let (now, mut out) = (self.now, FromBackup::default());
        let to = ReplyTo {
            connection: 1,
            nonce: 1,
        };
        let backup = &mut self.backup;
        match Request::decode(request).unwrap() {
            Request::Append(append) => backup.append(now, &append, to, &mut out),
            Request::KeepAlive(keep_alive) => backup.keep_alive(now, keep_alive, to, &mut out),
            Request::Free(free) => backup.free(now, free, to, &mut out),
            Request::Read(read) => {
                backup.read(&read, to, &mut out);
                backup.complete(now, &mut out);
                return out.read.expect("memory answers at once");
            }
            Request::ReadEntries(read) => {
                backup.read_entries(&read, to, &mut out);
                backup.complete(now, &mut out);
                return out.read.expect("memory answers at once");
            }
            Request::List(list) => {
                let mut listing = Vec::new();
                backup.list(list).encode(&mut listing);
                return listing;
            }
            Request::MigrateRead(_) => panic!("for a master"),
        }
        let answers = self.tend_backup(out);
        answers[0].to_bytes().to_vec()
    }

    /// A question of a migration arrives at its source, or the answer at its target; or the connection breaks.
    pub fn migrate(&mut self, at: usize) {
        let now = self.now;
        let node = &mut self.nodes[at];
        let breaks = self.is_flaky && self.random.one_in(30);
        let asked = !node.driver.said.to_migrations.is_empty();
        if breaks && (asked || !node.pieces.is_empty()) {
            let source = match node.pieces.front() {
                Some((source, ..)) => *source,
                None => node.driver.said.to_migrations[0].0,
            };
            node.driver.said.to_migrations.clear();
            node.pieces.clear();
            let (channel, said) = (Channel::Migration, &mut node.driver.said);
            node.driver
                .shard
                .backup_disconnected(now, channel, source, said);
        } else if let Some((source, nonce, piece)) = node.pieces.pop_front() {
            let (channel, said) = (Channel::Migration, &mut node.driver.said);
            node.driver
                .shard
                .backup_answer(now, channel, source, nonce, &piece, said);
        } else if asked {
            let (source, nonce, request) = node.driver.said.to_migrations.remove(0);
            assert_eq!(source, self.id(1 - at));
            let Ok(Request::MigrateRead(read)) = Request::decode(&request) else {
                panic!("another request");
            };
            let mut data = Vec::new();
            let shard = &mut self.nodes[1 - at].driver.shard;
            let answer = shard.migrate_read(&read, &mut data);
            assert!(data.len() < self.config.migrated_bytes + 8 * 4096);
            let piece = [&answer.fixed_bytes()[..], &data].concat();
            self.nodes[at].pieces.push_back((source, nonce, piece));
        }
    }

    /// An order of the coordinator arrives.
    pub fn order(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if let Some(kind) = node.orders.pop_front() {
            let message = ToShard::from(kind);
            let said = &mut node.driver.said;
            let session = node
                .driver
                .shard
                .coordinator_message(self.now, message, said);
            assert_eq!(session, Session::Continue, "{:?}", said.events);
        }
    }

    /// What a server has said to the coordinator next.
    pub fn heard(&mut self, at: usize) -> Option<shard::Kind> {
        let messages = &mut self.nodes[at].driver.said.messages;
        (!messages.is_empty()).then(|| messages.remove(0))
    }

    pub fn pass(&mut self, time: Duration) {
        self.now += time;
        self.tend_backup(FromBackup::default());
        for node in &mut self.nodes {
            node.driver.now = self.now;
        }
    }
}
