//! What must hold at every moment, and once all faults have ended.

use core::time::Duration;
use std::collections::BTreeSet;

use base::ids::ServerId;
use wire::peer::Request;

use super::super::backup::{DELAY, ModelBackup, ModelReplica};
use super::{Outcome, World};

impl World {
    /// What a recovery finds that reaches the backups in `mask`, by the rules of docs/replication.md, "Which log is the log?".
    pub fn recover(&self, mask: u16) -> Outcome {
        let reached = |(at, _): &(usize, &ModelBackup)| mask >> (at % 16) & 1 == 1;
        let reached: Vec<&ModelBackup> = self
            .backups
            .iter()
            .filter(|backup| backup.is_alive)
            .enumerate()
            .filter(reached)
            .map(|(_, backup)| backup)
            .collect();
        let Some(floor) = self.floor else {
            return Outcome::Empty;
        };
        let replicas = || reached.iter().flat_map(|backup| &backup.replicas);
        let is_candidate =
            |(id, replica): &(&u64, &ModelReplica)| replica.is_candidate() && **id >= floor;
        let Some(head_id) = replicas().filter(is_candidate).map(|(id, _)| *id).min() else {
            return Outcome::Waits;
        };
        let copies = replicas().filter(|(id, _)| **id == head_id);
        let copies = copies.filter(|(_, replica)| replica.is_candidate() || replica.is_complete());
        let head = copies
            .map(|(_, replica)| &replica.bytes)
            .max_by_key(|bytes| bytes.len())
            .unwrap();
        assert!(
            self.shadow[&head_id].starts_with(head),
            "the head is not what was written"
        );
        let digest = log::last_digest(head)
            .unwrap_or_else(|error| {
                panic!(
                    "{error}: {} bytes of {head_id} of {}, {}",
                    head.len(),
                    self.shadow[&head_id].len(),
                    self.picture()
                )
            })
            .expect("a head begins with a digest");
        for id in digest {
            let closed = replicas().find(|(found, replica)| **found == id && replica.is_complete());
            let Some((_, replica)) = closed else {
                return Outcome::Waits;
            };
            assert!(
                replica.bytes == self.shadow[&id],
                "segment {id} is not what was written"
            );
        }
        Outcome::Found {
            head: head_id,
            bytes: head.len(),
        }
    }

    /// For the text of an assertion.
    fn picture(&self) -> String {
        let mut text = format!(
            "floor {:?}, heads {:?}, {:?}",
            self.floor, self.replicator.heads, self.replicator.floor
        );
        for backup in self.backups.iter().filter(|backup| backup.is_alive) {
            text += &format!("\n{}:", backup.info.id);
            for (id, replica) in &backup.replicas {
                let state = if replica.is_closed { "closed" } else { "open" };
                text += &format!(" {id} {:?} {state} {},", replica.role, replica.bytes.len());
            }
        }
        text
    }

    pub fn check(&self, mask: u16) {
        match self.recover(mask) {
            Outcome::Empty => {
                assert_eq!(self.store.log.durable_position(), log::LogPosition::START)
            }
            Outcome::Waits => {
                let all_are_here = !self.backups.iter().any(|backup| backup.is_away);
                let is_found = mask == u16::MAX && all_are_here && !self.has_lost;
                assert!(
                    !is_found,
                    "nothing is lost, all backups are there, and a recovery would wait for ever: {}",
                    self.picture()
                );
            }
            Outcome::Found { head, bytes } => {
                let end = log::LogPosition(self.starts[&head].0 + bytes as u64);
                assert!(
                    end >= self.store.log.durable_position(),
                    "what was durable is gone: {end:?} of head {head}, durable {:?}: {}",
                    self.store.log.durable_position(),
                    self.picture()
                );
            }
        }
        // Those that have promised nothing any more would give the log out.
        let mut free = 0;
        let alive = self.backups.iter().filter(|backup| backup.is_alive);
        for (at, backup) in alive.enumerate() {
            if backup.promise_until <= self.now {
                free |= 1 << at;
            }
        }
        if matches!(self.recover(mask & free), Outcome::Found { .. }) {
            assert!(!self.replicator.is_serving(self.now), "two could serve");
        }
    }

    /// All backups are there again and answer; the coordinator is still gone.
    pub fn calm_without_coordinator(&mut self) {
        while self.come_back(0, true).is_some() {}
        for backup in &mut self.backups {
            backup.delay = DELAY;
        }
        for _ in 0..200 {
            self.pass(Duration::from_millis(50));
            self.clean(1 << 20);
        }
        assert!(
            self.is_all_durable() && self.replicator.is_serving(self.now),
            "{:?}: {}",
            self.replicator.report(),
            self.picture()
        );
    }

    /// Faults end: everything gets durable, and is found.
    pub fn calm(&mut self) {
        self.coordinator_gone(false);
        while self.come_back(0, false).is_some() {}
        for backup in &mut self.backups {
            (backup.is_full, backup.delay) = (false, DELAY);
            (backup.stops_after_opening, backup.is_stopped) = (false, false);
        }
        while self.hosts().len() < 4 {
            let before = self.backups.len();
            self.start_backup();
            if self.backups.len() == before {
                // There are as many as there may be.
                for backup in &mut self.backups {
                    (backup.info.is_draining, backup.info.is_last_resort) = (false, false);
                }
                break;
            }
        }
        self.notice();
        for _ in 0..200 {
            self.pass(Duration::from_millis(50));
            self.clean(1 << 20);
        }
        assert!(
            self.is_all_durable(),
            "{:?}, heads {:?}, {:?}, {:?}",
            self.replicator.report(),
            self.replicator.heads,
            self.replicator.segments,
            self.replicator.floor
        );
        assert!(self.replicator.is_serving(self.now));
        let short =
            self.replicator.segments.iter().filter(|(_, segment)| {
                segment.is_awaited() && segment.replicas.len() < self.replicas
            });
        let short: Vec<_> = short
            .map(|(id, segment)| (id, self.store.log.segment(*id).is_some(), segment))
            .collect();
        assert!(
            short.is_empty(),
            "{short:?}, heads {:?}, floor {:?}, {:?}",
            self.replicator.heads,
            self.replicator.floor,
            self.replicator.backups
        );
        assert!(matches!(self.recover(u16::MAX), Outcome::Found { .. }));
        self.check(u16::MAX);
        let draining = self.replicator.backups.values();
        let draining = draining.filter(|backup| backup.info.is_draining);
        for id in draining.map(|backup| backup.info.id) {
            let left = self.replicator.segments_at(id);
            assert_eq!(left, 0, "at {id}, which is drained: {}", self.picture());
        }
        // Nothing is left lying about on backups that could be reached all the time since.
        let known = |id: &u64, backup: ServerId| {
            let segment = self.replicator.segments.get(id);
            segment.is_some_and(|segment| {
                segment
                    .replicas
                    .iter()
                    .any(|replica| replica.backup == backup)
            })
        };
        for backup in self
            .backups
            .iter()
            .filter(|backup| backup.is_alive && !backup.is_retired)
        {
            let litter: Vec<_> = backup
                .replicas
                .keys()
                .filter(|id| !known(id, backup.info.id))
                .collect();
            assert!(litter.is_empty(), "{litter:?} at {}", backup.info.id);
        }
    }

    /// What may be the last copy of something is not freed.
    pub(super) fn check_free(&mut self, id: ServerId, nonce: u64, payload: &[u8]) {
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
    pub(super) fn check_closed(&self) {
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
}
