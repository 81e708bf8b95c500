//! Requests of other servers to this one's backup, or to its master.

use core::time::Duration;

use backup::{Backup, Storage};
use base::ids::ReplyTo;
use base::time::Time;
use wire::peer::Request;

use super::Server;
use crate::effects::ServerEffects;
use crate::event::{PeerError, ServerEvent};
use crate::from_backup::FromBackup;

/// Appends of one peer that wait for a sync, at most. A master has 4 MiB under way to a backup, and few appends are shorter than 100 bytes.
const MAX_WAITING: u32 = 1 << 16;
/// How often it is looked whether a read takes too long.
const READ_LOOK: Duration = Duration::from_secs(1);
/// Requests of those that wait which one tick looks at: it may come with every batch of requests, and each is decoded for it.
const READS_LOOKED_AT: usize = 16;

impl<S: Storage> Server<S> {
    /// A request came on a connection that a peer has opened to this server. One that makes no sense, or is for a backup before there is one, ends
    /// the connection: whoever asks comes again, and after a while.
    pub fn peer_request(
        &mut self,
        now: Time,
        to: ReplyTo,
        payload: &[u8],
        out: &mut impl ServerEffects,
    ) {
        match (Request::decode(payload), self.stage.backup_mut()) {
            (Ok(Request::MigrateRead(read)), _) => {
                let answer = self.shard.migrate_read(&read, &mut self.read);
                out.answer_peer(to, &[&answer.fixed_bytes(), &self.read]);
            }
            (_, None) => out.close_peer(to.connection),
            (Ok(Request::Append(append)), Some(backup)) if !backup.has_room_for(&append) => {
                self.refuse_peer(to.connection, PeerError::TooMuchUnderWay, out);
            }
            (Ok(Request::Append(append)), _) => {
                self.change(to, out, |backup, out| backup.append(now, &append, to, out));
            }
            (Ok(Request::KeepAlive(keep_alive)), _) => {
                self.change(to, out, |backup, out| {
                    backup.keep_alive(now, keep_alive, to, out);
                });
            }
            (Ok(Request::Free(free)), _) => {
                self.change(to, out, |backup, out| backup.free(now, free, to, out));
            }
            (Ok(Request::Read(_) | Request::ReadEntries(_)), Some(_)) => {
                if !self.reads.push(to, payload) {
                    self.refuse_peer(to.connection, PeerError::TooManyReads, out);
                }
            }
            (Ok(Request::List(list)), Some(backup)) => {
                let mut listing = Vec::new();
                backup.list(list).encode(&mut listing);
                out.answer_peer(to, &[&listing]);
            }
            (Err(error), Some(_)) => {
                self.refuse_peer(to.connection, PeerError::Malformed(error), out);
            }
        }
    }

    /// Has the backup read what was asked for, as much at a time as it takes; when to come again, if no completion says so.
    pub(super) fn begin_reads(&mut self, now: Time, out: &mut impl ServerEffects) -> Time {
        for _ in 0..self.reads.len().min(READS_LOOKED_AT) {
            if !self.stage.backup().is_some_and(Backup::takes_reads) {
                break;
            }
            let Some((to, payload)) = self.reads.pop() else {
                break;
            };
            let is_begun = self.with_backup(out, |backup, out| match Request::decode(&payload) {
                Ok(Request::Read(read)) if backup.may_read(read.replica) => {
                    backup.read(&read, to, out);
                    true
                }
                Ok(Request::ReadEntries(read)) if backup.may_read(read.replica) => {
                    backup.read_entries(&read, to, out);
                    true
                }
                _ => false,
            });
            if is_begun == Some(false) {
                self.reads.put_back(to, payload);
            }
        }
        // Memory has it by now.
        let is_reading = self.with_backup(out, |backup, out| {
            backup.complete(now, out);
            backup.is_reading()
        });
        match (is_reading, self.reads.len()) {
            // Its completion wakes the driver. If it takes too long, that is to be said.
            (Some(true), _) => now + READ_LOOK,
            (_, 0) => Time::NEVER,
            (_, _) => now,
        }
    }

    /// The storage may have completed something. [`Server::tick`] looks as well; a driver that calls this first has answers leave a little earlier.
    pub fn storage_completed(&mut self, now: Time, out: &mut impl ServerEffects) {
        self.with_backup(out, |backup, out| backup.complete(now, out));
        self.report.changed();
    }

    /// A request whose answer may wait for a sync.
    fn change<O: ServerEffects>(
        &mut self,
        to: ReplyTo,
        out: &mut O,
        act: impl FnOnce(&mut Backup<S>, &mut FromBackup<'_, O>),
    ) {
        let waiting = self.waiting.entry(to.connection).or_default();
        if *waiting >= MAX_WAITING {
            let requests = *waiting;
            let error = PeerError::TooManyWaiting { requests };
            return self.refuse_peer(to.connection, error, out);
        }
        *waiting += 1;
        self.with_backup(out, act);
        self.report.changed();
    }

    fn refuse_peer(&mut self, connection: u64, error: PeerError, out: &mut impl ServerEffects) {
        out.report_server(ServerEvent::PeerClosed(error));
        self.close_peer(connection, out);
    }

    /// Lets the backup, if it is there, do something that it may have words about.
    pub(super) fn with_backup<O: ServerEffects, T>(
        &mut self,
        out: &mut O,
        act: impl FnOnce(&mut Backup<S>, &mut FromBackup<'_, O>) -> T,
    ) -> Option<T> {
        let waiting = &mut self.waiting;
        let read = &mut self.checkpoint.read;
        let backup = self.stage.backup_mut()?;
        Some(act(backup, &mut FromBackup { out, waiting, read }))
    }

    /// Such a connection is gone.
    pub fn peer_closed(&mut self, connection: u64) {
        self.waiting.remove(&connection);
        self.reads.forget(connection);
    }

    fn close_peer(&mut self, connection: u64, out: &mut impl ServerEffects) {
        self.peer_closed(connection);
        out.close_peer(connection);
    }
}
