//! What befalls backups, connections and the coordinator.

use core::time::Duration;
use std::collections::BTreeMap;

use base::ids::ServerId;
use base::time::Time;
use wire::peer::SERVING_PROMISE;

use super::super::backup::{DELAY, ModelBackup, ModelReplica};
use super::World;
use crate::BackupInfo;

impl World {
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
            stops_after_opening: false,
            is_stopped: false,
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
            stops_after_opening: false,
            is_stopped: false,
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

    /// Whether a backup stops when it has opened a replica; it goes on when it does not any more.
    pub fn stop_after_opening(&mut self, at: usize, stops: bool) {
        if let Some(id) = self.info(at) {
            let backup = self.backup(id);
            backup.stops_after_opening = stops;
            backup.is_stopped &= stops;
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
}
