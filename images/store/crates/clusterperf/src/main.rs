//! The `clusterperf` program: RAMCloud's benchmark of the same name. docs/clusterperf.md says what each test measures.

mod basic;
mod breakdown;
mod clients;
mod compare;
mod data;
mod error;
mod latency;
mod meeting;
mod ping;
mod pipelined;
mod plot;
mod report;
mod samples;
mod serve;
mod together;

use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use client::{Cluster, Error};
use ports::EalOptions;
use program::locators::host_port;
use program::version;

use self::breakdown::Parts;
use self::data::{WORKLOADS, Workload};
use self::report::Results;
use self::together::Load;
use clients::Lanes;
use error::{PerfError, UsageError};

/// Measures a store: RAMCloud's ClusterPerf, with the names that its results have there.
///
/// Tests of one client:
///   basic                   random reads and writes of 100 B to 1 MB
///   readDist, readDistRandom, writeDistRandom
///                           distribution of latencies: of one object, of random ones
///   readNotFound            reads of a key that nobody has
///   readVaryingKeyLength, writeVaryingKeyLength
///                           keys of 4 B to 60 KB
///   multiRead_oneMaster, multiWrite_oneMaster, multiRead_general
///                           batches of 1 to 500 objects, of one server or of --numTables tables
///   echo_basic              bytes there and back, without the store
/// Tests of several clients (--numClients):
///   readThroughput, writeThroughput, multiReadThroughput, workloadThroughput
///                           one server's throughput with 1 to all clients
///   netBandwidth            the same with reads of 1 MB
///   broadcast               how long it takes until all others know
///   readInterference, writeInterference
///                           small operations beside large ones
/// Without a store:
///   ping                    a datagram there and back, over DPDK or the kernel: "clusterperf ping --help"
#[derive(Parser, Clone, Debug)]
#[command(name = "clusterperf", version = version(), after_help = EXAMPLES, verbatim_doc_comment)]
struct Options {
    /// Locator of the coordinator, or several separated by ';'
    #[arg(
        short = 'C',
        long = "coordinator",
        env = "RCBOX_COORDINATOR",
        value_name = "LOCATOR"
    )]
    coordinator: String,
    /// Where this program has ports for datagrams, as for a server; client i adds i to the UDP port, 0 is any. Without it servers that offer fast+udp are reached
    /// so from any port
    #[arg(short = 'L', long = "local", value_name = "LOCATOR")]
    local: Vec<String>,
    /// Reach servers over TCP, whatever else they offer
    #[arg(long = "tcp", conflicts_with = "local")]
    tcp: bool,
    #[command(flatten)]
    eal: EalOptions,
    /// Operations that each client of readThroughput and writeThroughput has under way at a time
    #[arg(long, default_value_t = 1, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=4096))]
    outstanding: u32,
    /// Clients that measure together
    #[arg(long = "numClients", default_value_t = 1, value_name = "NUMBER")]
    num_clients: u32,
    /// Which of them this process is; without it, all run in this process, each in a thread
    #[arg(long = "clientIndex", value_name = "INDEX")]
    client_index: Option<u32>,
    /// Size of objects in bytes [default: 100; for `basic` 100 to 1000000]
    #[arg(short = 's', long, value_name = "BYTES")]
    size: Option<usize>,
    /// Operations of each kind to measure, instead of --seconds; basic and tests with 1 to all clients go by time
    #[arg(short = 'c', long, value_name = "NUMBER")]
    count: Option<u64>,
    /// Objects that operations are drawn from
    #[arg(long = "numObjects", default_value_t = 100_000, value_name = "NUMBER")]
    num_objects: u32,
    /// Tables of `multiRead_general`
    #[arg(long = "numTables", default_value_t = 10, value_name = "NUMBER")]
    num_tables: u32,
    /// Objects in each multi-op [default: 1 to 500; 20 for multiReadThroughput]
    #[arg(long = "batch", value_name = "NUMBER")]
    batch: Option<usize>,
    /// Operations before the measurement starts; none in basic and tests with 1 to all clients
    #[arg(long, default_value_t = 100, value_name = "NUMBER")]
    warmup: u64,
    /// What the clients of workloadThroughput do: YCSB-A (half reads), YCSB-B (95 % reads), YCSB-C (reads) or WRITE-ONLY
    #[arg(long, default_value = "YCSB-A", value_name = "NAME")]
    workload: String,
    /// Objects per second that each client of a throughput test is to keep at most; 0: as many as it can
    #[arg(long = "targetOps", default_value_t = 0, value_name = "NUMBER")]
    target_ops: u64,
    /// How long to measure each size, number of clients and so on [default: 1; for distributions 100000 operations, for `broadcast` 1000]
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// How much data the table of `basic` is filled with, in MB; less if the store has no room
    #[arg(long = "fillMB", default_value_t = 200, value_name = "MB")]
    fill_mb: u64,
    /// How long to poll for an answer before sleeping
    #[arg(
        long = "pollMicros",
        default_value_t = 1000,
        value_name = "MICROSECONDS"
    )]
    poll_micros: u64,
    /// How long to wait for clients that have yet to start, and for their answers
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    patience: u64,
    /// Put this before the names of all tables: they are then of this run only, and dropped at its end
    #[arg(long = "tablePrefix", default_value = "", value_name = "TEXT")]
    table_prefix: String,
    /// Drop the tables that the same options without this one make, and measure nothing
    #[arg(long = "dropTables")]
    drop_tables: bool,
    /// Serve progress and results over HTTP, at /report, /results.json, /table.txt and /plot.svg, from the start until SIGTERM
    #[arg(long = "httpListen", value_name = "HOST:PORT", value_parser = host_port)]
    http_listen: Option<SocketAddrV4>,
    /// Print one JSON object instead of text; notes go to standard error
    #[arg(long)]
    json: bool,
    /// Plot the results to this file: latency by size, throughput by clients, or distributions
    #[arg(long, value_name = "FILE.svg|png")]
    plot: Option<PathBuf>,
    /// Show where the time goes, from the time traces of client and server: the way there and back, or the steps of the server.
    /// For basic, readDist, readDistRandom and writeDistRandom
    #[arg(long, value_enum, value_name = "WHAT", num_args = 0..=1, require_equals = true, default_missing_value = "way")]
    breakdown: Option<Parts>,
    /// Set the results beside what was published of RAMCloud
    #[arg(long, value_enum, value_name = "WHAT")]
    compare: Option<Compare>,
    /// Tests to run
    #[arg(required = true, value_name = "TEST")]
    tests: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Compare {
    /// RAMCloud on Atom micro servers and over InfiniBand
    Seeds,
}

