//! The test `basic`: for each size, fills a table with about 200 MB and reads and writes its objects at random.

use std::time::Duration;

use client::{Cluster, Error, RejectRules, TableId};

use super::breakdown::{self, Parts};
use super::data::{KEY_BYTES, Random, fill, key, progress};
use super::error::PerfError;
use super::report::{Entry, size_name};
use super::samples::{Collector, Samples};

/// Sizes of RAMCloud's `basic`, in bytes.
pub const SIZES: [usize; 5] = [100, 1_000, 10_000, 100_000, 1_000_000];
/// What an object takes in the log beside key and value, at most.
const OVERHEAD_BYTES: u64 = 64;

/// What is to be measured.
pub struct Plan {
    pub table: String,
    pub sizes: Vec<usize>,
    /// For each size, once reading, once writing.
    pub time: Duration,
    pub fill_bytes: u64,
    pub breakdown: Option<Parts>,
}

/// What was measured with one object size.
struct Measured {
    size: usize,
    objects: u32,
    reads: Samples,
    writes: Samples,
}

/// Runs the test. Gives results by growing size.
pub fn run(cluster: &mut Cluster, plan: &Plan) -> Result<Vec<Entry>, PerfError> {
    let table = cluster.create_table(&plan.table, 1)?;
    let mut random = Random::new(1);
    let mut results = Vec::new();
    // The largest first: every size then overwrites what the one before has left.
    let mut sizes = plan.sizes.clone();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    for size in sizes {
        log_to_servers(
            cluster,
            &format!("Starting basic test for {size}-byte objects"),
        )?;
        let wanted = (plan.fill_bytes / (size as u64 + KEY_BYTES as u64 + OVERHEAD_BYTES)).max(1);
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        progress(&format!("{size} B: filling with {wanted} objects"));
        let objects = fill(cluster, table, wanted, size)?;
        progress(&format!("{size} B: reading"));
        let reads = read_random(cluster, table, objects, plan, &mut random)?;
        progress(&format!("{size} B: writing"));
        let writes = write_random(cluster, table, objects, size, plan, &mut random)?;
        results.push(Measured {
            size,
            objects,
            reads,
            writes,
        });
    }
    log_to_servers(cluster, "Ending basic test")?;
    results.reverse();
    Ok(entries(&results))
}

fn entries(results: &[Measured]) -> Vec<Entry> {
    let of = |operation: &str, doing: &'static str, samples: fn(&Measured) -> &Samples| {
        let entry = |measured: &Measured| {
            let size = size_name(measured.size);
            let object = format!("{size}B object with {KEY_BYTES}B key");
            Entry {
                name: format!("basic.{operation}{size}"),
                bandwidth_name: Some(format!("basic.{operation}Bw{size}")),
                what: format!("{operation} random {object}"),
                bandwidth_what: format!("bandwidth {doing} {object}"),
                object_bytes: measured.size,
                objects: measured.objects,
                summary: samples(measured).summary(measured.size),
                samples: samples(measured).clone(),
            }
        };
        results.iter().map(entry).collect::<Vec<_>>()
    };
    let mut entries = of("read", "reading", |measured| &measured.reads);
    entries.extend(of("write", "writing", |measured| &measured.writes));
    entries
}

fn log_to_servers(cluster: &mut Cluster, text: &str) -> Result<(), PerfError> {
    const NOTICE: u32 = 3;
    cluster
        .log_message_all(NOTICE, text)
        .map_err(PerfError::LogMessage)
}

fn read_random(
    cluster: &mut Cluster,
    table: TableId,
    objects: u32,
    plan: &Plan,
    random: &mut Random,
) -> Result<Samples, Error> {
    let mut value = Vec::new();
    let rules = RejectRules::default();
    cluster.read_into(table, &key(0), &rules, &mut value)?;
    let collector = Collector::new(plan.time, None);
    breakdown::collect(cluster, (table, plan.breakdown), collector, |cluster| {
        let key = key(random.below(objects));
        cluster.read_into(table, &key, &rules, &mut value).map(drop)
    })
}

fn write_random(
    cluster: &mut Cluster,
    table: TableId,
    objects: u32,
    size: usize,
    plan: &Plan,
    random: &mut Random,
) -> Result<Samples, Error> {
    let value = vec![b'w'; size];
    cluster.write(table, &key(0), &value)?;
    let collector = Collector::new(plan.time, None);
    breakdown::collect(cluster, (table, plan.breakdown), collector, |cluster| {
        let key = key(random.below(objects));
        cluster.write(table, &key, &value).map(drop)
    })
}
