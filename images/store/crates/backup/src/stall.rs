//! A device that has stopped: what is under way for too long, and what is done about it.

use core::time::Duration;

use base::time::Time;

use crate::backup::Backup;
use crate::commit::Carried;
use crate::effects::BackupEffects;
use crate::event::{BackupEvent, Stall};
use crate::storage::Storage;

/// With a write under way for longer, no replica is begun here.
const LATE: Duration = Duration::from_millis(100);
/// The same for a sync that appends wait for.
const LATE_SYNC: Duration = Duration::from_secs(1);
/// After so long a write or a job is reported.
const STALLED: Duration = Duration::from_secs(1);
/// After so long a sync is reported: where much is buffered, a sound device may need a second or two.
const STALLED_SYNC: Duration = Duration::from_secs(3);

impl Stall {
    fn limit(self) -> Duration {
        match self {
            Stall::Write | Stall::Job => STALLED,
            Stall::Sync => STALLED_SYNC,
        }
    }
}

impl<S: Storage> Backup<S> {
    /// The operation that the storage takes too long for.
    pub fn stalled(&self) -> Option<&'static str> {
        self.stalled.map(Stall::text)
    }

    /// The state of the storage, with its faults: the coordinator is told when that changes.
    pub fn ails(&self) -> (Option<&'static str>, bool) {
        (self.stalled(), self.retired.is_some())
    }

    /// Whether a new replica is better begun elsewhere.
    pub(crate) fn is_late(&self) -> bool {
        let now = self.device.now;
        let is_longer =
            |since: Option<Time>, limit| since.is_some_and(|since| now.since(since) > limit);
        let sync = match self.config.durability.is_flushed() {
            true => self.frames_sync_since(),
            false => None,
        };
        is_longer(self.device.flight.since(), LATE) || is_longer(sync, LATE_SYNC)
    }

    /// Says when the storage has stopped, and when it goes on; when to look again.
    pub(crate) fn look_for_stall(&mut self, now: Time, out: &mut impl BackupEffects) -> Time {
        let mut next = Time::NEVER;
        let mut found = None;
        for (stall, since) in self.under_way() {
            let at = since + stall.limit();
            if at > now {
                next = next.min(at);
            } else {
                found = found.or(Some(stall));
            }
        }
        if found.is_some() != self.stalled.is_some() {
            out.report(match found {
                Some(stall) => BackupEvent::Stalled(stall),
                None => BackupEvent::GoesOn,
            });
        }
        self.stalled = found;
        next
    }

    /// Operations that the storage has not completed, and since when.
    fn under_way(&self) -> impl Iterator<Item = (Stall, Time)> {
        let superblock = self.fencing.carried.as_ref();
        let superblock = superblock.and_then(|carried| carried.start.since());
        let write = self
            .device
            .flight
            .since()
            .map(|since| (Stall::Write, since));
        let syncs = self.frames_sync_since().into_iter().chain(superblock);
        let job = self.jobs.since().map(|since| (Stall::Job, since));
        let syncs = syncs.map(|since| (Stall::Sync, since));
        write.into_iter().chain(syncs).chain(job)
    }

    fn frames_sync_since(&self) -> Option<Time> {
        let carried: Option<&Carried> = self.commit.under_way.as_ref();
        carried.and_then(|carried| carried.start.since())
    }
}
