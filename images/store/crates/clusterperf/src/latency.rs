//! Tests of one client that waits for each answer.

use std::time::Instant;

use client::{Cluster, Error, ReadObject, RejectRules, TableId, WriteObject};

use super::Options;
use super::breakdown;
use super::data::{KEY_BYTES, Random, fill, key, key_of, progress};
use super::report::{Entry, size_name};
use super::samples::{Collector, Samples};

const RULES: RejectRules = RejectRules {
    given_version: 0,
    doesnt_exist: false,
    exists: false,
    version_le_given: false,
    version_ne_given: false,
};
/// Lengths of keys that are tried, in bytes.
const KEY_LENGTHS: [usize; 10] = [4, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 60_000];
/// How many objects a multi-op has.
const BATCHES: [usize; 9] = [1, 2, 5, 10, 20, 50, 100, 200, 500];
const ECHO_BYTES: [usize; 5] = [100, 1_000, 10_000, 100_000, 1_000_000];
/// Where no time and no number is given: so many operations are made for a distribution.
const DISTRIBUTION_COUNT: u64 = 100_000;

/// As [`sample`], of operations of one table's server, whose time may be broken down.
fn sample_of(
    cluster: &mut Cluster,
    table: TableId,
    options: &Options,
    mut operation: impl FnMut(&mut Cluster) -> Result<(), Error>,
) -> Result<Samples, Error> {
    (0..options.warmup).try_for_each(|_| operation(cluster))?;
    let count = options.count_or(Some(DISTRIBUTION_COUNT));
    let collector = Collector::new(options.time(), count);
    breakdown::collect(cluster, (table, options.breakdown), collector, operation)
}

/// Runs an operation again and again, for the time or the number that the options say, and takes its times.
pub fn sample(
    options: &Options,
    default_count: Option<u64>,
    mut operation: impl FnMut() -> Result<(), Error>,
) -> Result<Samples, Error> {
    sample_from(options, default_count, || {
        let start = Instant::now();
        operation()?;
        Ok(start)
    })
}

/// As [`sample`], of an operation that says when it began.
pub fn sample_from(
    options: &Options,
    default_count: Option<u64>,
    mut operation: impl FnMut() -> Result<Instant, Error>,
) -> Result<Samples, Error> {
    for _ in 0..options.warmup {
        operation()?;
    }
    let count = options.count_or(default_count);
    let mut collector = Collector::new(options.time(), count);
    loop {
        let start = operation()?;
        if !collector.add(start) {
            return Ok(collector.finish());
        }
    }
}

fn entry(name: String, what: String, object_bytes: usize, objects: u32, samples: Samples) -> Entry {
    Entry {
        name,
        bandwidth_name: None,
        bandwidth_what: String::new(),
        what,
        object_bytes,
        objects,
        summary: samples.summary(object_bytes),
        samples,
    }
}

/// `readDist`: one object, read again and again.
pub fn read_dist(cluster: &mut Cluster, options: &Options) -> Result<Vec<Entry>, Error> {
    let table = cluster.create_table(&options.table("test"), 1)?;
    let size = options.size_or(100);
    cluster.write(table, &key(0), &vec![b'v'; size])?;
    let mut value = Vec::new();
    let samples = sample_of(cluster, table, options, |cluster| {
        cluster
            .read_into(table, &key(0), &RULES, &mut value)
            .map(drop)
    })?;
    let what = format!("read one {}B object with {KEY_BYTES}B key", size_name(size));
    Ok(vec![entry("readDist".to_owned(), what, size, 1, samples)])
}

/// `readDistRandom` and `writeDistRandom`: objects drawn at random.
pub fn dist_random(
    cluster: &mut Cluster,
    options: &Options,
    writes: bool,
) -> Result<Vec<Entry>, Error> {
    let size = options.size_or(100);
    let (table, objects) = filled(cluster, options, size)?;
    let (value, mut read) = (vec![b'w'; size], Vec::new());
    let mut random = Random::new(1);
    let samples = sample_of(cluster, table, options, |cluster| {
        let key = key(random.below(objects));
        if writes {
            cluster.write(table, &key, &value).map(drop)
        } else {
            cluster.read_into(table, &key, &RULES, &mut read).map(drop)
        }
    })?;
    let operation = if writes { "write" } else { "read" };
    let what = format!(
        "{operation} random {}B object with {KEY_BYTES}B key",
        size_name(size)
    );
    let name = format!("{operation}DistRandom");
    Ok(vec![entry(name, what, size, objects, samples)])
}

/// The table of objects that tests draw from.
pub fn filled(
    cluster: &mut Cluster,
    options: &Options,
    size: usize,
) -> Result<(TableId, u32), Error> {
    let table = cluster.create_table(&options.table("test"), 1)?;
    let wanted = options.objects();
    progress(&format!("filling with {wanted} objects of {size} B"));
    let objects = fill(cluster, table, wanted, size)?;
    Ok((table, objects))
}

/// `readNotFound`: a key that nobody has.
pub fn read_not_found(cluster: &mut Cluster, options: &Options) -> Result<Vec<Entry>, Error> {
    let table = cluster.create_table(&options.table("test"), 1)?;
    let missing = b"a key that no object of this table has";
    let mut value = Vec::new();
    let samples = sample(options, None, || {
        match cluster.read_into(table, missing, &RULES, &mut value) {
            Err(error) if error.is_absent() => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(Error::Invalid("there is an object that nobody wrote")),
        }
    })?;
    let what = "read an object that is not there".to_owned();
    Ok(vec![entry("readNotFound".to_owned(), what, 0, 0, samples)])
}

