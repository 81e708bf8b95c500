//! Taking a storage into use.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};

use base::time::Time;
use wire::format::Formats;

use crate::backup::Backup;
use crate::commit::Commit;
use crate::config::Config;
use crate::copies::{Copies, PLACES};
use crate::device::Device;
use crate::disk::{Disk, StorageError};
use crate::event::BackupEvent;
use crate::fences::Fences;
use crate::fencing::Fencing;
use crate::frame::{Frame, Frames};
use crate::jobs::Jobs;
use crate::layout::{BLOCK_BYTES, HEAD_BYTES, Layout};
use crate::load::{self, MAX_SEQUENCE, Past};
use crate::record::Superblock;
use crate::storage::Storage;
use crate::unwritten::Unwritten;

/// Why a storage is not taken into use. Nothing on it was changed, except for [`OpenError::Storage`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// It is not empty, and no backup's.
    Foreign,
    /// It was a backup's, and its superblocks are damaged.
    Damaged,
    UnknownFormat {
        found: u32,
        known: Formats,
    },
    OtherCluster {
        found: u64,
        wanted: u64,
    },
    /// Sizes of segments.
    OtherSegments {
        found: u32,
        wanted: u32,
    },
    /// No frame, or no bytes in one.
    TooSmall,
    /// Its superblock counts more frames than are there.
    CutShort {
        frames: u32,
        error: StorageError,
    },
    Storage(StorageError),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Foreign => write!(
                f,
                "the storage holds something that is no backup's; give another one, or overwrite its first {HEAD_BYTES} bytes \
                 with zeros if nothing on it is needed"
            ),
            OpenError::CutShort { frames, error } => write!(
                f,
                "the storage should have {frames} frames, and the last one cannot be read: {error}; give it back the size that it had, or give \
                 another storage once the other backups hold all replicas"
            ),
            OpenError::Damaged => write!(
                f,
                "all superblocks of the storage are damaged, so it is not known whom it must refuse; once the other backups hold \
                 all replicas, overwrite its first {HEAD_BYTES} bytes with zeros to use it as an empty one"
            ),
            OpenError::UnknownFormat { found, known } => write!(
                f,
                "the storage has format {found}, and this build reads {known}: start a server of the version that wrote it"
            ),
            OpenError::OtherCluster { found, wanted } => write!(
                f,
                "the storage belongs to cluster {found:016x}, and this is {wanted:016x}: give it back to that cluster, or give \
                 this server another one"
            ),
            OpenError::OtherSegments { found, wanted } => write!(
                f,
                "the storage has frames for segments of {found} bytes, and for {wanted} bytes are asked: ask for what it has, with --segmentMB, \
                 or give an empty storage"
            ),
            OpenError::TooSmall => {
                f.write_str("the storage is too small for a single segment; give more")
            }
            OpenError::Storage(error) => write!(f, "the storage cannot be used: {error}"),
        }
    }
}

impl core::error::Error for OpenError {}

impl From<StorageError> for OpenError {
    fn from(error: StorageError) -> OpenError {
        OpenError::Storage(error)
    }
}

/// What the first blocks of a storage are.
enum Found {
    Empty,
    Superblock(Superblock, Copies),
}

impl<S: Storage> Backup<S> {
    /// Opens a backup's storage, or formats an empty one. One with fewer frames than are asked for gets more, if there is room; one with more keeps
    /// them. The storage is synced, several times, and waited for; data of open replicas is
    /// read and compared with what their headers say.
    pub fn open(now: Time, mut config: Config, mut storage: S) -> Result<Backup<S>, OpenError> {
        let layout = config.layout();
        if layout.segment_bytes == 0 || layout.frame_count == 0 {
            return Err(OpenError::TooSmall);
        }
        let (superblock, copies) = match look(&mut storage, config.formats)? {
            Found::Empty => return Backup::format(now, config, storage),
            Found::Superblock(superblock, copies) => (superblock, copies),
        };
        if superblock.cluster_id != config.cluster_id {
            return Err(OpenError::OtherCluster {
                found: superblock.cluster_id,
                wanted: config.cluster_id,
            });
        }
        if superblock.segment_bytes != layout.segment_bytes {
            return Err(OpenError::OtherSegments {
                found: superblock.segment_bytes,
                wanted: layout.segment_bytes,
            });
        }
        config.format = config.format.max(superblock.format);
        let fitted = fit(&mut storage, &superblock, &mut config)?;
        let same_kernel = superblock.boot_id == config.boot_id;
        let past = Past {
            complete: superblock.clean || same_kernel && !superblock.failed,
            flushed: superblock.flushed,
            cached: same_kernel && !superblock.clean,
        };
        let mut backup = Backup::empty(now, config, storage);
        backup.unreported.extend(fitted);
        backup.fencing = Fencing::found(superblock.fences, copies);
        backup.load(past)?;
        Ok(backup.ready()?)
    }

