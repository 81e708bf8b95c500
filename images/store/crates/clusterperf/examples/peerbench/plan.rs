//! What is measured, and what comes of it.

use serde::{Deserialize, Serialize};

/// Length of every key, as in RAMCloud's benchmarks.
pub const KEY_BYTES: usize = 30;
/// Objects that are there; keys are drawn from them at random.
pub const OBJECTS: u32 = 50_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    Get,
    Set,
    /// Several objects in one request.
    Multiget,
}

/// One thing to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Case {
    pub operation: Operation,
    pub value_bytes: usize,
    pub connections: usize,
    /// Requests under way on each connection.
    pub depth: usize,
    /// Objects in one request.
    pub batch: usize,
    /// The client sleeps until an answer comes, as most programs do.
    pub sleeps: bool,
}

/// One measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    pub target: String,
    #[serde(flatten)]
    pub case: Case,
    pub objects_per_s: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
}

impl Case {
    /// "set-100x8x16": value bytes, connections, requests under way on each; "multiget-100x8x1x20": and objects in each.
    pub fn name(&self) -> String {
        let operation = match self.operation {
            Operation::Get => "get",
            Operation::Set => "set",
            Operation::Multiget => "multiget",
        };
        let batch = if self.batch > 1 {
            format!("x{}", self.batch)
        } else {
            String::new()
        };
        let sleeps = if self.sleeps { "-sleeps" } else { "" };
        let (bytes, connections, depth) = (self.value_bytes, self.connections, self.depth);
        format!("{operation}-{bytes}x{connections}x{depth}{batch}{sleeps}")
    }
}

const ONE: Case = Case {
    operation: Operation::Get,
    value_bytes: 100,
    connections: 1,
    depth: 1,
    batch: 1,
    sleeps: false,
};

/// Those whose names contain `only`; everything if that is empty.
pub fn cases(only: &str) -> Vec<Case> {
    let mut cases = all_cases();
    cases.retain(|case| case.name().contains(only));
    cases
}

fn all_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for value_bytes in [100, 1024] {
        for operation in [Operation::Get, Operation::Set] {
            cases.push(Case {
                operation,
                value_bytes,
                ..ONE
            });
        }
    }
    cases.push(Case {
        sleeps: true,
        ..ONE
    });
    for (connections, depth) in [(8, 1), (50, 1), (1, 16), (8, 16), (50, 16)] {
        for operation in [Operation::Get, Operation::Set] {
            cases.push(Case {
                operation,
                connections,
                depth,
                ..ONE
            });
        }
    }
    for (connections, batch) in [(1, 20), (8, 20), (8, 100)] {
        let operation = Operation::Multiget;
        cases.push(Case {
            operation,
            connections,
            batch,
            ..ONE
        });
    }
    cases
}

/// Key number `number`.
pub fn key(number: u32) -> [u8; KEY_BYTES] {
    let mut key = [b'0'; KEY_BYTES];
    let mut rest = number;
    for digit in key.iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// xorshift64*: the same keys in every run.
pub struct Random(pub u64);

impl Random {
    pub fn key(&mut self) -> [u8; KEY_BYTES] {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        key(((high * u64::from(OBJECTS)) >> 32) as u32)
    }
}

/// Latencies of one case, and how many objects they were for.
pub struct Samples {
    pub nanos: Vec<u64>,
    pub objects: u64,
    pub seconds: f64,
}

impl Samples {
    pub fn into_measured(mut self, target: &str, case: Case) -> Measured {
        self.nanos.sort_unstable();
        let last = self.nanos.len().saturating_sub(1);
        let at = |quantile: f64| {
            let nanos = self.nanos.get((last as f64 * quantile) as usize);
            nanos.map_or(f64::NAN, |nanos| *nanos as f64 / 1000.0)
        };
        Measured {
            target: target.to_owned(),
            case,
            objects_per_s: self.objects as f64 / self.seconds,
            p50_us: at(0.5),
            p99_us: at(0.99),
            p999_us: at(0.999),
        }
    }
}
