//! Which backups get a segment's replicas.

use base::ids::ServerId;
use base::time::Time;
use wire::peer::Role;

use crate::placement::Choice;
use crate::random::Random;
use crate::replicator::Replicator;
use crate::segment::Replica;

impl Replicator {
    /// Gives a segment the replicas that it lacks, as far as there are backups.
    pub(crate) fn place(&mut self, now: Time, segment_id: u64) {
        let Some(segment) = self.segments.get(&segment_id) else {
            return;
        };
        let is_first = segment.replicas.is_empty() && !self.floor.has_orphans(segment_id);
        let is_open_head = segment.role == Role::Head && !segment.is_closed;
        // An open head gets all of its replicas at once, and never another one. (It is asked for with every append: nothing is allocated.)
        let has_all = !segment.is_settled && segment.replicas.len() >= self.config.replicas;
        // An open side segment gets its replicas when it is closed: which backups stay may be another matter then.
        if has_all || is_open_head && !is_first || !segment.is_awaited() {
            return;
        }
        // While somebody waits for it, replicas on backups that are drained are as good as others.
        let holders = match segment.is_settled {
            true => self.staying(segment),
            false => segment.replicas.iter().collect(),
        };
        let held: Vec<ServerId> = holders.iter().map(|replica| replica.backup).collect();
        let missing = self.config.replicas.saturating_sub(held.len());
        if missing == 0 {
            return;
        }
        let mut random = self.random.clone();
        let picked = self.pick(now, segment_id, held, missing, &mut random);
        let is_enough = picked.len() == missing
            || segment.replicas.len() + picked.len() >= self.config.min_replicas
                && self.all_tried();
        if picked.is_empty() || is_open_head && !is_enough {
            return;
        }
        self.random = random;
        let role = if is_open_head { Role::Head } else { Role::Side };
        for id in picked {
            let Some(backup) = self.backups.get_mut(&id) else {
                continue;
            };
            backup.replica_count += 1;
            self.last_resorts += u64::from(backup.info.is_draining);
            // What is there of it already is completed.
            let is_there = backup.unknown.remove(&segment_id).is_some();
            let orphan = self.floor.revive(segment_id, id);
            let replica = orphan.unwrap_or_else(|| {
                if is_there {
                    Replica::of_open_head(id)
                } else {
                    Replica::new(id, role)
                }
            });
            if let Some(segment) = self.segments.get_mut(&segment_id) {
                segment.replicas.push(replica);
            }
        }
    }

    /// Backups for so many more replicas of a segment: those that stay, and are on no machine with a slow one. If with these it had too few to count as
    /// durable, one on such a machine is better than none; and where no others may come, one that is drained.
    fn pick(
        &self,
        now: Time,
        segment_id: u64,
        held: Vec<ServerId>,
        missing: usize,
        random: &mut Random,
    ) -> Vec<ServerId> {
        let replicas = self.segments[&segment_id].replicas.iter();
        let replicas: Vec<ServerId> = replicas.map(|replica| replica.backup).collect();
        let needed = |picked: &[ServerId]| {
            let chosen = replicas.len() + picked.len();
            self.config.min_replicas.saturating_sub(chosen)
        };
        let chosen = |picked: &[ServerId]| [&replicas, picked].concat();
        let choice = self.choice(now, segment_id);
        let mut picked = choice.pick(held, missing, random);
        let choice = choice.with_avoided_hosts();
        picked.extend(choice.pick(chosen(&picked), needed(&picked), random));
        if self.all_tried() {
            let choice = choice.with_last_resort();
            picked.extend(choice.pick(chosen(&picked), needed(&picked), random));
        }
        picked
    }

    /// Whether waiting may bring more backups.
    fn all_tried(&self) -> bool {
        self.backups.values().all(|backup| backup.was_tried)
    }

    pub(crate) fn choice(&self, now: Time, segment_id: u64) -> Choice<'_> {
        Choice {
            backups: &self.backups,
            own_host: &self.config.host,
            segment_id,
            segment_bytes: self.config.segment_bytes,
            has_last_resort: false,
            has_avoided_hosts: false,
            now,
        }
    }
}
