//! What a command line comes to: sizes of a shard's master and backup.

use std::path::PathBuf;

use backup::Durability;
use master::{Config, Replication};
use server::BackupConfig;

use super::options::{self, Options};
use super::storage::Place;

/// A master that has no tablets, beside a backup only.
const IDLE_MASTER_BYTES: usize = 24 << 20;
/// Where nothing else says how large segments are: as large as they get.
const LARGEST_SEGMENT_BYTES: u32 = 8 << 20;
/// Pieces in which copies travel that nobody waits for: about as long as a small request may wait behind one, at 1 Gbit/s a millisecond.
const COPY_BYTES: u32 = 128 << 10;

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
    pub fn new(options: &Options) -> Result<Settings, String> {
        let asked = options.segment_mb.as_ref();
        let segment_bytes = asked
            .map(|text| text.parse::<u32>().map(|mb| mb << 20))
            .transpose()
            .map_err(|error| format!("--segmentMB: {error}"))?;
        let mut master = master(options, segment_bytes)?;
        master.allow_test_rpcs = options.allow_test_rpcs;
        master.formats = crate::FORMATS;
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
        log.check().map_err(|error| {
            format!(
                "-t {} --cores {}: {error}",
                options.total_master_memory, options.cores
            )
        })?;
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
    pub fn buffer_bytes(&self) -> usize {
        const LEAST_BYTES: usize = 32 << 20;
        const SHARE: usize = 16;
        /// What is under way to a backup, or comes from a master: 4 MiB and the longest append.
        const PEER_BYTES: usize = 8 << 20;
        const MASTERS_AT_ONCE: usize = 8;
        let memory = self.master.log_bytes + self.master.hash_table_bytes;
        let replicas = self.master.replication.map_or(0, |wanted| wanted.replicas);
        let to_backups = usize::from(replicas) * PEER_BYTES;
        let from_masters = match self.backup {
            Some(_) => MASTERS_AT_ONCE * PEER_BYTES,
            None => 0,
        };
        (memory / SHARE).max(LEAST_BYTES) + to_backups + from_masters
    }
}

/// A store without copies needs no backups; whoever gives room for some has them all the same.
fn has_backup(options: &Options) -> bool {
    let is_wanted = options.replicas > 0 || options.backup_only;
    let has_room = options.file.is_some() || options.segment_frames.is_some();
    !options.master_only && (is_wanted || has_room)
}

fn master(options: &Options, segment_bytes: Option<u32>) -> Result<Config, String> {
    let given = options.total_master_memory;
    let memory = usize::try_from(given.saturating_mul(1 << 20))
        .map_err(|_| format!("-t {given}: more than this machine can address"))?;
    let of_shard = match options.backup_only {
        true => IDLE_MASTER_BYTES,
        false => memory / usize::from(options.cores),
    };
    let hash_table_percent = match options.backup_only {
        true => 10,
        false => options.hash_table_memory,
    };
    let mut config = Config::from_memory(of_shard, hash_table_percent)
        .map_err(|error| format!("-t {given} --cores {}: {error}", options.cores))?;
    if let Some(segment_bytes) = segment_bytes.filter(|_| !options.backup_only) {
        config.segment_bytes = segment_bytes;
    }
    Ok(config)
}

impl BackupSettings {
    /// How many frames the backup has.
    pub fn frame_count(&self, place: Option<&Place>) -> Result<u32, String> {
        let on_device = place.and_then(|place| place.frames(self.segment_bytes));
        if let (Some(room), None, Some(needed)) = (on_device, self.frames, self.frames_needed)
            && room < needed
        {
            tracing::warn!(
                "the device has room for {room} segments; with all memory in use, servers like this one need {needed}"
            );
        }
        let count = self.frames.or(on_device).or(self.frames_needed);
        count.ok_or_else(|| {
            "-B: say with --segmentFrames for how many segments of other servers there shall be room"
                .to_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn settings(arguments: &[&str]) -> Result<Settings, String> {
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
    fn a_backup_fits_logs_of_servers_like_its_own() {
        let settings = settings(&["-r", "3", "-t", "500"]).expect("sound");
        let log = settings.master.log();
        assert_eq!(log.durability, master::Durability::External);
        let replication = settings.master.replication.expect("replicas");
        assert_eq!((replication.replicas, replication.min_replicas), (3, 2));
        let backup = settings.backup.expect("a backup");
        assert_eq!(backup.segment_bytes, log.segment_bytes);
        assert_eq!(backup.frame_count(None), Ok(6 * log.max_frames()));
        assert!(log.max_frames() > log.segment_count);
    }

    #[test]
    fn a_backup_only_takes_the_largest_segments_and_is_told_how_many() {
        let of = |arguments| settings(arguments).expect("sound");
        let backup = of(&["-B"]).backup.expect("a backup");
        assert_eq!(backup.segment_bytes, 8 << 20);
        assert!(
            backup
                .frame_count(None)
                .unwrap_err()
                .contains("--segmentFrames")
        );
        let backup = of(&["-B", "--segmentFrames", "7", "--segmentMB", "2"]).backup;
        let backup = backup.expect("a backup");
        assert_eq!(
            (backup.segment_bytes, backup.frame_count(None)),
            (2 << 20, Ok(7))
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
