//! The model: what backups hold, what is on the way to them, and a recovery's view of all that.

mod checks;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use wire::ids::ServerId;
use wire::peer::{Request, SERVING_PROMISE};
use wire::time::Time;

use super::backup::{DELAY, ModelBackup, ModelReplica};
use super::store::Store;
use crate::{BackupInfo, Config, Output, Replicator};

pub const LOG: ServerId = ServerId(1);

/// Something that arrives later.
enum Event {
    Request {
        backup: ServerId,
        connection: u64,
        nonce: u64,
        payload: Vec<u8>,
    },
    Answer {
        backup: ServerId,
        connection: u64,
        nonce: u64,
        answer: Vec<u8>,
    },
    Connected {
        backup: ServerId,
        connection: u64,
    },
    Refused {
        backup: ServerId,
        connection: u64,
    },
    FloorAsked {
        segment_id: u64,
    },
    FloorRaised {
        segment_id: u64,
    },
}

/// What the replicator wants done.
#[derive(Default)]
pub struct Wishes {
    connect: Vec<ServerId>,
    disconnect: Vec<ServerId>,
    send: Vec<(ServerId, u64, Vec<u8>)>,
    floors: Vec<u64>,
    texts: Vec<String>,
}

impl Output for Wishes {
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
    fn log_message(&mut self, _: u32, text: &str) {
        self.texts.push(text.to_owned());
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
    pub texts: Vec<String>,
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
            texts: Vec::new(),
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

    // ---- faults ----

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

    pub fn start_backup(&mut self) {
        if self.backups.iter().filter(|backup| backup.is_alive).count() >= 12 {
            return;
        }
        let number = self.backups.len() as u64;
        self.backups.push(ModelBackup {
            info: BackupInfo {
                id: ServerId::new(100 + number as u32, 0),
                // Every fifth shares the machine of the one before it.
                host: format!("host-{}", number - u64::from(number % 5 == 4)),
                domain: format!("chassis-{}", number % 3),
                locator: String::new(),
                segment_bytes: 4096,
                is_retired: false,
                is_draining: false,
                is_last_resort: false,
            },
            is_alive: true,
            is_away: false,
            is_connected: false,
            is_full: false,
            is_retired: false,
            is_fenced: false,
            delay: DELAY,
            replicas: BTreeMap::new(),
            promise_until: Time::ZERO,
        });
    }

    /// For good, with its disk.
    pub fn kill(&mut self, at: usize) {
        // The model knows no acknowledged data on fewer than one backup: so many are never lost at once.
        let alive = self.backups.iter().filter(|backup| backup.is_alive).count();
        if let Some(id) = self.info(at).filter(|_| alive > 1) {
            self.kill_backup(id);
        }
    }

    pub fn kill_backup(&mut self, id: ServerId) {
        self.backup(id).is_alive = false;
        self.has_lost = true;
        self.disconnect(id);
        self.pump();
    }

    /// With its disk.
    pub fn leave(&mut self, at: usize) {
        let alive = self.backups.iter().filter(|backup| backup.is_alive).count();
        if let Some(id) = self.info(at).filter(|_| alive > 1) {
            self.leave_backup(id);
        }
    }

    pub fn leave_backup(&mut self, id: ServerId) {
        let backup = self.backup(id);
        (backup.is_alive, backup.is_away) = (false, true);
        self.disconnect(id);
        self.pump();
    }

    /// One of those that have left is there again: the same process, which could not be reached, or another with its disk.
    pub fn come_back(&mut self, at: usize, is_same: bool) -> Option<ServerId> {
        let away = self.backups.iter().filter(|backup| backup.is_away);
        let away: Vec<ServerId> = away.map(|backup| backup.info.id).collect();
        let alive = self.backups.iter().filter(|backup| backup.is_alive).count();
        if away.is_empty() || alive >= 12 {
            return None;
        }
        Some(self.come_back_as(away[at % away.len()], is_same))
    }

    pub fn come_back_as(&mut self, id: ServerId, is_same: bool) -> ServerId {
        let promise_until = self.now + SERVING_PROMISE;
        let old = self.backup(id);
        old.is_away = false;
        if is_same {
            old.is_alive = true;
            return id;
        }
        let mut info = old.info.clone();
        info.id = ServerId::new(id.index(), id.generation() + 1);
        let new = ModelBackup {
            info,
            is_alive: true,
            is_away: false,
            is_connected: false,
            is_full: old.is_full,
            is_retired: old.is_retired,
            is_fenced: old.is_fenced,
            delay: old.delay,
            replicas: std::mem::take(&mut old.replicas),
            promise_until,
        };
        let id = new.info.id;
        self.backups.push(new);
        id
    }

    /// A replica is found damaged, or not at all.
    pub fn harm(&mut self, id: ServerId, which: usize, is_damage: bool) {
        let replicas = &mut self.backup(id).replicas;
        let Some(&segment_id) = replicas.keys().nth(which % replicas.len().max(1)) else {
            return;
        };
        if is_damage {
            replicas.get_mut(&segment_id).unwrap().is_damaged = true;
        } else {
            replicas.remove(&segment_id);
        }
        self.has_lost = true;
    }

    pub fn break_connection(&mut self, at: usize) {
        if let Some(id) = self.info(at) {
            self.break_connection_of(id);
        }
    }

    pub fn break_connection_of(&mut self, id: ServerId) {
        self.disconnect(id);
        self.pump();
    }

    pub fn cut_off(&mut self) {
        for id in self
            .backups
            .iter()
            .map(|backup| backup.info.id)
            .collect::<Vec<_>>()
        {
            self.slow_backup(id, 1_000_000);
        }
    }

    fn disconnect(&mut self, id: ServerId) {
        self.backup(id).is_connected = false;
        if self.connections.remove(&id).is_some() {
            self.replicator.disconnected(self.now, id);
        }
    }

    pub fn slow(&mut self, at: usize, ms: u64) {
        if let Some(id) = self.info(at) {
            self.slow_backup(id, ms);
        }
    }

    pub fn slow_backup(&mut self, id: ServerId, ms: u64) {
        self.backup(id).delay = DELAY.max(Duration::from_millis(ms));
    }

    pub fn full(&mut self, at: usize, is_full: bool) {
        if let Some(id) = self.info(at) {
            self.backup(id).is_full = is_full;
        }
    }

    pub fn retire(&mut self, at: usize) {
        if let Some(id) = self.info(at) {
            self.backup(id).is_retired = true;
        }
    }

    pub fn drain(&mut self, at: usize, is_draining: bool) {
        if let Some(id) = self.info(at) {
            let info = &mut self.backup(id).info;
            (info.is_draining, info.is_last_resort) = (is_draining, is_draining);
            self.has_drained = true;
        }
    }

    /// Those that are to leave get nothing more, whatever happens.
    pub fn end_last_resorts(&mut self) {
        for backup in &mut self.backups {
            backup.info.is_last_resort = false;
        }
    }

    /// A backup that is to leave and that the log does not need, as the replicator knows.
    fn not_needed(&self, is_last_resort: bool) -> Option<ServerId> {
        let known = self.replicator.backups.values().map(|backup| &backup.info);
        let leaving =
            known.filter(|info| info.is_draining && info.is_last_resort == is_last_resort);
        let mut ids = leaving.map(|info| info.id);
        let alive = |id: &ServerId| {
            let mut backups = self.backups.iter();
            backups.any(|backup| backup.info.id == *id && backup.is_alive)
        };
        ids.find(|id| alive(id) && self.replicator.segments_at(*id) == 0)
    }

    /// One that is drained ends, and its disk is gone. That is no loss. If there is none, one that is not needed is to get nothing more.
    pub fn remove_drained(&mut self) {
        let Some(id) = self.not_needed(false) else {
            if let Some(id) = self.not_needed(true) {
                self.backup(id).info.is_last_resort = false;
            }
            return;
        };
        self.backup(id).is_alive = false;
        self.disconnect(id);
        self.pump();
        self.check(u16::MAX);
    }

    pub fn fence(&mut self, id: ServerId) {
        self.backup(id).is_fenced = true;
    }

    pub fn notice(&mut self) {
        let alive = self.backups.iter().filter(|backup| backup.is_alive);
        let list = alive.map(|backup| backup.info.clone()).collect();
        self.replicator.set_backups(list, &mut self.out);
        self.pump();
    }

    pub fn coordinator_gone(&mut self, is_gone: bool) {
        self.coordinator_is_gone = is_gone;
        if !is_gone {
            self.replicator.coordinator_found(&mut self.out);
            self.pump();
        }
    }

    // ---- time ----

    pub fn pump(&mut self) {
        let log = &mut self.store.log;
        self.pump_at = self.replicator.pump(self.now, log, &mut self.out);
        let mut out = std::mem::take(&mut self.out);
        self.texts.append(&mut out.texts);
        for id in out.disconnect {
            self.connections.remove(&id);
            self.backup(id).is_connected = false;
        }
        for id in out.connect {
            self.next_connection += 1;
            let connection = self.next_connection;
            self.connections.insert(id, connection);
            let event = if self.backup(id).is_alive {
                Event::Connected {
                    backup: id,
                    connection,
                }
            } else {
                Event::Refused {
                    backup: id,
                    connection,
                }
            };
            self.schedule(id, false, event);
        }
        for (backup, nonce, payload) in out.send {
            self.check_free(backup, nonce, &payload);
            if let Ok(Request::Append(append)) = Request::decode(&payload) {
                self.sent_bytes += append.data.len();
            }
            let connection = self.connections[&backup];
            self.schedule(
                backup,
                true,
                Event::Request {
                    backup,
                    connection,
                    nonce,
                    payload,
                },
            );
        }
        for segment_id in out.floors {
            self.schedule(ServerId::INVALID, true, Event::FloorAsked { segment_id });
        }
        for id in self.store.segments() {
            self.shadow
                .insert(id, self.store.log.segment(id).unwrap().to_vec());
            if let Some(start) = self.store.log.position_in(id, 0) {
                self.starts.insert(id, start);
            }
        }
        self.check_closed();
    }

    /// What may be the last copy of something is not freed.
    fn check_free(&mut self, id: ServerId, nonce: u64, payload: &[u8]) {
        let Ok(Request::Free(free)) = Request::decode(payload) else {
            return;
        };
        let segment_id = free.replica.segment_id;
        let was_sent = self.freeing.insert((id, segment_id), nonce).is_some();
        if was_sent || !self.replicator.segments.contains_key(&segment_id) {
            return;
        }
        let whole = &self.shadow[&segment_id];
        let is_good = |replica: &ModelReplica| replica.is_complete() && replica.bytes == *whole;
        let is_complete = |backup: &&ModelBackup| {
            let replica = backup.replicas.get(&segment_id);
            replica.is_some_and(is_good)
        };
        let is_it = |backup: &&ModelBackup| backup.info.id == id;
        let freed = self.backups.iter().find(is_it).unwrap();
        let replica = freed.replicas.get(&segment_id);
        if !replica.is_some_and(|replica| is_good(replica) && replica.was_listed) {
            return;
        }
        let others = self.backups.iter().filter(|backup| !is_it(backup));
        let others = others.filter(|backup| self.replicator.backups.contains_key(&backup.info.id));
        let others = others.filter(is_complete).count();
        assert!(
            others >= self.fewest_replicas,
            "segment {segment_id} is freed at {id}, and complete on {others} others only"
        );
    }

    /// What is taken for a complete replica is one.
    fn check_closed(&self) {
        for (segment_id, segment) in &self.replicator.segments {
            for replica in segment.replicas.iter().filter(|replica| replica.is_closed) {
                let is_it = |backup: &&ModelBackup| backup.info.id == replica.backup;
                let backup = self.backups.iter().find(is_it).unwrap();
                if !backup.is_alive || !self.replicator.backups[&replica.backup].is_ready() {
                    continue;
                }
                let held = backup.replicas.get(segment_id);
                let held = held.filter(|held| held.is_complete());
                assert!(
                    held.is_some_and(|held| held.bytes == self.shadow[segment_id]),
                    "{} has no complete replica of segment {segment_id}",
                    replica.backup
                );
            }
            let infos = segment.replicas.iter();
            let infos = infos.map(|replica| &self.replicator.backups[&replica.backup].info);
            let hosts: Vec<&str> = infos.map(|info| info.host.as_str()).collect();
            let different: BTreeSet<&str> = hosts.iter().copied().collect();
            // A copy may be made beside the one that it replaces.
            let are_two = hosts.len() > different.len() && !self.has_drained;
            assert!(!are_two, "two of segment {segment_id} on one host");
        }
    }

    /// In the order of sending for each direction of each connection.
    fn schedule(&mut self, peer: ServerId, is_to_peer: bool, event: Event) {
        let delay = match self.backups.iter().find(|backup| backup.info.id == peer) {
            Some(backup) => backup.delay,
            None => DELAY * 10,
        };
        let jitter = Duration::from_nanos(self.random() % 20_000);
        let earliest = self
            .last_arrival
            .get(&(peer, is_to_peer))
            .copied()
            .unwrap_or(Time::ZERO);
        let at = (self.now + delay + jitter).max(earliest);
        self.last_arrival.insert((peer, is_to_peer), at);
        self.next_event += 1;
        self.events.insert((at, self.next_event), event);
    }

    pub fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let next_event = self.events.keys().next().map_or(Time::NEVER, |key| key.0);
            let next = next_event.min(self.pump_at).max(self.now);
            if next > end {
                break;
            }
            self.now = next;
            if next_event <= next {
                let (_, event) = self.events.pop_first().unwrap();
                self.happen(event);
            }
            self.pump();
            // A recovery may begin at any moment, and reach whom it can.
            let mask = (self.random() | self.random()) as u16;
            self.check(mask);
            self.check(u16::MAX);
        }
        self.now = end;
        self.pump();
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Connected { backup, connection } => {
                if self.connections.get(&backup) == Some(&connection)
                    && self.backup(backup).is_alive
                {
                    self.backup(backup).is_connected = true;
                    self.replicator.connected(backup);
                } else if self.connections.get(&backup) == Some(&connection) {
                    self.connections.remove(&backup);
                    self.replicator.disconnected(self.now, backup);
                }
            }
            Event::Refused { backup, connection } => {
                if self.connections.get(&backup) == Some(&connection) {
                    self.connections.remove(&backup);
                    self.replicator.disconnected(self.now, backup);
                }
            }
            // What was sent arrives though the connection has broken meanwhile, or it does not.
            Event::Request {
                backup,
                connection,
                nonce,
                payload,
            } => {
                let is_lost = self.connections.get(&backup) != Some(&connection)
                    && self.random().is_multiple_of(2);
                if self.backup(backup).is_alive && !is_lost {
                    let now = self.now;
                    let answer = self.backup(backup).handle(now, &payload);
                    self.schedule(
                        backup,
                        false,
                        Event::Answer {
                            backup,
                            connection,
                            nonce,
                            answer,
                        },
                    );
                }
            }
            Event::Answer {
                backup,
                connection,
                nonce,
                answer,
            } => {
                if self.connections.get(&backup) == Some(&connection) {
                    self.freeing
                        .retain(|(id, _), freeing| (*id, *freeing) != (backup, nonce));
                    let (now, out) = (self.now, &mut self.out);
                    let answered = self.replicator.answer(now, backup, nonce, &answer, out);
                    answered.expect("an answer that can be read");
                }
            }
            Event::FloorAsked { segment_id } => {
                if !self.coordinator_is_gone {
                    self.floor = self.floor.max(Some(segment_id));
                    self.schedule(ServerId::INVALID, false, Event::FloorRaised { segment_id });
                }
            }
            Event::FloorRaised { segment_id } => {
                if !self.coordinator_is_gone {
                    self.replicator.floor_raised(segment_id);
                }
            }
        }
    }

    // ---- looking ----

    /// Machines with a backup that works.
    fn hosts(&self) -> BTreeSet<&str> {
        let backups = self.backups.iter();
        let working = backups.filter(|backup| backup.is_alive && !backup.is_retired);
        let working = working.filter(|backup| !backup.info.is_draining);
        working.map(|backup| backup.info.host.as_str()).collect()
    }

    /// What a backup holds.
    /// Of everything, from now on.
    pub fn want(&mut self, replicas: usize, min_replicas: usize) {
        let rate = self.replicator.config.repair_bytes_per_second;
        self.replicator.want((replicas, min_replicas), rate);
        self.replicas = replicas;
        self.fewest_replicas = self.fewest_replicas.min(replicas);
        self.pump_at = self.now;
    }

    pub fn replicas_of(&self, id: ServerId) -> Vec<u64> {
        let backup = self.backups.iter().find(|backup| backup.info.id == id);
        backup.unwrap().replicas.keys().copied().collect()
    }

    /// Makes a backup say another checksum of a complete replica.
    pub fn forge(&mut self, id: ServerId) -> u64 {
        let mut replicas = self.backup(id).replicas.iter_mut();
        let (&segment_id, replica) = replicas.find(|(_, replica)| replica.is_complete()).unwrap();
        replica.is_listed_wrong = true;
        segment_id
    }

    /// A backup holds a closed replica of another log that had this one's id.
    pub fn leave_behind(&mut self, id: ServerId, segment_id: u64) {
        let replica = ModelReplica {
            role: wire::peer::Role::Head,
            bytes: vec![7; 64],
            is_closed: true,
            is_damaged: false,
            was_listed: false,
            is_listed_wrong: false,
        };
        self.backup(id).replicas.insert(segment_id, replica);
    }

    pub fn is_forged(&self, id: ServerId, segment_id: u64) -> bool {
        let backup = self.backups.iter().find(|backup| backup.info.id == id);
        backup.unwrap().replicas[&segment_id].is_listed_wrong
    }

    /// What is on its way for very long is lost.
    pub fn forget_late_arrivals(&mut self) {
        let late = self.now + Duration::from_secs(1);
        self.events.retain(|(at, _), _| *at < late);
        self.last_arrival.clear();
    }

    pub fn infos(&self) -> Vec<BackupInfo> {
        let backups = self.backups.iter();
        backups.map(|backup| backup.info.clone()).collect()
    }

    pub fn set(&mut self, infos: Vec<BackupInfo>) {
        self.replicator.set_backups(infos, &mut self.out);
        self.texts.append(&mut self.out.texts);
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
