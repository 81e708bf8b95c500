//! What a server says to its driver.

use base::ids::ReplyTo;

use crate::event::ServerEvent;

/// Where a server's words go: those of its master, and those of its backup.
pub trait ServerEffects: master::ShardEffects {
    /// Opens the backup's storage with [`backup::Backup::open`] and hands the result to [`crate::Server::backup_opened`], later and not before this
    /// returns. Opening reads and syncs, which may take seconds: a driver does that beside everything else. Asked for once.
    fn open_backup(&mut self, config: backup::Config);
    /// Answers a request of a peer; the parts, one behind the other, are one payload. A connection that is gone is passed over.
    fn answer_peer(&mut self, to: ReplyTo, parts: &[&[u8]]);
    /// Ends a connection of a peer: what came on it makes no sense, or is too much. Nothing about it is reported any
    /// more, and nothing that came on it is handed over.
    fn close_peer(&mut self, connection: u64);
    /// Something has happened that belongs in the log; the shard's own events come by [`master::ShardEffects::report`].
    fn report_server(&mut self, event: ServerEvent);
}
