//! A storage with its sizes, and how far it is synced.

use crate::copies::Syncs;
use crate::layout::Layout;
use crate::storage::{Storage, StorageError};

/// Data is read in pieces of so much where only its checksum matters.
const PIECE_BYTES: usize = 128 << 10;

pub(crate) struct Device<S> {
    pub storage: S,
    pub layout: Layout,
    pub cluster_id: u64,
    pub syncs: Syncs,
}

impl<S: Storage> Device<S> {
    /// Makes everything durable, and waits for it.
    pub fn sync(&mut self) -> Result<(), StorageError> {
        self.storage.sync()?;
        self.syncs.begun += 1;
        self.syncs.completed = self.syncs.begun;
        Ok(())
    }

    /// Writes what can be read once more.
    pub fn rewrite(&mut self, offset: u64, bytes: u32) -> Result<(), StorageError> {
        let (mut at, end) = (offset, offset + u64::from(bytes));
        let mut piece = vec![0; PIECE_BYTES.min(bytes as usize)];
        while at < end {
            let bytes = piece.len().min((end - at) as usize);
            let piece = &mut piece[..bytes];
            if self.storage.read(at, piece).is_err() {
                // Whoever asks for it is told.
                return Ok(());
            }
            self.storage.write(at, piece)?;
            at += bytes as u64;
        }
        Ok(())
    }

    /// CRC32C of a frame's data up to `end`, going on with `crc` of what lies before `start`.
    pub fn checksum(
        &mut self,
        frame: u32,
        start: u32,
        end: u32,
        mut crc: u32,
    ) -> Result<u32, StorageError> {
        debug_assert!(end <= self.layout.segment_bytes);
        let (mut at, end) = (u64::from(start), u64::from(end));
        let mut piece = vec![0; PIECE_BYTES.min(end.saturating_sub(at) as usize)];
        while at < end {
            let bytes = piece.len().min((end - at) as usize);
            let piece = &mut piece[..bytes];
            self.storage.read(self.layout.data(frame) + at, piece)?;
            crc = crc32c::crc32c_append(crc, piece);
            at += bytes as u64;
        }
        Ok(crc)
    }
}
