//! The command line of a server.

use std::net::SocketAddrV4;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use daemon::logging::Logging;
use daemon::security::SecurityOptions;
use ports::EalOptions;
use program::locators::host_port;
use program::version;

use crate::pages::HugePages;

/// Shards of one process; their ports, those of their backups and that of HTTP must not meet.
const MAX_CORES: u16 = 64;
/// More copies of everything are hardly meant.
const MAX_REPLICAS: u8 = 16;

/// When a backup says that it has something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Durability {
    Buffered,
    Flushed,
}

/// Holds objects in memory and serves them to clients; keeps copies of other servers' objects.
///
/// A process has one shard for each core that is given to it; shard i listens for clients at the port of -L plus i, and for other
/// servers 100 further. With -r 0 objects are in memory only and are gone when the process ends.
#[derive(Parser, Debug)]
#[command(name = "server", version = version(), after_help = EXAMPLES)]
pub struct Options {
    /// Locator of the coordinator, or several separated by ';'
    #[arg(
        short = 'C',
        long = "coordinator",
        env = "RCBOX_COORDINATOR",
        value_name = "LOCATOR"
    )]
    pub(super) coordinator: String,
    /// Where to listen: one tcp locator, and fast+udp or fast+dpdk locators beside it, each with an option of its own or in a list with ';'. These may say
    /// mtu=BYTES; those of DPDK also device=NAME (of its port), prefix=BITS and gateway=ADDRESS
    #[arg(
        short = 'L',
        long = "local",
        env = "RCBOX_LISTEN",
        required = true,
        value_name = "LOCATOR"
    )]
    pub(super) local: Vec<String>,
    /// What clients are told instead of the addresses that are listened on, a list as for -L; shard i adds i to its ports
    #[arg(long, env = "RCBOX_ADVERTISE", value_name = "LOCATORS")]
    pub(super) advertise: Option<String>,
    /// Name of this place in the store; outlives processes [default: that of the certificate, else HOST:PORT that clients are told]
    #[arg(long, env = "RCBOX_MEMBER", value_name = "NAME")]
    pub(super) member: Option<String>,
    /// Tells this run of the member from others, such as a pod's uid [default: random]
    #[arg(long, env = "RCBOX_INSTANCE", value_name = "ID")]
    pub(super) instance: Option<String>,
    /// The machine; what is on one machine dies together [default: host name]
    #[arg(long = "hostId", env = "RCBOX_HOST_ID", value_name = "ID")]
    pub(super) host_id: Option<String>,
    /// Shards, each with a thread of its own
    #[arg(long, env = "RCBOX_CORES", default_value_t = 1, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_CORES)))]
    pub(super) cores: u16,
    /// Memory for log and hash tables of all shards, in MiB
    #[arg(
        short = 't',
        long = "totalMasterMemory",
        env = "RCBOX_MEMORY_MB",
        default_value_t = 500,
        value_name = "MB"
    )]
    pub(super) total_master_memory: u64,
    /// Commit that memory while the server starts, not when it is first written to
    #[arg(long = "commitAhead", env = "RCBOX_COMMIT_AHEAD", default_value_t = true, action = clap::ArgAction::Set, value_parser = clap::builder::BoolishValueParser::new(), value_name = "BOOL")]
    pub(super) commit_ahead: bool,
    /// Pages of that memory
    #[arg(long = "hugePages", env = "RCBOX_HUGE_PAGES", value_enum, default_value_t = HugePages::Transparent, ignore_case = true, value_name = "WHICH")]
    pub(super) huge_pages: HugePages,
    /// Share of that memory for the hash tables
    #[arg(long = "hashTableMemory", env = "RCBOX_HASH_TABLE_PERCENT", default_value_t = 10, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=90))]
    pub(super) hash_table_memory: u32,
    /// Copies of each object on other servers' backups; with 0, what a server holds is gone when it ends
    #[arg(
        short = 'r',
        long = "replicas",
        env = "RCBOX_REPLICAS",
        default_value_t = 0,
        value_name = "NUMBER",
        value_parser = clap::value_parser!(u8).range(0..=i64::from(MAX_REPLICAS))
    )]
    pub(super) replicas: u8,
    /// With fewer copies than this, writes wait for backups [default: one less than -r, at least 1]
    #[arg(long = "minReplicas", env = "RCBOX_MIN_REPLICAS", value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..=i64::from(MAX_REPLICAS)))]
    pub(super) min_replicas: Option<u8>,
    /// How fast each shard makes its copies again that were on a lost backup, in MB per second
    #[arg(long = "repairMBps", env = "RCBOX_REPAIR_MBPS", default_value_t = 200, value_name = "MB", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(super) repair_mb_per_second: u64,
    /// A file or block device for copies of other servers' objects; of several shards, shard i has PATH.i [default: none, they are in
    /// memory and gone when the process ends]
    #[arg(short = 'f', long = "file", env = "RCBOX_FILE", value_name = "PATH")]
    pub(super) file: Option<PathBuf>,
    /// Segments of other servers for which each shard has room, taken from the disk at once [default: a device as it is; else
    /// what a server with this -t needs, times -r plus 1]
    #[arg(long = "segmentFrames", env = "RCBOX_SEGMENT_FRAMES", value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) segment_frames: Option<u32>,
    /// Size of a segment, in MiB: 2, 4 or 8, the same in the whole store [default: as -t allows, 8 for a backup only]
    #[arg(long = "segmentMB", env = "RCBOX_SEGMENT_MB", value_name = "MB", value_parser = ["2", "4", "8"])]
    pub(super) segment_mb: Option<String>,
    /// When this server's backup says that it has a copy: once the kernel has it (survives the process), or once the disk has it
    /// (survives the loss of power; needs -f) [default: buffered]
    #[arg(long, env = "RCBOX_DURABILITY", value_name = "MODE")]
    pub(super) durability: Option<Durability>,
    /// What fails together beyond the machine, such as a chassis; copies go to different ones where there are any
    #[arg(long, env = "RCBOX_DOMAIN", default_value = "", value_name = "NAME")]
    pub(super) domain: String,
    /// Keep no copies of other servers' objects
    #[arg(short = 'M', long = "masterOnly", env = "RCBOX_MASTER_ONLY", value_parser = clap::builder::BoolishValueParser::new())]
    pub(super) master_only: bool,
    /// Keep copies of other servers' objects, and no objects
    #[arg(short = 'B', long = "backupOnly", env = "RCBOX_BACKUP_ONLY", value_parser = clap::builder::BoolishValueParser::new())]
    pub(super) backup_only: bool,
    /// How long a shard polls after its last request before it sleeps; 0 saves power, more saves wake-ups
    #[arg(
        long = "pollMicros",
        env = "RCBOX_POLL_MICROS",
        default_value_t = 100,
        value_name = "MICROSECONDS"
    )]
    pub(super) poll_micros: u64,
    /// Connections of clients to each shard at one time
    #[arg(
        long = "maxConnections",
        env = "RCBOX_MAX_CONNECTIONS",
        default_value_t = 4096,
        value_name = "NUMBER"
    )]
    pub(super) max_connections: usize,
    /// Where to listen for other servers; shard i adds i to the port [default: port of -L + 100]
    #[arg(long = "peerListen", env = "RCBOX_PEER_LISTEN", value_name = "HOST:PORT", value_parser = host_port)]
    pub(super) peer_listen: Option<SocketAddrV4>,
    /// What other servers are told instead of that; shard i adds i to its port [default: the host of --advertise]
    #[arg(
        long = "peerAdvertise",
        env = "RCBOX_PEER_ADVERTISE",
        value_name = "LOCATOR"
    )]
    pub(super) peer_advertise: Option<String>,
    /// Serve RPCs that are for tests only: KILL ends the process, FILL_WITH_TEST_DATA fills its memory
    #[arg(long = "allowTestRpcs", env = "RCBOX_ALLOW_TEST_RPCS", value_parser = clap::builder::BoolishValueParser::new())]
    pub(super) allow_test_rpcs: bool,
    /// Remember the last 65536 events of each shard, for `rcbox trace` and `clusterperf --breakdown`
    #[arg(long = "timeTrace", env = "RCBOX_TIME_TRACE", value_name = "on|off", default_value = "on", action = clap::ArgAction::Set, value_parser = clap::builder::BoolishValueParser::new())]
    pub(super) time_trace: bool,
    /// Where to serve health and metrics [default: port of -L + 300]
    #[arg(long = "httpListen", env = "RCBOX_HTTP_LISTEN", value_name = "HOST:PORT", value_parser = host_port)]
    pub(super) http_listen: Option<SocketAddrV4>,
    #[command(flatten)]
    pub(super) security: SecurityOptions,
    #[command(flatten)]
    pub(super) eal: EalOptions,
    #[command(flatten)]
    pub(super) logging: Logging,
}

