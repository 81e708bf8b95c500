//! Health and metrics of a server.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use base::time::Time;
use daemon::mailbox::{Mailbox, NoAnswer};
use daemon::metrics::{self, Sample, byte_counter, byte_gauge, counter, gauge};
use master::Refusal;
use ports::Ports;

use super::driver::Question;
use super::port_report::Ways;
use crate::memory::ToCommit;

/// Whether a shard is of use; written by its thread, read by the one that serves HTTP.
#[derive(Default)]
pub struct State {
    readiness: Mutex<Readiness>,
    /// In nanoseconds of [`Time`].
    serving_until: AtomicU64,
}

#[derive(Clone, Default, PartialEq, Eq)]
struct Readiness {
    enlisted: bool,
    refusal: Option<Refusal>,
}

impl State {
    pub fn set(&self, enlisted: bool, refusal: Option<&Refusal>) {
        let mut readiness = self
            .readiness
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        readiness.enlisted = enlisted;
        if readiness.refusal.as_ref() != refusal {
            readiness.refusal = refusal.cloned();
        }
    }

    /// Until when no recovery of the shard's log can have begun.
    pub fn set_serving(&self, until: Time) {
        self.serving_until.store(until.0, Ordering::Relaxed);
    }

    fn is_serving(&self) -> bool {
        net::now() < Time(self.serving_until.load(Ordering::Relaxed))
    }

    fn get(&self) -> Readiness {
        self.readiness
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
pub struct Probe {
    shards: Vec<Shard>,
    /// Other than TCP, if there are any.
    ports: Option<Arc<Ports>>,
    /// Memory that is committed ahead of its use, if any is.
    to_commit: Option<Arc<ToCommit>>,
    has_replicas: bool,
    has_backups: bool,
}

impl Probe {
    pub fn new(has_replicas: bool, has_backups: bool) -> Probe {
        Probe {
            shards: Vec::new(),
            ports: None,
            to_commit: None,
            has_replicas,
            has_backups,
        }
    }

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

    pub fn set_ports(&mut self, ports: Arc<Ports>) {
        self.ports = Some(ports);
    }

    pub fn set_to_commit(&mut self, to_commit: Arc<ToCommit>) {
        self.to_commit = Some(to_commit);
    }

    fn bytes_to_commit(&self) -> u64 {
        self.to_commit.as_ref().map_or(0, |it| it.bytes())
    }

    /// Of each shard.
    pub fn mailboxes(&self) -> Vec<Mailbox<Question>> {
        let mailboxes = self.shards.iter().map(|shard| shard.mailbox.clone());
        mailboxes.collect()
    }

    pub fn first_locator(&self) -> Option<&str> {
        self.shards.first().map(|shard| shard.locator.as_str())
    }
}

impl daemon::http::Probe for Probe {
    fn ready(&self) -> Result<String, String> {
        for (index, shard) in self.shards.iter().enumerate() {
            match shard.state.get() {
                Readiness { enlisted: true, .. } if shard.state.is_serving() => {}
                Readiness { enlisted: true, .. } => {
                    return Err(format!(
                        "shard {index} is not serving: its log is not on as many backups as it must be, or they do not answer"
                    ));
                }
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
        // All works, but requests that come to memory first wait for the kernel: whoever measures now measures that.
        match self.bytes_to_commit() {
            0 => Ok("ok".to_owned()),
            bytes => Err(format!(
                "memory is still being committed ahead of its use: {} MiB are left",
                bytes.div_ceil(1 << 20)
            )),
        }
    }

    fn metrics(&self) -> Pin<Box<dyn Future<Output = Result<String, NoAnswer>> + Send + '_>> {
        Box::pin(async {
            let mut shards = Vec::new();
            for shard in &self.shards {
                let numbers = shard.mailbox.ask(Question::Numbers).await?;
                let mut samples = of_shard(&numbers.stats);
                if self.has_replicas {
                    samples.extend(of_replication(&numbers.replication));
                }
                if self.has_backups {
                    samples.extend(of_backup(&numbers.backup));
                }
                samples.extend(metrics::of_reactor(&numbers.counters));
                if shard.locator.contains(";fast+") {
                    samples.extend(metrics::of_ports(&numbers.counters.fast));
                    samples.extend(of_ways(&numbers.ways));
                }
                shards.push(samples);
            }
            // Of the process: told once, behind what each shard has.
            if let Some(first) = shards.first_mut() {
                first.push(byte_gauge(
                    "memory_to_commit",
                    "Memory that is still to be committed ahead of its use",
                    self.bytes_to_commit(),
                ));
            }
            if let (Some(ports), Some(first)) = (&self.ports, shards.first_mut()) {
                first.push(counter(
                    "ports_opened_anew",
                    "Attempts to open a port of DPDK anew that was dead",
                    ports.opened_anew(),
                ));
            }
            Ok(metrics::text_by_shard(shards))
        })
    }
}

fn of_shard(stats: &master::Stats) -> Vec<Sample> {
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
            "Requests that had been executed before and were not executed again",
            stats.duplicates,
        ),
        counter(
            "retried_requests",
            "Requests, or parts of a request, that were answered with RETRY",
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

fn of_replication(report: &replication::Report) -> Vec<Sample> {
    vec![
        gauge(
            "replication_backups",
            "Backups that take copies of the log",
            report.backups,
        ),
        gauge(
            "replication_segments",
            "Segments of the log that have copies or shall have",
            report.segments,
        ),
        gauge(
            "replication_segments_short",
            "Segments of the log with fewer copies than wanted",
            report.segments_short,
        ),
        byte_gauge(
            "replication_waiting",
            "Log that was sent to backups and is not acknowledged yet",
            report.waiting_bytes,
        ),
    ]
}

fn of_ways(ways: &Ways) -> Vec<Sample> {
    vec![
        gauge(
            "fast_backups",
            "Backups that the log goes to by a port for datagrams",
            ways.by_port,
        ),
        gauge(
            "fast_backups_over_tcp",
            "Backups that have a port for datagrams, and that the log goes to by TCP all the same",
            ways.over_tcp,
        ),
    ]
}

fn of_backup(stats: &backup::Stats) -> Vec<Sample> {
    let frames = |count: u32| u64::from(count);
    vec![
        gauge(
            "backup_frames_free",
            "Frames without a copy",
            frames(stats.frames_free + stats.frames_freeing),
        ),
        gauge(
            "backup_frames_open",
            "Frames with a copy that is still written to",
            frames(stats.frames_open),
        ),
        gauge(
            "backup_frames_closed",
            "Frames with a complete copy",
            frames(stats.frames_closed),
        ),
        gauge(
            "backup_frames_damaged",
            "Frames whose data is known to be lost or wrong, or that cannot be read",
            frames(stats.frames_damaged + stats.frames_unusable),
        ),
        gauge(
            "backup_fences",
            "Servers whose logs were recovered by others",
            frames(stats.fences),
        ),
        gauge(
            "backup_retired",
            "1: the storage has failed, nothing new is accepted",
            u64::from(stats.retired.is_some()),
        ),
        gauge(
            "backup_stalled",
            "1: the storage has not completed a write, a sync or a read for too long",
            u64::from(stats.stalled.is_some()),
        ),
        counter("backup_appends", "Appends that were taken", stats.appends),
        byte_counter(
            "backup_appended",
            "Data of appends that was written to frames",
            stats.bytes_appended,
        ),
        counter(
            "backup_syncs",
            "Syncs of the frames that have ended",
            stats.syncs,
        ),
    ]
}
