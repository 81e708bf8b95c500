//! Fencing a log and releasing it to its recovery.

use core::ops::ControlFlow;

use base::ids::ServerId;
use base::time::Time;
use wire::entry::{Digest, Kind};
use wire::peer::{ReplicaId, Role, SERVING_PROMISE};

use crate::backup::{Backup, BackupEffects};
use crate::device::WalkError;
use crate::event::BackupEvent;
use crate::fences::TooMany;
use crate::frame::State;
use crate::inventory::{Flaw, Inventory, ReplicaInfo};
use crate::layout::MAX_FENCES;
use crate::record::Damage;
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
            self.write_again(out);
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
            let inventory = self.inventory(log);
            out.released(inventory);
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

    fn inventory(&mut self, log: ServerId) -> Inventory {
        let of_log: Vec<(ReplicaId, u32)> = self.of_log(log).collect();
        let replicas = of_log
            .into_iter()
            .map(|(replica, number)| self.look_at(replica, number))
            .collect();
        Inventory { log, replicas }
    }

    fn look_at(&mut self, replica: ReplicaId, number: u32) -> ReplicaInfo {
        let frame = &mut self.frames[number];
        let is_open = frame.content().is_some_and(|content| !content.closed);
        let mut digest = Ok(Vec::new());
        // Which log is the log depends on what open replicas hold, before anything is read.
        if is_open {
            digest = match frame.verify(&mut self.device) {
                Ok(()) => self.last_digest(number),
                Err(damage) => Err(Flaw::Damaged(damage)),
            };
        }
        if let Err(Flaw::Damaged(damage)) = digest {
            self.name_damage(number, damage);
        }
        let content = self.frames[number].content().expect("a frame in use");
        let damage = content.damage.map(Flaw::Damaged);
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

    /// The last digest in a head; nothing in a side segment.
    fn last_digest(&mut self, number: u32) -> Result<Vec<u64>, Flaw> {
        let content = self.frames[number].content().expect("a frame in use");
        if content.role == Role::Side {
            return Ok(Vec::new());
        }
        let mut last = None;
        let walked = self
            .device
            .walk(number, 0..content.bytes, u32::MAX, |entry| {
                if entry.kind == Kind::Digest {
                    last = Some(entry.decode::<Digest<'_>>()?.segment_ids().collect());
                }
                Ok(ControlFlow::Continue(()))
            });
        match walked {
            Ok(_) => last.ok_or(Flaw::NoDigest),
            Err(WalkError::Entry { offset, error }) => Err(Flaw::NoEntry { offset, error }),
            Err(WalkError::Storage(_)) => Err(Flaw::Damaged(Damage::Unreadable)),
        }
    }
}
