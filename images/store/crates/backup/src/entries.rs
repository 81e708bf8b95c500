//! What recoveries read: the entries of some tablets.
//!
//! A replica is compared with its checksum before anything of it is given out, once, however many read it. That, too, is done a piece at a time:
//! others wait for the disk as well.

use core::ops::ControlFlow;

use base::ids::TableId;
use wire::entry::{EntryError, Kind, ObjectView, RawEntry, RpcResult, Tombstone};
use wire::hash::key_hash;
use wire::member::TabletRange;
use wire::peer::{Filter, ReadEntries};

use crate::disk::Disk;
use crate::reader::{Reader, Snapshot, WalkError};
use crate::record::Damage;

/// Data that one job reads, about: less than a millisecond's work, whatever is in it.
const WORK_BYTES: u32 = 512 << 10;
/// The same as a part of a frame, so that small ones take several jobs, too.
const WORKS_OF_FRAME: u32 = 4;

/// Why nothing is given out.
pub(crate) enum Refusal {
    Damaged(Damage),
    Malformed { offset: u32, error: EntryError },
}

/// Entries that somebody asks for.
pub(crate) struct Entries {
    offset: u32,
    bytes: u32,
    wanted: Wanted,
}

impl Entries {
    pub fn new(read: &ReadEntries<'_>) -> Entries {
        Entries {
            offset: read.offset,
            bytes: read.bytes,
            wanted: Wanted::new(&read.tablets),
        }
    }

    /// Puts some of them into `out`, and answers where to go on.
    pub fn read<D: Disk>(
        &self,
        frame: &mut Snapshot,
        out: &mut Vec<u8>,
        reader: &mut Reader<'_, D>,
    ) -> Result<u32, Refusal> {
        let work_bytes = WORK_BYTES.min(reader.layout.segment_bytes / WORKS_OF_FRAME);
        let compared = frame.verify_some(work_bytes, reader);
        let (to_compare, work) = compared.map_err(Refusal::Damaged)?;
        if to_compare > 0 {
            return Ok(self.offset);
        }
        let held = frame.content.bytes;
        let start = self.offset.min(held);
        let most_bytes = self.bytes as usize;
        let walked = reader.walk(frame.number, start..held, work_bytes - work, |entry| {
            if !self.wanted.takes(entry)? {
                return Ok(ControlFlow::Continue(()));
            }
            if !out.is_empty() && out.len() + entry.bytes.len() > most_bytes {
                return Ok(ControlFlow::Break(()));
            }
            out.extend_from_slice(entry.bytes);
            Ok(ControlFlow::Continue(()))
        });
        walked.map_err(|error| match error {
            WalkError::Storage(_) => Refusal::Damaged(Damage::Unreadable),
            WalkError::Entry { offset, error } => Refusal::Malformed { offset, error },
        })
    }
}

/// The tablets whose entries are wanted, in order.
struct Wanted(Vec<TabletRange>);

impl Wanted {
    fn new(filter: &Filter<'_>) -> Wanted {
        Wanted(filter.tablets().collect())
    }

    /// Whether an entry is of one of them, or of no tablet and needed for all.
    fn takes(&self, entry: &RawEntry<'_>) -> Result<bool, EntryError> {
        Ok(match entry.kind {
            Kind::SegmentHeader => true,
            Kind::Digest => false,
            Kind::Object => {
                let object = ObjectView::of(entry)?;
                self.has_key(object.table_id, object.primary_key)
            }
            Kind::Tombstone => {
                let tombstone: Tombstone<'_> = entry.decode()?;
                self.has_key(tombstone.table_id, tombstone.key)
            }
            Kind::RpcResult => {
                let result: RpcResult<'_> = entry.decode()?;
                self.has(result.table_id, result.key_hash)
            }
        })
    }

    fn has_key(&self, table_id: TableId, key: &[u8]) -> bool {
        self.has(table_id, key_hash(table_id, key))
    }

    fn has(&self, table_id: TableId, key_hash: u64) -> bool {
        let place = (table_id.0, key_hash);
        let behind = self
            .0
            .partition_point(|tablet| (tablet.table_id, tablet.start_key_hash) <= place);
        self.0[..behind]
            .last()
            .is_some_and(|tablet| tablet.table_id == table_id.0 && key_hash <= tablet.end_key_hash)
    }
}
