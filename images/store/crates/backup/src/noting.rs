//! Noting fences on the storage: the superblock, and the syncs that carry it.
//!
//! The superblock has syncs of its own, of the first blocks alone: in `Buffered` mode a recovery does not wait until all that is in the page cache has
//! gone to the disk.

use crate::backup::Backup;
use crate::commit::Start;
use crate::disk::StorageError;
use crate::effects::BackupEffects;
use crate::event::BackupEvent;
use crate::fencing::Carried;
use crate::layout::Layout;
use crate::record::Superblock;
use crate::storage::Storage;

impl<S: Storage> Backup<S> {
    /// Writes the superblock and begins to sync it, if that is due.
    pub(crate) fn note_fences(&mut self) {
        let fencing = &mut self.fencing;
        if fencing.carried.is_some() || fencing.writings == 0 {
            return;
        }
        fencing.writings -= 1;
        self.write_superblock(false);
        let fencing = &mut self.fencing;
        assert!(
            fencing.carried.is_none(),
            "one sync of the superblock at a time"
        );
        fencing.carried = Some(Carried {
            fences: fencing.fences.clone(),
            start: Start::After(self.device.flight.submitted()),
        });
        fencing.is_doubtful = false;
        fencing.syncs.begun += 1;
        self.start_syncs();
    }

    /// For whoever opens the storage next, under this kernel, so that the page cache is enough: what it shows may change.
    pub(crate) fn note_failure(&mut self) {
        self.write_superblock(false);
        self.fencing.is_doubtful = true;
        self.fencing.changed();
    }

    pub(crate) fn superblock_synced(
        &mut self,
        result: Result<(), StorageError>,
        out: &mut impl BackupEffects,
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
                self.fencing.durable = carried.fences;
            }
            Err(error) => self.cannot_note(&error, out),
        }
    }

    /// Noting the fences is tried again when somebody asks for a recovery again.
    fn cannot_note(&mut self, error: &StorageError, out: &mut impl BackupEffects) {
        let fencing = &mut self.fencing;
        fencing.writings = 0;
        fencing.copies.distrust(&fencing.syncs);
        for &log in self.recovering.keys() {
            if !self.fencing.durable.covers(log) {
                let error = error.clone();
                out.report(BackupEvent::FenceNotWritten { log, error });
            }
        }
        self.retire(error, out);
    }

    pub(crate) fn write_superblock(&mut self, clean: bool) {
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
        self.device.write(at, &superblock.encode());
    }
}
