//! Reading frames piece by piece: checksums, entries, and writing once more what was read. All of it waits for the disk.

use core::ops::{ControlFlow, Range};

use base::bugs::{Bug, is_planted};
use wire::entry::{EntryError, RawEntry};
use wire::format::Formats;

use crate::disk::{Disk, StorageError};
use crate::layout::Layout;
use crate::record::{Content, Damage};

/// Data that goes through this process piece by piece is read so much at a time: few calls, and it stays in the processor's cache.
const PIECE_BYTES: usize = 128 << 10;

/// A disk, for somebody who may wait for it.
pub(crate) struct Reader<'a, D> {
    pub disk: &'a mut D,
    pub layout: Layout,
    pub formats: Formats,
    /// The last piece of data that goes through piece by piece.
    pub piece: &'a mut Vec<u8>,
}

/// Why entries cannot be told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WalkError {
    Storage(StorageError),
    Entry { offset: u32, error: EntryError },
}

/// How much of the data has been read since it was written, and the checksum of that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Compared {
    pub bytes: u32,
    pub crc: u32,
}

/// A frame in use, as it was when somebody asked for its data. What is there does not change while the frame has this use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Snapshot {
    pub number: u32,
    pub content: Content,
    pub compared: Compared,
}

impl<D: Disk> Reader<'_, D> {
    /// Writes what can be read once more.
    pub fn rewrite(&mut self, offset: u64, bytes: u32) -> Result<(), StorageError> {
        let (mut at, end) = (offset, offset + u64::from(bytes));
        while at < end {
            let bytes = PIECE_BYTES.min((end - at) as usize);
            if self.read_piece(at, bytes).is_err() {
                // Every later reader is told.
                return Ok(());
            }
            self.disk.write(at, self.piece)?;
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
            crc = crc32c::crc32c_append(crc, self.piece);
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
        self.disk.read(offset, self.piece)
    }
}

impl Snapshot {
    /// Reads all data and compares its checksum, unless that has been done.
    pub fn verify<D: Disk>(&mut self, reader: &mut Reader<'_, D>) -> Result<(), Damage> {
        self.verify_some(u32::MAX, reader).map(|_| ())
    }

    /// Goes on with that, and reads so much at most. Answers how many bytes are still to be compared, and how many were read now.
    pub fn verify_some<D: Disk>(
        &mut self,
        most: u32,
        reader: &mut Reader<'_, D>,
    ) -> Result<(u32, u32), Damage> {
        let (content, from) = (&self.content, self.compared);
        if let Some(damage) = content.damage {
            return Err(damage);
        }
        let end = content.bytes.min(from.bytes.saturating_add(most));
        let crc = reader.checksum(self.number, from.bytes, end, from.crc);
        let crc = crc.map_err(|_| Damage::Unreadable)?;
        let is_wrong = crc != content.crc && !is_planted(Bug::BelieveTornFrame);
        if end == content.bytes && is_wrong {
            return Err(Damage::Rotten);
        }
        self.compared = Compared { bytes: end, crc };
        Ok((content.bytes - end, end - from.bytes))
    }

    /// Reads a piece into `out`, which has its size; all data has been or is now compared with its checksum.
    pub fn read<D: Disk>(
        &mut self,
        offset: u32,
        out: &mut [u8],
        reader: &mut Reader<'_, D>,
    ) -> Result<(), Damage> {
        let content = self.content;
        assert!(
            offset as usize + out.len() <= content.bytes as usize,
            "no more is read than is here"
        );
        let is_whole = out.len() == content.bytes as usize && content.damage.is_none();
        if !is_whole {
            self.verify(reader)?;
        }
        let at = reader.layout.data(self.number) + u64::from(offset);
        if reader.disk.read(at, out).is_err() {
            return Err(Damage::Unreadable);
        }
        if is_whole && crc32c::crc32c(out) != content.crc {
            return Err(Damage::Rotten);
        }
        let Content { bytes, crc, .. } = content;
        self.compared = Compared { bytes, crc };
        Ok(())
    }
}
