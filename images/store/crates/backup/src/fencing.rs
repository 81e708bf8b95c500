//! Noting fences on the storage: the superblock, and the syncs that carry it; and what of a fenced log is to be synced before anybody is told of it.
//!
//! The superblock has syncs of its own, of the first blocks alone: in `Buffered` mode a recovery does not wait until all that is in the page cache has
//! gone to the disk.

use std::collections::BTreeSet;

use wire::bugs::{Bug, is_planted};
use wire::ids::ServerId;

use crate::backup::{Backup, Output};
use crate::copies::{Copies, Syncs};
use crate::fences::Fences;
use crate::layout::Layout;
use crate::record::Superblock;
use crate::storage::{Scope, Storage, StorageError};

/// The second writing comes when the first is durable: rot of one place brings no old fences back.
const WRITINGS: u8 = 2;

pub(crate) struct Fencing {
    /// Who is refused.
    pub fences: Fences,
    /// The part of that which no crash takes.
    durable: Fences,
    /// What the sync under way carries.
    carried: Option<Fences>,
    /// Another sync has failed meanwhile, and may have taken along what this one was to carry.
    is_doubtful: bool,
    copies: Copies,
    syncs: Syncs,
    /// How often the superblock is still to be written.
    writings: u8,
}

impl Fencing {
    /// As found on a storage.
    pub fn found(fences: Fences, copies: Copies) -> Fencing {
        Fencing {
            durable: fences.clone(),
            fences,
            carried: None,
            is_doubtful: false,
            copies,
            syncs: Syncs::OPENED,
            writings: 0,
        }
    }

    pub fn durable(&self) -> &Fences {
        &self.durable
    }

    /// There is something to note in the superblock.
    pub fn changed(&mut self) {
        self.writings = WRITINGS;
    }

    /// A sync of everything has succeeded while no other was begun.
    pub fn synced_with_all(&mut self) {
        self.syncs.begun += 1;
        self.syncs.completed = self.syncs.begun;
    }
}

impl<S: Storage> Backup<S> {
    /// Writes the superblock and begins to sync it, if that is due.
    pub(crate) fn note_fences(&mut self, out: &mut impl Output) {
        let fencing = &mut self.fencing;
        if fencing.carried.is_some() || fencing.writings == 0 {
            return;
        }
        fencing.writings -= 1;
        if let Err(error) = self.write_superblock(false) {
            self.cannot_note(&error, out);
            return;
        }
        let fencing = &mut self.fencing;
        fencing.carried = Some(fencing.fences.clone());
        fencing.is_doubtful = false;
        fencing.syncs.begun += 1;
        self.device.storage.begin_sync(Scope::Superblock);
    }

    /// For whoever opens the storage next, under this kernel, so that the page cache is enough: what it shows may change.
    pub(crate) fn note_failure(&mut self) {
        self.write_superblock(false).ok();
        self.fencing.is_doubtful = true;
        self.fencing.changed();
    }

    pub(crate) fn superblock_synced(
        &mut self,
        result: Result<(), StorageError>,
        out: &mut impl Output,
    ) {
        let carried = self.fencing.carried.take();
        let carried = carried.expect("a sync of the superblock ends that was begun");
        match result {
            Ok(()) if self.fencing.is_doubtful => {
                self.fencing.copies.distrust(&self.fencing.syncs);
                self.fencing.changed();
            }
            Ok(()) => {
                self.fencing.syncs.completed = self.fencing.syncs.begun;
                self.fencing.durable = carried;
            }
            Err(error) => self.cannot_note(&error, out),
        }
    }

    /// Sees to it that no crash takes anything that is here of a fenced log. Writes that were not synced were not acknowledged from here, but once a recovery
    /// knows of it, it may be shown to readers, and all later recoveries have to find it.
    pub(crate) fn make_durable(&mut self, log: ServerId) {
        let mut needed = 0;
        if self.config.durability.is_flushed() && !is_planted(Bug::TellOfUnsynced) {
            // What power brings back of what was freed could take the place of what came after it.
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
    pub(crate) fn write_again(&mut self, out: &mut impl Output) {
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

    /// What a sync that has failed was to carry: no later one tells whether it is on the disk.
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
    pub(crate) fn cannot_sync(&mut self, error: &StorageError, out: &mut impl Output) {
        for (log, &needed) in &self.recovering {
            if needed > self.device.syncs.completed {
                out.log_message(
                    1,
                    &format!(
                        "backup: the storage cannot sync what it holds of {log}, which is being recovered, so nothing of it is given out \
                         until it is asked for again: {error}"
                    ),
                );
            }
        }
    }

    /// The same for the fences.
    fn cannot_note(&mut self, error: &StorageError, out: &mut impl Output) {
        let fencing = &mut self.fencing;
        fencing.writings = 0;
        fencing.copies.distrust(&fencing.syncs);
        for &log in self.recovering.keys() {
            if !self.fencing.durable.covers(log) {
                out.log_message(
                    1,
                    &format!(
                        "backup: the storage cannot note that {log} is being recovered, so nothing of it is given out \
                         until it is asked for again: {error}"
                    ),
                );
            }
        }
        self.retire(error, out);
    }

    pub(crate) fn write_superblock(&mut self, clean: bool) -> Result<(), StorageError> {
        let fencing = &mut self.fencing;
        let (place, sequence) = fencing.copies.advance(&fencing.syncs);
        let superblock = Superblock {
            format: self.config.format,
            sequence,
            cluster_id: self.config.cluster_id,
            segment_bytes: self.config.segment_bytes,
            frame_count: self.config.frame_count,
            boot_id: self.config.boot_id,
            clean,
            flushed: self.config.durability.is_flushed(),
            failed: self.retired.is_some(),
            fences: fencing.fences.clone(),
        };
        let at = Layout::superblock(place);
        self.device.storage.write(at, &superblock.encode())
    }
}
