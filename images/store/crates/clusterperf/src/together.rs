//! Tests of several clients: `broadcast`, throughput and interference. Client 0 leads.

use std::time::{Duration, Instant};

use client::{Cluster, Error, RejectRules, TableId};

use super::Options;
use super::data::{KEY_BYTES, Random, Workload, Zipfian, key, progress};
use super::latency::{filled, read_batch, sample, sample_from};
use super::meeting::{Command, Meeting};
use super::pipelined::{self, Stream};
use super::report::{Entry, Rate, size_name};

/// Objects of a multi-read where nothing else is said.
const BATCH: usize = 20;
/// What the others move in a test of interference, in bytes, where nothing else is said.
const LARGE_BYTES: usize = 1_000_000;
/// Objects of that size.
const LARGE_OBJECTS: u32 = 20;
/// Messages of `broadcast`.
const BROADCASTS: u64 = 1000;

/// What a client does again and again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    Read,
    Write,
    MultiRead,
    Workload(Workload),
    /// Reads, or writes, of objects that are large.
    LargeRead,
    LargeWrite,
}

/// The objects that a client works with.
pub struct Target {
    pub table: TableId,
    pub objects: u32,
    pub size: usize,
}

/// Runs operations until `end`; gives how many objects that were.
fn work(
    cluster: &mut Cluster,
    options: &Options,
    load: Load,
    target: &Target,
    seed: u64,
    end: Instant,
) -> Result<u64, Error> {
    let mut random = Random::new(seed);
    let zipfian = match load {
        Load::Workload(_) => Some(Zipfian::new(target.objects)),
        _ => None,
    };
    if options.outstanding > 1 && matches!(load, Load::Read | Load::Write) {
        return pipelined::work(cluster, options, load, target, &mut random, end);
    }
    let (mut value, rules) = (vec![b'v'; target.size], RejectRules::default());
    let mut read = Vec::new();
    let batch = options.batch.unwrap_or(BATCH);
    let (mut done, start) = (0, Instant::now());
    while Instant::now() < end {
        let drawn = match &zipfian {
            Some(zipfian) => zipfian.draw(&mut random),
            None => random.below(target.objects),
        };
        let reads = match load {
            Load::Read | Load::LargeRead => true,
            Load::Write | Load::LargeWrite => false,
            Load::Workload(workload) => random.fraction() < workload.read_share,
            Load::MultiRead => {
                let keys: Vec<_> = (0..batch)
                    .map(|_| key(random.below(target.objects)))
                    .collect();
                read_batch(cluster, keys.iter().map(|key| (target.table, &key[..])))?;
                done += batch as u64;
                options.pace(start, done);
                continue;
            }
        };
        if reads {
            cluster.read_into(target.table, &key(drawn), &rules, &mut read)?;
        } else {
            value[0] = value[0].wrapping_add(1);
            cluster.write(target.table, &key(drawn), &value)?;
        }
        done += 1;
        options.pace(start, done);
    }
    Ok(done)
}

/// What clients other than the first do, whatever the test: as they are told, until the end.
pub fn follow(
    cluster: &mut Cluster,
    options: &Options,
    index: u32,
    load: Option<Load>,
) -> Result<(), Error> {
    let mut meeting = Meeting::join(cluster, options, index)?;
    if load.is_none() {
        meeting.look_always();
    }
    loop {
        match meeting.next(cluster, options.time())? {
            Command::End => return meeting.answer(cluster, "bye"),
            Command::Work(clients) if index < clients => {
                let done = match load {
                    Some(load) => {
                        let target = existing(cluster, options, load)?;
                        let end = Instant::now() + options.time();
                        work(cluster, options, load, &target, u64::from(index) + 1, end)?
                    }
                    None => 0,
                };
                meeting.answer(cluster, &done.to_string())?;
            }
            Command::Work(_) => meeting.answer(cluster, "0")?,
        }
    }
}

fn size_of(options: &Options, load: Load) -> usize {
    match load {
        Load::LargeRead | Load::LargeWrite => LARGE_BYTES,
        _ => options.size_or(100),
    }
}

/// What the leader has filled.
fn existing(cluster: &mut Cluster, options: &Options, load: Load) -> Result<Target, Error> {
    let size = size_of(options, load);
    let (name, objects) = match load {
        Load::LargeRead | Load::LargeWrite => ("large", LARGE_OBJECTS),
        _ => ("test", options.objects()),
    };
    let table = cluster.table_id(&options.table(name))?;
    Ok(Target {
        table,
        objects,
        size,
    })
}

