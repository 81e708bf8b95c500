//! What is in backups' files, read as a backup reads them.

use std::path::Path;

use backup::testing::MemoryStorage;
use backup::{Backup, BackupEffects, BackupEvent, Config, Durability, Inventory};
use base::ids::{ReplyTo, ServerId};
use base::time::Time;
use wire::format::{FIRST_FORMAT, Formats};
use wire::peer::{Answer, Read, ReplicaId, Status};

/// What a backup held when its process was killed.
pub struct Frames {
    backup: Backup<MemoryStorage>,
}

pub const FRAMES: u32 = 24;
pub const SEGMENT_BYTES: u32 = 2 << 20;

/// Of the kernel that runs.
pub fn boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let digits = text.trim().replace('-', "");
    u128::from_str_radix(&digits, 16).unwrap().to_be_bytes()
}

/// The data that a backup gives out; what else it says, a test does not want to know.
#[derive(Default)]
struct Given(Vec<u8>);

impl BackupEffects for Given {
    fn answer(&mut self, _: ReplyTo, _: Answer) {}
    fn data(&mut self, _: ReplyTo, status: Status, data: &[u8]) {
        if status == Status::Ok {
            self.0.extend_from_slice(data);
        }
    }
    fn entries(&mut self, _: ReplyTo, _: Status, _: u32, _: &[u8]) {}
    fn checkpoint(&mut self, _: Option<Vec<u8>>) {}
    fn report(&mut self, _: BackupEvent) {}
    fn released(&mut self, _: Inventory) {}
}

impl Frames {
    /// Opens a copy of a file, under this kernel (`boot_id`) or another.
    pub fn read(path: &Path, cluster_id: u64, boot_id: [u8; 16]) -> Frames {
        let config = Config {
            cluster_id,
            segment_bytes: SEGMENT_BYTES,
            frame_count: FRAMES,
            durability: Durability::Buffered,
            boot_id,
            formats: Formats::CURRENT,
            format: FIRST_FORMAT,
        };
        let storage = MemoryStorage::with(std::fs::read(path).unwrap());
        let mut backup = Backup::open(Time::ZERO, config, storage).unwrap();
        backup.tick(Time::ZERO, &mut Given::default());
        Frames { backup }
    }

    pub fn damaged(&self) -> u32 {
        self.backup.stats().frames_damaged
    }

    /// All data of all replicas that is given out, each compared with its checksum.
    pub fn data(&mut self) -> Vec<u8> {
        let logs: Vec<ServerId> = self.backup.logs().collect();
        let of_log = |log: &ServerId| {
            let segments = self.backup.segments(*log);
            let log = *log;
            segments.map(move |segment_id| ReplicaId { log, segment_id })
        };
        let replicas: Vec<ReplicaId> = logs.iter().flat_map(of_log).collect();
        let mut given = Given::default();
        let to = ReplyTo {
            connection: 1,
            nonce: 1,
        };
        for replica in replicas {
            let read = Read {
                replica,
                offset: 0,
                bytes: SEGMENT_BYTES,
            };
            self.backup.read(&read, to, &mut given);
            // Each replica is compared and read in one step, or in several.
            while self.backup.is_reading() {
                self.backup.tick(Time::ZERO, &mut given);
            }
        }
        given.0
    }
}

pub fn contains(data: &[u8], text: &str) -> bool {
    data.windows(text.len())
        .any(|window| window == text.as_bytes())
}
