//! Group commit: one sync of the frames at a time, and everything that comes meanwhile shares the next.

use std::collections::BTreeSet;
use std::time::Duration;

use base::bugs::{Bug, is_planted};
use base::ids::ReplyTo;
use base::time::Time;
use trace::Event;
use wire::peer::{Answer, SERVING_PROMISE, Status};

use crate::backup::Backup;
use crate::commit::{Carried, Start, Waiting};
use crate::disk::StorageError;
use crate::effects::BackupEffects;
use crate::event::BackupEvent;
use crate::inventory::Inventory;
use crate::storage::{Scope, Storage};

/// What nobody waits for is synced after so long, together with what came since.
const SETTLE_AFTER: Duration = Duration::from_millis(250);

impl<S: Storage> Backup<S> {
    /// Does what is due: begins syncs, releases logs whose time has come, says what is to be said. Called after every batch of other
    /// calls, and no later than at the time returned.
    pub fn tick(&mut self, now: Time, out: &mut impl BackupEffects) -> Time {
        self.complete(now, out);
        let mut next = self.tend(now, out);
        // A storage that keeps nobody waiting has done by now what was submitted.
        while self.complete(now, out) {
            next = self.tend(now, out);
        }
        next
    }

    fn tend(&mut self, now: Time, out: &mut impl BackupEffects) -> Time {
        for event in std::mem::take(&mut self.unreported) {
            out.report(event);
        }
        if now >= self.forget_promises_at {
            self.promises.retain(|_, until| *until > now);
            self.forget_promises_at = now + SERVING_PROMISE;
        }
        let release_at = self.release(now, out);
        self.note_fences();
        let mut settle_at = self.settle_at(now);
        if settle_at <= now {
            self.begin_sync();
            settle_at = Time::NEVER;
        }
        let look_at = self.look_for_stall(now, out);
        release_at.min(settle_at).min(look_at)
    }

    /// When the next sync of the frames is due, if that depends on time.
    fn settle_at(&mut self, now: Time) -> Time {
        let commit = &mut self.commit;
        if commit.under_way.is_some() || self.retired.is_some() {
            Time::NEVER
        } else if !commit.waiting.is_empty()
            || commit.is_urgent
            || self.free.is_empty() && !self.freeing.is_empty()
        {
            now
        } else if commit.unsettled.is_empty() {
            Time::NEVER
        } else {
            *commit.settle_at.get_or_insert(now + SETTLE_AFTER)
        }
    }

    fn begin_sync(&mut self) {
        let frames = std::mem::take(&mut self.commit.unsettled);
        self.begin_sync_of(frames);
    }

    /// None is under way. What it carries is what has been submitted by now: it begins when that is written.
    pub(crate) fn begin_sync_of(&mut self, frames: BTreeSet<u32>) {
        assert!(!self.is_syncing(), "one sync of the frames at a time");
        for &number in &frames {
            self.frames[number].before_sync(&mut self.device);
        }
        self.commit.settle_at = None;
        self.commit.is_urgent = false;
        self.commit.under_way = Some(Carried {
            waiting: std::mem::take(&mut self.commit.waiting),
            frames,
            start: Start::After(self.device.flight.submitted()),
        });
        self.device.syncs.begun += 1;
        self.start_syncs();
    }

    /// Begins the syncs that have waited for writes.
    pub(crate) fn start_syncs(&mut self) {
        let frames = self.commit.under_way.as_mut();
        let frames = frames.map(|carried| (Scope::All, &mut carried.start));
        let superblock = self.fencing.carried.as_mut();
        let superblock = superblock.map(|carried| (Scope::Superblock, &mut carried.start));
        for (scope, start) in frames.into_iter().chain(superblock) {
            if let Start::After(ticket) = *start
                && (self.device.flight.has_ended(ticket) || is_planted(Bug::SyncUnwritten))
            {
                *start = Start::Since(self.device.now);
                self.device.storage.begin_sync(scope);
            }
        }
    }

    pub(crate) fn synced(
        &mut self,
        now: Time,
        scope: Scope,
        result: Result<(), StorageError>,
        out: &mut impl BackupEffects,
    ) {
        trace::record(Event::Synced, 0);
        match scope {
            Scope::Superblock => self.superblock_synced(result, out),
            Scope::All => self.frames_synced(result, out),
        }
        self.release(now, out);
    }