const EXAMPLES: &str = "\
Examples:
  clusterperf -C tcp:host=127.0.0.1,port=11100 basic
  clusterperf -C tcp:host=127.0.0.1,port=11100 --size 100 --seconds 5 --json basic
  clusterperf -C tcp:host=127.0.0.1,port=11100 --compare seeds --plot basic.svg basic
  clusterperf -C tcp:host=127.0.0.1,port=11100 --breakdown --plot where.svg readDist writeDistRandom
  clusterperf -C tcp:host=127.0.0.1,port=11100 --numClients 4 readThroughput
  clusterperf -C tcp:host=127.0.0.1,port=11100 --outstanding 64 readThroughput
  clusterperf -C tcp:host=10.0.0.1,port=11100 -L fast+dpdk:host=192.168.101.30,port=0 --dpdk '-a 0000:03:00.2' basic
  clusterperf -C tcp:host=127.0.0.1,port=11100 --plot cdf.png readDistRandom writeDistRandom
Four processes, perhaps on four machines, together:
  for i in 0 1 2 3; do clusterperf -C ... --numClients 4 --clientIndex $i writeThroughput & done; wait";

/// How many clients a test may have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Clients {
    One,
    Any,
    /// One that measures, and at least one other.
    Several,
}

/// Every test, with its clients.
const TESTS: [(&str, Clients); 19] = [
    ("basic", Clients::One),
    ("broadcast", Clients::Several),
    ("echo_basic", Clients::One),
    ("multiReadThroughput", Clients::Any),
    ("multiRead_general", Clients::One),
    ("multiRead_oneMaster", Clients::One),
    ("multiWrite_oneMaster", Clients::One),
    ("netBandwidth", Clients::Any),
    ("readDist", Clients::One),
    ("readDistRandom", Clients::One),
    ("readInterference", Clients::Any),
    ("readNotFound", Clients::One),
    ("readThroughput", Clients::Any),
    ("readVaryingKeyLength", Clients::One),
    ("workloadThroughput", Clients::Any),
    ("writeDistRandom", Clients::One),
    ("writeInterference", Clients::Any),
    ("writeThroughput", Clients::Any),
    ("writeVaryingKeyLength", Clients::One),
];
const MAX_CLIENTS: u32 = 1000;
/// Where --seconds is not given.
const DEFAULT_SECONDS: f64 = 1.0;

