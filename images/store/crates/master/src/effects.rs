//! What a shard says to its driver.

use core::ops::Range;

use base::ids::{ReplyTo, ServerId};
use wire::member::{Settings, ToCoordinator};

use crate::reports::ShardEvent;

/// What a connection to a backup is for. A shard may have one of each to the same backup; nonces are of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Channel {
    /// The replicas of this shard's own log.
    Replication,
    /// Reading replicas of other logs.
    Recovery,
    /// Reading a tablet from the master that has it, at the address of the backup beside it.
    Migration,
}

/// Gives what was lent under a token, of that length; `None` if it is gone.
pub type Lender<'l> = dyn Fn(u64, usize) -> Option<&'l [u8]> + 'l;

/// Where a shard's words go. The driver writes them straight into its buffers.
pub trait ShardEffects {
    /// Answers a request; the parts, one behind the other, are one payload.
    fn reply(&mut self, to: ReplyTo, parts: &[&[u8]]);
    /// As `reply`, with `head` and what the shard keeps where it is until [`crate::Shard::returned`] is told this token: `length` bytes that
    /// [`crate::Shard::lent`] gives. False if the driver takes no loan: it was then told nothing.
    fn reply_lent(&mut self, _to: ReplyTo, _head: &[u8], _token: u64, _length: usize) -> bool {
        false
    }
    /// Gives everything back that was lent under one of these tokens, before the shard's memory is used for something else; `lend` gives it for the last
    /// time.
    fn recall<'l>(&mut self, _tokens: Range<u64>, _lend: &Lender<'l>) {}
    fn send_coordinator(&mut self, message: ToCoordinator);
    /// Something has happened that belongs in the log.
    fn report(&mut self, event: ShardEvent);

    // What follows is for logs with replicas.

    /// Begins to connect to a backup; [`crate::Shard::backup_connected`] or [`crate::Shard::backup_disconnected`] tells the outcome, later and
    /// not before this returns.
    fn connect_backup(&mut self, _channel: Channel, _backup: ServerId, _locator: &str) {}
    /// Closes such a connection, or gives it up; nothing about it is reported any more.
    fn disconnect_backup(&mut self, _channel: Channel, _backup: ServerId) {}
    /// Sends a request; the parts, one behind the other, are its payload. The answer comes to [`crate::Shard::backup_answer`].
    fn send_backup(&mut self, _channel: Channel, _backup: ServerId, _nonce: u64, _parts: &[&[u8]]) {
    }

    /// What of these is the process's and not the log's is in force from now on. Told with each welcome, too; what is open counts as it was when the process
    /// was started.
    fn use_settings(&mut self, _settings: &Settings) {}

    // What follows serves administration. A driver that has no network, and no process to end, leaves it out.

    /// What the driver has counted for this shard.
    fn driver_counters(&self) -> DriverCounters {
        DriverCounters::default()
    }
    /// Begins to connect to another server's client port. The driver reports with [`crate::Shard::server_connected`] or
    /// [`crate::Shard::server_disconnected`], later and not before this returns, under the number that it gives here.
    /// `None`: it has no way there.
    fn connect_server(&mut self, _locator: &str) -> Option<u64> {
        None
    }
    /// Sends a request on such a connection.
    fn send_server(&mut self, _connection: u64, _nonce: u64, _payload: &[u8]) {}
    /// Closes such a connection; nothing about it is reported any more.
    fn close_server(&mut self, _connection: u64) {}
    /// What the shard's thread has done, as GET_TIME_TRACE gives it out; `input` is that of the request. `None`: nobody records it.
    fn time_trace(&mut self, _input: &[u8]) -> Option<Vec<u8>> {
        None
    }
    /// Ends the process at once, as a crash would.
    fn end_process(&mut self) {}
}

/// Counted since the process started, for clients that ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverCounters {
    pub input_bytes: u64,
    pub output_bytes: u64,
    /// Time in which the shard's thread neither slept nor polled in vain.
    pub busy_ns: u64,
    /// Of these, time of ticks in which the cleaner was at work.
    pub cleaner_ns: u64,
}

/// What is to become of the connection to the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Session {
    Continue,
    /// Close it and connect again later.
    Close,
}