    pub(crate) fn frames_synced(
        &mut self,
        result: Result<(), StorageError>,
        out: &mut impl BackupEffects,
    ) {
        let carried = self.commit.under_way.take();
        let carried = carried.expect("a sync of the frames ends that was begun");
        if let Err(error) = result {
            refuse(carried.waiting, Status::Retired, out);
            self.retire(&error, out);
            self.distrust_frames();
            self.cannot_sync(&error, out);
            return;
        }
        self.device.syncs.completed = self.device.syncs.begun;
        for number in carried.frames {
            let frame = &mut self.frames[number];
            frame.after_sync();
            if frame.wants_sync(self.config.durability) {
                self.commit.unsettled.insert(number);
            }
            if frame.is_durable(&self.device) && self.freeing.remove(&number) {
                self.free.insert(number);
            }
        }
        for Waiting { to, bytes, .. } in carried.waiting {
            let status = Status::Ok;
            out.answer(to, Answer { status, bytes });
        }
        if self.retired.is_some() {
            self.write_again();
        }
    }

    pub(crate) fn is_syncing(&self) -> bool {
        self.commit.under_way.is_some()
    }

    /// Those who wait for appends to logs that are fenced now.
    pub(crate) fn refuse_fenced(&mut self, out: &mut impl BackupEffects) {
        let fences = &self.fencing.fences;
        let under_way = self.commit.under_way.as_mut();
        let carried = under_way.map(|carried| &mut carried.waiting);
        for waiting in carried.into_iter().chain([&mut self.commit.waiting]) {
            let fenced = waiting.extract_if(.., |waiting| fences.covers(waiting.log));
            refuse(fenced, Status::Fenced, out);
        }
        self.unwritten.refuse_fenced(fences, out);
    }

    /// Nothing more becomes durable.
    pub(crate) fn give_up_waiting(&mut self, out: &mut impl BackupEffects) {
        refuse(
            std::mem::take(&mut self.commit.waiting),
            Status::Retired,
            out,
        );
    }

    fn sync_all(&mut self) -> Result<(), StorageError> {
        self.device.sync()?;
        self.fencing.synced_with_all();
        Ok(())
    }

    /// Ends a backup whose process is told to end: whatever happens to the machine afterwards, nothing is lost, in `Buffered` mode
    /// neither. Waits for the storage. Requests that wait are not answered any more.
    pub fn close_in_order(mut self) -> (S, Result<(), StorageError>) {
        // A failure has its note written, which is one more.
        while !self.device.flight.has_ended(self.device.flight.submitted()) {
            self.device.storage.wait_for_writes();
            self.complete(self.device.now, &mut Unheard);
        }
        self.device.closing();
        let result = match &self.retired {
            Some(reason) => Err(StorageError(reason.clone())),
            None => self.sync_superblock(true),
        };
        (self.device.storage, result)
    }

    /// Makes everything durable, and then the superblock, which says so.
    pub(crate) fn sync_superblock(&mut self, clean: bool) -> Result<(), StorageError> {
        let result = self.sync_all().and_then(|()| {
            self.write_superblock(clean);
            self.sync_all()
        });
        if let Err(error) = &result {
            self.retired = Some(error.0.clone());
            self.note_failure();
        }
        result
    }
}

/// Nobody: the connections are gone.
struct Unheard;

impl BackupEffects for Unheard {
    fn answer(&mut self, _: ReplyTo, _: Answer) {}
    fn data(&mut self, _: ReplyTo, _: Status, _: &[u8]) {}
    fn entries(&mut self, _: ReplyTo, _: Status, _: u32, _: &[u8]) {}
    fn checkpoint(&mut self, _: Option<Vec<u8>>) {}
    fn report(&mut self, _: BackupEvent) {}
    fn released(&mut self, _: Inventory) {}
}

fn refuse(
    waiting: impl IntoIterator<Item = Waiting>,
    status: Status,
    out: &mut impl BackupEffects,
) {
    for Waiting { to, .. } in waiting {
        out.answer(to, Answer { status, bytes: 0 });
    }
}
