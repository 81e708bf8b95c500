//! The test `basic`: for each size, fills a table with about 200 MB and reads and writes its objects at random.

use std::time::{Duration, Instant};

use client::{Cluster, Error, RejectRules, Status, TableId, WriteObject};

use super::samples::{Collector, Samples};

/// Sizes of RAMCloud's `basic`, in bytes.
pub const SIZES: [usize; 5] = [100, 1_000, 10_000, 100_000, 1_000_000];
/// Length of every key.
pub const KEY_BYTES: usize = 30;
/// The table that RAMCloud's program uses.
const TABLE: &str = "test";
/// What an object takes in the log beside key and value, at most.
const OVERHEAD_BYTES: u64 = 64;
/// Of what a full store took this share is kept, so that cleaning has room.
const KEPT_SHARE: f64 = 0.6;
/// Objects in one call of the client; its bytes are bounded, too.
const BATCH_OBJECTS: usize = 500;
const BATCH_BYTES: usize = 4_000_000;

/// What is to be measured.
pub struct Plan {
    pub sizes: Vec<usize>,
    /// For each size, once reading, once writing.
    pub time: Duration,
    pub fill_bytes: u64,
}

/// What was measured with one object size.
pub struct Measured {
    pub size: usize,
    pub objects: u32,
    pub reads: Samples,
    pub writes: Samples,
}

/// Runs the test. Gives results by growing size.
pub fn run(cluster: &mut Cluster, plan: &Plan) -> Result<Vec<Measured>, String> {
    let fail = |error: Error| error.to_string();
    let table = cluster.create_table(TABLE, 1).map_err(fail)?;
    let mut random = Random::new(0x9e37_79b9_7f4a_7c15);
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
        let objects = fill(cluster, table, wanted, size).map_err(fail)?;
        progress(&format!("{size} B: reading"));
        let reads = read_random(cluster, table, objects, plan.time, &mut random).map_err(fail)?;
        progress(&format!("{size} B: writing"));
        let writes =
            write_random(cluster, table, objects, size, plan.time, &mut random).map_err(fail)?;
        results.push(Measured {
            size,
            objects,
            reads,
            writes,
        });
    }
    log_to_servers(cluster, "Ending basic test")?;
    results.reverse();
    Ok(results)
}

fn log_to_servers(cluster: &mut Cluster, text: &str) -> Result<(), String> {
    const NOTICE: u32 = 3;
    cluster
        .log_message_all(NOTICE, text)
        .map_err(|error| format!("log message to all servers: {error}"))
}

/// Progress and notes, beside the results.
fn progress(text: &str) {
    eprintln!("# {text}");
}

/// RAMCloud's key number `index`: the number, little-endian, then 'x'.
pub fn key(index: u32) -> [u8; KEY_BYTES] {
    let mut key = [b'x'; KEY_BYTES];
    key[..4].copy_from_slice(&index.to_le_bytes());
    key
}

/// Writes objects 0 to `wanted`; gives how many there are in the end. A store that becomes full keeps a part of them.
fn fill(cluster: &mut Cluster, table: TableId, wanted: u32, size: usize) -> Result<u32, Error> {
    let value = vec![b'v'; size];
    let per_batch = BATCH_OBJECTS.min(BATCH_BYTES / (size + KEY_BYTES)).max(1);
    let mut done = 0;
    while done < wanted {
        let end = wanted.min(done + per_batch as u32);
        let keys: Vec<[u8; KEY_BYTES]> = (done..end).map(key).collect();
        let objects: Vec<WriteObject<'_>> = keys
            .iter()
            .map(|key| WriteObject {
                table,
                key,
                value: &value,
                rules: RejectRules::default(),
            })
            .collect();
        for written in cluster.multi_write(&objects)? {
            match written {
                Ok(_) => {}
                Err(error) if error.status() == Some(Status::NoTableSpace) => {
                    return shrink(cluster, table, done, end, size);
                }
                Err(error) => return Err(error),
            }
        }
        done = end;
    }
    Ok(wanted)
}

/// The store is full: makes room again and says so.
fn shrink(
    cluster: &mut Cluster,
    table: TableId,
    filled: u32,
    end: u32,
    size: usize,
) -> Result<u32, Error> {
    let keep = (f64::from(filled) * KEPT_SHARE) as u32;
    progress(&format!(
        "NOTE: the store is full with {filled} objects of {size} B; measuring with {keep}"
    ));
    if keep == 0 {
        return Err(Error::Invalid(
            "the store has no room for a single object of this size; remove data or add servers",
        ));
    }
    for index in keep..end {
        cluster.remove(table, &key(index))?;
    }
    Ok(keep)
}

fn read_random(
    cluster: &mut Cluster,
    table: TableId,
    objects: u32,
    time: Duration,
    random: &mut Random,
) -> Result<Samples, Error> {
    let mut value = Vec::new();
    let rules = RejectRules::default();
    cluster.read_into(table, &key(0), &rules, &mut value)?;
    let mut collector = Collector::new(time);
    loop {
        let key = key(random.below(objects));
        let start = Instant::now();
        cluster.read_into(table, &key, &rules, &mut value)?;
        if !collector.add(start) {
            return Ok(collector.finish());
        }
    }
}

fn write_random(
    cluster: &mut Cluster,
    table: TableId,
    objects: u32,
    size: usize,
    time: Duration,
    random: &mut Random,
) -> Result<Samples, Error> {
    let value = vec![b'w'; size];
    cluster.write(table, &key(0), &value)?;
    let mut collector = Collector::new(time);
    loop {
        let key = key(random.below(objects));
        let start = Instant::now();
        cluster.write(table, &key, &value)?;
        if !collector.add(start) {
            return Ok(collector.finish());
        }
    }
}

/// xorshift64*: fast, and the same keys in every run.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// A number below `bound`.
    fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        ((high * u64::from(bound)) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_ramclouds() {
        assert_eq!(key(0x0102)[..6], [2, 1, 0, 0, b'x', b'x']);
        assert_eq!(key(1).len(), 30);
    }

    #[test]
    fn random_numbers_cover_their_range() {
        let mut random = Random::new(1);
        let mut seen = [0; 10];
        for _ in 0..1000 {
            seen[random.below(10) as usize] += 1;
        }
        assert!(seen.iter().all(|count| *count > 50), "{seen:?}");
    }
}
