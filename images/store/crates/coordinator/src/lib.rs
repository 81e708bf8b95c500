//! The coordinator: who is in the store, which tables there are, which server owns which part of them, and client leases.
//!
//! A state machine without I/O: a driver hands in what arrived, with the time, and carries out what [`Output`] is told.
//! What must outlive the process comes out as pairs ([`Coordinator::take_changes`]), of which the next one is made
//! ([`Coordinator::restore`]); [`Coordinator::new`] is a new, empty store.

#![forbid(unsafe_code)]

mod accept_loss;
mod again;
#[cfg(test)]
mod alone;
mod backups;
pub mod checkpoint;
mod control;
mod detection;
mod drain;
mod heard;
mod journaled;
mod keeping;
pub mod leader;
mod leading;
mod leases;
mod members;
mod move_orders;
mod movement;
pub mod orders;
mod pending;
mod ports;
mod questions;
mod rebuild;
mod recovery;
mod removal;
mod requests;
mod sessions;
mod settings;
pub mod state;
pub mod status;
mod store;
mod tables;
mod upgrade;
mod views;

use core::time::Duration;
use std::collections::BTreeMap;

use wire::format::Formats;
use wire::ids::ReplyTo;
use wire::member::{Hello, ToShard};
use wire::time::Time;

pub use leases::TERM_NS as LEASE_TERM_NS;
pub use movement::{Balancing, BalancingRules};
pub use orders::{
    AcceptLossError, Acceptance, Drain, DrainError, Finalize, FinalizeError, GiveUpMigrationError,
    MigrateError, MigrationOrder, MigrationTarget, Removal, RemoveMemberError, SettingsError,
    SettingsOrder, SpecVersion, TabletTable,
};

/// What a coordinator is created with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Random; names this store.
    pub cluster_id: u64,
    /// Upper half of table ids and of client lease ids, so that those of another store are never mistaken for this one's.
    pub cluster_tag: u32,
    pub build_version: String,
    /// How often shards are pinged.
    pub ping_interval: Duration,
    /// A connection on which nothing was heard for this long counts as gone. Whole milliseconds.
    pub silence_timeout: Duration,
    /// A server with replicas that is silent for half of this is suspected to be dead. Then others have this long to reach it.
    pub death_timeout: Duration,
    /// How long the answer to a control operation waits for shards.
    pub control_timeout: Duration,
    /// Serve requests that are for tests and do harm elsewhere: KILL.
    pub allow_test_rpcs: bool,
    /// Cluster time is noted so far ahead: a restart may leave out so much of it. Longer where it takes longer to note something.
    pub time_ahead: Duration,
    pub balancing: Balancing,
    pub limits: Limits,
    /// What this build reads. A new store is of the newest.
    pub formats: Formats,
}

impl Config {
    pub fn new(cluster_id: u64, cluster_tag: u32, build_version: impl Into<String>) -> Config {
        Config {
            cluster_id,
            cluster_tag,
            build_version: build_version.into(),
            ping_interval: Duration::from_millis(200),
            silence_timeout: Duration::from_secs(3),
            death_timeout: Duration::from_secs(1),
            control_timeout: Duration::from_secs(1),
            allow_test_rpcs: false,
            time_ahead: Duration::from_secs(60),
            balancing: Balancing::default(),
            limits: Limits::default(),
            formats: Formats::CURRENT,
        }
    }
}

/// What bounds the coordinator's memory. Beyond a limit requests are refused, or told to come again.
#[derive(Clone, Debug)]
pub struct Limits {
    pub max_members: usize,
    pub max_shards_per_member: u32,
    /// Removed members that are remembered, so that they are never let in again.
    pub max_removed: usize,
    pub max_tables: usize,
    pub max_tablets: usize,
    /// Keeps a table's config within one RPC.
    pub max_tablets_per_table: usize,
    pub max_span: u32,
    pub max_table_name_bytes: usize,
    pub max_client_leases: usize,
    /// Replies that wait for shards.
    pub max_pending_replies: usize,
    /// Control operations under way.
    pub max_pending_controls: usize,
    /// Of all of them together: inputs, which are copied for every shard, and what shards have answered.
    pub max_control_bytes: usize,
    /// Input of a control operation.
    pub max_control_input_bytes: usize,
    /// Losses that are remembered.
    pub max_losses: usize,
    /// Names of tables that a loss, or a refused removal, lists.
    pub max_names_listed: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_members: 1024,
            max_shards_per_member: 64,
            max_removed: 100_000,
            max_tables: 20_000,
            max_tablets: 100_000,
            max_tablets_per_table: 16_384,
            max_span: 1024,
            max_table_name_bytes: 1024,
            max_client_leases: 1_000_000,
            max_pending_replies: 4096,
            max_pending_controls: 64,
            max_control_bytes: 16 << 20,
            max_control_input_bytes: 64 << 10,
            max_losses: 100,
            max_names_listed: 16,
        }
    }
}

