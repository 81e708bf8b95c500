//! One server's log on another server's backup.

use std::time::Duration;

use backup::{Durability, Scope};
use base::ids::{ReplyTo, ServerId, TableId};
use master::Channel;
use wire::keys::KeysAndValue;
use wire::member::{self, Log, OpenFloor, TabletRange, coordinator, shard};
use wire::rpc::{Lease, RejectRules, WriteRequest, WriteResponse};
use wire::status::Status;

use super::harness::*;
use crate::Config;

const MASTER: ServerId = OWN;
const BACKUP: ServerId = ServerId(2 << 32 | 7);
const REPLICATION: Channel = Channel::Replication;

struct Pair {
    master: Rig,
    backup: Rig,
}

impl Pair {
    /// A master with one replica, and a backup that is no master.
    fn new(durability: Durability) -> Pair {
        let master = Config {
            master: replicated(),
            backup: None,
            backup_only: false,
        };
        let backup = Config {
            backup_only: true,
            ..with_backup(durability)
        };
        let (mut master, mut backup) = (Rig::new("m", master), Rig::new("b", backup));
        let tablet = TabletRange {
            table_id: 1,
            start_key_hash: 0,
            end_key_hash: u64::MAX,
        };
        master.welcome_as(CLUSTER, MASTER, vec![tablet]);
        backup.welcome_as(CLUSTER, BACKUP, Vec::new());
        backup.open(empty_storage());
        let listed = member::Backup {
            server_id: BACKUP.0,
            host_id: "host of b".to_owned(),
            locator: "tcp:host=b,port=1".to_owned(),
            segment_bytes: 1 << 14,
            ..member::Backup::default()
        };
        master.order(coordinator::Kind::Backups(member::Backups {
            backups: vec![listed],
            number: 1,
        }));
        Pair { master, backup }
    }

    /// Carries everything from one to the other until both are silent.
    fn run(&mut self) {
        let Pair { master, backup } = self;
        loop {
            master.tick();
            backup.tick();
            let is_floor = |kind: &shard::Kind| match kind {
                shard::Kind::RaiseOpenFloor(floor) => Some(*floor),
                _ => None,
            };
            let (mut is_silent, floor) = (true, master.message(is_floor));
            if let Some(floor) = floor {
                master.order(coordinator::Kind::OpenFloorRaised(OpenFloor { ..floor }));
                is_silent = false;
            }
            for id in std::mem::take(&mut master.said.backups_to_connect) {
                let (server, said) = (&mut master.server, &mut master.said);
                server.backup_connected(master.now, REPLICATION, id, said);
                is_silent = false;
            }
            for (_, nonce, payload) in std::mem::take(&mut master.said.to_backups) {
                let connection = PEER;
                let to = ReplyTo { connection, nonce };
                backup
                    .server
                    .peer_request(backup.now, to, &payload, &mut backup.said);
                is_silent = false;
            }
            for (to, payload) in std::mem::take(&mut backup.said.answers) {
                let (server, said) = (&mut master.server, &mut master.said);
                server.backup_answer(master.now, REPLICATION, BACKUP, to.nonce, &payload, said);
                is_silent = false;
            }
            if is_silent {
                return;
            }
        }
    }

    fn write(&mut self, rpc_id: u64) {
        let mut payload = Vec::new();
        WriteRequest {
            table_id: TableId(1),
            lease: Lease {
                id: 1,
                expiration_ns: 1_000_000_000_000,
                timestamp_ns: 0,
            },
            rpc_id,
            ack_id: 0,
            rules: RejectRules::default(),
            is_async: false,
            object: KeysAndValue::single(b"key", b"value").unwrap(),
        }
        .encode(&mut payload);
        let to = ReplyTo {
            connection: 1,
            nonce: rpc_id,
        };
        let Rig {
            server, said, now, ..
        } = &mut self.master;
        server.request(*now, to, &payload, said);
    }

    fn reply(&mut self) -> Option<Vec<u8>> {
        let replies = &mut self.master.said.replies;
        (!replies.is_empty()).then(|| replies.remove(0).1)
    }
}

#[test]
fn a_write_is_answered_when_the_backup_has_it() {
    let mut pair = Pair::new(Durability::Buffered);
    pair.run();
    pair.write(1);
    assert_eq!(pair.reply(), None);
    pair.run();
    let reply = pair.reply().unwrap();
    assert_eq!(WriteResponse::decode(&reply).unwrap().status, Status::Ok);
    let backup = pair.backup.server.backup().unwrap();
    assert!(backup.logs().eq([MASTER]));
}

#[test]
fn a_flushed_write_is_answered_when_it_is_synced() {
    let mut pair = Pair::new(Durability::Flushed);
    pair.run();
    pair.backup.finish_sync(Scope::All);
    pair.run();
    pair.write(1);
    pair.run();
    assert_eq!(pair.reply(), None);
    pair.backup.finish_sync(Scope::All);
    pair.run();
    let reply = pair.reply().unwrap();
    assert_eq!(WriteResponse::decode(&reply).unwrap().status, Status::Ok);
}

#[test]
fn a_master_whose_log_is_fenced_answers_nothing_and_ends() {
    let mut pair = Pair::new(Durability::Buffered);
    pair.run();
    let log = Log { log: MASTER.0 };
    pair.backup.order(coordinator::Kind::FenceLog(log));
    pair.write(1);
    pair.run();
    // Its recovered log may hold the write: "try again" would say that it has no effect.
    assert_eq!(pair.reply(), None);
    assert!(!pair.master.server.shard().is_serving(pair.master.now));
    let text = pair.master.server.must_end().unwrap().to_string();
    assert!(text.contains("safely be started again"), "{text}");
    pair.backup.finish_sync(Scope::Superblock);
    pair.backup.pass(Duration::from_secs(1));
    assert_eq!(pair.backup.inventory().unwrap().replicas.len(), 1);
}
