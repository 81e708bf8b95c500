//! The `server` program: one thread per shard, HTTP on another.

mod driver;
mod probe;
mod session;

use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use master::{Config, Identity, Shard};
use net::{Limits, Options as ReactorOptions, Protocol, Reactor};

use crate::locators::{
    HTTP_PORT_OFFSET, advertised, beside, coordinators, host_port, listen_address, offset_port,
};
use crate::logging::Logging;
use crate::mailbox::Mailbox;
use crate::memory::{commit_ahead, give_back_at_once};
use crate::random::random_u64;
use crate::runtime::{Loop, raise_file_limit, run_until_signal, tokio_runtime};
use crate::{VERSION, http};

/// Shards of one process; their ports and those of HTTP must not meet.
const MAX_CORES: u16 = 64;

/// Holds objects in memory and serves them to clients.
///
/// A process has one shard for each core that is given to it; shard i listens at the port of -L plus i. Objects are in
/// memory only and are gone when the process ends.
#[derive(Parser, Debug)]
#[command(name = "server", version = VERSION, after_help = EXAMPLES)]
pub struct Options {
    /// Locator of the coordinator, or several separated by ';'
    #[arg(
        short = 'C',
        long = "coordinator",
        env = "RCBOX_COORDINATOR",
        value_name = "LOCATOR"
    )]
    coordinator: String,
    /// Where to listen for clients
    #[arg(
        short = 'L',
        long = "local",
        env = "RCBOX_LISTEN",
        value_name = "LOCATOR"
    )]
    local: String,
    /// What clients are told instead of the address that is listened on; shard i adds i to its port
    #[arg(long, env = "RCBOX_ADVERTISE", value_name = "LOCATOR")]
    advertise: Option<String>,
    /// Name of this place in the store; outlives processes [default: HOST:PORT that clients are told]
    #[arg(long, env = "RCBOX_MEMBER", value_name = "NAME")]
    member: Option<String>,
    /// Tells this run of the member from others, such as a pod's uid [default: random]
    #[arg(long, env = "RCBOX_INSTANCE", value_name = "ID")]
    instance: Option<String>,
    /// The machine; what is on one machine dies together [default: host name]
    #[arg(long = "hostId", env = "RCBOX_HOST_ID", value_name = "ID")]
    host_id: Option<String>,
    /// Shards, each with a thread of its own
    #[arg(long, env = "RCBOX_CORES", default_value_t = 1, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_CORES)))]
    cores: u16,
    /// Memory for log and hash tables of all shards, in MiB
    #[arg(
        short = 't',
        long = "totalMasterMemory",
        env = "RCBOX_MEMORY_MB",
        default_value_t = 500,
        value_name = "MB"
    )]
    total_master_memory: u64,
    /// Commit that memory while the server starts, not when it is first written to
    #[arg(long = "commitAhead", env = "RCBOX_COMMIT_AHEAD", default_value_t = true, action = clap::ArgAction::Set, value_parser = clap::builder::BoolishValueParser::new(), value_name = "BOOL")]
    commit_ahead: bool,
    /// Share of that memory for the hash tables
    #[arg(long = "hashTableMemory", env = "RCBOX_HASH_TABLE_PERCENT", default_value_t = 10, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=90))]
    hash_table_memory: u32,
    /// Copies of each object on other servers; this version has none
    #[arg(
        short = 'r',
        long = "replicas",
        env = "RCBOX_REPLICAS",
        default_value_t = 0,
        value_name = "NUMBER"
    )]
    replicas: u32,
    /// Accepted for RAMCloud's command lines: this version has no backups, every server is a master only
    #[arg(short = 'M', long = "masterOnly")]
    master_only: bool,
    /// How long a shard polls after its last request before it sleeps; 0 saves power, more saves wake-ups
    #[arg(
        long = "pollMicros",
        env = "RCBOX_POLL_MICROS",
        default_value_t = 100,
        value_name = "MICROSECONDS"
    )]
    poll_micros: u64,
    /// Connections of clients to each shard at one time
    #[arg(
        long = "maxConnections",
        env = "RCBOX_MAX_CONNECTIONS",
        default_value_t = 4096,
        value_name = "NUMBER"
    )]
    max_connections: usize,
    /// Serve RPCs that are for tests only: KILL ends the process, FILL_WITH_TEST_DATA fills its memory
    #[arg(long = "allowTestRpcs", env = "RCBOX_ALLOW_TEST_RPCS", value_parser = clap::builder::BoolishValueParser::new())]
    allow_test_rpcs: bool,
    /// Where to serve health and metrics [default: port of -L + 300]
    #[arg(long = "httpListen", env = "RCBOX_HTTP_LISTEN", value_name = "HOST:PORT", value_parser = host_port)]
    http_listen: Option<SocketAddrV4>,
    #[command(flatten)]
    logging: Logging,
}

const EXAMPLES: &str = "\
Examples:
  server -C tcp:host=127.0.0.1,port=11100 -L tcp:host=127.0.0.1,port=12100 -t 1000
  server -C tcp:host=10.0.0.1,port=11100 -L tcp:host=0.0.0.0,port=12100 --advertise tcp:host=10.0.0.2,port=12100 --cores 4";

