//! Fencing a log and releasing it to its recovery.

use std::collections::BTreeMap;

use base::ids::ServerId;
use base::time::Time;
use wire::peer::{ReplicaId, SERVING_PROMISE};

use crate::backup::Backup;
use crate::effects::BackupEffects;
use crate::event::BackupEvent;
use crate::fences::TooMany;
use crate::inventory::State;
use crate::inventory::{Flaw, Inventory, ReplicaInfo};
use crate::job::{Inspected, Work};
use crate::layout::MAX_FENCES;
use crate::reader::Snapshot;
use crate::storage::Storage;

impl<S: Storage> Backup<S> {
    /// Refuses the log's master from now on, and for ever. [`BackupEffects::released`] follows once that is durable, the last promise to the
    /// master has run out, and in `Flushed` mode all that is here of the log is durable; then for every further call as well. A backup that cannot
    /// note the fence, or sync the log, says so and releases nothing: whoever recovers asks again, or does without it.
    pub fn begin_recovery(&mut self, now: Time, log: ServerId, out: &mut impl BackupEffects) {
        if let Err(TooMany) = self.fencing.fences.raise(log) {
            out.report(BackupEvent::TooManyFences { log });
            return;
        }
        self.refuse_fenced(out);
        // One for each fence, and more only where incarnations of one server are recovered one after the other.
        if self.recovering.len() >= 2 * MAX_FENCES && !self.recovering.contains_key(&log) {
            out.report(BackupEvent::TooManyRecoveries { log });
            return;
        }
        if !self.recovering.contains_key(&log) {
            self.announce_reads(log);
            self.make_durable(log);
        }
        if self.retired.is_some() {
            self.write_again();
        }
        if !self.fencing.durable().covers(log) {
            self.fencing.changed();
        }
        self.release(now, out);
    }

    /// Releases the logs whose time has come; when that of the next comes.
    pub(crate) fn release(&mut self, now: Time, out: &mut impl BackupEffects) -> Time {
        let mut next = Time::NEVER;
        let fenced: Vec<ServerId> = self
            .recovering
            .iter()
            .filter(|&(&log, &syncs_needed)| {
                // A durable fence was written behind all that was taken of the log.
                self.fencing.durable().covers(log) && self.device.syncs.completed >= syncs_needed
            })
            .map(|(&log, _)| log)
            .collect();
        for log in fenced {
            let promised = self.promises.get(&log).copied();
            // What the process before this one had promised is not known.
            let at = promised
                .unwrap_or_default()
                .max(self.opened_at + SERVING_PROMISE);
            if at > now {
                next = next.min(at);
                continue;
            }
            self.recovering.remove(&log);
            self.inspect(log, out);
        }
        next
    }

    /// What there is of a log will be read soon.
    fn announce_reads(&mut self, log: ServerId) {
        let numbers: Vec<u32> = self.of_log(log).map(|(_, number)| number).collect();
        for number in numbers {
            let content = self.frames[number].content();
            let bytes = content.map_or(0, |content| content.bytes);
            let offset = self.device.layout.data(number);
            self.device.storage.will_need(offset, bytes.into());
        }
    }

    /// Looks at what is here of a log, and tells of it.
    fn inspect(&mut self, log: ServerId, out: &mut impl BackupEffects) {
        let of_log = self.of_log(log);
        let frames = of_log.filter_map(|(_, number)| self.frames[number].snapshot());
        let open: Vec<Snapshot> = frames.filter(|frame| !frame.content.closed).collect();
        if !self.inspecting.insert(log) {
            // It is being looked at, and does not change.
            return;
        }
        if open.is_empty() {
            return self.inspected(log, Vec::new(), out);
        }
        let after = self.device.flight.submitted();
        self.begin_job(after, Work::Inspect { log, frames: open });
    }

    /// The open replicas of a log have been looked at.
    pub(crate) fn inspected(
        &mut self,
        log: ServerId,
        frames: Vec<Inspected>,
        out: &mut impl BackupEffects,
    ) {
        // Nobody needs it any more, if it was forgotten meanwhile.
        if !self.inspecting.remove(&log) {
            return;
        }
        let mut found = BTreeMap::new();
        for Inspected { frame, digest } in frames {
            if !self.has_same_use(&frame) {
                continue;
            }
            match digest {
                Err(Flaw::Damaged(damage)) => self.name_damage(frame.number, damage),
                _ => self.frames[frame.number].learn(&frame),
            }
            found.insert(frame.number, digest);
        }
        let of_log = self.of_log(log);
        let replicas = of_log
            .map(|(replica, number)| self.describe(replica, number, found.remove(&number)))
            .collect();
        out.released(Inventory { log, replicas });
    }

    fn describe(
        &self,
        replica: ReplicaId,
        number: u32,
        digest: Option<Result<Vec<u64>, Flaw>>,
    ) -> ReplicaInfo {
        let content = self.frames[number].content().expect("a frame in use");
        let damage = content.damage.map(Flaw::Damaged);
        let digest = digest.unwrap_or_else(|| Ok(Vec::new()));
        ReplicaInfo {
            segment_id: replica.segment_id,
            role: content.role,
            state: State::of(content.closed),
            bytes: content.bytes,
            crc: content.crc,
            damage: damage.or(digest.as_ref().err().copied()),
            digest: digest.unwrap_or_default(),
        }
    }
}