impl Options {
    fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds.unwrap_or(DEFAULT_SECONDS))
    }

    /// How many operations to measure: none if it goes by time.
    fn count_or(&self, default: Option<u64>) -> Option<u64> {
        let unsaid = default.filter(|_| self.seconds.is_none());
        self.count.or(unsaid)
    }

    fn size_or(&self, size: usize) -> usize {
        self.size.unwrap_or(size)
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(self.patience)
    }

    /// The name of one of this run's tables.
    fn table(&self, name: &str) -> String {
        format!("{}{name}", self.table_prefix)
    }

    /// Every table that the tests may make.
    fn tables(&self) -> Vec<String> {
        let general = self.tests.iter().any(|test| test == "multiRead_general");
        let numbered = (0..if general { self.num_tables } else { 0 })
            .map(|number| self.table(&format!("test{number}")));
        let fixed = ["test", "large", "control"].map(|name| self.table(name));
        fixed.into_iter().chain(numbered).collect()
    }

    fn objects(&self) -> u32 {
        self.num_objects
    }

    /// Of multi-ops: as many as was asked for, or `all`.
    fn batches(&self, all: &[usize]) -> Vec<usize> {
        self.batch.map_or(all.to_vec(), |batch| vec![batch])
    }

    fn pace(&self, start: Instant, done: u64) {
        if self.target_ops > 0 {
            together::pace(start, done, self.target_ops as f64);
        }
    }

    fn workload(&self) -> Option<Workload> {
        let mut known = WORKLOADS.into_iter();
        known.find(|workload| workload.name == self.workload)
    }

    /// What the clients of a test do when they are told to.
    fn load(&self, test: &str) -> Option<Load> {
        match test {
            "netBandwidth" | "readInterference" => Some(Load::LargeRead),
            "readThroughput" => Some(Load::Read),
            "writeThroughput" => Some(Load::Write),
            "multiReadThroughput" => Some(Load::MultiRead),
            "workloadThroughput" => self.workload().map(Load::Workload),
            "writeInterference" => Some(Load::LargeWrite),
            _ => None,
        }
    }
}

fn clients_of(test: &str) -> Option<Clients> {
    let mut tests = TESTS.iter();
    tests
        .find(|(name, _)| *name == test)
        .map(|(_, clients)| *clients)
}

fn main() -> ExitCode {
    // The ping has no store to measure, and options of its own.
    let mut arguments = std::env::args_os();
    let name = arguments.next();
    if arguments.next().is_some_and(|first| first == "ping") {
        let options = ping::Options::parse_from(name.into_iter().chain(arguments));
        return program::report(ping::run(&options));
    }
    let options = Options::parse();
    if let Err(error) = check(&options) {
        eprintln!("error: {error}");
        return ExitCode::from(program::EXIT_USAGE);
    }
    program::report(run(&options))
}

