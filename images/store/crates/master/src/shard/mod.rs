//! The shard as its driver sees it.

mod admin;
mod backups;
mod codec;
mod enumerate;
mod fill;
mod foresight;
mod membership;
mod migrations;
mod movers;
mod multi;
mod perf;
mod proxy;
mod replay;
mod requests;
mod scratch;
mod settings;

use core::ops::Range;
use core::time::Duration;

use base::ids::ServerId;
use base::time::Time;
use log::{Cleaning, LogPosition, Origin, Room};
use wire::member::{self, TabletRange};

use crate::config::{Config, Identity, Replication};
use crate::continuations::fill::{Fills, MAX_FILLS};
use crate::continuations::migrations::AwaitedMigrations;
use crate::continuations::proxies::Proxies;
use crate::data::Store;
use crate::data::gate::Gate;
use crate::data::leases::Leases;
use crate::delay::BUSY;
use crate::effects::{Session, ShardEffects};
use crate::fullness::Fullness;
use crate::loads::Loads;
use crate::membership::Membership;
use crate::movers::migration::Migrations;
use crate::movers::recovery::Recoveries;
use crate::replicas::Replicas;
use crate::reports::Refusal;
use crate::shard::scratch::Scratch;
use crate::stats::Stats;
use crate::waiting::Waiting;

/// Bytes that the cleaner scans in one tick: a few for each byte that was written since the last, so that it keeps up with
/// writers (at 90% utilization it reads about ten bytes to free one), but never so many that requests wait for long.
const CLEAN_BYTES_PER_BYTE_WRITTEN: u64 = 16;
const CLEAN_STEP_BYTES: core::ops::RangeInclusive<u64> = 8 << 10..=256 << 10;
/// Buckets that a purge visits in one tick. Each has seven entries, and each entry is a cache miss or two: some tens of
/// microseconds.
const PURGE_STEP_BUCKETS: usize = 48;
/// Clients that are looked at in one tick for leases that have ended.
const EXPIRY_STEP_CLIENTS: usize = 64;
/// Time between two rounds of that.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(10);

/// See the crate's documentation.
pub struct Shard {
    /// As it is now.
    config: Config,
    /// How the log was to be replicated when the shard was made.
    started_with: Option<Replication>,
    identity: Identity,
    membership: Membership,
    store: Store,
    gate: Gate,
    replicas: Replicas,
    recoveries: Recoveries,
    migrations: Migrations,
    awaited: AwaitedMigrations,
    leases: Leases,
    counters: Stats,
    fullness: Fullness,
    waiting: Waiting,
    proxies: Proxies,
    loads: Loads,
    /// Memory for multi-ops, and for the objects that an enumeration returns; kept so that none is allocated per request.
    scratch: Scratch,
    enumerated: Vec<u8>,
    fills: Fills,
    /// The log was told that somebody asked for an RPC that is for tests only.
    told_about_test_rpcs: bool,
    /// Bytes that were appended when the cleaner ran last.
    cleaned_at: u64,
    next_expiry: Time,
    /// The last client that this round looked at.
    expiry_cursor: u64,
}

impl Shard {
    /// A shard that holds nothing and is in no cluster yet.
    ///
    /// # Panics
    /// If the sizes in `config` fit no log; those of [`Config::from_memory`] do.
    pub fn new(config: Config, identity: Identity, now: Time) -> Shard {
        let nobody = Origin {
            cluster_id: 0,
            server_id: ServerId::INVALID,
        };
        Shard {
            membership: Membership::default(),
            store: Store::new(config, nobody),
            gate: Gate::new(config.max_held_replies),
            replicas: Replicas::default(),
            recoveries: Recoveries::default(),
            migrations: Migrations::default(),
            awaited: AwaitedMigrations::default(),
            leases: Leases::default(),
            counters: Stats::default(),
            fullness: Fullness::default(),
            waiting: Waiting::default(),
            proxies: Proxies::default(),
            loads: Loads::default(),
            scratch: Scratch::default(),
            enumerated: Vec::new(),
            fills: Fills::at_most(MAX_FILLS),
            told_about_test_rpcs: false,
            cleaned_at: 0,
            next_expiry: now + EXPIRY_INTERVAL,
            expiry_cursor: 0,
            started_with: config.replication,
            config,
            identity,
        }
    }

