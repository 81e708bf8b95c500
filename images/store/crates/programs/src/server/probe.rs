//! Health and metrics of a server.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use master::Stats;

use super::driver::Question;
use crate::mailbox::Mailbox;
use crate::metrics::{self, Sample, byte_counter, byte_gauge, counter, gauge};

/// Whether a shard is enlisted; written by its thread when that changes, read by the one that serves HTTP.
#[derive(Default)]
pub struct State(Mutex<Readiness>);

#[derive(Clone, Default, PartialEq, Eq)]
struct Readiness {
    enlisted: bool,
    refusal: Option<String>,
}

impl State {
    pub fn set(&self, enlisted: bool, refusal: Option<&str>) {
        let mut readiness = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        readiness.enlisted = enlisted;
        if readiness.refusal.as_deref() != refusal {
            readiness.refusal = refusal.map(str::to_owned);
        }
    }

    fn get(&self) -> Readiness {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

struct Shard {
    locator: String,
    mailbox: Mailbox<Question>,
    state: Arc<State>,
}

/// All shards of a process.
#[derive(Default)]
pub struct Probe {
    shards: Vec<Shard>,
}

impl Probe {
    /// The next shard; its thread keeps what is returned up to date.
    pub fn add(&mut self, locator: String, mailbox: Mailbox<Question>) -> Arc<State> {
        let state = Arc::new(State::default());
        self.shards.push(Shard {
            locator,
            mailbox,
            state: Arc::clone(&state),
        });
        state
    }

    pub fn first_locator(&self) -> Option<&str> {
        self.shards.first().map(|shard| shard.locator.as_str())
    }
}

impl crate::http::Probe for Probe {
    fn ready(&self) -> Result<(), String> {
        for (index, shard) in self.shards.iter().enumerate() {
            match shard.state.get() {
                Readiness { enlisted: true, .. } => {}
                Readiness {
                    refusal: Some(refusal),
                    ..
                } => {
                    return Err(format!(
                        "shard {index} was refused by the coordinator: {refusal}"
                    ));
                }
                Readiness { .. } => {
                    return Err(format!(
                        "shard {index} is not enlisted with the coordinator yet"
                    ));
                }
            }
        }
        Ok(())
    }

    fn metrics(&self) -> Pin<Box<dyn Future<Output = Result<String, String>> + Send + '_>> {
        Box::pin(async {
            let mut shards = Vec::new();
            for shard in &self.shards {
                let numbers = shard.mailbox.ask(Question::Numbers).await;
                let (stats, counters) = numbers.map_err(|error| error.to_string())?;
                let mut samples = of_shard(&stats);
                samples.extend(metrics::of_reactor(&counters));
                shards.push(samples);
            }
            Ok(metrics::text_by_shard(shards))
        })
    }
}

fn of_shard(stats: &Stats) -> Vec<Sample> {
    vec![
        counter("reads", "Objects that were read", stats.reads),
        counter(
            "writes",
            "Writes that took effect, parts of multi-ops included",
            stats.writes,
        ),
        counter("removes", "Objects that were removed", stats.removes),
        counter(
            "increments",
            "Objects that were incremented",
            stats.increments,
        ),
        counter(
            "enumerated",
            "Objects that enumerations returned",
            stats.enumerated,
        ),
        byte_counter("read_values", "Values that were read", stats.read_bytes),
        byte_counter(
            "written_objects",
            "Keys and values that were written",
            stats.written_bytes,
        ),
        counter("multi_ops", "Multi-ops", stats.multi_ops),
        counter(
            "duplicate_requests",
            "Requests that had been executed before, and were not again",
            stats.duplicates,
        ),
        counter(
            "retried_requests",
            "Requests, or parts of one, that were told to come again",
            stats.retries,
        ),
        counter(
            "full_rejections",
            "Requests refused for want of memory",
            stats.rejected_full,
        ),
        counter(
            "cleaned_segments",
            "Log segments that were cleaned",
            stats.segments_cleaned,
        ),
        byte_counter(
            "cleaner_scanned",
            "Log that the cleaner read",
            stats.cleaner_scanned_bytes,
        ),
        byte_counter(
            "cleaner_survivors",
            "Log that the cleaner kept",
            stats.cleaner_survivor_bytes,
        ),
        gauge("objects", "Objects", stats.objects),
        gauge("tablets", "Tablets", stats.tablets),
        gauge(
            "clients",
            "Clients whose leases and results are remembered",
            stats.clients,
        ),
        gauge(
            "rpc_results",
            "Results that are remembered",
            stats.rpc_results,
        ),
        gauge(
            "held_replies",
            "Replies that wait until what they show is durable",
            stats.held_replies,
        ),
        byte_gauge(
            "log_capacity",
            "Memory for the log",
            stats.log_capacity_bytes,
        ),
        byte_gauge("log_live", "Live data in the log", stats.log_live_bytes),
        byte_gauge(
            "log_tombstones",
            "Tombstones in the log",
            stats.log_tombstone_bytes,
        ),
        byte_gauge(
            "log_max_live",
            "What live data may take before writes are refused",
            stats.log_max_live_bytes,
        ),
        byte_gauge("log_free", "Free memory of the log", stats.log_free_bytes),
    ]
}
