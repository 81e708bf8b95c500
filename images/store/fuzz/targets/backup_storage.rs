//! A backup's storage with anything on it: opening it ends, what is given out has its checksum, and the next opening finds the same.
#![no_main]

use std::time::Duration;

use backup::testing::MemoryStorage;
use backup::{
    BLOCK_BYTES, Backup, BackupEffects, BackupEvent, CHECKPOINT_LOG, Config, Disk, Durability,
    Flaw, Inventory, Layout, OpenError, SUPERBLOCK_BYTES,
};
use base::ids::{ReplyTo, ServerId};
use base::time::Time;
use fuzz::bounded_target;
use wire::entry::RawEntry;
use wire::format::{FIRST_FORMAT, Formats};
use wire::member::TabletRange;
use wire::peer::{Answer, Append, Held, List, Read, ReadEntries, ReplicaId, Request, Role, Status};

#[derive(Default)]
struct Said {
    answers: usize,
    released: Vec<Inventory>,
    /// The last thing that was read: for entries, with where to go on.
    read: Option<(Status, u32, Vec<u8>)>,
    checkpoint: Option<Option<Vec<u8>>>,
}

const READER: ReplyTo = ReplyTo {
    connection: 2,
    nonce: 1,
};

/// A backup, its clock, and all that it has said: an answer may come while something else is waited for.
struct Server {
    backup: Backup<MemoryStorage>,
    now: Time,
    said: Said,
}

impl Server {
    fn open(config: &Config, storage: MemoryStorage, now: Time) -> Result<Server, OpenError> {
        Ok(Server {
            backup: Backup::open(now, config.clone(), storage)?,
            now,
            said: Said::default(),
        })
    }

    fn settle(&mut self) {
        for _ in 0..20 {
            self.backup.tick(self.now, &mut self.said);
            for scope in self.backup.storage().syncs_under_way() {
                self.backup.storage_mut().finish_sync(scope);
            }
            self.backup.complete(self.now, &mut self.said);
            self.now += Duration::from_millis(300);
        }
    }

    /// The answer to a reader: a storage that is not late has it at once.
    fn answer_of(
        &mut self,
        ask: impl FnOnce(&mut Backup<MemoryStorage>, &mut Said),
    ) -> (Status, u32, Vec<u8>) {
        ask(&mut self.backup, &mut self.said);
        self.backup.complete(self.now, &mut self.said);
        self.said.read.take().expect("an answer")
    }

    fn read(&mut self, read: &Read) -> (Status, Vec<u8>) {
        let (status, _, data) = self.answer_of(|backup, said| backup.read(read, READER, said));
        (status, data)
    }
}

impl BackupEffects for Said {
    fn answer(&mut self, _to: ReplyTo, _answer: Answer) {
        self.answers += 1;
    }
    fn data(&mut self, _to: ReplyTo, status: Status, data: &[u8]) {
        assert!(self.read.is_none(), "one answer to each request");
        self.read = Some((status, 0, data.to_vec()));
    }
    fn entries(&mut self, _to: ReplyTo, status: Status, next_offset: u32, data: &[u8]) {
        assert!(self.read.is_none(), "one answer to each request");
        self.read = Some((status, next_offset, data.to_vec()));
    }
    fn checkpoint(&mut self, bytes: Option<Vec<u8>>) {
        self.checkpoint = Some(bytes);
    }
    fn report(&mut self, event: BackupEvent) {
        assert!(!event.to_string().is_empty());
    }
    fn released(&mut self, inventory: Inventory) {
        self.released.push(inventory);
    }
}

const LAYOUT: Layout = Layout {
    segment_bytes: 256,
    frame_count: 3,
};

/// Where a patch goes: places of the superblock, then of each frame the places of its header and its data.
fn offset(place: u8) -> u64 {
    let block = u64::from(BLOCK_BYTES);
    let (frame, part) = match u64::from(place) % 15 {
        place @ 0..3 => return place * block,
        place => ((place - 3) / 4, (place - 3) % 4),
    };
    let frame_bytes = 3 * block + u64::from(LAYOUT.segment_bytes);
    SUPERBLOCK_BYTES + frame * frame_bytes + part * block
}

