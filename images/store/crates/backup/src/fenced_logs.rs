//! Syncing what is here of a fenced log, before anybody is told of it.

use std::collections::BTreeSet;

use base::bugs::{Bug, is_planted};
use base::ids::ServerId;

use crate::backup::{Backup, BackupEffects};
use crate::event::BackupEvent;
use crate::storage::{Storage, StorageError};

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
    pub(crate) fn write_again(&mut self, out: &mut impl BackupEffects) {
        let completed = self.device.syncs.completed;
        let recovering = self.recovering.iter();
        let waiting = recovering.filter(|&(_, &needed)| needed > completed);
        let logs: Vec<ServerId> = waiting.map(|(&log, _)| log).collect();
        if logs.is_empty() || self.is_syncing() {
            return;
        }
        let frames = logs.iter().flat_map(|&log| self.unsafe_frames(log));
        let frames: BTreeSet<u32> = frames.collect();
        match self.rewrite(frames) {
            Ok(()) => {
                let begun = self.device.syncs.begun;
                self.recovering.extend(logs.iter().map(|&log| (log, begun)));
            }
            Err(error) => self.cannot_sync(&error, out),
        }
    }

    fn rewrite(&mut self, frames: BTreeSet<u32>) -> Result<(), StorageError> {
        let mut written = BTreeSet::new();
        for number in frames {
            let frame = &mut self.frames[number];
            match frame.verify(&mut self.device) {
                // It gives out nothing any more.
                Err(damage) => self.name_damage(number, damage),
                Ok(()) => {
                    frame.rewrite(&mut self.device)?;
                    written.insert(number);
                }
            }
        }
        self.begin_sync_of(written)
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