    /// Has a new shard's log and hash table use this zeroed memory: pages that the process chose. See [`log::Config::memory_bytes`] and
    /// [`Config::hash_table_words`].
    ///
    /// # Panics
    /// If the sizes are others, or the shard is in use.
    pub fn use_memory(&mut self, log: &'static mut [u8], hash_table: &'static mut [u64]) {
        self.store.log.use_memory(log);
        self.store.keeper.index.use_memory(hash_table);
    }

    /// Where log and hash table lie: what an operating system should commit ahead of their use.
    pub fn memory(&self) -> [Range<*const u8>; 2] {
        let table = self.store.keeper.index.memory();
        [
            self.store.log.memory(),
            table.start.cast()..table.end.cast(),
        ]
    }

    /// What to send first when the driver has connected to the coordinator.
    pub fn hello(&self) -> member::Hello {
        let identity = self.identity.clone();
        member::Hello {
            cluster_id: self.membership.cluster_id(),
            server_id: self.server_id().0,
            credentials: Vec::new(),
            member: identity.member,
            instance: identity.instance,
            process: identity.process,
            host_id: identity.host_id,
            shard_index: identity.shard_index,
            shard_count: identity.shard_count,
            locator: identity.locator,
            log_capacity_bytes: self.store.log.usage().capacity_bytes,
            build_version: identity.build_version,
            backup_locator: identity.backup_locator,
            domain: identity.domain,
            replicas: self
                .config
                .replication
                .map_or(0, |wanted| wanted.replicas.into()),
            backup_only: false,
            position: self.membership.position(),
            oldest_format: self.config.formats.oldest,
            newest_format: self.config.formats.newest,
            volume_cluster_id: 0,
            takes_settings: true,
            merges_tablets: true,
            peer_locator: identity.peer_locator,
        }
    }

    /// Whether a coordinator let the shard in. It stays so while the coordinator is away.
    pub fn is_enlisted(&self) -> bool {
        self.membership.is_enlisted()
    }

    /// [`ServerId::INVALID`] before the shard is enlisted.
    pub fn server_id(&self) -> ServerId {
        self.membership.server_id()
    }

    /// The store's, as far as this shard knows.
    pub fn format(&self) -> u32 {
        self.store.log.format()
    }

    /// Why the coordinator did not let the shard in when it was last asked.
    pub fn refusal(&self) -> Option<&Refusal> {
        self.membership.refusal()
    }

    /// The member was removed or has a newer process: this one serves nothing any more, and asking again is useless.
    pub fn is_superseded(&self) -> bool {
        self.membership.is_superseded()
    }

    /// Whether the connection to the coordinator is still good: not when nothing was heard on it for too long.
    pub fn session(&self, now: Time) -> Session {
        self.membership.session(now)
    }

    /// Does a bounded piece of background work. The driver calls this after every batch of events, and no later than at the
    /// time that it answers (`now` if there is more to do, [`Time::NEVER`] if nothing is planned).
    pub fn tick(&mut self, now: Time, out: &mut impl ShardEffects) -> Time {
        self.waiting.note(now, self.gate.held_count() > 0);
        let mut next = self.membership.silence_deadline();
        if self.store.has_purge() {
            if self.store.purge(PURGE_STEP_BUCKETS) {
                self.take_waiting_tablets(out);
            } else {
                next = now;
            }
        }
        if self.store.log.wants_cleaning() && self.clean() == Cleaning::More {
            next = now;
        }
        if let Some(tokens) = self.store.log.take_recall() {
            out.recall(tokens, &|token, length| self.store.log.lent(token, length));
        }
        if self.fill_some(now, out) {
            next = now;
        }
        next = next.min(self.tend_movers(now, out));
        next = next.min(self.replicate(now, out));
        if self.look_for_durable_replays(now, out) {
            next = now;
        }
        self.look_for_ended_leases(now, out);
        next.min(self.next_expiry)
            .min(self.expire_continuations(now, out))
    }

    /// Whether the next tick cleans.
    pub fn is_cleaning(&self) -> bool {
        self.store.log.wants_cleaning()
    }

    /// For drivers that decide themselves what is durable, and when: the log is durable up to `position`, which is at most
    /// [`Self::head_position`]. Sends the replies that waited for it.
    ///
    /// # Panics
    /// If the shard was configured with another durability than [`crate::Durability::External`], or replicates its log itself.
    pub fn advance_durable(&mut self, position: LogPosition, out: &mut impl ShardEffects) {
        assert!(self.config.replication.is_none());
        self.store.settle_closed();
        self.store.advance_durable(position);
        self.gate.open(self.store.log.durable_position(), out);
    }

