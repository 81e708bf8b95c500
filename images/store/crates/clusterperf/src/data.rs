//! Keys, objects and random numbers of the tests.

use std::sync::Mutex;

use client::{Cluster, Error, RejectRules, Status, TableId, WriteObject};

/// Length of keys where a test says nothing else.
pub const KEY_BYTES: usize = 30;
/// Of what a full store took this share is kept, so that cleaning has room.
const KEPT_SHARE: f64 = 0.6;
/// Objects in one call of the client; its bytes are bounded, too.
const BATCH_OBJECTS: usize = 500;
const BATCH_BYTES: usize = 4_000_000;

/// The last of them, for whoever asks over HTTP how far the run is.
static LAST: Mutex<String> = Mutex::new(String::new());

/// Progress and notes, beside the results.
pub fn progress(text: &str) {
    eprintln!("# {text}");
    text.clone_into(&mut *super::guarded(&LAST));
}

/// A test begins; its notes follow, if it has any.
pub fn begin(test: &str) {
    test.clone_into(&mut *super::guarded(&LAST));
}

pub fn last_progress() -> String {
    super::guarded(&LAST).clone()
}

/// RAMCloud's key number `index`: the number, little-endian, then 'x'.
pub fn key(index: u32) -> [u8; KEY_BYTES] {
    let mut key = [b'x'; KEY_BYTES];
    key[..4].copy_from_slice(&index.to_le_bytes());
    key
}

/// A key of any length; one that is shorter than a number is not RAMCloud's key of that number.
pub fn key_of(index: u32, length: usize) -> Vec<u8> {
    let mut key = vec![b'x'; length];
    let number = index.to_le_bytes();
    let known = length.min(number.len());
    key[..known].copy_from_slice(&number[..known]);
    key
}

/// Writes objects 0 to `wanted`; gives how many there are in the end. A store that becomes full keeps a part of them.
pub fn fill(cluster: &mut Cluster, table: TableId, wanted: u32, size: usize) -> Result<u32, Error> {
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

/// xorshift64*: fast, and the same numbers in every run.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u32) -> u32 {
        (((self.next() >> 32) * u64::from(bound)) >> 32) as u32
    }

    /// From 0 to below 1.
    pub fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Numbers below a bound, some much more often than others, as YCSB draws its keys: "Quickly Generating Billion-Record Synthetic
/// Databases", SIGMOD'94, with YCSB's exponent of 0.99. The frequent ones are scattered over the range.
#[derive(Clone, Debug)]
pub struct Zipfian {
    count: u32,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

const EXPONENT: f64 = 0.99;

impl Zipfian {
    pub fn new(count: u32) -> Zipfian {
        let sum = |to: u32| {
            (1..=to)
                .map(|rank| f64::from(rank).powf(-EXPONENT))
                .sum::<f64>()
        };
        let zeta = sum(count);
        let part = (2.0 / f64::from(count)).powf(1.0 - EXPONENT);
        Zipfian {
            count,
            zeta,
            alpha: 1.0 / (1.0 - EXPONENT),
            eta: (1.0 - part) / (1.0 - sum(2) / zeta),
        }
    }

    fn rank(&self, random: &mut Random) -> u32 {
        let fraction = random.fraction();
        let scaled = fraction * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(EXPONENT) {
            return 1.min(self.count - 1);
        }
        let rank = f64::from(self.count) * (self.eta * fraction - self.eta + 1.0).powf(self.alpha);
        (rank as u32).min(self.count - 1)
    }

    pub fn draw(&self, random: &mut Random) -> u32 {
        let rank = u64::from(self.rank(random));
        // An odd factor scatters; collisions make two ranks one, as YCSB's hashing does.
        ((rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % u64::from(self.count)) as u32
    }
}

/// What a client of `workloadThroughput` does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    pub name: &'static str,
    /// Of its operations, that many are reads.
    pub read_share: f64,
}

pub const WORKLOADS: [Workload; 4] = [
    Workload {
        name: "YCSB-A",
        read_share: 0.5,
    },
    Workload {
        name: "YCSB-B",
        read_share: 0.95,
    },
    Workload {
        name: "YCSB-C",
        read_share: 1.0,
    },
    Workload {
        name: "WRITE-ONLY",
        read_share: 0.0,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_ramclouds() {
        assert_eq!(key(0x0102)[..6], [2, 1, 0, 0, b'x', b'x']);
        assert_eq!(key(1).len(), 30);
        assert_eq!(key_of(1, 30), key(1));
        assert_eq!(key_of(0x0102, 2), [2, 1]);
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

    #[test]
    fn few_keys_are_drawn_often() {
        let (zipfian, mut random) = (Zipfian::new(1000), Random::new(3));
        let mut counts = vec![0_u32; 1000];
        for _ in 0..100_000 {
            counts[zipfian.rank(&mut random) as usize] += 1;
        }
        // The most frequent of a thousand has 1/zeta(1000) = 13 % of all draws, the second half of that.
        assert!((12_000..15_000).contains(&counts[0]), "{}", counts[0]);
        assert!((5_500..8_500).contains(&counts[1]), "{}", counts[1]);
        assert!(counts[500..].iter().sum::<u32>() < 12_000);
        let drawn: std::collections::BTreeSet<u32> =
            (0..1000).map(|_| zipfian.draw(&mut random)).collect();
        assert!(drawn.len() > 200 && drawn.iter().all(|number| *number < 1000));
    }
}
