//! A write to a log with replicas asks the allocator for nothing, neither at its master nor at its backups: counted, not believed.

use backup::{Backup, Disk, Prompt, StorageError};
use base::ids::{ReplyTo, ServerId, TableId};
use base::time::Time;
use master::{Channel, Identity, ShardEvent};
use server::{BackupConfig, Config, Server, ServerEffects, ServerEvent};
use test_memory::allocations;
use wire::keys::KeysAndValue;
use wire::member::{self, TabletRange, ToCoordinator, ToShard, Welcome, coordinator, shard};
use wire::rpc::{Lease, RejectRules, WriteRequest};

const SEGMENT_BYTES: u32 = 2 << 20;
const FRAMES: u32 = 20;
const MASTER: ServerId = ServerId(1);
const BACKUP: ServerId = ServerId(2);

/// Memory that is always synced.
struct Plain(Vec<u8>);

impl Disk for Plain {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StorageError> {
        self.0[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StorageError> {
        out.copy_from_slice(&self.0[offset as usize..][..out.len()]);
        Ok(())
    }
    fn grow(&mut self, _: u64) -> Result<(), StorageError> {
        Err(StorageError("it has the size that it has".to_owned()))
    }
    fn sync(&mut self) -> Result<(), StorageError> {
        Ok(())
    }
}

/// What was said, in room that is used again and again.
#[derive(Default)]
struct Said {
    replies: u64,
    /// Nonce and end of each message in `bytes`.
    messages: Vec<(u64, usize)>,
    bytes: Vec<u8>,
    to_coordinator: Vec<shard::Kind>,
    to_open: Option<backup::Config>,
    to_connect: Vec<(Channel, ServerId)>,
}

impl Said {
    fn note(&mut self, nonce: u64, parts: &[&[u8]]) {
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        self.messages.push((nonce, self.bytes.len()));
    }

    fn each(&mut self, mut to: impl FnMut(u64, &[u8])) {
        let mut start = 0;
        for &(nonce, end) in &self.messages {
            to(nonce, &self.bytes[start..end]);
            start = end;
        }
        self.messages.clear();
        self.bytes.clear();
    }
}

impl master::ShardEffects for Said {
    fn reply(&mut self, _to: ReplyTo, parts: &[&[u8]]) {
        assert_eq!(parts[0][0], 0, "a reply that is not OK");
        self.replies += 1;
    }
    fn send_coordinator(&mut self, message: ToCoordinator) {
        self.to_coordinator.extend(message.kind);
    }
    fn report(&mut self, _event: ShardEvent) {}
    fn connect_backup(&mut self, channel: Channel, backup: ServerId, _locator: &str) {
        self.to_connect.push((channel, backup));
    }
    fn send_backup(&mut self, _: Channel, _: ServerId, nonce: u64, parts: &[&[u8]]) {
        self.note(nonce, parts);
    }
}

impl ServerEffects for Said {
    fn open_backup(&mut self, config: backup::Config) {
        self.to_open = Some(config);
    }
    fn answer_peer(&mut self, to: ReplyTo, parts: &[&[u8]]) {
        self.note(to.nonce, parts);
    }
    fn close_peer(&mut self, _connection: u64) {
        panic!("a peer is sent away");
    }
    fn report_server(&mut self, _event: ServerEvent) {}
}

struct Node {
    server: Server<Prompt<Plain>>,
    said: Said,
    /// During its work.
    allocated: u64,
}

impl Node {
    fn new(name: &str, config: Config) -> Node {
        let identity = Identity {
            member: name.to_owned(),
            instance: "i".to_owned(),
            process: 1,
            host_id: name.to_owned(),
            shard_index: 0,
            shard_count: 1,
            locator: "tcp:host=127.0.0.1,port=1".to_owned(),
            coordinator: "tcp:host=127.0.0.1,port=11100".to_owned(),
            build_version: "test".to_owned(),
            backup_locator: String::new(),
            peer_locator: String::new(),
            domain: String::new(),
        };
        Node {
            server: Server::new(config, identity, Time::ZERO),
            said: Said::default(),
            allocated: 0,
        }
    }

    fn order(&mut self, kind: coordinator::Kind) {
        let message = ToShard::from(kind);
        self.work(|server, said| {
            server.coordinator_message(Time::ZERO, message, said);
        });
    }

    fn welcome(&mut self, id: ServerId, tablets: Vec<TabletRange>) {
        self.order(coordinator::Kind::Welcome(Welcome {
            cluster_id: 1,
            server_id: id.0,
            cluster_time_ns: 1,
            first_version: 1,
            tablets,
            silence_timeout_ms: 1000,
            ..Default::default()
        }));
    }

