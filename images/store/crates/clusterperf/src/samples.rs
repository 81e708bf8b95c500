//! Times of single operations.

use std::time::Duration;

use serde::Serialize;

use super::breakdown::Breakdown;

/// Times of one kind of operation, and what follows from them. All in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Samples {
    #[serde(skip)]
    sorted_ns: Vec<u64>,
    /// Where the time went, if that was asked for and found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub breakdown: Option<Breakdown>,
}

/// What is shown of a set of samples; microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    pub samples: usize,
    pub average_us: f64,
    pub median_us: f64,
    pub best_us: f64,
    pub worst_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    /// Object bytes per second, one operation after the other.
    pub bytes_per_second: f64,
}

impl Samples {
    /// Times in any order.
    pub fn new(mut times_ns: Vec<u64>) -> Samples {
        times_ns.sort_unstable();
        Samples {
            sorted_ns: times_ns,
            breakdown: None,
        }
    }

    pub fn with(self, breakdown: Option<Breakdown>) -> Samples {
        Samples { breakdown, ..self }
    }

    /// The time that a share `quantile` of the samples do not exceed; 0 without samples.
    pub fn quantile_ns(&self, quantile: f64) -> u64 {
        let rank = (quantile * self.sorted_ns.len() as f64).ceil() as usize;
        self.sorted_ns
            .get(rank.saturating_sub(1))
            .copied()
            .unwrap_or(0)
    }

    /// Points of the distribution: a time in microseconds, and the share of samples that took no longer.
    pub fn cdf(&self) -> Vec<(f64, f64)> {
        // Every percent, and finer towards the end, where it matters.
        let percents = (1..100).map(|percent| f64::from(percent) / 100.0);
        let shares = percents.chain([0.995, 0.999, 0.9995, 0.9999, 1.0]);
        shares
            .map(|share| (self.quantile_ns(share) as f64 / 1000.0, share))
            .collect()
    }

    pub fn summary(&self, object_bytes: usize) -> Summary {
        let micros = |nanos: u64| nanos as f64 / 1000.0;
        let count = self.sorted_ns.len();
        let total_ns: u64 = self.sorted_ns.iter().sum();
        let average_ns = total_ns as f64 / count.max(1) as f64;
        Summary {
            samples: count,
            average_us: average_ns / 1000.0,
            median_us: micros(self.quantile_ns(0.5)),
            best_us: micros(self.sorted_ns.first().copied().unwrap_or(0)),
            worst_us: micros(self.sorted_ns.last().copied().unwrap_or(0)),
            p90_us: micros(self.quantile_ns(0.9)),
            p99_us: micros(self.quantile_ns(0.99)),
            p999_us: micros(self.quantile_ns(0.999)),
            bytes_per_second: if total_ns == 0 {
                0.0
            } else {
                object_bytes as f64 * 1e9 / average_ns
            },
        }
    }
}

/// Collects samples for a time, or a number of them, at most so many that memory stays small.
pub struct Collector {
    times_ns: Vec<u64>,
    end: std::time::Instant,
    /// Instead of the time.
    count: Option<u64>,
}

/// More samples say nothing new.
const MAX_SAMPLES: usize = 4_000_000;

impl Collector {
    pub fn new(time: Duration, count: Option<u64>) -> Collector {
        Collector {
            times_ns: Vec::with_capacity(1 << 16),
            end: std::time::Instant::now() + time,
            count,
        }
    }

    /// Takes the time of one operation from `start` until now; false when it is time to stop.
    pub fn add(&mut self, start: std::time::Instant) -> bool {
        let now = std::time::Instant::now();
        self.times_ns
            .push(u64::try_from((now - start).as_nanos()).unwrap_or(u64::MAX));
        let taken = self.times_ns.len();
        taken < MAX_SAMPLES
            && match self.count {
                Some(count) => (taken as u64) < count,
                None => now < self.end,
            }
    }

    pub fn finish(self) -> Samples {
        Samples::new(self.times_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_samples() {
        let samples = Samples::new((1..=1000).rev().map(|micros| micros * 1000).collect());
        let summary = samples.summary(500);
        assert_eq!(summary.median_us, 500.0);
        assert_eq!((summary.best_us, summary.worst_us), (1.0, 1000.0));
        assert_eq!(
            (summary.p90_us, summary.p99_us, summary.p999_us),
            (900.0, 990.0, 999.0)
        );
        assert_eq!(summary.average_us, 500.5);
        assert!((summary.bytes_per_second - 500.0 / 500.5e-6).abs() < 1.0);
    }

    #[test]
    fn no_samples_give_zeros() {
        assert_eq!(Samples::new(vec![]).summary(100).worst_us, 0.0);
        assert_eq!(Samples::new(vec![7000]).quantile_ns(0.999), 7000);
    }
}