/// What a driver does for the coordinator.
pub trait Output {
    /// Sends a response to a client. Does nothing if the connection is gone.
    fn reply(&mut self, to: ReplyTo, payload: &[u8]);
    /// Sends a message to the shard on this member connection.
    fn send_member(&mut self, connection: u64, message: ToShard);
    /// Closes a member connection after what was sent on it before. Not reported back by `member_closed`.
    fn close_member(&mut self, connection: u64);
    /// For people. Levels as in the wire protocol: 1 error, 2 warning, 3 notice, 4 debug.
    fn log_message(&mut self, level: u32, text: &str);
    /// Ends the process at once, as a crash would. A driver that has no process to end leaves it out.
    fn end_process(&mut self) {}
}

/// Levels of [`Output::log_message`].
pub mod level {
    pub const ERROR: u32 = 1;
    pub const WARNING: u32 = 2;
    pub const NOTICE: u32 = 3;
    pub const DEBUG: u32 = 4;
}

/// One store's coordinator.
#[derive(Debug)]
pub struct Coordinator {
    store: store::Store,
    /// Since when this process leads the store.
    leads_since: Time,
    /// The one in force.
    format: u32,
    leading: leading::Leading,
    pending: pending::Pending,
    suspicions: detection::Suspicions,
    recoveries: recovery::Recoveries,
    movement: movement::Movement,
    settings: settings::InForce,
    announced: backups::Announced,
    /// Connections whose process would take the place of another and was asked whether it is alive; since when.
    newcomers: BTreeMap<u64, (Time, Hello)>,
    keeping: keeping::Keeping,
    /// Set while the store is made again from volumes.
    rebuild: Option<Box<rebuild::Rebuild>>,
    /// Everything is noted anew.
    is_all_changed: bool,
    /// The counters as they were last asked for.
    noted_meta: Option<state::records::Meta>,
    next_ping: Time,
    last_tick: Time,
    /// Somebody was told that requests for tests are not served.
    told_of_test_rpcs: bool,
}

impl Coordinator {
    /// An empty store; its cluster time is 0 at `now`.
    pub fn new(config: Config, now: Time) -> Coordinator {
        Coordinator {
            leads_since: now,
            format: config.formats.newest,
            leading: leading::Leading::default(),
            pending: pending::Pending::default(),
            suspicions: detection::Suspicions::default(),
            recoveries: recovery::Recoveries::default(),
            movement: movement::Movement::default(),
            settings: settings::InForce::default(),
            announced: backups::Announced::default(),
            newcomers: BTreeMap::new(),
            keeping: keeping::Keeping::default(),
            rebuild: None,
            is_all_changed: false,
            noted_meta: None,
            next_ping: now,
            last_tick: now,
            told_of_test_rpcs: false,
            store: store::Store::new(config, now),
        }
    }

    /// Does what is due. Returns when to call again; calling earlier does no harm.
    pub fn tick(&mut self, now: Time, out: &mut impl Output) -> Time {
        if let Some(next) = self.tend_rebuild(now, out) {
            return next;
        }
        if self.leading.refusal.is_some() {
            return Time::NEVER;
        }
        let next = self.gated(out, |it, out| it.do_what_is_due(now, out));
        next.min(self.keep_checkpoints(now, out))
    }

    fn do_what_is_due(&mut self, now: Time, out: &mut impl Output) -> Time {
        if now >= self.next_ping {
            self.end_silent_sessions(now, out);
            self.end_last_resorts(out);
            self.ping_shards(now, out);
            self.store.leases.expire(self.store.cluster_time_ns(now));
            self.next_ping = now + self.store.config.ping_interval;
        }
        let next_suspect = self.suspicions.look(&mut self.store, now, out);
        let next_look = self.recoveries.look(&mut self.store, now, out);
        let terms = self.terms_of_movement();
        let next_balance = self.movement.look(&mut self.store, terms, now, out);
        self.last_tick = now;
        while let Some(operation) = self.pending.overdue(now) {
            self.conclude(operation, out);
        }
        self.next_ping
            .min(self.pending.next_deadline())
            .min(next_suspect)
            .min(next_look)
            .min(next_balance)
    }
}