/// Throughput with 1 to all clients.
pub fn throughput(
    cluster: &mut Cluster,
    options: &Options,
    name: &str,
    load: Load,
) -> Result<Vec<Rate>, Error> {
    let size = size_of(options, load);
    if load == Load::LargeRead {
        fill_large(cluster, options)?;
    } else {
        let (_, objects) = filled(cluster, options, size)?;
        if objects < options.objects() {
            return Err(Error::Invalid(
                "the store is too small for these objects: give fewer with --numObjects",
            ));
        }
    }
    let mut meeting = Meeting::join(cluster, options, 0)?;
    let target = existing(cluster, options, load)?;
    let mut rates = Vec::new();
    for clients in 1..=options.num_clients {
        progress(&format!(
            "{name}: {clients} of {} clients",
            options.num_clients
        ));
        let before = cluster.perf_stats(target.table, &key(0))?;
        meeting.command(cluster, &Command::Work(clients))?;
        let start = Instant::now();
        let own = work(cluster, options, load, &target, 1, start + options.time())?;
        let seconds = start.elapsed().as_secs_f64();
        let others = meeting.answers(cluster)?;
        let after = cluster.perf_stats(target.table, &key(0))?;
        let others: u64 = others
            .iter()
            .filter_map(|text| text.parse::<u64>().ok())
            .sum();
        let elapsed = (after.collection_time - before.collection_time) as f64;
        let busy = (after.dispatch_active_cycles - before.dispatch_active_cycles) as f64;
        rates.push(Rate {
            name: format!("{name}.{clients}"),
            clients,
            object_bytes: size,
            objects_per_second: (own + others) as f64 / seconds,
            server_reads: after.read_count - before.read_count,
            server_writes: after.write_count - before.write_count,
            server_busy: busy / elapsed,
        });
    }
    meeting.command(cluster, &Command::End)?;
    meeting.answers(cluster)?;
    meeting.clear(cluster)?;
    Ok(rates)
}

fn fill_large(cluster: &mut Cluster, options: &Options) -> Result<TableId, Error> {
    let table = cluster.create_table(&options.table("large"), 1)?;
    super::data::fill(cluster, table, LARGE_OBJECTS, LARGE_BYTES)?;
    Ok(table)
}

/// Small reads or writes of client 0, alone and while all others move large objects; if there are no others, while it moves one after the other itself.
pub fn interference(
    cluster: &mut Cluster,
    options: &Options,
    name: &str,
    writes: bool,
) -> Result<Vec<Entry>, Error> {
    let large = fill_large(cluster, options)?;
    let size = options.size_or(100);
    let (table, objects) = filled(cluster, options, size)?;
    let mut meeting = Meeting::join(cluster, options, 0)?;
    let mut entries = Vec::new();
    let doing = if writes { "write" } else { "read" };
    for is_loaded in [false, true] {
        let others = options.num_clients - 1;
        let is_alone = is_loaded && others == 0;
        if is_loaded && others > 0 {
            meeting.command(cluster, &Command::Work(options.num_clients))?;
        }
        let mut stream = Stream::new(large, LARGE_OBJECTS, LARGE_BYTES, writes);
        let mut random = Random::new(5);
        let (value, mut read) = (vec![b's'; size], Vec::new());
        let samples = sample_from(options, None, || {
            if is_alone {
                stream.go_on(cluster)?;
            }
            let key = key(random.below(objects));
            let start = Instant::now();
            if writes {
                cluster.write(table, &key, &value)?;
            } else {
                let rules = RejectRules::default();
                cluster.read_into(table, &key, &rules, &mut read)?;
            }
            Ok(start)
        })?;
        let moved = stream.finish(cluster)?;
        let (suffix, beside) = match (is_loaded, others) {
            (false, _) => ("alone", "alone".to_owned()),
            (true, 0) => (
                "loaded",
                format!("while the same client {doing}s {moved} 1MB objects"),
            ),
            (true, _) => {
                meeting.answers(cluster)?;
                (
                    "loaded",
                    format!("while {others} others {doing} 1MB objects"),
                )
            }
        };
        let operation = if writes { "write" } else { "read" };
        entries.push(Entry {
            name: format!("{name}.{suffix}"),
            bandwidth_name: None,
            bandwidth_what: String::new(),
            what: format!(
                "{operation} {}B object with {KEY_BYTES}B key, {beside}",
                size_name(size)
            ),
            object_bytes: size,
            objects,
            summary: samples.summary(size),
            samples,
        });
    }
    meeting.command(cluster, &Command::End)?;
    meeting.answers(cluster)?;
    meeting.clear(cluster)?;
    Ok(entries)
}

/// `broadcast`: how long it takes until all others have seen an object that one writes, and have said so.
pub fn broadcast(cluster: &mut Cluster, options: &Options) -> Result<Vec<Entry>, Error> {
    let mut meeting = Meeting::join(cluster, options, 0)?;
    meeting.look_always();
    let samples = sample(options, Some(BROADCASTS), || {
        meeting.command(cluster, &Command::Work(options.num_clients))?;
        meeting.answers(cluster).map(drop)
    })?;
    meeting.command(cluster, &Command::End)?;
    meeting.answers(cluster)?;
    meeting.clear(cluster)?;
    let others = options.num_clients - 1;
    Ok(vec![Entry {
        name: "broadcast".to_owned(),
        bandwidth_name: None,
        bandwidth_what: String::new(),
        what: format!("tell {others} other clients through an object, and hear from each"),
        object_bytes: 0,
        objects: 1,
        summary: samples.summary(0),
        samples,
    }])
}

/// Sleeps if the client is ahead of the rate that it is to keep.
pub fn pace(start: Instant, done: u64, target_per_second: f64) {
    let due = Duration::from_secs_f64(done as f64 / target_per_second);
    let elapsed = start.elapsed();
    if due > elapsed {
        std::thread::sleep(due - elapsed);
    }
}