/// With magic and checksum, which nobody guesses.
fn sealed(offset: u64, fields: &[u8]) -> Vec<u8> {
    let is_superblock = offset < SUPERBLOCK_BYTES;
    let magic = if is_superblock {
        b"rcboxBKP"
    } else {
        b"rcboxFRM"
    };
    let mut block = [&magic[..], &[0; 4], fields].concat();
    let bytes = if is_superblock {
        block.resize(block.len().max(64), 0);
        let count = u32::from_le_bytes([block[60], block[61], block[62], block[63]]);
        64 + 8 * (count as usize % 505)
    } else {
        72
    };
    block.resize(block.len().max(bytes), 0);
    let crc = crc32c::crc32c(&block[12..bytes]);
    block[8..12].copy_from_slice(&crc.to_le_bytes());
    block
}

fn patch(storage: &mut MemoryStorage, mut rest: &[u8]) {
    while let Some((&[place, seal, length], tail)) = rest.split_first_chunk::<3>() {
        let (bytes, tail) = tail.split_at(tail.len().min(length.into()));
        rest = tail;
        let offset = offset(place);
        let bytes = if seal % 2 == 1 {
            sealed(offset, bytes)
        } else {
            bytes.to_vec()
        };
        let room = LAYOUT.total_bytes() - offset;
        let bytes = &bytes[..bytes.len().min(room as usize)];
        storage.write(offset, bytes).expect("a patch fits");
    }
}

/// All replicas, and what reading them gives.
fn contents(server: &mut Server) -> Vec<(ReplicaId, Status, Vec<u8>)> {
    let logs: Vec<ServerId> = server.backup.logs().collect();
    let of_log = |log| {
        let segments = server.backup.segments(log);
        segments.map(move |segment_id| ReplicaId { log, segment_id })
    };
    let replicas: Vec<ReplicaId> = logs.into_iter().flat_map(of_log).collect();
    let read = |replica| {
        let whole = Read {
            replica,
            offset: 0,
            bytes: u32::MAX,
        };
        let (status, data) = server.read(&whole);
        assert!(status != Status::Missing && (status == Status::Ok || data.is_empty()));
        let part = Read {
            replica,
            offset: 1,
            bytes: 7,
        };
        let (again, piece) = server.read(&part);
        assert_eq!(again, status);
        assert!(data.get(1..).unwrap_or(&[]).starts_with(&piece));
        (replica, status, data)
    };
    replicas.into_iter().map(read).collect()
}

/// What a recovery of a table reads: entries of the replica, and then its end; or nothing.
fn read_entries(server: &mut Server, replica: ReplicaId, data: &[u8]) {
    let tablet = TabletRange {
        table_id: 1,
        start_key_hash: 0,
        end_key_hash: u64::MAX,
    };
    let mut offset = 0;
    while (offset as usize) < data.len() {
        let mut request = Vec::new();
        ReadEntries::encode(replica, offset, 64, &[tablet], &mut request);
        let Ok(Request::ReadEntries(read)) = Request::decode(&request) else {
            panic!("not what was written");
        };
        let asked = |backup: &mut Backup<MemoryStorage>, said: &mut Said| {
            backup.read_entries(&read, READER, said);
        };
        let (status, next_offset, entries) = server.answer_of(asked);
        if status != Status::Ok {
            return assert!(entries.is_empty());
        }
        let piece = &data[offset as usize..next_offset as usize];
        assert!(
            !piece.is_empty(),
            "all of so short a segment is compared at once"
        );
        let mut rest = &entries[..];
        while !rest.is_empty() {
            let entry = RawEntry::read_checked(rest).expect("a whole entry");
            assert!(
                piece
                    .windows(entry.bytes.len())
                    .any(|bytes| bytes == entry.bytes)
            );
            rest = &rest[entry.bytes.len()..];
        }
        offset = next_offset;
    }
}