    /// Makes a storage an empty backup's, whatever it held.
    pub fn format(now: Time, config: Config, storage: S) -> Result<Backup<S>, OpenError> {
        let mut backup = Backup::empty(now, config, storage);
        let Device {
            storage, layout, ..
        } = &mut backup.device;
        // Frames first: what has a superblock is a backup's storage, and whole.
        empty_frames(storage, layout, 0)?;
        storage.write(0, &[0; HEAD_BYTES])?;
        for number in 0..layout.frame_count {
            let frame = Frame::found(number, Copies::default(), None, true);
            backup.frames.push(Some(frame));
            backup.free.insert(number);
        }
        Ok(backup.ready()?)
    }

    fn empty(now: Time, config: Config, storage: S) -> Backup<S> {
        let (layout, cluster_id) = (config.layout(), config.cluster_id);
        Backup {
            device: Device::opening(now, storage, layout, cluster_id, config.formats),
            frames: Frames::default(),
            replicas: BTreeMap::new(),
            free: BTreeSet::new(),
            freeing: BTreeSet::new(),
            promises: BTreeMap::new(),
            forget_promises_at: now,
            fencing: Fencing::found(Fences::default(), Copies::default()),
            recovering: BTreeMap::new(),
            inspecting: BTreeSet::new(),
            is_rewriting: false,
            unwritten: Unwritten::default(),
            jobs: Jobs::default(),
            stalled: None,
            commit: Commit::default(),
            opened_at: now,
            unreported: Vec::new(),
            retired: None,
            is_noted_again: false,
            appends: 0,
            bytes_appended: 0,
            checkpoints: Vec::new(),
            config,
        }
    }

    fn load(&mut self, past: Past) -> Result<(), StorageError> {
        for number in 0..self.config.frame_count {
            let loaded = load::load(number, &mut self.device, past)?;
            self.unreported.extend(loaded.event);
            self.frames.push(loaded.frame);
            let Some(frame) = &loaded.frame else { continue };
            match frame.content().map(|content| content.replica) {
                None => {
                    self.free.insert(number);
                }
                Some(replica) => match self.replicas.insert(replica, number) {
                    None => {}
                    Some(other) => self.keep_better(other, number),
                },
            }
        }
        Ok(())
    }

    /// One replica in two frames: it was freed in one, which a crash has undone, and came again. The one of which more was promised
    /// counts, damaged or not: the other may be too short.
    fn keep_better(&mut self, one: u32, other: u32) {
        let [one_rank, other_rank] = [one, other].map(|number| {
            let frame = &mut self.frames[number];
            let is_sound = frame.verify(&mut self.device).is_ok();
            let content = frame.content().expect("a frame in use");
            let promised = content.acknowledged_bytes.max(content.bytes);
            (content.closed, promised, is_sound)
        });
        let (better, worse) = if one_rank >= other_rank {
            (one, other)
        } else {
            (other, one)
        };
        let replica = self.frames[worse]
            .content()
            .expect("a frame in use")
            .replica;
        self.replicas.insert(replica, worse);
        self.free_frame(worse);
        self.replicas.insert(replica, better);
    }