const EXAMPLES: &str = "\
Examples:
  server -C tcp:host=127.0.0.1,port=11100 -L tcp:host=127.0.0.1,port=12100 -t 1000
  server -C tcp:host=10.0.0.1,port=11100 -L tcp:host=0.0.0.0,port=12100 --advertise tcp:host=10.0.0.2,port=12100 --cores 4
  server -C tcp:host=10.0.0.1,port=11100 -L tcp:host=10.0.0.2,port=12100 -r 3 -f /var/lib/rcbox/frames --durability flushed
  server -C tcp:host=10.0.0.1,port=11100 -L tcp:host=10.0.0.3,port=12100 --backupOnly -f /dev/nvme0n1
  server -C tcp:host=10.0.0.1,port=11100 -L tcp:host=10.0.0.2,port=12100 -L fast+udp:host=10.0.0.2,port=12100
  server -C tcp:host=10.0.0.1,port=11100 -L tcp:host=10.0.0.2,port=12100 -L fast+dpdk:host=192.168.101.29,port=12247 --dpdk '-a 0000:03:00.1'";

/// Options that do not go together.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum UsageError {
    #[error(
        "-M and -B: a server that is neither master nor backup does nothing; leave one of them out"
    )]
    Nothing,
    #[error(
        "-B -r {0}: a backup only has no objects to keep copies of; give -r to the masters, and leave it out here"
    )]
    ReplicasOfNothing(u8),
    #[error(
        "-B --hugePages: a backup only has no objects to keep in reserved pages; leave one of them out"
    )]
    PagesForNothing,
    #[error("--minReplicas {0} without -r: say with -r how many copies there shall be")]
    MinWithoutReplicas(u8),
    #[error(
        "-r {replicas} --minReplicas {min}: with {replicas} copies there are never {min}; give at most {replicas}"
    )]
    MinAboveReplicas { replicas: u8, min: u8 },
    #[error("-M {0}: {0} is for backups, and a master only has none; leave one of them out")]
    OfBackups(&'static str),
    #[error(
        "--durability flushed without -f: memory survives no loss of power; give a file or block device with -f"
    )]
    FlushedMemory,
}