/// Checks what the command line parser cannot; a wrong use, not a failure.
fn check(options: &Options) -> Result<(), UsageError> {
    for test in &options.tests {
        let Some(clients) = clients_of(test) else {
            let names: Vec<&str> = TESTS.iter().map(|(name, _)| *name).collect();
            return Err(UsageError::NoTest {
                test: test.clone(),
                there_are: names.join(", "),
            });
        };
        if clients == Clients::Several && options.num_clients == 1 {
            return Err(UsageError::NeedsOthers(test.clone()));
        }
    }
    check_breakdown(options)?;
    // Beside others, a test of one client is client 0's alone.
    if options.num_clients > 1
        && options
            .tests
            .iter()
            .all(|test| clients_of(test) == Some(Clients::One))
    {
        return Err(UsageError::ForOneClient(options.tests.join(" ")));
    }
    if options.drop_tables && options.table_prefix.is_empty() {
        return Err(UsageError::DropsAll);
    }
    if !(1..=MAX_CLIENTS).contains(&options.num_clients) {
        return Err(UsageError::NumClients(MAX_CLIENTS));
    }
    if options
        .client_index
        .is_some_and(|index| index >= options.num_clients)
    {
        return Err(UsageError::ClientIndex {
            last: options.num_clients - 1,
            count: options.num_clients,
        });
    }
    if options
        .seconds
        .is_some_and(|seconds| !(seconds > 0.0 && seconds <= 3600.0))
    {
        return Err(UsageError::Seconds);
    }
    if options
        .size
        .is_some_and(|size| !(1..=wire::rpc::MAX_VALUE_BYTES).contains(&size))
    {
        return Err(UsageError::Size(wire::rpc::MAX_VALUE_BYTES));
    }
    if options.fill_mb == 0 {
        return Err(UsageError::Zero("--fillMB"));
    }
    for (name, value) in [
        ("--count", options.count.unwrap_or(1)),
        ("--numObjects", options.num_objects.into()),
        ("--numTables", options.num_tables.into()),
        ("--batch", options.batch.unwrap_or(1) as u64),
    ] {
        if value == 0 {
            return Err(UsageError::Zero(name));
        }
    }
    if options.workload().is_none() {
        let names: Vec<&str> = WORKLOADS.iter().map(|workload| workload.name).collect();
        return Err(UsageError::Workload(names.join(", ")));
    }
    options.plot.as_deref().map_or(Ok(()), plot::check)
}

/// Tests whose operations all go to one server, one after the other.
const BROKEN_DOWN: [&str; 4] = ["basic", "readDist", "readDistRandom", "writeDistRandom"];

fn check_breakdown(options: &Options) -> Result<(), UsageError> {
    let mut tests = options.tests.iter();
    let other = tests.find(|test| !BROKEN_DOWN.contains(&test.as_str()));
    match other.filter(|_| options.breakdown.is_some()) {
        Some(test) => Err(UsageError::NotBrokenDown {
            of: BROKEN_DOWN.join(", "),
            test: test.clone(),
        }),
        None => Ok(()),
    }
}

/// How far a run is.
#[derive(Default)]
struct Board {
    /// Of the tests that have ended, in order.
    results: Mutex<Vec<Results>>,
    /// How the run ended.
    end: Mutex<Option<Result<(), PerfError>>>,
}

/// Runs the tests; the results go to standard output.
fn run(options: &Options) -> Result<(), PerfError> {
    if options.drop_tables {
        return drop_tables(options);
    }
    if let Some(index) = options.client_index.filter(|index| *index > 0) {
        return follow(options, &Lanes::open(options, index..index + 1)?, index);
    }
    match options.http_listen {
        Some(address) => serve::run(options, address),
        None => measure(options, &Board::default()),
    }
}

/// Client 0's part, with that of all others if they are in this process.
fn measure(options: &Options, board: &Board) -> Result<(), PerfError> {
    let others = match options.client_index {
        Some(_) => 0..0,
        None => 1..options.num_clients,
    };
    let lanes = Arc::new(Lanes::open(options, 0..others.end.max(1))?);
    let threads: Vec<_> = others
        .map(|index| {
            let (options, lanes) = (options.clone(), Arc::clone(&lanes));
            std::thread::spawn(move || follow(&options, &lanes, index))
        })
        .collect();
    let mut result = lead(options, &lanes, board);
    if result.is_ok() {
        for thread in threads {
            let ended = thread.join().unwrap_or(Err(PerfError::ClientPanicked));
            result = result.and(ended);
        }
    }
    if !options.table_prefix.is_empty() {
        result = result.and(drop_tables(options));
    }
    result.and_then(|()| show(options, &guarded(&board.results)))
}

fn show(options: &Options, results: &[Results]) -> Result<(), PerfError> {
    if options.json {
        println!("{}", report::json(results)?);
    } else {
        print!("{}", report::text(results));
        if options.compare.is_some() {
            print!("{}", compare::table(results));
        }
    }
    if let Some(file) = &options.plot {
        plot::plot(results, file)?;
        data::progress(&format!("plot: {}", file.display()));
    }
    Ok(())
}