/// What the command line parser cannot check; a wrong use, not a failure.
pub fn check(options: &Options) -> Result<(), String> {
    if options.replicas != 0 {
        return Err(format!(
            "-r {}: this version keeps no copies of objects on other servers; use -r 0 and count on losing what a server \
             holds when it ends",
            options.replicas
        ));
    }
    Ok(())
}

/// Runs until a signal ends it.
pub fn run(options: &Options) -> Result<(), String> {
    options.logging.start();
    raise_file_limit();
    give_back_at_once();
    let coordinators = coordinators(&options.coordinator)?
        .into_iter()
        .map(|one| one.member)
        .collect::<Vec<_>>();
    let base = listen_address(&options.local)?;
    let memory =
        usize::try_from(options.total_master_memory.saturating_mul(1 << 20)).map_err(|_| {
            format!(
                "-t {}: more than this machine can address",
                options.total_master_memory
            )
        })?;
    let mut config = Config::from_memory(
        memory / usize::from(options.cores),
        options.hash_table_memory,
    )
    .map_err(|error| {
        format!(
            "-t {} --cores {}: {error}",
            options.total_master_memory, options.cores
        )
    })?;
    config.allow_test_rpcs = options.allow_test_rpcs;
    let process = Process::new(options)?;

    let mut loops = Vec::new();
    let mut memory_ranges = Vec::new();
    let mut probe = probe::Probe::default();
    for index in 0..options.cores {
        let mut reactor = reactor(options)?;
        let address = SocketAddrV4::new(*base.ip(), offset_port(base.port(), index)?);
        let (_, bound) = reactor
            .listen(address, Protocol::Rpc)
            .map_err(|error| format!("cannot listen at {address} for clients: {error}"))?;
        let locator = advertised(options.advertise.as_deref(), bound, index)?;
        let identity = process.identity(options, &locator, index, probe.first_locator());
        tracing::info!(shard = index, %locator, listening = %bound, member = identity.member, "serving");
        let shard = Shard::new(config, identity, net::now());
        memory_ranges.extend(shard.memory());
        let (mailbox, inbox) = Mailbox::new(reactor.remote());
        let state = probe.add(locator, mailbox);
        let session = session::Session::new(coordinators.clone(), random_u64()?);
        let driver = driver::Driver::new(shard, session, inbox, state);
        loops.push(Loop::spawn(format!("shard-{index}"), reactor, driver)?);
    }
    if options.commit_ahead {
        commit_ahead(memory_ranges)?;
    }
    tokio_runtime()?.block_on(async {
        let http = http::bind(beside(options.http_listen, base, HTTP_PORT_OFFSET)?).await?;
        let address = http.local_addr().map_err(|error| error.to_string())?;
        tracing::info!(http = %address, "serving health and metrics");
        run_until_signal(loops, |stop| {
            http::serve(http, Arc::new(probe), stop.wait())
        })
        .await
    })
}

/// Memory for the buffers of one shard's connections, on top of --totalMasterMemory: a part of that, and at least what a few
/// of the largest requests take.
fn buffer_bytes(options: &Options) -> usize {
    const LEAST_BYTES: u64 = 32 << 20;
    const SHARE: u64 = 16;
    let shard_bytes =
        options.total_master_memory.saturating_mul(1 << 20) / u64::from(options.cores.max(1));
    usize::try_from((shard_bytes / SHARE).max(LEAST_BYTES)).unwrap_or(usize::MAX)
}

fn reactor(options: &Options) -> Result<Reactor, String> {
    Reactor::new(ReactorOptions {
        spin: Duration::from_micros(options.poll_micros),
        limits: Limits {
            connections: options.max_connections,
            buffer_bytes: buffer_bytes(options),
            ..Limits::default()
        },
    })
    .map_err(|error| format!("cannot poll: {error}"))
}

/// What all shards of this process have in common.
struct Process {
    process: u64,
    instance: String,
    host_id: String,
}

impl Process {
    fn new(options: &Options) -> Result<Process, String> {
        let process = random_u64()?;
        let host_name = || {
            rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned()
        };
        Ok(Process {
            process,
            instance: options
                .instance
                .clone()
                .unwrap_or_else(|| format!("{process:016x}")),
            host_id: options.host_id.clone().unwrap_or_else(host_name),
        })
    }

    /// Of the shard with this index, which clients reach at `locator`; `first` is the locator of shard 0, if this is not it.
    fn identity(
        &self,
        options: &Options,
        locator: &str,
        index: u16,
        first: Option<&str>,
    ) -> Identity {
        let member = options.member.clone().unwrap_or_else(|| {
            // tcp:host=H,port=P, as `advertised` writes it.
            let named = first.unwrap_or(locator).replace("tcp:host=", "");
            named.replace(",port=", ":")
        });
        Identity {
            member,
            instance: self.instance.clone(),
            process: self.process,
            host_id: self.host_id.clone(),
            shard_index: u32::from(index),
            shard_count: u32::from(options.cores),
            locator: locator.to_owned(),
            coordinator: options.coordinator.clone(),
            build_version: VERSION.to_owned(),
            backup_locator: String::new(),
            domain: String::new(),
        }
    }
}
