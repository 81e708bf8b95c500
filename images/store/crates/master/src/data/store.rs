//! Objects in the log: what is where, and what of it is durable.

use std::collections::VecDeque;

use log::{Change, Cleaning, Durability, Index, Log, LogPosition, Origin, Reference};
use trace::Event;
use wire::entry::{Kind, ObjectView};
use wire::member::TabletRange;

use super::entries::{HashedKey, Known, Newest, newest_of_key, object_view};
use super::keeper::Keeper;
use super::results::Results;
use super::tablets::Tablets;
use crate::config::Config;

/// Everything that a shard keeps for its clients.
pub(crate) struct Store {
    pub config: Config,
    pub log: Log,
    pub keeper: Keeper,
    pub tablets: Tablets,
    /// What is being recovered, in order: objects may be there, and nobody is served.
    pub replaying: Vec<TabletRange>,
    pub(super) purge: Purge,
    /// Removed keys whose slots stay until their tombstones are durable, so that "not found" is not shown too early.
    pub(super) removed: VecDeque<Removed>,
    pub object_count: u64,
    /// Above every version that an overwritten object got; those of new ones are below the log's own count.
    pub(super) next_version: u64,
    /// What is written over an object gets this version at least.
    pub(super) version_floor: u64,
}

/// A removed key whose slot is still there.
pub(super) struct Removed {
    pub position: LogPosition,
    pub hash: u64,
    pub tombstone: Reference,
}

/// The walk over the hash table, and over what clients were answered, that takes out what belongs to dropped tablets.
#[derive(Default)]
pub(super) struct Purge {
    /// In order; none overlaps another.
    pub dropped: Vec<TabletRange>,
    pub next_bucket: usize,
    pub buckets_left: usize,
    /// The last client that was looked at, or 0; `None` when all were.
    pub last_client: Option<u64>,
}

/// What a lookup found.
pub(crate) struct Found {
    /// `None`: the key has no slot.
    pub known: Option<Known>,
    pub object: Option<Reference>,
    /// 0: there is no object.
    pub version: u64,
    /// What must be durable before this is shown.
    pub seen: LogPosition,
}

impl Store {
    /// # Panics
    /// If the configuration does not pass [`log::Config::check`].
    pub fn new(config: Config, origin: Origin) -> Store {
        let log = Log::new(config.log(), origin).unwrap_or_else(|error| panic!("{error}"));
        Store {
            config,
            log,
            keeper: Keeper {
                index: Index::new(config.hash_table_bytes),
                results: Results::default(),
            },
            tablets: Tablets::default(),
            replaying: Vec::new(),
            purge: Purge::default(),
            removed: VecDeque::new(),
            object_count: 0,
            next_version: 0,
            version_floor: 0,
        }
    }

    /// Drops everything and starts anew in the same memory.
    pub fn reset(&mut self, origin: Origin, first_version: u64) {
        self.next_version = 0;
        self.version_floor = 0;
        self.log.reset(origin);
        self.log.raise_safe_version(first_version);
        self.keeper.index.clear();
        self.keeper.results.clear();
        self.tablets.clear();
        self.replaying.clear();
        self.purge = Purge::default();
        self.removed.clear();
        self.object_count = 0;
    }

    /// No object here ever had this version or a higher one.
    pub fn next_version(&self) -> u64 {
        self.next_version.max(self.log.safe_version())
    }

    /// Everything that is written from now on gets this version at least.
    pub fn raise_version_floor(&mut self, floor: u64) {
        self.version_floor = self.version_floor.max(floor);
        self.log.raise_safe_version(floor);
    }

    // ---- reading ----

    /// Finds the newest entry of a key.
    #[inline]
    pub fn look_up(&self, place: &HashedKey<'_>) -> Found {
        let mut newest = Newest::Removed;
        let slot = self.keeper.index.find(place.hash, |at| {
            let of_key = newest_of_key(&self.log.entry(at), place);
            of_key.inspect(|of_key| newest = *of_key).is_some()
        });
        trace::record(Event::LookedUp, u64::from(slot.is_some()));
        let Some(slot) = slot else {
            return Found {
                known: None,
                object: None,
                version: 0,
                seen: LogPosition::START,
            };
        };
        let at = self.keeper.index.get(slot);
        let (object, version) = match newest {
            Newest::Object { version } => (Some(at), version),
            Newest::Removed => (None, 0),
        };
        Found {
            known: Some(Known { entry: at, slot }),
            object,
            version,
            seen: self.position_seen(at),
        }
    }

    /// The object at a place that [`Self::look_up`] found.
    pub fn object(&self, at: Reference) -> ObjectView<'_> {
        object_view(&self.log.entry(at))
    }

    /// What must be durable before the entry at `at` is shown.
    pub fn position_seen(&self, at: Reference) -> LogPosition {
        match self.config.durability {
            Durability::Unreplicated => LogPosition::START,
            Durability::External => self.log.position_of(at),
        }
    }

    // ---- durability, tablets, background ----

    /// Stands in for replicas where a driver has none: what is closed is safe at once, and nothing has to be copied or freed.
    pub fn settle_closed(&mut self) {
        while let Some(change) = self.log.take_change() {
            if let Change::Closed { segment_id } = change {
                self.log.settle(segment_id);
            }
        }
    }

    /// The log is durable up to `position`: removed keys may be forgotten.
    pub fn advance_durable(&mut self, position: LogPosition) {
        self.log.advance_durable(position);
        self.forget_removed();
    }

    /// Keys whose tombstones are durable need no slot any more.
    pub fn forget_removed(&mut self) {
        while let Some(removed) = self.removed.front()
            && removed.position <= self.log.durable_position()
        {
            let Removed {
                hash, tombstone, ..
            } = *removed;
            self.removed.pop_front();
            // The key may have been made again, or its tablet dropped.
            if let Some(slot) = self.keeper.index.find(hash, |found| found == tombstone) {
                self.keeper.index.remove(slot);
            }
        }
    }

    pub fn clean(&mut self, budget_bytes: usize) -> Cleaning {
        self.log.clean(&mut self.keeper, budget_bytes)
    }

    /// See [`Log::audit`].
    pub fn audit(&self) -> Result<(), String> {
        self.log.audit(&self.keeper)?;
        let objects = self.keeper.index.references();
        let count = objects
            .filter(|&at| self.log.entry(at).kind == Kind::Object)
            .count();
        if count as u64 == self.object_count {
            Ok(())
        } else {
            Err(format!(
                "{count} objects in the hash table, {} counted",
                self.object_count
            ))
        }
    }
}
