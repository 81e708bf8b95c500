//! A backup on a storage in memory: what it answers, and what it finds after crashes.

mod checkpoints;
mod damage;
mod entries;
mod golden;
mod growth;
mod late;
mod model;
mod recovery;
mod requests;

use std::time::Duration;

use base::ids::{ReplyTo, ServerId};
use base::time::Time;
use wire::format::{FIRST_FORMAT, Formats};
use wire::peer::{Answer, Append, Free, KeepAlive, Read, ReplicaId, Role, Status};

use crate::testing::MemoryStorage;
use crate::*;

pub(crate) const SEGMENT_BYTES: u32 = 4096;

/// Everything that a backup said.
#[derive(Default)]
pub(crate) struct Said {
    pub answers: Vec<(u64, Answer)>,
    pub released: Vec<Inventory>,
    pub events: Vec<BackupEvent>,
    /// Answers to reads, with where to go on.
    pub read: Vec<(u64, Status, u32, Vec<u8>)>,
    pub checkpoints: Vec<Option<Vec<u8>>>,
}

impl BackupEffects for Said {
    fn answer(&mut self, to: ReplyTo, answer: Answer) {
        self.answers.push((to.nonce, answer));
    }
    fn data(&mut self, to: ReplyTo, status: Status, data: &[u8]) {
        self.read.push((to.nonce, status, 0, data.to_vec()));
    }
    fn entries(&mut self, to: ReplyTo, status: Status, next_offset: u32, data: &[u8]) {
        self.read
            .push((to.nonce, status, next_offset, data.to_vec()));
    }
    fn checkpoint(&mut self, bytes: Option<Vec<u8>>) {
        self.checkpoints.push(bytes);
    }
    fn report(&mut self, event: BackupEvent) {
        self.events.push(event);
    }
    fn released(&mut self, inventory: Inventory) {
        self.released.push(inventory);
    }
}

/// A backup with its driver.
pub(crate) struct Rig {
    backup: Option<Backup<MemoryStorage>>,
    pub config: Config,
    pub now: Time,
    pub said: Said,
    pub next_nonce: u64,
    /// When [`Backup::tick`] wants to be called.
    pub next_tick: Time,
}

pub(crate) fn replica(log: u32, segment_id: u64) -> ReplicaId {
    ReplicaId {
        log: ServerId::new(log, 1),
        segment_id,
    }
}