/// `readVaryingKeyLength` and `writeVaryingKeyLength`.
pub fn varying_key_length(
    cluster: &mut Cluster,
    options: &Options,
    writes: bool,
) -> Result<Vec<Entry>, Error> {
    let table = cluster.create_table(&options.table("test"), 1)?;
    let size = options.size_or(100);
    let (operation, value) = (if writes { "write" } else { "read" }, vec![b'v'; size]);
    let mut read = Vec::new();
    let mut entries = Vec::new();
    for length in KEY_LENGTHS {
        let key = key_of(1, length);
        cluster.write(table, &key, &value)?;
        let samples = sample(options, None, || {
            if writes {
                cluster.write(table, &key, &value).map(drop)
            } else {
                cluster.read_into(table, &key, &RULES, &mut read).map(drop)
            }
        })?;
        let name = format!("{operation}VaryingKeyLength.{}", size_name(length));
        let what = format!("{operation} {}B object with {length}B key", size_name(size));
        entries.push(entry(name, what, size + length, 1, samples));
        cluster.remove(table, &key)?;
    }
    Ok(entries)
}

/// `multiRead_oneMaster` and `multiWrite_oneMaster`: batches of objects of one server.
pub fn multi_one_master(
    cluster: &mut Cluster,
    options: &Options,
    writes: bool,
) -> Result<Vec<Entry>, Error> {
    let size = options.size_or(100);
    let (table, objects) = filled(cluster, options, size)?;
    let value = vec![b'w'; size];
    let mut random = Random::new(2);
    let mut entries = Vec::new();
    for batch in options.batches(&BATCHES) {
        let samples = sample(options, None, || {
            let keys: Vec<_> = (0..batch).map(|_| key(random.below(objects))).collect();
            if writes {
                write_batch(cluster, table, &keys, &value)
            } else {
                read_batch(cluster, keys.iter().map(|key| (table, &key[..])))
            }
        })?;
        let operation = if writes { "Write" } else { "Read" };
        let name = format!("multi{operation}_oneMaster.{batch}");
        let what = format!(
            "multi-{} of {batch} {}B objects",
            operation.to_lowercase(),
            size_name(size)
        );
        entries.push(entry(name, what, size * batch, objects, samples));
    }
    Ok(entries)
}

/// `multiRead_general`: batches of objects of several tables, which lie at all servers.
pub fn multi_read_general(cluster: &mut Cluster, options: &Options) -> Result<Vec<Entry>, Error> {
    let size = options.size_or(100);
    let count = options.num_tables;
    let each = (options.objects() / count).max(1);
    let mut tables = Vec::new();
    for number in 0..count {
        let table = cluster.create_table(&options.table(&format!("test{number}")), 1)?;
        let objects = fill(cluster, table, each, size)?;
        tables.push((table, objects));
    }
    let mut random = Random::new(3);
    let mut entries = Vec::new();
    for batch in options.batches(&BATCHES) {
        let samples = sample(options, None, || {
            let wanted: Vec<_> = (0..batch)
                .map(|_| {
                    let (table, objects) = tables[random.below(count) as usize];
                    (table, key(random.below(objects)))
                })
                .collect();
            read_batch(
                cluster,
                wanted.iter().map(|(table, key)| (*table, &key[..])),
            )
        })?;
        let name = format!("multiRead_general.{batch}");
        let what = format!(
            "multi-read of {batch} {}B objects in {count} tables",
            size_name(size)
        );
        entries.push(entry(name, what, size * batch, each * count, samples));
    }
    Ok(entries)
}

pub fn read_batch<'a>(
    cluster: &mut Cluster,
    keys: impl Iterator<Item = (TableId, &'a [u8])>,
) -> Result<(), Error> {
    let wanted: Vec<_> = keys
        .map(|(table, key)| ReadObject {
            table,
            key,
            rules: RULES,
        })
        .collect();
    cluster
        .multi_read(&wanted)?
        .into_iter()
        .try_for_each(|object| object.map(drop))
}

fn write_batch(
    cluster: &mut Cluster,
    table: TableId,
    keys: &[[u8; KEY_BYTES]],
    value: &[u8],
) -> Result<(), Error> {
    let objects: Vec<_> = keys
        .iter()
        .map(|key| WriteObject {
            table,
            key,
            value,
            rules: RULES,
        })
        .collect();
    cluster
        .multi_write(&objects)?
        .into_iter()
        .try_for_each(|version| version.map(drop))
}

/// `echo_basic`: bytes there and as many back, from the first server.
pub fn echo_basic(cluster: &mut Cluster, options: &Options) -> Result<Vec<Entry>, Error> {
    let servers = cluster.server_list()?;
    let server = servers.iter().find(|server| server.status == 0);
    let locator = server
        .map(|server| server.locator.clone())
        .ok_or(Error::Invalid("no server is up: start one"))?;
    let sizes = options.size.map_or(ECHO_BYTES.to_vec(), |size| vec![size]);
    let mut entries = Vec::new();
    for size in sizes {
        let bytes = vec![b'e'; size];
        let samples = sample(options, None, || {
            cluster.echo(&locator, &bytes, size as u32).map(drop)
        })?;
        let size_text = size_name(size);
        entries.push(Entry {
            bandwidth_name: Some(format!("echo_basic.bw{size_text}")),
            bandwidth_what: format!("bandwidth of echoes of {size_text}B"),
            ..entry(
                format!("echo_basic.{size_text}"),
                format!("echo of {size_text}B, there and back"),
                size,
                0,
                samples,
            )
        });
    }
    Ok(entries)
}