/// A listing shows closed replicas by length and checksum, if they can be read.
fn assert_listed(server: &mut Server, log: ServerId) {
    let listing = server.backup.list(List { log });
    let segments: Vec<u64> = server.backup.segments(log).collect();
    if listing.status == Status::Fenced {
        return;
    }
    assert!(
        listing
            .replicas
            .iter()
            .map(|listed| listed.segment_id)
            .eq(segments)
    );
    for listed in listing.replicas {
        let segment_id = listed.segment_id;
        let whole = Read {
            replica: ReplicaId { log, segment_id },
            offset: 0,
            bytes: u32::MAX,
        };
        let (status, data) = server.read(&whole);
        if let (Held::Closed { bytes, crc }, Status::Ok) = (listed.held, status) {
            assert_eq!((bytes, crc), (data.len() as u32, crc32c::crc32c(&data)));
        }
    }
}

bounded_target!(fuzz::Bound::DECODER, |data: &[u8]| {
    let Some((&flags, patches)) = data.split_first() else {
        return;
    };
    let mut config = Config {
        cluster_id: 1,
        segment_bytes: LAYOUT.segment_bytes,
        frame_count: LAYOUT.frame_count,
        durability: if flags & 1 == 0 {
            Durability::Buffered
        } else {
            Durability::Flushed
        },
        boot_id: [0; 16],
        formats: Formats::CURRENT,
        format: FIRST_FORMAT,
    };
    let empty = MemoryStorage::new(LAYOUT.total_bytes());
    let formatted = Server::open(&config, empty, Time::ZERO).expect("an empty storage opens");
    let mut storage = formatted.backup.into_storage();
    patch(&mut storage, patches);
    config.boot_id[0] = flags >> 1 & 1;
    let mut server = match Server::open(&config, storage, Time::ZERO) {
        Ok(server) => server,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let found = contents(&mut server);
    server.settle();
    let storage = MemoryStorage::with(server.backup.storage().bytes().to_vec());
    let mut server = Server::open(&config, storage, server.now).expect("opens again");
    assert_eq!(contents(&mut server), found);

    let append = Append {
        replica: ReplicaId {
            log: ServerId::new(7, 7),
            segment_id: 7,
        },
        role: Role::Head,
        offset: 0,
        closes: false,
        crc: crc32c::crc32c(b"data"),
        data: b"data",
    };
    let to = ReplyTo {
        connection: 1,
        nonce: 1,
    };
    let (backup, now) = (&mut server.backup, server.now);
    backup.append(now, &append, to, &mut server.said);
    let logs: Vec<ServerId> = backup.logs().collect();
    for &log in &logs {
        assert_listed(&mut server, log);
        let (backup, now) = (&mut server.backup, server.now);
        backup.begin_recovery(now, log, &mut server.said);
    }
    server.settle();
    assert_eq!(server.said.answers, 1);
    for inventory in std::mem::take(&mut server.said.released) {
        for info in inventory.replicas {
            let replica = ReplicaId {
                log: inventory.log,
                segment_id: info.segment_id,
            };
            let whole = Read {
                replica,
                offset: 0,
                bytes: u32::MAX,
            };
            let (status, data) = server.read(&whole);
            assert!(status != Status::Ok || crc32c::crc32c(&data) == info.crc);
            let is_damaged = matches!(info.damage, Some(Flaw::Damaged(_)));
            assert_eq!(is_damaged, status == Status::Mismatch);
            assert!(info.digest.is_empty() || status == Status::Ok);
            read_entries(&mut server, replica, &data);
        }
    }
    for log in logs {
        server.backup.forget_log(server.now, log);
    }
    server.settle();
    // Checkpoints are no master's log, and stay.
    let (backup, now) = (&mut server.backup, server.now);
    backup.read_newest_checkpoint();
    backup.complete(now, &mut server.said);
    assert!(server.said.checkpoint.is_some(), "an answer");
    let checkpoints = backup.segments(CHECKPOINT_LOG).count() as u32;
    let stats = backup.stats();
    assert_eq!(
        stats.frames_free + stats.frames_unusable + checkpoints,
        LAYOUT.frame_count
    );
});