/// What the command line parser cannot check; a wrong use, not a failure.
pub fn check(options: &Options) -> Result<(), UsageError> {
    let (replicas, min) = (options.replicas, options.min_replicas);
    if options.master_only && options.backup_only {
        return Err(UsageError::Nothing);
    }
    if options.backup_only && replicas > 0 {
        return Err(UsageError::ReplicasOfNothing(replicas));
    }
    if options.backup_only && options.huge_pages.are_reserved() {
        return Err(UsageError::PagesForNothing);
    }
    match min {
        Some(min) if replicas == 0 => return Err(UsageError::MinWithoutReplicas(min)),
        Some(min) if min > replicas => {
            return Err(UsageError::MinAboveReplicas { replicas, min });
        }
        _ => {}
    }
    if options.master_only {
        return check_master_only(options);
    }
    if options.durability == Some(Durability::Flushed) && options.file.is_none() {
        return Err(UsageError::FlushedMemory);
    }
    Ok(())
}

fn check_master_only(options: &Options) -> Result<(), UsageError> {
    let of_backups = [
        ("-f", options.file.is_some()),
        ("--segmentFrames", options.segment_frames.is_some()),
        ("--durability", options.durability.is_some()),
    ];
    match of_backups.into_iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => Err(UsageError::OfBackups(option)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(arguments: &[&str]) -> Result<(), UsageError> {
        let local = "tcp:host=127.0.0.1,port=1";
        let always = ["server", "-C", local, "-L", local];
        let all = always.iter().chain(arguments);
        check(&Options::try_parse_from(all).expect("known options"))
    }

    #[test]
    fn what_does_not_go_together_is_refused_with_a_way_out() {
        for (arguments, text) in [
            (&["-M", "-B"][..], "leave one of them out"),
            (&["-B", "-r", "1"], "give -r to the masters"),
            (&["-r", "3", "--minReplicas", "4"], "give at most 3"),
            (&["--minReplicas", "1"], "say with -r"),
            (&["-M", "-f", "x"], "-f is for backups"),
            (&["-M", "-r", "2", "--durability", "flushed"], "for backups"),
            (&["-r", "2", "--durability", "flushed"], "with -f"),
            (&["-B", "--hugePages", "reserved"], "leave one of them out"),
        ] {
            let error = checked(arguments).expect_err("refused").to_string();
            assert!(error.contains(text), "{arguments:?}: {error}");
        }
    }

    #[test]
    fn what_goes_together_is_taken() {
        for arguments in [
            &["-r", "3"][..],
            &["-r", "3", "--minReplicas", "3"],
            &["-M", "-r", "2"],
            &["-B", "-f", "x", "--durability", "flushed"],
            &["-r", "0", "-f", "x"],
            &["-M"],
            &["-M", "--peerListen", "127.0.0.1:9"],
            &["--hugePages", "Reserved1G"],
            &["-B", "--hugePages", "off"],
        ] {
            assert_eq!(checked(arguments), Ok(()), "{arguments:?}");
        }
    }
}
