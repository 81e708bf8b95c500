//! What recoveries read: the entries of some tablets.
//!
//! A replica is compared with its checksum before anything of it is given out, once, however many read it. That, too, is done a piece at a time:
//! the thread has other things to do.

use core::ops::ControlFlow;

use base::ids::TableId;
use wire::entry::{EntryError, Kind, ObjectView, RawEntry, RpcResult, Tombstone};
use wire::hash::key_hash;
use wire::member::TabletRange;
use wire::peer::{Filter, ReadEntries, Role, Status};

use crate::backup::Backup;
use crate::device::WalkError;
use crate::event::BackupEvent;
use crate::record::Damage;
use crate::storage::Storage;

/// Data that one call reads, about: less than a millisecond's work, whatever is in it.
const WORK_BYTES: u32 = 512 << 10;
/// The same as a part of a frame, so that small ones take several calls, too.
const WORKS_OF_FRAME: u32 = 4;

/// Why nothing is given out.
enum Refusal {
    Damaged(Damage),
    Malformed { offset: u32, error: EntryError },
}

impl<S: Storage> Backup<S> {
    /// Puts entries of some tablets into `out`, whole and in the order of the segment, and answers where to go on: at the replica's length, all
    /// is done. One call does a bounded amount of work, so there may be little in `out`, or nothing, before the end.
    ///
    /// All data of the replica has been compared with its checksum before, as for [`Backup::read`], and each entry is with its own: what
    /// has rotted since is given out by nobody, and passed over by nobody. The status is then [`Status::Mismatch`], as it is for what is no
    /// entry; the next [`Backup::tick`] names it. It is [`Status::Missing`] for what is not complete of a side segment.
    pub fn read_entries(&mut self, read: &ReadEntries<'_>, out: &mut Vec<u8>) -> (Status, u32) {
        out.clear();
        let Some(&number) = self.replicas.get(&read.replica) else {
            return (Status::Missing, 0);
        };
        let content = self.frames[number].content().expect("a frame in use");
        // It ends anywhere in an entry, and no recovery needs it.
        if content.role == Role::Side && !content.closed {
            return (Status::Missing, 0);
        }
        let refusal = match self.some_entries(number, read, out) {
            Ok(next_offset) => return (Status::Ok, next_offset),
            Err(refusal) => refusal,
        };
        out.clear();
        match refusal {
            Refusal::Damaged(damage) => self.name_damage(number, damage),
            Refusal::Malformed { offset, error } => {
                self.frames[number].doubt();
                let replica = read.replica;
                self.unreported.push(BackupEvent::NoEntryAt {
                    frame: number,
                    replica,
                    offset,
                    error,
                });
            }
        }
        (Status::Mismatch, 0)
    }

    fn some_entries(
        &mut self,
        number: u32,
        read: &ReadEntries<'_>,
        out: &mut Vec<u8>,
    ) -> Result<u32, Refusal> {
        let work_bytes = WORK_BYTES.min(self.config.segment_bytes / WORKS_OF_FRAME);
        let frame = &mut self.frames[number];
        let compared = frame.verify_some(work_bytes, &mut self.device);
        let (to_compare, work) = compared.map_err(Refusal::Damaged)?;
        if to_compare > 0 {
            return Ok(read.offset);
        }
        let held = frame.content().map_or(0, |content| content.bytes);
        let start = read.offset.min(held);
        let wanted = Wanted::new(&read.tablets);
        let most_bytes = read.bytes as usize;
        let walked = self
            .device
            .walk(number, start..held, work_bytes - work, |entry| {
                if !wanted.takes(entry)? {
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
