//! What a command line comes to: sizes of a shard's master and backup.

use std::num::ParseIntError;
use std::path::PathBuf;

use backup::Durability;
use master::{Config, Replication};
use server::BackupConfig;

use super::options::{self, Options};
use super::storage::BackupFile;

/// A master that has no tablets, beside a backup only.
const IDLE_MASTER_BYTES: usize = 24 << 20;
/// Where nothing else says how large segments are: as large as they get.
const LARGEST_SEGMENT_BYTES: u32 = 8 << 20;
/// Pieces in which copies travel that nobody waits for: about as long as a small request may wait behind one, at 1 Gbit/s a millisecond.
const COPY_BYTES: u32 = 128 << 10;

/// Sizes that do not go together; the text says what to change.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("--segmentMB: {0}")]
    SegmentMb(#[from] ParseIntError),
    #[error("-t {0}: more than this machine can address")]
    Unaddressable(u64),
    #[error("-t {total_mb} --cores {cores}: {text}")]
    Memory {
        total_mb: u64,
        cores: u16,
        text: String,
    },
    #[error(
        "-B: say with --segmentFrames for how many segments of other servers there shall be room"
    )]
    NoFrames,
}

/// For each shard of a process.
pub struct Settings {
    pub master: Config,
    pub backup: Option<BackupSettings>,
    pub backup_only: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupSettings {
    pub segment_bytes: u32,
    /// As many frames as somebody asked for.
    pub frames: Option<u32>,
    /// As many as a store of servers like this one fills, at most; not known of a backup only.
    pub frames_needed: Option<u32>,
    pub durability: Durability,
    /// `None`: memory.
    pub file: Option<PathBuf>,
}

impl Settings {
    /// # Errors
    /// Some sizes do not go together; the text says what to change.
    pub fn new(options: &Options) -> Result<Settings, SettingsError> {
        let asked = options.segment_mb.as_ref();
        let segment_bytes = asked
            .map(|text| text.parse::<u32>().map(|mb| mb << 20))
            .transpose()?;
        let mut master = master(options, segment_bytes)?;
        master.allow_test_rpcs = options.allow_test_rpcs;
        master.formats = program::formats();
        if options.replicas > 0 {
            let replicas = options.replicas;
            let min_replicas = options.min_replicas.unwrap_or((replicas - 1).max(1));
            master.durability = master::Durability::External;
            master.replication = Some(Replication {
                replicas,
                min_replicas,
                copy_bytes: COPY_BYTES,
                repair_bytes_per_second: options.repair_mb_per_second * 1_000_000,
            });
        }
        let log = master.log();
        log.check().map_err(|error| of_memory(options, error))?;
        let of_masters = (!options.backup_only).then(|| BackupConfig::frames_needed(&master));
        let segment_bytes = match options.backup_only {
            true => segment_bytes.unwrap_or(LARGEST_SEGMENT_BYTES),
            false => master.segment_bytes,
        };
        let backup = has_backup(options).then(|| BackupSettings {
            segment_bytes,
            frames: options.segment_frames,
            frames_needed: of_masters,
            durability: match options.durability {
                Some(options::Durability::Flushed) => Durability::Flushed,
                Some(options::Durability::Buffered) | None => Durability::Buffered,
            },
            file: options.file.clone(),
        });
        Ok(Settings {
            master,
            backup,
            backup_only: options.backup_only,
        })
    }

    /// Memory for the buffers of one shard's connections, on top of that for objects: a part of it, and at least what a few of the
    /// largest requests take; and what goes to backups and comes from masters.
    fn wanted_buffers(&self) -> Buffers {
        const LEAST_BYTES: usize = 32 << 20;
        const SHARE: usize = 16;
        /// What the coordinator tells in one message, and a piece of a migration.
        const OWN_BYTES: usize = 16 << 20;
        /// What is under way to a backup, or comes from a master: 4 MiB and the longest append.
        const PEER_BYTES: usize = 8 << 20;
        /// With as much under way as can be; sixteen, with one of the longest appends each.
        const MASTERS_AT_ONCE: usize = 4;
        let replicas = self.master.replication.map_or(0, |wanted| wanted.replicas);
        let to_backups = usize::from(replicas) * PEER_BYTES;
        let from_masters = match self.backup {
            Some(_) => MASTERS_AT_ONCE * PEER_BYTES,
            None => 0,
        };
        Buffers {
            clients: (self.memory_bytes() / SHARE).max(LEAST_BYTES),
            peers: (to_backups + from_masters).max(OWN_BYTES),
        }
    }