    /// The bytes lent with [`ShardEffects::reply_lent`]; `None` if the shard has started anew since.
    pub fn lent(&self, token: u64, length: usize) -> Option<&[u8]> {
        self.store.log.lent(token, length)
    }

    /// The driver does not need it any more.
    pub fn returned(&mut self, token: u64) {
        self.store.log.returned(token);
    }

    /// Position behind the newest entry of the log: what is to be made durable.
    pub fn head_position(&self) -> LogPosition {
        self.store.log.head_position()
    }

    pub fn stats(&self) -> Stats {
        let usage = self.store.log.usage();
        let cleaner = self.store.log.cleaner_stats();
        Stats {
            segments_cleaned: cleaner.segments_cleaned,
            cleaner_scanned_bytes: cleaner.scanned_bytes,
            cleaner_survivor_bytes: cleaner.survivor_bytes,
            objects: self.store.object_count,
            tablets: self.store.tablets.all().len() as u64,
            clients: self.store.keeper.results.client_count() as u64,
            rpc_results: self.store.keeper.results.count() as u64,
            held_replies: self.gate.held_count() as u64,
            log_capacity_bytes: usage.capacity_bytes,
            log_live_bytes: usage.live_bytes,
            log_tombstone_bytes: usage.tombstone_bytes,
            log_max_live_bytes: usage.max_live_bytes,
            log_free_bytes: usage.free_bytes,
            ..self.counters
        }
    }

    /// What it owns, in order of tables and hashes. For tests and simulation.
    pub fn tablets(&self) -> &[TabletRange] {
        self.store.tablets.all()
    }

    /// What unused ends of segments take of the room for live data. Slow: for tests and simulation.
    pub fn room(&self) -> Room {
        self.store.log.room()
    }

    /// Recounts everything that is counted on the way, and compares. Slow: for tests and simulation.
    pub fn audit(&self) -> Result<(), String> {
        self.store.audit()
    }

    /// Answers what has waited for too long; answers when the next one will have.
    fn expire_continuations(&mut self, now: Time, out: &mut impl ShardEffects) -> Time {
        self.proxies.expire(now, out);
        while let Some(to) = self.awaited.take_expired(now) {
            self.come_again(to, BUSY, out);
        }
        while let Some(fill) = self.fills.take_expired(now) {
            self.come_again(fill.to, BUSY, out);
        }
        (self.proxies.next_deadline())
            .min(self.awaited.next_deadline())
            .min(self.fills.next_deadline())
    }

    fn clean(&mut self) -> Cleaning {
        let appended = self.store.log.appended().bytes;
        let written = appended - self.cleaned_at;
        self.cleaned_at = appended;
        let wanted = written.saturating_mul(CLEAN_BYTES_PER_BYTE_WRITTEN);
        let budget = wanted.clamp(*CLEAN_STEP_BYTES.start(), *CLEAN_STEP_BYTES.end());
        self.store.clean(budget as usize)
    }

    /// Asks the coordinator about clients whose leases should have ended, some at a time.
    fn look_for_ended_leases(&mut self, now: Time, out: &mut impl ShardEffects) {
        if now < self.next_expiry {
            return;
        }
        let Some(cluster_ns) = self.leases.cluster_time_ns(now) else {
            self.next_expiry = now + EXPIRY_INTERVAL;
            return;
        };
        let cursor = self.expiry_cursor;
        let mut looked_at = 0;
        let results = &self.store.keeper.results;
        for (lease_id, expiration_ns) in results.clients_after(cursor, EXPIRY_STEP_CLIENTS) {
            looked_at += 1;
            self.expiry_cursor = lease_id;
            if expiration_ns <= cluster_ns {
                crate::membership::ask_about_lease(
                    &self.membership,
                    &mut self.leases,
                    lease_id,
                    out,
                );
            }
        }
        if looked_at < EXPIRY_STEP_CLIENTS {
            self.expiry_cursor = 0;
            self.next_expiry = now + EXPIRY_INTERVAL;
        }
    }
}

#[cfg(test)]
impl Shard {
    pub(crate) fn store(&mut self) -> &mut Store {
        &mut self.store
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }
}