    /// What was found and judged becomes durable, before the superblock says that this kernel's page cache is to be trusted.
    fn ready(mut self) -> Result<Backup<S>, StorageError> {
        // Twice, so that there is never just one.
        self.sync_superblock(false)?;
        self.sync_superblock(false)?;
        for (number, frame) in self.frames.usable() {
            frame.after_opening();
            if frame.wants_sync(self.config.durability) {
                self.commit.unsettled.insert(number);
            }
        }
        self.look_for_checkpoints();
        self.device.opened();
        Ok(self)
    }
}

/// Makes the frames from `first` on empty ones, durably.
fn empty_frames(storage: &mut impl Disk, layout: &Layout, first: u32) -> Result<(), StorageError> {
    let (mut head, zeros) = (vec![0; HEAD_BYTES], vec![0; HEAD_BYTES]);
    for number in first..layout.frame_count {
        storage.read(layout.head(number), &mut head)?;
        if head != zeros {
            storage.write(layout.head(number), &zeros)?;
        }
    }
    storage.sync()
}

/// Brings the number of frames that a storage has and the one that is asked for together; what to say about it.
///
/// New frames are there, durably, before a superblock counts them. Until then they are room behind the end that means nothing.
fn fit(
    storage: &mut impl Disk,
    superblock: &Superblock,
    config: &mut Config,
) -> Result<Option<BackupEvent>, OpenError> {
    let (found, wanted) = (superblock.frame_count, config.frame_count);
    if found == wanted {
        return Ok(None);
    }
    if found > wanted {
        config.frame_count = found;
        let end = config.layout().total_bytes();
        let mut last = vec![0; BLOCK_BYTES as usize];
        storage
            .read(end - u64::from(BLOCK_BYTES), &mut last)
            .map_err(|error| OpenError::CutShort {
                frames: found,
                error,
            })?;
        return Ok(Some(BackupEvent::FramesKept { found, wanted }));
    }
    let layout = config.layout();
    if let Err(error) = storage.grow(layout.total_bytes()) {
        config.frame_count = found;
        return Ok(Some(BackupEvent::CannotGrow {
            found,
            wanted,
            error,
        }));
    }
    empty_frames(storage, &layout, found)?;
    Ok(Some(BackupEvent::Grown { found, wanted }))
}

/// The cluster that a storage belongs to, as far as that can be told without opening it; `None`: it is empty, or what it is shows when it is opened.
pub fn owner(storage: &mut impl Disk) -> Option<u64> {
    let any = Formats {
        oldest: 1,
        newest: u32::MAX,
    };
    match look(storage, any) {
        Ok(Found::Superblock(superblock, _)) => Some(superblock.cluster_id),
        Ok(Found::Empty) | Err(_) => None,
    }
}

fn look(storage: &mut impl Disk, known: Formats) -> Result<Found, OpenError> {
    let mut head = vec![0; HEAD_BYTES];
    storage.read(0, &mut head)?;
    if head.iter().all(|&byte| byte == 0) {
        return Ok(Found::Empty);
    }
    let mut sequences = [0; PLACES];
    let mut newest: Option<Superblock> = None;
    let blocks = head.chunks_exact(BLOCK_BYTES as usize);
    for (block, sequence) in blocks.clone().zip(&mut sequences) {
        let superblock = Superblock::decode(block)
            .filter(|superblock| (1..MAX_SEQUENCE).contains(&superblock.sequence));
        if let Some(superblock) = superblock {
            // An older one beside it would do, but for what was written since.
            if !known.reads(superblock.format) {
                let found = superblock.format;
                return Err(OpenError::UnknownFormat { found, known });
            }
            *sequence = superblock.sequence;
            if newest
                .as_ref()
                .is_none_or(|newest| newest.sequence < superblock.sequence)
            {
                newest = Some(superblock);
            }
        }
    }
    if let Some(superblock) = newest {
        return Ok(Found::Superblock(superblock, Copies::found(sequences)));
    }
    let formats: Vec<u32> = blocks.filter_map(Superblock::format_of).collect();
    match formats.iter().find(|&&format| !known.reads(format)) {
        Some(&found) => Err(OpenError::UnknownFormat { found, known }),
        None if formats.is_empty() => Err(OpenError::Foreign),
        None => Err(OpenError::Damaged),
    }
}
