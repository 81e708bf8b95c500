//! A storage with its sizes, and how far it is synced.

use core::ops::{ControlFlow, Range};

use wire::entry::{EntryError, RawEntry};
use wire::format::Formats;

use crate::copies::Syncs;
use crate::layout::Layout;
use crate::storage::{Storage, StorageError};

/// Data that goes through this process piece by piece is read so much at a time: few calls, and it stays in the processor's cache.
const PIECE_BYTES: usize = 128 << 10;

pub(crate) struct Device<S> {
    pub storage: S,
    pub layout: Layout,
    pub cluster_id: u64,
    /// Those that this build reads.
    pub formats: Formats,
    pub syncs: Syncs,
    /// What was last read of data that goes through piece by piece.
    pub piece: Vec<u8>,
}

/// Why entries cannot be told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WalkError {
    Storage(StorageError),
    Entry { offset: u32, error: EntryError },
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
        while at < end {
            let bytes = PIECE_BYTES.min((end - at) as usize);
            if self.read_piece(at, bytes).is_err() {
                // Whoever asks for it is told.
                return Ok(());
            }
            self.storage.write(at, &self.piece)?;
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
        assert!(
            start <= end && end <= self.layout.segment_bytes,
            "data beyond its frame"
        );
        let (mut at, end) = (u64::from(start), u64::from(end));
        while at < end {
            let bytes = PIECE_BYTES.min((end - at) as usize);
            self.read_piece(self.layout.data(frame) + at, bytes)?;
            crc = crc32c::crc32c_append(crc, &self.piece);
            at += bytes as u64;
        }
        Ok(crc)
    }

    /// Shows the entries of a frame's data to `visit`, one behind the other, their checksums checked. Looks at about `most` bytes of the
    /// `range`, less when `visit` breaks off: before the entry that it is shown. Answers where to go on.
    pub fn walk(
        &mut self,
        frame: u32,
        range: Range<u32>,
        most: u32,
        visit: impl FnMut(&RawEntry<'_>) -> Result<ControlFlow<()>, EntryError>,
    ) -> Result<u32, WalkError> {
        let walked = self.walk_pieces(frame, range, most, visit);
        // The memory for a long entry is given back.
        if self.piece.capacity() > PIECE_BYTES {
            self.piece = Vec::new();
        }
        walked
    }

    fn walk_pieces(
        &mut self,
        frame: u32,
        range: Range<u32>,
        most: u32,
        mut visit: impl FnMut(&RawEntry<'_>) -> Result<ControlFlow<()>, EntryError>,
    ) -> Result<u32, WalkError> {
        let (mut at, end) = (range.start, range.end);
        let stop = end.min(at.saturating_add(most));
        let mut wanted = PIECE_BYTES;
        while at < stop {
            let start = at;
            let bytes = wanted.min((end - at) as usize);
            self.read_piece(self.layout.data(frame) + u64::from(at), bytes)
                .map_err(WalkError::Storage)?;
            let mut rest = &self.piece[..];
            while !rest.is_empty() {
                let visited = match RawEntry::read_checked(rest) {
                    // It goes on in the next piece.
                    Err(EntryError::Truncated) if at + (rest.len() as u32) < end => break,
                    Err(error) => Err(error),
                    Ok(entry) => {
                        rest = &rest[entry.bytes.len()..];
                        let known = self.formats.check(&entry);
                        known
                            .and_then(|()| visit(&entry))
                            .map(|flow| (flow, entry.bytes.len()))
                    }
                };
                match visited {
                    Ok((ControlFlow::Continue(()), bytes)) => at += bytes as u32,
                    Ok((ControlFlow::Break(()), _)) => return Ok(at),
                    Err(error) => return Err(WalkError::Entry { offset: at, error }),
                }
            }
            // An entry that is longer than a piece is read whole.
            wanted = if at == start { 2 * wanted } else { PIECE_BYTES };
        }
        Ok(at)
    }

    fn read_piece(&mut self, offset: u64, bytes: usize) -> Result<(), StorageError> {
        self.piece.resize(bytes, 0);
        self.storage.read(offset, &mut self.piece)
    }
}