/// What a segment holds: all different, and found again anywhere.
pub(crate) fn content_of(replica: ReplicaId, bytes: u32) -> Vec<u8> {
    let seed = replica.log.0 ^ replica.segment_id << 40;
    let byte = |at: u32| (seed ^ u64::from(at)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    (0..bytes).map(|at| byte(at) as u8).collect()
}

impl Rig {
    pub fn new(durability: Durability, frame_count: u32) -> Rig {
        Rig::of_segments(durability, frame_count, SEGMENT_BYTES)
    }

    pub fn of_segments(durability: Durability, frame_count: u32, segment_bytes: u32) -> Rig {
        let config = Config {
            cluster_id: 7,
            segment_bytes,
            frame_count,
            durability,
            boot_id: [1; 16],
            formats: Formats::CURRENT,
            format: FIRST_FORMAT,
        };
        let storage = MemoryStorage::new(config.layout().total_bytes());
        let mut rig = Rig {
            backup: None,
            config,
            now: Time(1_000_000_000),
            said: Said::default(),
            next_nonce: 1,
            next_tick: Time::NEVER,
        };
        rig.open(storage);
        rig
    }

    pub fn buffered() -> Rig {
        Rig::new(Durability::Buffered, 3)
    }

    pub fn flushed() -> Rig {
        Rig::new(Durability::Flushed, 3)
    }

    pub fn open(&mut self, mut storage: MemoryStorage) {
        storage.is_late = false;
        let backup = Backup::open(self.now, self.config.clone(), storage);
        let backup = backup.unwrap_or_else(|error| panic!("{error}"));
        self.config.frame_count = backup.config().frame_count;
        self.backup = Some(backup);
        self.tick();
    }

    pub fn backup(&mut self) -> &mut Backup<MemoryStorage> {
        self.backup.as_mut().unwrap()
    }

    pub fn storage(&mut self) -> &mut MemoryStorage {
        self.backup().storage_mut()
    }

    pub fn take_storage(&mut self) -> MemoryStorage {
        self.backup.take().unwrap().into_storage()
    }

    pub fn close_in_order(&mut self) -> MemoryStorage {
        let (storage, result) = self.backup.take().unwrap().close_in_order();
        result.unwrap();
        storage
    }

    /// The process dies, and another takes its place.
    pub fn restart(&mut self) {
        let mut storage = self.take_storage();
        storage.process_crash();
        self.open(storage);
    }

    pub fn power_loss(&mut self, choose: impl FnMut(usize) -> usize) {
        let mut storage = self.take_storage();
        storage.power_loss(choose);
        self.config.boot_id[0] += 1;
        self.open(storage);
    }

    pub fn tick(&mut self) {
        let backup = self.backup.as_mut().unwrap();
        self.next_tick = backup.tick(self.now, &mut self.said);
        let stats = backup.stats();
        let frames =
            stats.frames_free + stats.frames_freeing + stats.frames_open + stats.frames_closed;
        assert_eq!(frames + stats.frames_unusable, self.config.frame_count);
        assert_eq!(
            stats.frames_open + stats.frames_closed,
            backup.replicas.len() as u32
        );
    }

    pub fn wait(&mut self, duration: Duration) {
        self.now += duration;
        self.tick();
    }

    pub fn finish_sync(&mut self, scope: Scope) {
        self.storage().finish_sync(scope);
        self.tick();
    }

    /// Until nothing is under way and nothing is due.
    pub fn settle(&mut self) {
        loop {
            if let Some(&scope) = self.storage().syncs_under_way().first() {
                self.finish_sync(scope);
            } else if self.next_tick < self.now + Duration::from_secs(10) {
                self.now = self.now.max(self.next_tick);
                self.tick();
            } else {
                return;
            }
        }
    }

    pub fn to(&mut self) -> ReplyTo {
        self.next_nonce += 1;
        ReplyTo {
            connection: 1,
            nonce: self.next_nonce - 1,
        }
    }

    /// The number that the answer will have.
    pub fn send(&mut self, append: &Append<'_>) -> u64 {
        let to = self.to();
        let backup = self.backup.as_mut().unwrap();
        backup.append(self.now, append, to, &mut self.said);
        self.tick();
        to.nonce
    }

    /// Appends what the segment holds in a range; a head.
    pub fn put(&mut self, replica: ReplicaId, range: std::ops::Range<u32>, closes: bool) -> u64 {
        let content = content_of(replica, range.end);
        self.send(&Append {
            replica,
            role: Role::Head,
            offset: range.start,
            closes,
            crc: crc32c::crc32c(&content),
            data: &content[range.start as usize..],
        })
    }

    pub fn answer(&mut self, nonce: u64) -> Option<(Status, u32)> {
        let answers = self.said.answers.iter();
        let mut answers = answers.filter(|(to, _)| *to == nonce);
        let answer = answers
            .next()
            .map(|(_, answer)| (answer.status, answer.bytes));
        assert!(answers.next().is_none(), "answered twice");
        answer
    }

    /// What [`Rig::put`] is answered at once.
    pub fn put_now(
        &mut self,
        replica: ReplicaId,
        range: std::ops::Range<u32>,
        closes: bool,
    ) -> (Status, u32) {
        let nonce = self.put(replica, range, closes);
        self.answer(nonce).expect("an answer at once")
    }

    /// The same after all syncs.
    pub fn put_settled(&mut self, replica: ReplicaId, range: std::ops::Range<u32>, closes: bool) {
        let nonce = self.put(replica, range.clone(), closes);
        self.settle();
        assert_eq!(self.answer(nonce), Some((Status::Ok, range.end)));
    }

    pub fn keep_alive(&mut self, log: ServerId) -> Status {
        let to = self.to();
        let backup = self.backup.as_mut().unwrap();
        backup.keep_alive(self.now, KeepAlive { log }, to, &mut self.said);
        self.answer(to.nonce).expect("an answer at once").0
    }

    pub fn free(&mut self, replica: ReplicaId) -> Status {
        let to = self.to();
        let backup = self.backup.as_mut().unwrap();
        backup.free(self.now, Free { replica }, to, &mut self.said);
        self.tick();
        self.answer(to.nonce).expect("an answer at once").0
    }

    pub fn begin_recovery(&mut self, log: ServerId) {
        let backup = self.backup.as_mut().unwrap();
        backup.begin_recovery(self.now, log, &mut self.said);
        self.tick();
    }

    pub fn read(&mut self, replica: ReplicaId, offset: u32, bytes: u32) -> (Status, Vec<u8>) {
        let read = Read {
            replica,
            offset,
            bytes,
        };
        let to = self.to();
        let backup = self.backup.as_mut().unwrap();
        backup.read(&read, to, &mut self.said);
        let (status, _, data) = self.answer_to_read(to);
        (status, data)
    }

    /// The answer to a read, which has come; what it says of damage comes with the next tick.
    pub fn answer_to_read(&mut self, to: ReplyTo) -> (Status, u32, Vec<u8>) {
        let backup = self.backup.as_mut().unwrap();
        backup.complete(self.now, &mut self.said);
        let (nonce, status, next_offset, data) = self.said.read.pop().expect("an answer at once");
        assert_eq!(nonce, to.nonce);
        (status, next_offset, data)
    }

    /// Asserts that a replica is sound and holds so much.
    pub fn assert_holds(&mut self, replica: ReplicaId, bytes: u32) {
        let found = self.read(replica, 0, SEGMENT_BYTES);
        assert_eq!(found, (Status::Ok, content_of(replica, bytes)));
    }

    pub fn damage_of(&mut self, replica: ReplicaId) -> Option<Damage> {
        let number = self.backup().replicas[&replica];
        self.backup().frames[number].content().unwrap().damage
    }

    /// Where its data starts on the storage.
    pub fn place_of(&mut self, replica: ReplicaId) -> u64 {
        let number = self.backup().replicas[&replica];
        self.config.layout().data(number)
    }

    pub fn has_reported(&self, event: &BackupEvent) -> bool {
        self.said.events.contains(event)
    }

    /// Whether damage of a replica was reported that is meant.
    pub fn has_reported_damage(&self, of: ReplicaId, is_meant: impl Fn(&Damage) -> bool) -> bool {
        self.said.events.iter().any(|event| {
            matches!(event, BackupEvent::ReplicaDamaged { replica, damage, .. } if *replica == of && is_meant(damage))
        })
    }
}