    fn work(&mut self, act: impl FnOnce(&mut Server<Prompt<Plain>>, &mut Said)) {
        let before = allocations();
        act(&mut self.server, &mut self.said);
        self.allocated += allocations() - before;
    }

    fn tick(&mut self) {
        self.work(|server, said| {
            server.tick(Time::ZERO, said);
        });
    }
}

/// A master with one replica, and the backup that has it.
fn pair() -> (Node, Node) {
    let sized = master::Config::from_memory(64 << 20, 10).unwrap();
    let replicated = master::Config {
        durability: master::Durability::External,
        replication: Some(master::Replication {
            replicas: 1,
            min_replicas: 1,
            copy_bytes: 1 << 17,
            repair_bytes_per_second: 1 << 40,
        }),
        ..sized
    };
    let mut master = Node::new(
        "m",
        Config {
            master: replicated,
            backup: None,
            backup_only: false,
        },
    );
    let backup_config = BackupConfig {
        segment_bytes: SEGMENT_BYTES,
        frame_count: FRAMES,
        durability: backup::Durability::Buffered,
        boot_id: [0; 16],
    };
    let mut backup = Node::new(
        "b",
        Config {
            master: sized,
            backup: Some(backup_config),
            backup_only: true,
        },
    );
    let tablet = TabletRange {
        table_id: 1,
        start_key_hash: 0,
        end_key_hash: u64::MAX,
    };
    master.welcome(MASTER, vec![tablet]);
    backup.welcome(BACKUP, Vec::new());
    let layout = backup::Layout {
        segment_bytes: SEGMENT_BYTES,
        frame_count: FRAMES,
    };
    let storage = Prompt::new(Plain(vec![0; layout.total_bytes() as usize]));
    let config = backup.said.to_open.take().unwrap();
    let opened = Backup::open(Time::ZERO, config, storage);
    backup.server.backup_opened(Time::ZERO, opened);
    let listed = member::Backup {
        server_id: BACKUP.0,
        host_id: "b".to_owned(),
        locator: "tcp:host=b,port=1".to_owned(),
        segment_bytes: SEGMENT_BYTES,
        ..member::Backup::default()
    };
    master.order(coordinator::Kind::Backups(member::Backups {
        backups: vec![listed],
        number: 1,
    }));
    (master, backup)
}

/// Carries everything from one to the other until both are silent.
fn run(master: &mut Node, backup: &mut Node) {
    loop {
        master.tick();
        backup.tick();
        backup.said.to_coordinator.clear();
        let mut is_silent = true;
        for kind in std::mem::take(&mut master.said.to_coordinator) {
            if let shard::Kind::RaiseOpenFloor(floor) = kind {
                master.order(coordinator::Kind::OpenFloorRaised(floor));
                is_silent = false;
            }
        }
        for (channel, id) in std::mem::take(&mut master.said.to_connect) {
            master.work(|server, said| server.backup_connected(Time::ZERO, channel, id, said));
            is_silent = false;
        }
        master.said.each(|nonce, payload| {
            let to = ReplyTo {
                connection: 1,
                nonce,
            };
            backup.work(|server, said| server.peer_request(Time::ZERO, to, payload, said));
            is_silent = false;
        });
        backup.said.each(|nonce, payload| {
            let channel = Channel::Replication;
            master.work(|server, said| {
                server.backup_answer(Time::ZERO, channel, BACKUP, nonce, payload, said);
            });
            is_silent = false;
        });
        if is_silent {
            return;
        }
    }
}

#[test]
fn replicated_writes_allocate_nothing() {
    let (mut master, mut backup) = pair();
    run(&mut master, &mut backup);
    let mut payload = Vec::with_capacity(1000);
    let mut write_some = |count: u64, first_rpc: u64, master: &mut Node, backup: &mut Node| {
        for rpc_id in first_rpc..first_rpc + count {
            payload.clear();
            WriteRequest {
                table_id: TableId(1),
                lease: Lease {
                    id: 1,
                    expiration_ns: u64::MAX,
                    timestamp_ns: 0,
                },
                rpc_id,
                ack_id: rpc_id - 1,
                rules: RejectRules::default(),
                is_async: false,
                object: KeysAndValue::single(&(rpc_id % 100).to_le_bytes(), &[1; 100]).unwrap(),
            }
            .encode(&mut payload);
            let to = ReplyTo {
                connection: 9,
                nonce: rpc_id,
            };
            master.work(|server, said| server.request(Time::ZERO, to, &payload, said));
            run(master, backup);
        }
    };
    write_some(1000, 1, &mut master, &mut backup);
    (master.allocated, backup.allocated) = (0, 0);
    write_some(1000, 1001, &mut master, &mut backup);
    assert_eq!(master.said.replies, 2000);
    assert_eq!(backup.allocated, 0, "backup");
    assert_eq!(master.allocated, 0, "master");
}
