//! Events of a shard that belong in the log of its process, and the reasons that they give. Nothing is decided here.

mod clients;
mod failures;
mod membership;
mod movers;
mod refusal;

use core::fmt;

use replication::ReplicationEvent;
use wire::ids::ServerId;
use wire::level::Level;
use wire::peer::Malformed;

pub use clients::ClientEvent;
pub use failures::{Conflict, MigrationError, NoRoomHere, RecoveryError, SourceError};
pub use membership::MembershipEvent;
pub use movers::{MigrationEvent, RecoveryEvent};
pub use refusal::{Brought, Refusal};

/// Given to [`crate::Output::report`]; [`fmt::Display`] writes the line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShardEvent {
    Membership(MembershipEvent),
    Replicas(ReplicasEvent),
    Recovery(RecoveryEvent),
    Migration(MigrationEvent),
    Client(ClientEvent),
}

/// About the copies of the shard's own log.
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

impl ShardEvent {
    pub fn level(&self) -> Level {
        match self {
            ShardEvent::Membership(event) => event.level(),
            ShardEvent::Replicas(event) => event.level(),
            ShardEvent::Recovery(event) => event.level(),
            ShardEvent::Migration(event) => event.level(),
            ShardEvent::Client(event) => event.level(),
        }
    }
}

impl fmt::Display for ShardEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShardEvent::Membership(event) => event.fmt(f),
            ShardEvent::Replicas(event) => event.fmt(f),
            ShardEvent::Recovery(event) => event.fmt(f),
            ShardEvent::Migration(event) => event.fmt(f),
            ShardEvent::Client(event) => event.fmt(f),
        }
    }
}

impl ReplicasEvent {
    fn level(&self) -> Level {
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
fn write_unreadable_answer(
    f: &mut fmt::Formatter<'_>,
    backup: ServerId,
    error: Malformed,
) -> fmt::Result {
    write!(
        f,
        "backup {backup} sent an answer that cannot be read: {error}"
    )
}

impl From<MembershipEvent> for ShardEvent {
    fn from(event: MembershipEvent) -> ShardEvent {
        ShardEvent::Membership(event)
    }
}

impl From<ReplicasEvent> for ShardEvent {
    fn from(event: ReplicasEvent) -> ShardEvent {
        ShardEvent::Replicas(event)
    }
}

impl From<ReplicationEvent> for ShardEvent {
    fn from(event: ReplicationEvent) -> ShardEvent {
        ReplicasEvent::Replication(event).into()
    }
}

impl From<RecoveryEvent> for ShardEvent {
    fn from(event: RecoveryEvent) -> ShardEvent {
        ShardEvent::Recovery(event)
    }
}

impl From<MigrationEvent> for ShardEvent {
    fn from(event: MigrationEvent) -> ShardEvent {
        ShardEvent::Migration(event)
    }
}

impl From<ClientEvent> for ShardEvent {
    fn from(event: ClientEvent) -> ShardEvent {
        ShardEvent::Client(event)
    }
}
