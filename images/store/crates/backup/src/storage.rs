//! The storage of a backup's frames, as the backup sees it: submitted to, and completing later.

use crate::disk::{Disk, StorageError};
use crate::job::{Done, Job};
use crate::layout::HEAD_BYTES;

/// A range of bytes that outlives the process; how well, its driver knows. An open backup submits to it, and none of these methods waits for a device.
///
/// Writes go to the page cache of a file or device, or to memory. They are carried out one after the other, in the order in which they were
/// submitted. When the process dies in the middle of one, the part of it that lies within one block of
/// [`crate::BLOCK_BYTES`] is written whole or not at all. What survives the loss of power is what was written before a sync that
/// has completed; of the rest, any part. Syncs, jobs and writes pass each other as they like: whoever needs one after the other submits it after
/// the completion.
pub trait Storage: Disk {
    /// Submits a write. Tickets count up by one; the driver copies the bytes.
    fn submit(&mut self, ticket: u64, offset: u64, bytes: &[u8]);
    /// The failure of a write was heard of: what is submitted from now on is carried out again.
    fn resume(&mut self);
    /// Begins to make durable what has been written. At most one sync of each scope is under way.
    fn begin_sync(&mut self, scope: Scope);
    /// Has a job done, for which the driver has a thread that may wait. The backup bounds how many are under way.
    fn start(&mut self, job: Job);
    /// These bytes will be read soon: a chance to fetch them from the disk, on Linux with `posix_fadvise`.
    fn will_need(&mut self, _offset: u64, _bytes: u64) {}
    /// The next thing that has ended. The driver calls [`crate::Backup::tick`] or [`crate::Backup::complete`] soon when there is one.
    fn next_completion(&mut self) -> Option<Completion>;
    /// Waits until no write is under way any more: when a backup is closed.
    fn wait_for_writes(&mut self);
}

/// Something that was submitted has ended.
pub enum Completion {
    /// All writes up to this ticket are carried out.
    Written(u64),
    /// This write has failed, perhaps after a part of it. None of those submitted after it is carried out, until [`Storage::resume`].
    WriteFailed(u64, StorageError),
    Synced(Scope, Result<(), StorageError>),
    Done(Box<Done>),
}

/// What a sync is to make durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    All,
    /// The first [`SUPERBLOCK_BYTES`] alone. It should not wait for what else is in the page cache: on Linux, a write of the
    /// same bytes with `RWF_DSYNC` does not.
    Superblock,
}

/// What [`Scope::Superblock`] is about.
pub const SUPERBLOCK_BYTES: u64 = HEAD_BYTES as u64;
