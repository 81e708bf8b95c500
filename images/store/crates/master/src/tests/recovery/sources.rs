//! A dead server's log on backups, and the way there.

use std::collections::BTreeMap;

use backup::testing::MemoryStorage;
use base::ids::{ReplyTo, ServerId};
use wire::entry::{self, Entry, Object, RpcResult, SegmentHeader, Tombstone};
use wire::format::{FIRST_FORMAT, Formats};
use wire::keys::KeysAndValue;
use wire::member::{
    Backup, Backups, Recover, Recovered, RecoveryId, SegmentSource, TabletRange, coordinator, shard,
};
use wire::peer::{Append, Entries, ReplicaId, Request, Role, Status};
use wire::rpc::WriteResponse;

use super::super::harness::*;
use crate::*;

pub const DEAD: ServerId = ServerId(3 << 32 | 9);
pub const SEGMENT_BYTES: u32 = 1 << 14;

/// Entries of a segment of the dead server's log.
pub struct Segment {
    id: u64,
    bytes: Vec<u8>,
}

impl Segment {
    pub fn new(id: u64) -> Segment {
        let mut segment = Segment {
            id,
            bytes: Vec::new(),
        };
        segment.push(&SegmentHeader {
            cluster_id: CLUSTER,
            server_id: DEAD,
            segment_id: id,
            safe_version: 1,
            segment_bytes: SEGMENT_BYTES,
        });
        segment
    }

    fn push<'a>(&mut self, entry: &impl Entry<'a>) {
        let start = self.bytes.len();
        self.bytes.resize(SEGMENT_BYTES as usize, 0);
        let bytes = entry::write(entry, FIRST_FORMAT, &mut self.bytes[start..]);
        self.bytes.truncate(start + bytes);
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn object(mut self, key: &[u8], version: u64, value: &[u8]) -> Segment {
        self.push(&Object {
            table_id: TABLE,
            version,
            expires_ns: None,
            content: KeysAndValue::single(key, value).unwrap(),
        });
        self
    }

    pub fn tombstone(mut self, key: &[u8], version: u64) -> Segment {
        self.push(&Tombstone {
            table_id: TABLE,
            version,
            segment_id: 1,
            key,
        });
        self
    }

    pub fn result(mut self, key: &[u8], rpc_id: u64, version: u64) -> Segment {
        let status = wire::status::Status::Ok;
        let response = WriteResponse { status, version };
        self.push(&RpcResult {
            lease_id: 1,
            rpc_id,
            ack_id: 0,
            table_id: TABLE,
            key_hash: wire::hash::key_hash(TABLE, key),
            response: response.to_bytes().as_ref(),
        });
        self
    }
}

/// The answer to the last read.
#[derive(Default)]
struct Heard(Option<Vec<u8>>);

impl backup::BackupEffects for Heard {
    fn answer(&mut self, _: ReplyTo, answer: wire::peer::Answer) {
        assert_eq!(answer.status, Status::Ok);
    }
    fn data(&mut self, _: ReplyTo, _: Status, _: &[u8]) {}
    fn entries(&mut self, _: ReplyTo, status: Status, next_offset: u32, data: &[u8]) {
        self.0 = Some([&Entries::fixed_bytes(status, next_offset)[..], data].concat());
    }
    fn checkpoint(&mut self, _: Option<Vec<u8>>) {}
    fn report(&mut self, event: backup::BackupEvent) {
        panic!("{event}");
    }
    fn released(&mut self, _: backup::Inventory) {}
}

/// Backups, as their storages have them.
#[derive(Default)]
pub struct Sources {
    backups: BTreeMap<ServerId, backup::Backup<MemoryStorage>>,
    segments: BTreeMap<u64, SegmentSource>,
    /// Most requests that were under way at one time: in all, and to one backup.
    pub most: (usize, usize),
    /// In the order in which they were asked for.
    pub asked: Vec<u64>,
    /// A backup that cannot be reached, and how often that was tried.
    pub away: Option<u64>,
    pub attempts: usize,
}

impl Sources {
    /// Puts copies of a segment on these backups.
    pub fn put(&mut self, segment: &Segment, on: &[u64]) {
        for &id in on {
            let backup = self.backups.entry(ServerId(id)).or_insert_with(|| {
                let config = backup::Config {
                    cluster_id: CLUSTER,
                    segment_bytes: SEGMENT_BYTES,
                    frame_count: 128,
                    durability: backup::Durability::Buffered,
                    boot_id: [1; 16],
                    formats: Formats::CURRENT,
                    format: FIRST_FORMAT,
                };
                let storage = MemoryStorage::new(config.layout().total_bytes());
                backup::Backup::open(base::time::Time(0), config, storage).unwrap()
            });
            let append = Append {
                replica: ReplicaId {
                    log: DEAD,
                    segment_id: segment.id,
                },
                role: Role::Head,
                offset: 0,
                closes: true,
                crc: crc32c::crc32c(&segment.bytes),
                data: &segment.bytes,
            };
            let to = ReplyTo {
                connection: 1,
                nonce: 1,
            };
            let mut heard = Heard::default();
            backup.append(base::time::Time(0), &append, to, &mut heard);
            backup.complete(base::time::Time(0), &mut heard);
        }
        self.name(segment, on);
    }

    /// Says that these backups have a segment, true or not.
    pub fn name(&mut self, segment: &Segment, on: &[u64]) {
        let source = SegmentSource {
            log: DEAD.0,
            segment_id: segment.id,
            backups: on.to_vec(),
            bytes: segment.bytes.len() as u32,
        };
        self.segments.insert(segment.id, source);
    }

