//! What each tablet has and how much it is used, for the coordinator.
//!
//! Uses are counted where keys are looked for. Bytes and objects are nobody's to count when something is written: they are estimated from a part of
//! the hash table that is looked at with each ping, and from what the shard has altogether.

use std::collections::{BTreeMap, VecDeque};

use wire::entry::Kind;
use wire::member::{TabletLoad, TabletRange};

use crate::data::tablets::overlap;
use crate::data::{Store, place_of};

/// What one ping looks at, at most: each entry and each bucket may be a cache miss, so this is some ten microseconds.
const ENTRIES_AT_A_TIME: u64 = 64;
const BUCKETS_AT_A_TIME: usize = 256;
/// Pings of a round, at the end of which there is an estimate.
const PINGS_OF_ROUND: u32 = 16;
/// Tablets that a round looks at, and that a pong tells of.
const TABLETS_OF_ROUND: usize = 1000;

/// One round's estimates, and what the coordinator was told in this session.
#[derive(Default)]
pub(crate) struct Loads {
    pings: u32,
    next_bucket: usize,
    buckets_left: usize,
    /// All entries that were looked at, also of tablets that were given up.
    all: Sample,
    by_tablet: BTreeMap<TabletRange, Sample>,
    /// The last tablet that was looked at, while there are more.
    last_tablet: Option<TabletRange>,
    told: BTreeMap<TabletRange, Told>,
    due: VecDeque<TabletLoad>,
}

#[derive(Clone, Copy, Default)]
struct Sample {
    bytes: u64,
    objects: u64,
}

impl Sample {
    fn add(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        self.objects += 1;
    }
}

struct Told {
    load: TabletLoad,
    /// It was used since what was told before.
    is_busy: bool,
}

impl Loads {
    /// A ping has come: what the answer tells.
    pub fn pinged(&mut self, store: &Store) -> Vec<TabletLoad> {
        if self.pings == 0 {
            (self.all, self.buckets_left) = (Sample::default(), store.keeper.index.bucket_count());
            self.by_tablet.clear();
        }
        self.look(store);
        self.pings += 1;
        if self.pings == PINGS_OF_ROUND {
            self.pings = 0;
            self.end_round(store);
        }
        let count = self.due.len().min(TABLETS_OF_ROUND);
        self.due.drain(..count).collect()
    }

    /// Tablets are one now. Should they be two again, what is in each is news.
    pub fn were_merged(&mut self, whole: &TabletRange) {
        let is_part = |tablet: &TabletRange| overlap(tablet, whole);
        let mut sample = Sample::default();
        self.by_tablet.retain(|tablet, seen| {
            if is_part(tablet) {
                sample.bytes += seen.bytes;
                sample.objects += seen.objects;
            }
            !is_part(tablet)
        });
        self.by_tablet.insert(*whole, sample);
        self.told.retain(|tablet, _| !is_part(tablet));
        self.due.retain(|load| !is_part(&load.tablet));
    }

    fn look(&mut self, store: &Store) {
        let index = &store.keeper.index;
        let enough = self.all.objects + ENTRIES_AT_A_TIME;
        for _ in 0..BUCKETS_AT_A_TIME.min(self.buckets_left) {
            if self.all.objects >= enough {
                break;
            }
            for at in index.bucket(self.next_bucket) {
                let entry = store.log.entry(at);
                if entry.kind != Kind::Object {
                    continue;
                }
                let (place, bytes) = (place_of(&entry), entry.bytes.len());
                self.all.add(bytes);
                if let Some(tablet) = store.tablets.range_of(place.table_id, place.hash) {
                    self.by_tablet.entry(tablet).or_default().add(bytes);
                }
            }
            self.next_bucket = (self.next_bucket + 1) % index.bucket_count();
            self.buckets_left -= 1;
        }
    }

    /// Finds what is to be told.
    fn end_round(&mut self, store: &Store) {
        let usage = store.log.usage();
        let live_bytes = usage.live_bytes - usage.tombstone_bytes;
        let part = |of: u64, part: u64, whole: u64| {
            (u128::from(of) * u128::from(part) / u128::from(whole.max(1))) as u64
        };
        let mut tablets = store.tablets.uses_after(self.last_tablet);
        let mut last_tablet = None;
        for (tablet, uses) in tablets.by_ref().take(TABLETS_OF_ROUND) {
            let sample = self.by_tablet.get(&tablet).copied().unwrap_or_default();
            let load = TabletLoad {
                tablet,
                bytes: part(live_bytes, sample.bytes, self.all.bytes),
                objects: part(store.object_count, sample.objects, self.all.objects),
                uses,
            };
            last_tablet = Some(tablet);
            self.tell(load);
        }
        self.last_tablet = last_tablet.filter(|_| tablets.next().is_some());
        if self.told.len() > store.tablets.all().len() + TABLETS_OF_ROUND {
            // Most of these are gone. What is there is told again.
            self.told.clear();
        }
    }

    /// Unless it says nothing new.
    fn tell(&mut self, load: TabletLoad) {
        let told = self.told.get(&load.tablet);
        let is_busy = told.is_some_and(|told| told.load.uses != load.uses);
        let is_new = told.is_none_or(|told| {
            let differs = load.bytes.abs_diff(told.load.bytes) > told.load.bytes / 16;
            // That a tablet is not used any more is said once.
            differs || is_busy || told.is_busy
        });
        if is_new {
            self.told.insert(load.tablet, Told { load, is_busy });
            self.due.push_back(load);
        }
    }
}
