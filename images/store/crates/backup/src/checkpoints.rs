//! Checkpoints of the coordinator's state, so that volumes alone make a store again: docs/rebuild.md.
//!
//! One is cut into parts, and each lies in a frame as a closed replica of a log that no server has. So all that is true of closed replicas in
//! crashes, with rot and on full storages is true of them. The one before goes when no crash takes the newer one any more.

use std::collections::BTreeSet;

use wire::peer::{Read, Status};

use crate::backup::{Backup, BackupEffects};
use crate::checkpoint::{CHECKPOINT_LOG, HEADER_BYTES, MAX_PARTS, PART_BITS, Whole, replica};
use crate::storage::Storage;

impl<S: Storage> Backup<S> {
    /// Writes a checkpoint, and gives up those that it makes superfluous. Answers its number here, for [`Backup::checkpoint_is_kept`].
    ///
    /// # Errors
    /// There are not enough free frames, or the storage takes nothing. The one before is still there.
    pub fn keep_checkpoint(
        &mut self,
        bytes: &[u8],
        out: &mut impl BackupEffects,
    ) -> Result<u64, Status> {
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
        self.free_superfluous_checkpoints(out)?;
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
            if let Err(status) = self.put_closed(replica(number, part), &data, out) {
                self.free_checkpoint(number, out)?;
                return Err(status);
            }
        }
        self.commit.is_urgent = self.config.durability.is_flushed();
        self.whole_checkpoints().push(number);
        Ok(number)
    }

    /// Whether this checkpoint is as safe as the backup's acknowledgements are.
    pub fn checkpoint_is_kept(&self, number: u64) -> bool {
        self.retired.is_none()
            && (!self.config.durability.is_flushed() || self.is_checkpoint_durable(number))
    }

    /// The newest one that is whole.
    pub fn newest_checkpoint(&mut self) -> Option<Vec<u8>> {
        let numbers = self.checkpoint_numbers();
        let mut newest_first = numbers.into_iter().rev();
        newest_first.find_map(|number| self.read_checkpoint(number))
    }

    /// All that something is here of.
    fn checkpoint_numbers(&self) -> BTreeSet<u64> {
        let parts = self.of_log(CHECKPOINT_LOG);
        parts
            .map(|(replica, _)| replica.segment_id >> PART_BITS)
            .collect()
    }

    fn whole_checkpoints(&mut self) -> &mut Vec<u64> {
        if self.checkpoints.is_none() {
            let mut whole: Vec<u64> = self.checkpoint_numbers().into_iter().collect();
            whole.retain(|&number| self.read_checkpoint(number).is_some());
            self.checkpoints = Some(whole);
        }
        self.checkpoints.get_or_insert_default()
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
    fn free_superfluous_checkpoints(&mut self, out: &mut impl BackupEffects) -> Result<(), Status> {
        let whole = self.whole_checkpoints().clone();
        let durable = whole.iter().rev();
        let durable = durable
            .copied()
            .find(|&number| self.is_checkpoint_durable(number));
        let stay = [whole.last().copied(), durable];
        for number in self.checkpoint_numbers() {
            if !stay.contains(&Some(number)) {
                self.free_checkpoint(number, out)?;
            }
        }
        self.whole_checkpoints()
            .retain(|&number| stay.contains(&Some(number)));
        Ok(())
    }

    fn free_checkpoint(&mut self, number: u64, out: &mut impl BackupEffects) -> Result<(), Status> {
        let parts = self.of_log(CHECKPOINT_LOG);
        let frames: Vec<u32> = parts
            .filter(|(replica, _)| replica.segment_id >> PART_BITS == number)
            .map(|(_, frame)| frame)
            .collect();
        for frame in frames {
            if let Err(error) = self.free_frame(frame) {
                self.retire(&error, out);
                return Err(Status::Retired);
            }
        }
        Ok(())
    }

    fn read_checkpoint(&mut self, number: u64) -> Option<Vec<u8>> {
        let mut all = Vec::new();
        let mut piece = Vec::new();
        let mut expected = None;
        for part in 0.. {
            let read = Read {
                replica: replica(number, part),
                offset: 0,
                bytes: self.config.segment_bytes,
            };
            if self.read(&read, &mut piece) != Status::Ok {
                return None;
            }
            let (found, whole, data) = Whole::parse(&piece)?;
            if found != part || *expected.get_or_insert(whole) != whole {
                return None;
            }
            all.extend_from_slice(data);
            if part + 1 >= whole.parts {
                let is_sound =
                    all.len() == whole.bytes as usize && crc32c::crc32c(&all) == whole.crc;
                return is_sound.then_some(all);
            }
        }
        None
    }
}