    /// The disk of a backup changes a byte of every segment.
    pub fn rot(&mut self, id: u64) {
        const HEADERS: u64 = 3 * 4096;
        let backup = self.backups.get_mut(&ServerId(id)).unwrap();
        for frame in 0..u64::from(backup.config().frame_count) {
            let start = HEADERS + frame * (HEADERS + u64::from(SEGMENT_BYTES));
            backup.storage_mut().rot(start + HEADERS + 70, 1);
        }
    }

    pub fn order(&self, recovery_id: u64, tablets: &[TabletRange]) -> coordinator::Kind {
        coordinator::Kind::Recover(Recover {
            recovery_id,
            tablets: tablets.to_vec(),
            segments: self.segments.values().cloned().collect(),
            version_floor: 0,
        })
    }

    /// Answers what was asked until nothing more is asked for.
    pub fn answer(&mut self, driver: &mut Driver) {
        loop {
            while let Some(away) = self.away
                && driver.said.sources_connected.contains(&ServerId(away))
            {
                let connects = &mut driver.said.sources_connected;
                connects.retain(|id| id.0 != away);
                self.attempts += 1;
                disconnect(driver, away);
            }
            connect(driver);
            driver.shard.tick(driver.now, &mut driver.said);
            let asked = std::mem::take(&mut driver.said.to_sources);
            if asked.is_empty() && driver.said.sources_connected.is_empty() {
                return;
            }
            self.most.0 = self.most.0.max(asked.len());
            for &id in self.backups.keys() {
                let of_one = asked.iter().filter(|(backup, _, _)| *backup == id);
                self.most.1 = self.most.1.max(of_one.count());
            }
            for (backup, nonce, payload) in asked {
                let answer = self.read(backup, &payload);
                answer_with(driver, backup, nonce, &answer);
            }
        }
    }

    pub fn read(&mut self, backup: ServerId, payload: &[u8]) -> Vec<u8> {
        let Ok(Request::ReadEntries(read)) = Request::decode(payload) else {
            panic!("another request");
        };
        self.asked.push(read.replica.segment_id);
        let Some(backup) = self.backups.get_mut(&backup) else {
            return Entries::fixed_bytes(Status::Missing, 0).to_vec();
        };
        let to = ReplyTo {
            connection: 1,
            nonce: 1,
        };
        let mut heard = Heard::default();
        backup.read_entries(&read, to, &mut heard);
        backup.complete(base::time::Time(0), &mut heard);
        heard.0.expect("memory answers at once")
    }
}

/// All connections that the shard wants are made.
pub fn connect(driver: &mut Driver) {
    for backup in std::mem::take(&mut driver.said.sources_connected) {
        let (now, channel) = (driver.now, Channel::Recovery);
        let said = &mut driver.said;
        driver.shard.backup_connected(now, channel, backup, said);
    }
}

pub fn answer_with(driver: &mut Driver, backup: ServerId, nonce: u64, payload: &[u8]) {
    let (now, channel) = (driver.now, Channel::Recovery);
    driver
        .shard
        .backup_answer(now, channel, backup, nonce, payload, &mut driver.said);
    // What came is replayed piece by piece, as long as there is memory.
    while driver.shard.tick(driver.now, &mut driver.said) <= driver.now {}
}

pub fn disconnect(driver: &mut Driver, backup: u64) {
    let (now, channel, backup) = (driver.now, Channel::Recovery, ServerId(backup));
    let said = &mut driver.said;
    driver.shard.backup_disconnected(now, channel, backup, said);
}

pub fn name_backups(driver: &mut Driver, ids: &[u64]) {
    let backup = |&server_id| Backup {
        server_id,
        host_id: format!("host-{server_id}"),
        locator: format!("tcp:host=host-{server_id},port=1"),
        segment_bytes: 8 << 20,
        ..Backup::default()
    };
    let backups = ids.iter().map(backup).collect();
    let list = Backups { backups, number: 1 };
    driver.order(coordinator::Kind::Backups(list));
}

pub fn commit(driver: &mut Driver, recovery_id: u64) -> Session {
    driver.order(coordinator::Kind::CommitRecovery(RecoveryId {
        recovery_id,
    }))
}

pub fn give_up(driver: &mut Driver, recovery_id: u64) {
    driver.order(coordinator::Kind::GiveUpRecovery(RecoveryId {
        recovery_id,
    }));
}

/// What was said of recoveries since this was last asked.
pub fn recovered(driver: &mut Driver) -> Vec<Recovered> {
    let is_meant = |kind: &mut shard::Kind| matches!(kind, shard::Kind::Recovered(_));
    let messages = driver.said.messages.extract_if(.., is_meant);
    let recovered = messages.map(|kind| match kind {
        shard::Kind::Recovered(recovered) => recovered,
        _ => unreachable!(),
    });
    recovered.collect()
}

/// The one recovery that has failed, and why.
pub fn failure(driver: &mut Driver) -> Recovered {
    let mut all = recovered(driver);
    assert_eq!(all.len(), 1, "{all:?}");
    assert_ne!(all[0].failure, "");
    all.remove(0)
}

/// The coordinator was told of a failure, which is in the log, too: why.
pub fn failed(driver: &mut Driver) -> RecoveryError {
    let told = failure(driver);
    let Some(ShardEvent::Recovery(RecoveryEvent::Failed { recovery, error })) =
        driver.said.events.pop()
    else {
        panic!("{told:?} is not reported");
    };
    assert_eq!(
        (told.recovery_id, told.failure),
        (recovery, error.to_string())
    );
    assert_eq!(told.is_full, error.is_full());
    error
}
