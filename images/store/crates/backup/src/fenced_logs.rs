//! Syncing what is here of a fenced log, before anybody is told of it.

use std::collections::BTreeSet;

use base::bugs::{Bug, is_planted};
use base::ids::ServerId;

use crate::backup::Backup;
use crate::disk::StorageError;
use crate::effects::BackupEffects;
use crate::event::BackupEvent;
use crate::job::Work;
use crate::reader::Snapshot;
use crate::record::Damage;
use crate::storage::Storage;

impl<S: Storage> Backup<S> {
    /// Sees to it that no crash takes anything that is here of a fenced log. Writes that were not synced were not acknowledged from here, but once a recovery
    /// knows of it, it may be shown to readers, and all later recoveries have to find it.
    pub(crate) fn make_durable(&mut self, log: ServerId) {
        let mut needed = 0;
        if self.config.durability.is_flushed() && !is_planted(Bug::TellOfUnsynced) {
            // Freed data that a power failure brings back could take the place of newer data.
            let numbers = self.unsafe_frames(log).into_iter();
            let needed_by = numbers.map(|number| self.frames[number].safe_after());
            needed = needed_by.max().unwrap_or(0);
        }
        self.commit.is_urgent |= needed > self.device.syncs.begun;
        self.recovering.insert(log, needed);
    }

    fn unsafe_frames(&self, log: ServerId) -> BTreeSet<u32> {
        let of_log = self.of_log(log).map(|(_, number)| number);
        let numbers = of_log.chain(self.freeing.iter().copied());
        numbers
            .filter(|&number| self.frames[number].safe_after() > self.device.syncs.completed)
            .collect()
    }

    /// The storage has failed, and perhaps with it the sync that was to carry what is here of fenced logs: it is written once more, and synced. Each time
    /// that somebody asks for one of them.
    pub(crate) fn write_again(&mut self) {
        let completed = self.device.syncs.completed;
        let recovering = self.recovering.iter();
        let waiting = recovering.filter(|&(_, &needed)| needed > completed);
        let logs: Vec<ServerId> = waiting.map(|(&log, _)| log).collect();
        if logs.is_empty() || self.is_syncing() || self.is_rewriting {
            return;
        }
        let numbers = logs.iter().flat_map(|&log| self.unsafe_frames(log));
        let numbers: BTreeSet<u32> = numbers.collect();
        let frames = numbers.iter();
        let frames = frames.map(|&number| self.frames[number].again(&self.device));
        let work = Work::Rewrite(frames.collect());
        self.is_rewriting = true;
        self.begin_job(self.device.flight.submitted(), work);
    }

    /// All that was to be written again is, or is found damaged.
    pub(crate) fn rewritten(
        &mut self,
        written: Vec<u32>,
        damaged: &[(Snapshot, Damage)],
        result: Result<(), StorageError>,
        out: &mut impl BackupEffects,
    ) {
        self.is_rewriting = false;
        for (frame, damage) in damaged {
            self.found_damaged(frame, *damage);
        }
        for &number in &written {
            self.frames[number].was_written_again(&self.device);
        }
        if let Err(error) = result {
            return self.cannot_sync(&error, out);
        }
        self.begin_sync_of(written.into_iter().collect());
        let (begun, completed) = (self.device.syncs.begun, self.device.syncs.completed);
        for needed in self.recovering.values_mut() {
            if *needed > completed {
                *needed = begun;
            }
        }
    }

    /// Writes that a failed sync was to carry: no later sync tells whether they are on the disk.
    pub(crate) fn distrust_frames(&mut self) {
        for (_, frame) in self.frames.usable() {
            frame.distrust(&self.device);
        }
        let logs: Vec<ServerId> = self.recovering.keys().copied().collect();
        for log in logs {
            self.make_durable(log);
        }
    }

    /// It is tried again when somebody asks for a recovery again.
    pub(crate) fn cannot_sync(&mut self, error: &StorageError, out: &mut impl BackupEffects) {
        for (log, &needed) in &self.recovering {
            if needed > self.device.syncs.completed {
                let (log, error) = (*log, error.clone());
                out.report(BackupEvent::LogNotSynced { log, error });
            }
        }
    }
}
