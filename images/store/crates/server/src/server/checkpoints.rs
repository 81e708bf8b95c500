//! The coordinator's checkpoints in this server's volume: docs/rebuild.md.

use backup::Storage;
use base::time::Time;
use wire::member::{
    CheckpointKept, CheckpointPart, KeepCheckpoint, MAX_CHECKPOINT_BYTES, ReadCheckpoint,
};
use wire::member::{ToCoordinator, shard};
use wire::peer::Status;

use super::Server;
use crate::effects::ServerEffects;

/// Of a piece that is read: well below what a message may have.
const MAX_PIECE_BYTES: u32 = 1 << 20;

fn say(kind: shard::Kind, out: &mut impl ServerEffects) {
    out.send_coordinator(ToCoordinator::from(kind));
}

impl<S: Storage> Server<S> {
    /// The coordinator sends a part of its state.
    pub(super) fn keep_checkpoint(&mut self, part: KeepCheckpoint, out: &mut impl ServerEffects) {
        let number = part.number;
        let mut kept = CheckpointKept {
            number,
            ..CheckpointKept::default()
        };
        match self.take_part(part, out) {
            Ok(None) => return,
            Ok(Some(bytes)) => kept.bytes = bytes,
            Err(failure) => {
                self.checkpoint.coming = None;
                kept.failure = failure;
            }
        }
        say(shard::Kind::CheckpointKept(kept), out);
    }

    /// How much is here; `None`: all of it is written, and answered when it is safe.
    fn take_part(
        &mut self,
        part: KeepCheckpoint,
        out: &mut impl ServerEffects,
    ) -> Result<Option<u64>, String> {
        if part.total_bytes > MAX_CHECKPOINT_BYTES {
            return Err(format!(
                "{} bytes are more than the {MAX_CHECKPOINT_BYTES} that one may have: drop tables, or have fewer tablets",
                part.total_bytes
            ));
        }
        if part.offset == 0 {
            self.checkpoint.coming = Some((part.number, Vec::new()));
        }
        let coming = self.checkpoint.coming.take();
        let (number, mut bytes) = coming
            .filter(|(number, bytes)| *number == part.number && bytes.len() as u64 == part.offset)
            .ok_or("a part came out of order")?;
        bytes.extend_from_slice(&part.data);
        let held = bytes.len() as u64;
        if held < part.total_bytes {
            self.checkpoint.coming = Some((number, bytes));
            return Ok(Some(held));
        }
        let written = self
            .with_backup(out, |backup, _| backup.keep_checkpoint(&bytes))
            .ok_or("the backup's storage is not open")?;
        let here = written.map_err(|status| match status {
            Status::Full => "no frame is free for it: give the backup more (--segmentFrames, or backups.storage.size of the Store)".to_owned(),
            status => format!("the backup's storage takes nothing ({status:?}): the status says why"),
        })?;
        self.checkpoint.written = Some((number, here));
        self.report.changed();
        Ok(None)
    }

    /// A coordinator that makes its store again wants to know what the volume holds; this server is not in the store yet.
    pub(super) fn read_checkpoint(&mut self, read: ReadCheckpoint, out: &mut impl ServerEffects) {
        self.checkpoint.asked = Some(read);
        if self.volume != 0 {
            self.use_storage(self.volume, out);
        }
    }

    /// Says what can be said by now.
    pub(super) fn tend_checkpoint(&mut self, now: Time, out: &mut impl ServerEffects) {
        if let Some((number, here)) = self.checkpoint.written
            && let Some(backup) = self.stage.backup()
        {
            let is_kept = backup.checkpoint_is_kept(here);
            let failure = backup.stats().retired;
            if is_kept || failure.is_some() {
                self.checkpoint.written = None;
                let kept = CheckpointKept {
                    number,
                    bytes: 0,
                    is_kept,
                    failure: failure.unwrap_or_default(),
                };
                say(shard::Kind::CheckpointKept(kept), out);
            }
        }
        if self.stage.is_opening() {
            return;
        }
        if self.is_reading_checkpoint() {
            // Memory has it by now.
            self.with_backup(out, |backup, out| backup.complete(now, out));
            if self.checkpoint.read.is_none() {
                return;
            }
        }
        if let Some(read) = self.checkpoint.asked.take() {
            let part = self.checkpoint_part(read);
            say(shard::Kind::CheckpointPart(part), out);
        }
    }

    /// Whether what the coordinator asks for is still to be read from the disk.
    fn is_reading_checkpoint(&mut self) -> bool {
        let checkpoint = &mut self.checkpoint;
        let Some(backup) = self.stage.backup_mut() else {
            return false;
        };
        if checkpoint.asked.is_none() || checkpoint.read.is_some() {
            return false;
        }
        if !std::mem::replace(&mut checkpoint.is_reading, true) {
            backup.read_newest_checkpoint();
        }
        true
    }

    fn checkpoint_part(&mut self, read: ReadCheckpoint) -> CheckpointPart {
        let (Some(backup), Some(whole)) = (self.stage.backup(), &self.checkpoint.read) else {
            return CheckpointPart {
                offset: read.offset,
                ..CheckpointPart::default()
            };
        };
        let start = usize::try_from(read.offset).unwrap_or(usize::MAX);
        let rest = whole.get(start..).unwrap_or_default();
        let length = rest.len().min(read.bytes.min(MAX_PIECE_BYTES) as usize);
        CheckpointPart {
            cluster_id: backup.config().cluster_id,
            total_bytes: whole.len() as u64,
            offset: read.offset,
            data: rest[..length].to_vec(),
        }
    }
}
