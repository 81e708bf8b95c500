//! Reads, or writes, at a fixed rate, and how long each took from when it was due: waiting behind a slow one counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use client::{Cluster, Options, TableId};
use serde::Serialize;

use crate::{Failure, quantile};

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Read,
    /// Of 100 B.
    Write,
}

pub struct Reader {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<Read>, client::Error>>,
}

struct Read {
    due: Instant,
    took: Duration,
}

/// Of the reads of a stretch of time.
#[derive(Clone, Copy, Serialize)]
pub struct Latency {
    pub reads: usize,
    pub p50_us: f64,
    pub p99_us: f64,
    pub max_us: f64,
}

impl Reader {
    /// Reads, or writes, one of these objects after the other, in turn.
    pub fn start(
        locator: &str,
        objects: Vec<(TableId, Vec<u8>)>,
        kind: Kind,
        pace: Duration,
    ) -> Result<Reader, Failure> {
        // The cores are for the store.
        let options = Options {
            spin: Duration::ZERO,
            ..Options::default()
        };
        let mut cluster = Cluster::with_options(locator, options)?;
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (mut reads, mut due) = (Vec::new(), Instant::now());
            for (table, key) in objects.iter().cycle() {
                if told.load(Ordering::Relaxed) {
                    break;
                }
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                match kind {
                    Kind::Read => drop(cluster.read(*table, key)?),
                    Kind::Write => drop(cluster.write(*table, key, &[7; 100])?),
                }
                reads.push(Read {
                    due,
                    took: due.elapsed(),
                });
                due += pace;
            }
            Ok(reads)
        });
        Ok(Reader { stop, thread })
    }

    /// Stops reading; gives the latencies between each of these times and the next.
    pub fn finish(self, times: &[Instant]) -> Result<Vec<Latency>, Failure> {
        self.stop.store(true, Ordering::Relaxed);
        let reads = self
            .thread
            .join()
            .map_err(|_| "the reader has panicked")??;
        let stretch = |ends: &[Instant]| {
            let within = reads
                .iter()
                .filter(|read| (ends[0]..ends[1]).contains(&read.due));
            let mut took: Vec<f64> = within.map(|read| read.took.as_secs_f64() * 1e6).collect();
            took.sort_by(f64::total_cmp);
            Latency {
                reads: took.len(),
                p50_us: quantile(&took, 0.5),
                p99_us: quantile(&took, 0.99),
                max_us: quantile(&took, 1.0),
            }
        };
        Ok(times.windows(2).map(stretch).collect())
    }
}
