//! The model: what backups hold, what is on the way to them, and a recovery's view of all that.

mod checks;
mod faults;
mod time;

use std::collections::{BTreeMap, BTreeSet};

use base::ids::ServerId;
use base::time::Time;

use super::backup::ModelBackup;
use super::store::Store;
use crate::{BackupInfo, Config, ReplicationEffects, ReplicationEvent, Replicator};
use time::Event;

pub const LOG: ServerId = ServerId(1);

/// What the replicator wants done.
#[derive(Default)]
pub struct Wishes {
    connect: Vec<ServerId>,
    disconnect: Vec<ServerId>,
    send: Vec<(ServerId, u64, Vec<u8>)>,
    floors: Vec<u64>,
    reports: Vec<ReplicationEvent>,
}

impl ReplicationEffects for Wishes {
    fn connect_backup(&mut self, backup: ServerId, _: &str) {
        self.connect.push(backup);
    }
    fn disconnect_backup(&mut self, backup: ServerId) {
        self.disconnect.push(backup);
    }
    fn send_backup(&mut self, backup: ServerId, nonce: u64, parts: &[&[u8]]) {
        self.send.push((backup, nonce, parts.concat()));
    }
    fn raise_open_floor(&mut self, segment_id: u64) {
        self.floors.push(segment_id);
    }
    fn report(&mut self, event: ReplicationEvent) {
        self.reports.push(event);
    }
}

#[derive(Debug)]
pub enum Outcome {
    /// Nothing was ever acknowledged.
    Empty,
    /// Something is missing.
    Waits,
    Found {
        head: u64,
        bytes: usize,
    },
}

pub struct World {
    pub now: Time,
    pub store: Store,
    pub replicator: Replicator,
    pub out: Wishes,
    backups: Vec<ModelBackup>,
    /// The number of the present connection to each backup.
    connections: BTreeMap<ServerId, u64>,
    next_connection: u64,
    /// Per sender and receiver in order.
    events: BTreeMap<(Time, u64), Event>,
    next_event: u64,
    /// What arrives on a connection arrives after what was sent before.
    last_arrival: BTreeMap<(ServerId, bool), Time>,
    floor: Option<u64>,
    coordinator_is_gone: bool,
    /// All segments as they were when last seen in memory.
    shadow: BTreeMap<u64, Vec<u8>>,
    /// Where each head begins.
    starts: BTreeMap<u64, log::LogPosition>,
    pump_at: Time,
    seed: u64,
    replicas: usize,
    /// The fewest that were ever wanted: what was about to be freed then may be freed later.
    fewest_replicas: usize,
    /// A backup has gone with its disk.
    has_lost: bool,
    /// Backups were drained.
    has_drained: bool,
    /// Requests to free that were not answered, and may arrive whatever becomes of their connections.
    freeing: BTreeMap<(ServerId, u64), u64>,
    /// Bytes of data that were sent to backups.
    pub sent_bytes: usize,
    pub reports: Vec<ReplicationEvent>,
}

impl World {
    pub fn new(replicas: usize, min_replicas: usize, backups: usize, seed: u64) -> World {
        let replicator = Replicator::new(Config {
            log: LOG,
            host: "own".to_owned(),
            replicas,
            min_replicas,
            copy_bytes: 500,
            repair_bytes_per_second: 1 << 40,
            segment_bytes: 4096,
            seed,
        });
        let mut world = World {
            now: Time(1_000_000_000),
            store: Store::new(),
            replicator,
            out: Wishes::default(),
            backups: Vec::new(),
            connections: BTreeMap::new(),
            next_connection: 0,
            events: BTreeMap::new(),
            next_event: 0,
            last_arrival: BTreeMap::new(),
            floor: None,
            coordinator_is_gone: false,
            shadow: BTreeMap::new(),
            starts: BTreeMap::new(),
            pump_at: Time::ZERO,
            seed,
            replicas,
            fewest_replicas: replicas,
            has_lost: false,
            has_drained: false,
            freeing: BTreeMap::new(),
            sent_bytes: 0,
            reports: Vec::new(),
        };
        for _ in 0..backups {
            world.start_backup();
        }
        world.notice();
        world
    }

    fn random(&mut self) -> u64 {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.seed >> 33
    }

    // ---- what clients and the cleaner do ----

    pub fn write(&mut self, key: u8, bytes: usize) {
        self.store.write(key, bytes);
        self.pump();
    }

    pub fn remove(&mut self, key: u8) {
        self.store.remove(key);
        self.pump();
    }

    pub fn clean(&mut self, budget: usize) {
        self.store.clean(budget);
        self.pump();
    }

    fn info(&self, at: usize) -> Option<ServerId> {
        let alive: Vec<_> = self
            .backups
            .iter()
            .filter(|backup| backup.is_alive)
            .collect();
        (!alive.is_empty()).then(|| alive[at % alive.len()].info.id)
    }

    fn backup(&mut self, id: ServerId) -> &mut ModelBackup {
        self.backups
            .iter_mut()
            .find(|backup| backup.info.id == id)
            .unwrap()
    }

    // ---- looking ----

    /// Machines with a backup that works.
    fn hosts(&self) -> BTreeSet<&str> {
        let backups = self.backups.iter();
        let working = backups.filter(|backup| backup.is_alive && !backup.is_retired);
        let working = working.filter(|backup| !backup.info.is_draining);
        working.map(|backup| backup.info.host.as_str()).collect()
    }

    /// Of everything, from now on.
    pub fn want(&mut self, replicas: usize, min_replicas: usize) {
        let rate = self.replicator.config.repair_bytes_per_second;
        self.replicator.want((replicas, min_replicas), rate);
        self.replicas = replicas;
        self.fewest_replicas = self.fewest_replicas.min(replicas);
        self.pump_at = self.now;
    }

    /// What a backup holds.
    pub fn replicas_of(&self, id: ServerId) -> Vec<u64> {
        let backup = self.backups.iter().find(|backup| backup.info.id == id);
        backup.unwrap().replicas.keys().copied().collect()
    }

    pub fn is_forged(&self, id: ServerId, segment_id: u64) -> bool {
        let backup = self.backups.iter().find(|backup| backup.info.id == id);
        backup.unwrap().replicas[&segment_id].is_listed_wrong
    }

    pub fn infos(&self) -> Vec<BackupInfo> {
        let backups = self.backups.iter();
        backups.map(|backup| backup.info.clone()).collect()
    }

    pub fn set(&mut self, infos: Vec<BackupInfo>) {
        self.replicator.set_backups(infos, &mut self.out);
        self.reports.append(&mut self.out.reports);
        self.pump();
    }

    pub fn floor(&self) -> Option<u64> {
        self.floor
    }

    pub fn is_all_durable(&self) -> bool {
        self.store.log.durable_position() == self.store.log.head_position()
    }

    pub fn backups_of_head(&self) -> Vec<ServerId> {
        let head = self.replicator.heads.back().unwrap();
        self.replicator.segments[head]
            .replicas
            .iter()
            .map(|replica| replica.backup)
            .collect()
    }

    pub fn replica_counts(&self) -> Vec<usize> {
        self.backups
            .iter()
            .map(|backup| backup.replicas.len())
            .collect()
    }

    pub fn assert_domains_differ(&self) {
        for (id, segment) in &self.replicator.segments {
            let domains: BTreeSet<&str> = segment
                .replicas
                .iter()
                .map(|replica| {
                    self.replicator.backups[&replica.backup]
                        .info
                        .domain
                        .as_str()
                })
                .collect();
            assert_eq!(domains.len(), segment.replicas.len(), "segment {id}");
        }
    }
}
