//! Checkpoints of the coordinator's state, so that volumes alone make a store again: docs/rebuild.md.
//!
//! One is cut into parts, and each lies in a frame as a closed replica of a log that no server has. So all that is true of closed replicas in
//! crashes, with rot and on full storages is true of them. The one before goes when no crash takes the newer one any more.

use std::collections::BTreeSet;

use wire::peer::Status;

use crate::backup::Backup;
use crate::checkpoint::{CHECKPOINT_LOG, HEADER_BYTES, MAX_PARTS, PART_BITS, Whole, replica};
use crate::job::{Work, read_checkpoint};
use crate::reader::Snapshot;
use crate::storage::Storage;

impl<S: Storage> Backup<S> {
    /// Writes a checkpoint, and gives up those that it makes superfluous. Answers its number here, for [`Backup::checkpoint_is_kept`].
    ///
    /// # Errors
    /// There are not enough free frames, or the storage takes nothing. The one before is still there.
    pub fn keep_checkpoint(&mut self, bytes: &[u8]) -> Result<u64, Status> {
        self.may_write(CHECKPOINT_LOG)?;
        let part_bytes = (self.config.segment_bytes as usize)
            .checked_sub(HEADER_BYTES)
            .filter(|&bytes| bytes > 0)
            .ok_or(Status::Full)?;
        let parts = bytes.len().div_ceil(part_bytes).max(1);
        let length = u32::try_from(bytes.len()).map_err(|_| Status::Full)?;
        if parts > MAX_PARTS {
            return Err(Status::Full);
        }
        let last = self.checkpoint_numbers().last().copied().unwrap_or(0);
        self.free_superfluous_checkpoints();
        let (number, whole) = (
            last + 1,
            Whole {
                parts: parts as u32,
                bytes: length,
                crc: crc32c::crc32c(bytes),
            },
        );
        let mut pieces = bytes.chunks(part_bytes);
        for part in 0..whole.parts {
            let piece = pieces.next().unwrap_or_default();
            let data = [&whole.header(part), piece].concat();
            if let Err(status) = self.put_closed(replica(number, part), &data) {
                self.free_checkpoint(number);
                return Err(status);
            }
        }
        self.commit.is_urgent = self.config.durability.is_flushed();
        self.checkpoints.push(number);
        Ok(number)
    }

    /// Whether this checkpoint is as safe as the backup's acknowledgements are.
    pub fn checkpoint_is_kept(&self, number: u64) -> bool {
        self.retired.is_none()
            && match self.config.durability.is_flushed() {
                true => self.is_checkpoint_durable(number),
                false => self.is_checkpoint_written(number),
            }
    }

    /// Reads the newest one that is whole. [`BackupEffects::checkpoint`] follows.
    pub fn read_newest_checkpoint(&mut self) {
        let numbers = self.checkpoint_numbers();
        let newest_first = numbers.into_iter().rev();
        let candidates = newest_first.map(|number| self.parts(number)).collect();
        let after = self.device.flight.submitted();
        self.begin_job(after, Work::Checkpoint(candidates));
    }

    /// All that something is here of.
    fn checkpoint_numbers(&self) -> BTreeSet<u64> {
        let parts = self.of_log(CHECKPOINT_LOG);
        parts
            .map(|(replica, _)| replica.segment_id >> PART_BITS)
            .collect()
    }

    /// The frames of a checkpoint, in order.
    fn parts(&self, number: u64) -> Vec<Snapshot> {
        let frames = (0..).map_while(|part| self.replicas.get(&replica(number, part)));
        let snapshots = frames.map_while(|&frame| self.frames[frame].snapshot());
        snapshots.collect()
    }

    fn is_checkpoint_written(&self, number: u64) -> bool {
        let parts = self.parts(number);
        let flight = &self.device.flight;
        let is_written = |part: &Snapshot| flight.has_ended(self.frames[part.number].written_by());
        !parts.is_empty() && parts.iter().all(is_written)
    }

    pub(crate) fn is_checkpoint_durable(&self, number: u64) -> bool {
        let parts = self.of_log(CHECKPOINT_LOG);
        let mut parts = parts
            .filter(|(replica, _)| replica.segment_id >> PART_BITS == number)
            .peekable();
        parts.peek().is_some()
            && parts.all(|(_, frame)| self.frames[frame].newest_is_safe(&self.device))
    }

    /// Of those that are whole the newest stays, and the newest that no crash takes.
    fn free_superfluous_checkpoints(&mut self) {
        let whole = self.checkpoints.clone();
        let durable = whole.iter().rev();
        let durable = durable
            .copied()
            .find(|&number| self.is_checkpoint_durable(number));
        let stay = [whole.last().copied(), durable];
        for number in self.checkpoint_numbers() {
            if !stay.contains(&Some(number)) {
                self.free_checkpoint(number);
            }
        }
        self.checkpoints
            .retain(|&number| stay.contains(&Some(number)));
    }

    fn free_checkpoint(&mut self, number: u64) {
        let parts = self.of_log(CHECKPOINT_LOG);
        let frames: Vec<u32> = parts
            .filter(|(replica, _)| replica.segment_id >> PART_BITS == number)
            .map(|(_, frame)| frame)
            .collect();
        for frame in frames {
            self.free_frame(frame);
        }
    }

    /// Finds those that are whole, when the storage is opened.
    pub(crate) fn look_for_checkpoints(&mut self) {
        for number in self.checkpoint_numbers() {
            let parts = self.parts(number);
            if read_checkpoint(parts, &mut self.device.reader()).is_some() {
                self.checkpoints.push(number);
            }
        }
    }
}
