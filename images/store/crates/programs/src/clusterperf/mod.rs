//! The `clusterperf` program: RAMCloud's benchmark of the same name, its test `basic`.

mod basic;
mod report;
mod samples;

use std::time::Duration;

use clap::Parser;
use client::{Cluster, Options as ClientOptions};

use crate::VERSION;

/// Measures a store: RAMCloud's ClusterPerf, with the names that its results have there.
///
/// Tests:
///   basic   random reads and writes of objects of 100 B to 1 MB with 30-byte keys, one client
#[derive(Parser, Debug)]
#[command(name = "clusterperf", version = VERSION, after_help = EXAMPLES, verbatim_doc_comment)]
pub struct Options {
    /// Locator of the coordinator, or several separated by ';'
    #[arg(
        short = 'C',
        long = "coordinator",
        env = "RCBOX_COORDINATOR",
        value_name = "LOCATOR"
    )]
    coordinator: String,
    /// Client processes that measure together; `basic` needs one
    #[arg(long = "numClients", default_value_t = 1, value_name = "NUMBER")]
    num_clients: u32,
    /// Which of them this process is
    #[arg(long = "clientIndex", default_value_t = 0, value_name = "INDEX")]
    client_index: u32,
    /// Measure this object size only, in bytes [default: 100, 1000, 10000, 100000 and 1000000]
    #[arg(short = 's', long, value_name = "BYTES")]
    size: Option<usize>,
    /// How long to measure each size, reading and writing
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS")]
    seconds: f64,
    /// How much data the table is filled with, in MB; less if the store has no room
    #[arg(long = "fillMB", default_value_t = 200, value_name = "MB")]
    fill_mb: u64,
    /// How long to poll for an answer before sleeping
    #[arg(
        long = "pollMicros",
        default_value_t = 1000,
        value_name = "MICROSECONDS"
    )]
    poll_micros: u64,
    /// Print one JSON object instead of text; notes go to standard error
    #[arg(long)]
    json: bool,
    /// Tests to run
    #[arg(required = true, value_name = "TEST")]
    tests: Vec<String>,
}

const EXAMPLES: &str = "\
Examples:
  clusterperf -C tcp:host=127.0.0.1,port=11100 basic
  clusterperf -C tcp:host=127.0.0.1,port=11100 --size 100 --seconds 5 --json basic";

/// What this version has.
const TESTS: &[&str] = &["basic"];

/// Checks what the command line parser cannot; a wrong use, not a failure.
pub fn check(options: &Options) -> Result<(), String> {
    for test in &options.tests {
        if !TESTS.contains(&test.as_str()) {
            return Err(format!(
                "there is no test {test:?} in this version; there is: {}",
                TESTS.join(", ")
            ));
        }
    }
    if options.num_clients != 1 || options.client_index != 0 {
        return Err("`basic` runs with one client: --numClients 1 --clientIndex 0".to_owned());
    }
    if !(options.seconds > 0.0 && options.seconds <= 3600.0) {
        return Err("--seconds: a number above 0, at most 3600".to_owned());
    }
    if options
        .size
        .is_some_and(|size| size > wire::rpc::MAX_VALUE_BYTES)
    {
        return Err(format!(
            "--size: at most {} bytes",
            wire::rpc::MAX_VALUE_BYTES
        ));
    }
    if options.fill_mb == 0 {
        return Err("--fillMB: at least 1".to_owned());
    }
    Ok(())
}

/// Runs the tests; the results go to standard output.
pub fn run(options: &Options) -> Result<(), String> {
    let client = ClientOptions {
        spin: Duration::from_micros(options.poll_micros),
        ..ClientOptions::default()
    };
    let mut cluster =
        Cluster::with_options(&options.coordinator, client).map_err(|error| error.to_string())?;
    let plan = basic::Plan {
        sizes: options
            .size
            .map_or_else(|| basic::SIZES.to_vec(), |size| vec![size]),
        time: Duration::from_secs_f64(options.seconds),
        fill_bytes: options.fill_mb * 1_000_000,
    };
    let results = basic::run(&mut cluster, &plan)?;
    if options.json {
        println!("{}", report::json(&results)?);
    } else {
        print!("{}", report::text(&results));
    }
    finish(&mut cluster)
}

/// What RAMCloud's program ends with: the servers write their traces to their logs. An error makes it fail, too.
fn finish(cluster: &mut Cluster) -> Result<(), String> {
    for operation in [
        wire::rpc::control_op::LOG_TIME_TRACE,
        wire::rpc::control_op::LOG_CACHE_TRACE,
    ] {
        cluster
            .control_all(operation, &[])
            .map_err(|error| format!("control operation {operation} for all servers: {error}"))?;
    }
    Ok(())
}
