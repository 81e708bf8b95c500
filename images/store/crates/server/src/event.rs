//! Events of a server that belong in the log of its process. Nothing is decided here.

use core::fmt;

use backup::BackupEvent;
use base::level::Level;
use master::ShardEvent;
use wire::peer::Malformed;

/// Given to [`crate::ServerEffects::report_server`]; [`fmt::Display`] writes the line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerEvent {
    /// A driver's way to keep all events of a server in one order: they come by [`master::ShardEffects::report`].
    Shard(ShardEvent),
    Backup(BackupEvent),
    /// Why the connection of a peer was closed.
    PeerClosed(PeerError),
    /// The coordinator wants the log forgotten that this server writes.
    OwnLogKept,
    /// The coordinator gave a tablet to a server that is a backup only.
    TabletRefused,
}

/// An error on the connection of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerError {
    Malformed(Malformed),
    /// More reads are under way than recoveries ask for.
    TooManyReads,
    /// The device takes less than masters send.
    TooMuchUnderWay,
    /// So many requests wait for a sync.
    TooManyWaiting {
        requests: u32,
    },
}

impl ServerEvent {
    pub fn level(&self) -> Level {
        match self {
            ServerEvent::Shard(event) => event.level(),
            ServerEvent::Backup(event) => event.level(),
            ServerEvent::PeerClosed(_) => Level::Warning,
            ServerEvent::OwnLogKept | ServerEvent::TabletRefused => Level::Error,
        }
    }
}

impl fmt::Display for ServerEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerEvent::Shard(event) => event.fmt(f),
            ServerEvent::Backup(event) => event.fmt(f),
            ServerEvent::PeerClosed(error) => write!(f, "backup: closed a connection{error}"),
            ServerEvent::OwnLogKept => f.write_str(
                "the coordinator wants the log forgotten that this server writes: it is kept",
            ),
            ServerEvent::TabletRefused => f.write_str(
                "the coordinator gave this server a tablet, but it is a backup only: is the coordinator older than this server?",
            ),
        }
    }
}

/// The end of a sentence that says that the connection was closed.
impl fmt::Display for PeerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerError::Malformed(error) => write!(f, ": {error}"),
            PeerError::TooManyReads => {
                f.write_str(": more is asked for at once than recoveries ask for")
            }
            PeerError::TooMuchUnderWay => f.write_str(
                ": the device takes less than masters send, and memory for what waits is used up; give this server a faster device, or the store \
                 more servers",
            ),
            PeerError::TooManyWaiting { requests } => {
                write!(f, " on which {requests} requests wait for a sync")
            }
        }
    }
}

impl From<ShardEvent> for ServerEvent {
    fn from(event: ShardEvent) -> ServerEvent {
        ServerEvent::Shard(event)
    }
}

impl From<BackupEvent> for ServerEvent {
    fn from(event: BackupEvent) -> ServerEvent {
        ServerEvent::Backup(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_why_a_connection_was_closed() {
        let cases = [
            (
                PeerError::Malformed(Malformed::Short),
                "backup: closed a connection: ",
            ),
            (
                PeerError::TooManyReads,
                "backup: closed a connection: more is asked for at once than recoveries ask for",
            ),
            (
                PeerError::TooManyWaiting { requests: 9 },
                "backup: closed a connection on which 9 requests wait for a sync",
            ),
        ];
        for (error, start) in cases {
            let event = ServerEvent::PeerClosed(error);
            let line = event.to_string();
            assert!(line.starts_with(start), "{line}");
            assert_eq!(event.level(), Level::Warning);
        }
    }
}
