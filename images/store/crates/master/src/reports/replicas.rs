//! Events of the copies of the shard's own log.

use core::fmt;

use base::ids::ServerId;
use base::level::Level;
use replication::ReplicationEvent;
use wire::peer::Malformed;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicasEvent {
    Replication(ReplicationEvent),
    UnreadableAnswer {
        backup: ServerId,
        error: Malformed,
    },
    /// A backup cannot hold a segment of this log, as the coordinator's list says.
    FramesTooSmall {
        backup: ServerId,
        frame_bytes: u32,
        segment_bytes: u32,
    },
}

impl ReplicasEvent {
    pub(super) fn level(&self) -> Level {
        match self {
            ReplicasEvent::Replication(event) => event.level(),
            ReplicasEvent::UnreadableAnswer { .. } => Level::Error,
            ReplicasEvent::FramesTooSmall { .. } => Level::Warning,
        }
    }
}

impl fmt::Display for ReplicasEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplicasEvent::Replication(event) => event.fmt(f),
            ReplicasEvent::UnreadableAnswer { backup, error } => {
                write_unreadable_answer(f, *backup, *error)
            }
            ReplicasEvent::FramesTooSmall {
                backup,
                frame_bytes,
                segment_bytes,
            } => write!(
                f,
                "backup {backup} takes segments of {frame_bytes} bytes and this server's have {segment_bytes}: it gets none of them; give all \
                 servers the same segment size"
            ),
        }
    }
}

/// The same line for both kinds of answers that a backup gives.
pub(super) fn write_unreadable_answer(
    f: &mut fmt::Formatter<'_>,
    backup: ServerId,
    error: Malformed,
) -> fmt::Result {
    write!(
        f,
        "backup {backup} sent an answer that cannot be read: {error}"
    )
}