    /// Bytes of one shard's log and hash table.
    fn memory_bytes(&self) -> usize {
        self.master.log_bytes + self.master.hash_table_bytes
    }

    /// Buffers for each of so many shards of a process that may use `container_bytes` in all, `apart_bytes` of them for anything else than
    /// buffers.
    pub fn buffers(
        &self,
        container_bytes: Option<usize>,
        apart_bytes: usize,
        cores: u16,
    ) -> Buffers {
        let wanted = self.wanted_buffers();
        let Some(container_bytes) = container_bytes else {
            return wanted;
        };
        let room = container_bytes.saturating_sub(apart_bytes) / usize::from(cores);
        let fitting = wanted.within(room);
        let text = format!(
            "this process may use {} MiB of memory; with {} MiB for everything else, {} MiB are left for the buffers of each shard's connections, \
             where {} MiB are usual",
            container_bytes >> 20,
            apart_bytes >> 20,
            fitting.total() >> 20,
            wanted.total() >> 20
        );
        if fitting.total() < wanted.total() / 2 {
            tracing::warn!("{text}: raise the limit, or give a smaller -t");
        } else if fitting != wanted {
            tracing::info!("{text}");
        }
        fitting
    }

    /// What a process of so many shards holds in ordinary memory beside buffers.
    pub fn apart_bytes(&self, reserved: bool, cores: u16) -> usize {
        /// The program, its threads, and what is being answered.
        const PROCESS_BYTES: usize = 16 << 20;
        self.shard_bytes(reserved) * usize::from(cores) + PROCESS_BYTES
    }

    /// What each shard holds in ordinary memory beside buffers: its log and hash table, unless these are in `reserved` pages, and copies that
    /// are kept in memory.
    fn shard_bytes(&self, reserved: bool) -> usize {
        let objects = if reserved { 0 } else { self.memory_bytes() };
        let frames = self.backup.as_ref().filter(|backup| backup.file.is_none());
        let copies = frames.map_or(0, |backup| {
            let count = backup.frames.or(backup.frames_needed).unwrap_or(0);
            count as usize * backup.segment_bytes as usize
        });
        objects + copies
    }
}

/// Memory for the buffers of one shard's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    pub clients: usize,
    pub peers: usize,
}

impl Buffers {
    fn total(self) -> usize {
        self.clients + self.peers
    }

    /// As much of both as fits into `room`, in proportion; but what one of the largest messages takes, always.
    fn within(self, room: usize) -> Buffers {
        const LEAST_BYTES: usize = 9 << 20;
        if self.total() <= room {
            return self;
        }
        let part = |bytes: usize| (bytes as u128 * room as u128 / self.total() as u128) as usize;
        // Whichever part would be too small gets the least, and the other what is left.
        let (clients, peers) = (part(self.clients), part(self.peers));
        if peers < LEAST_BYTES {
            return Buffers {
                clients: room.saturating_sub(LEAST_BYTES).max(LEAST_BYTES),
                peers: LEAST_BYTES,
            };
        }
        Buffers {
            clients: clients.max(LEAST_BYTES),
            peers: peers.min(room.saturating_sub(LEAST_BYTES)).max(LEAST_BYTES),
        }
    }
}

/// A store without copies needs no backups; whoever gives room for some has them all the same.
fn has_backup(options: &Options) -> bool {
    let is_wanted = options.replicas > 0 || options.backup_only;
    let has_room = options.file.is_some() || options.segment_frames.is_some();
    !options.master_only && (is_wanted || has_room)
}