fn drop_tables(options: &Options) -> Result<(), PerfError> {
    let mut cluster = clients::connect(options)?;
    for table in options.tables() {
        cluster
            .drop_table(&table)
            .map_err(|error| PerfError::DropTable { table, error })?;
    }
    Ok(())
}

/// What a thread that panicked has left is as good as before.
fn guarded<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The other clients, test by test.
fn follow(options: &Options, lanes: &Lanes, index: u32) -> Result<(), PerfError> {
    let mut cluster = lanes.connect(options, index)?;
    let together = |test: &&String| clients_of(test) != Some(Clients::One);
    for test in options.tests.iter().filter(together) {
        together::follow(&mut cluster, options, index, options.load(test))
            .map_err(|error| PerfError::OtherClient { index, error })?;
    }
    Ok(())
}

/// Client 0: runs the tests, and tells the others what to do.
fn lead(options: &Options, lanes: &Lanes, board: &Board) -> Result<(), PerfError> {
    let mut cluster = lanes.connect(options, 0)?;
    for test in &options.tests {
        data::begin(test);
        let mut results = if test == "basic" {
            basic(&mut cluster, options)?
        } else {
            one_test(&mut cluster, options, test).map_err(|error| PerfError::Test {
                test: test.clone(),
                error,
            })?
        };
        test.clone_into(&mut results.test);
        guarded(&board.results).push(results);
    }
    finish(&mut cluster)
}

fn basic(cluster: &mut Cluster, options: &Options) -> Result<Results, PerfError> {
    let plan = basic::Plan {
        table: options.table("test"),
        sizes: options
            .size
            .map_or_else(|| basic::SIZES.to_vec(), |size| vec![size]),
        time: options.time(),
        fill_bytes: options.fill_mb * 1_000_000,
        breakdown: options.breakdown,
    };
    Ok(Results {
        entries: basic::run(cluster, &plan)?,
        ..Results::default()
    })
}

fn one_test(cluster: &mut Cluster, options: &Options, test: &str) -> Result<Results, Error> {
    let mut results = Results::default();
    match test {
        "readDist" => results.entries = latency::read_dist(cluster, options)?,
        "readDistRandom" => results.entries = latency::dist_random(cluster, options, false)?,
        "writeDistRandom" => results.entries = latency::dist_random(cluster, options, true)?,
        "readNotFound" => results.entries = latency::read_not_found(cluster, options)?,
        "readVaryingKeyLength" => {
            results.entries = latency::varying_key_length(cluster, options, false)?;
        }
        "writeVaryingKeyLength" => {
            results.entries = latency::varying_key_length(cluster, options, true)?;
        }
        "multiRead_oneMaster" => {
            results.entries = latency::multi_one_master(cluster, options, false)?;
        }
        "multiWrite_oneMaster" => {
            results.entries = latency::multi_one_master(cluster, options, true)?;
        }
        "multiRead_general" => results.entries = latency::multi_read_general(cluster, options)?,
        "echo_basic" => results.entries = latency::echo_basic(cluster, options)?,
        "broadcast" => results.entries = together::broadcast(cluster, options)?,
        "readInterference" | "writeInterference" => {
            let writes = test == "writeInterference";
            results.entries = together::interference(cluster, options, test, writes)?;
        }
        _ => {
            if let Some(load) = options.load(test) {
                results.rates = together::throughput(cluster, options, test, load)?;
            }
        }
    }
    if test.contains("Dist")
        && let [entry] = &results.entries[..]
    {
        results.cdf = entry.samples.cdf();
    }
    Ok(results)
}

/// What RAMCloud's program ends with: the servers write their traces to their logs. An error makes it fail, too.
fn finish(cluster: &mut Cluster) -> Result<(), PerfError> {
    for operation in [
        wire::rpc::control_op::LOG_TIME_TRACE,
        wire::rpc::control_op::LOG_CACHE_TRACE,
    ] {
        cluster
            .control_all(operation, &[])
            .map_err(|error| PerfError::Control { operation, error })?;
    }
    Ok(())
}
