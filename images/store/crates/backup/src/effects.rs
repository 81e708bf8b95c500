//! The effects that a backup has its driver carry out.

use base::ids::ReplyTo;
use wire::peer::{Answer, Status};

use crate::event::BackupEvent;
use crate::inventory::Inventory;

/// Where a backup's words go.
pub trait BackupEffects {
    /// Answers an append, a keep-alive or a free. Each request is answered exactly once, unless the process ends before.
    fn answer(&mut self, to: ReplyTo, answer: Answer);
    /// Answers [`crate::Backup::read`].
    fn data(&mut self, to: ReplyTo, status: Status, data: &[u8]);
    /// Answers [`crate::Backup::read_entries`]: with entries, and where to go on.
    fn entries(&mut self, to: ReplyTo, status: Status, next_offset: u32, data: &[u8]);
    /// Answers [`crate::Backup::read_newest_checkpoint`]; `None`: there is none that is whole.
    fn checkpoint(&mut self, bytes: Option<Vec<u8>>);
    /// Something has happened that belongs in the log.
    fn report(&mut self, event: BackupEvent);
    /// A log that [`crate::Backup::begin_recovery`] asked for is fenced for ever, and its master's lease has run out.
    fn released(&mut self, inventory: Inventory);
}