fn of_memory(options: &Options, error: impl ToString) -> SettingsError {
    SettingsError::Memory {
        total_mb: options.total_master_memory,
        cores: options.cores,
        text: error.to_string(),
    }
}

fn master(options: &Options, segment_bytes: Option<u32>) -> Result<Config, SettingsError> {
    let given = options.total_master_memory;
    let memory = usize::try_from(given.saturating_mul(1 << 20))
        .map_err(|_| SettingsError::Unaddressable(given))?;
    let of_shard = match options.backup_only {
        true => IDLE_MASTER_BYTES,
        false => memory / usize::from(options.cores),
    };
    let hash_table_percent = match options.backup_only {
        true => 10,
        false => options.hash_table_memory,
    };
    let mut config = Config::from_memory(of_shard, hash_table_percent)
        .map_err(|error| of_memory(options, error))?;
    if let Some(segment_bytes) = segment_bytes.filter(|_| !options.backup_only) {
        config.segment_bytes = segment_bytes;
    }
    Ok(config)
}

impl BackupSettings {
    /// How many frames the backup has.
    pub fn frame_count(&self, place: Option<&BackupFile>) -> Result<u32, SettingsError> {
        let on_device = place.and_then(|place| place.frames(self.segment_bytes));
        if let (Some(room), None, Some(needed)) = (on_device, self.frames, self.frames_needed)
            && room < needed
        {
            tracing::warn!(
                "the device has room for {room} segments; with all memory in use, servers like this one need {needed}"
            );
        }
        let count = self.frames.or(on_device).or(self.frames_needed);
        count.ok_or(SettingsError::NoFrames)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn settings(arguments: &[&str]) -> Result<Settings, SettingsError> {
        let local = "tcp:host=127.0.0.1,port=1";
        let always = ["server", "-C", local, "-L", local];
        let all = always.iter().chain(arguments);
        Settings::new(&Options::try_parse_from(all).expect("known options"))
    }

    #[test]
    fn a_server_without_replicas_has_no_backup_unless_there_is_room_for_one() {
        let backup_of = |arguments: &[&str]| settings(arguments).expect("sound").backup;
        assert_eq!(backup_of(&[]), None);
        assert_eq!(backup_of(&["-r", "2", "-M"]), None);
        assert!(backup_of(&["-f", "x"]).is_some());
        assert!(backup_of(&["--segmentFrames", "9"]).is_some());
        assert_eq!(backup_of(&["-r", "1"]).and_then(|backup| backup.file), None);
    }

    #[test]
    fn buffers_fit_into_the_container() {
        for (arguments, container) in [
            (&["-t", "160"][..], 256 << 20),
            (&["-t", "112", "-r", "2", "-f", "x"], 256 << 20),
            (&["-t", "160"], 200 << 20),
            (&["-t", "500"], 256 << 20),
        ] {
            let settings = settings(arguments).expect("sound");
            let apart = settings.apart_bytes(false, 1);
            let buffers = settings.buffers(Some(container), apart, 1);
            let least = 2 * (9 << 20);
            assert!(
                apart + buffers.total() <= container.max(apart + least),
                "{arguments:?} in {} MiB: {buffers:?}",
                container >> 20
            );
            assert!(buffers.clients >= 9 << 20 && buffers.peers >= 9 << 20);
            assert_eq!(settings.buffers(None, apart, 1), settings.wanted_buffers());
        }
    }

    /// What the operator leaves to the server.
    #[cfg(feature = "dpdk")]
    fn usual_packets_mb() -> usize {
        ports::EalOptions::default().memory_mb as usize
    }

    /// The operator starts servers with as much as is in these lines, and leaves them what they need besides: a test of it reads the same lines.
    #[test]
    fn all_buffers_fit_where_the_operator_starts_servers() {
        /// For the allocator, stacks, and the kernel's share.
        const SPARE_BYTES: usize = 16 << 20;
        let lines = include_str!("../../../testdata/masters-memory.txt").lines();
        let mut count = 0;
        for line in lines.filter(|line| !line.starts_with('#')) {
            count += 1;
            let words: Vec<&str> = line.split_whitespace().collect();
            let numbers: Vec<usize> = words.iter().filter_map(|word| word.parse().ok()).collect();
            let [container, cores, copies, packets, _] = numbers[..] else {
                panic!("{line}");
            };
            #[cfg(feature = "dpdk")]
            assert!([0, usual_packets_mb()].contains(&packets), "{line}");
            let mut arguments = vec!["-t", words[4], "--cores", words[1]];
            if copies > 0 {
                arguments.extend(["-r", words[2], "-f", "x"]);
            }
            let settings = settings(&arguments).expect("sound");
            let wanted = settings.wanted_buffers();
            let apart = settings.apart_bytes(false, cores as u16) + (packets << 20);
            let buffers = settings.buffers(Some(container << 20), apart, cores as u16);
            assert_eq!(buffers, wanted, "{line}: less than usual");
            let all = apart + cores * wanted.total();
            assert!(
                all + SPARE_BYTES <= container << 20,
                "{line}: {} MiB",
                all >> 20
            );
        }
        assert!(count > 20, "{count}");
    }

    #[test]
    fn a_backup_fits_logs_of_servers_like_its_own() {
        let settings = settings(&["-r", "3", "-t", "500"]).expect("sound");
        let log = settings.master.log();
        assert_eq!(log.durability, master::Durability::External);
        let replication = settings.master.replication.expect("replicas");
        assert_eq!((replication.replicas, replication.min_replicas), (3, 2));
        let backup = settings.backup.expect("a backup");
        assert_eq!(backup.segment_bytes, log.segment_bytes);
        assert_eq!(backup.frame_count(None).unwrap(), 6 * log.max_frames());
        assert!(log.max_frames() > log.segment_count);
    }

    #[test]
    fn a_backup_only_takes_the_largest_segments_and_is_told_how_many() {
        let of = |arguments| settings(arguments).expect("sound");
        let backup = of(&["-B"]).backup.expect("a backup");
        assert_eq!(backup.segment_bytes, 8 << 20);
        let unknown = backup.frame_count(None);
        assert!(matches!(unknown, Err(SettingsError::NoFrames)));
        let backup = of(&["-B", "--segmentFrames", "7", "--segmentMB", "2"]).backup;
        let backup = backup.expect("a backup");
        assert_eq!(
            (backup.segment_bytes, backup.frame_count(None).unwrap()),
            (2 << 20, 7)
        );
        assert!(
            of(&["-B"]).master.log_bytes < 32 << 20,
            "no objects are kept"
        );
    }

    #[test]
    fn segments_that_are_too_large_for_the_memory_are_refused() {
        let Err(error) = settings(&["-t", "64", "--segmentMB", "8"]) else {
            panic!("8 MiB in 64");
        };
        let error = error.to_string();
        assert!(
            error.contains("-t 64") && error.contains("smaller segments"),
            "{error}"
        );
        let one = settings(&["-r", "1"]).expect("sound").master.replication;
        assert_eq!(one.map(|wanted| wanted.min_replicas), Some(1));
    }

    /// The operator asks for so many reserved pages; it does not know segments and tables.
    #[test]
    fn log_and_hash_table_fit_into_all_but_a_64th_of_the_memory() {
        for (memory, cores, percent) in [
            (64, 1, 10),
            (511, 1, 10),
            (1003, 3, 10),
            (15_280, 1, 90),
            (60_000, 64, 1),
        ] {
            let [t, n, share] = [memory, cores, percent].map(|number: u64| number.to_string());
            let arguments = ["-t", &t, "--cores", &n, "--hashTableMemory", &share];
            let master = settings(&arguments).expect("sound").master;
            let of_shard = master.log().memory_bytes() + master.hash_table_words() * 8;
            let room = (memory - memory / 64 + 1) << 20;
            assert!(
                cores * of_shard as u64 <= room,
                "-t {memory} --cores {cores}"
            );
        }
    }
}
