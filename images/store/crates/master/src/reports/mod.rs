//! Events of a shard that belong in the log of its process, and the reasons that they give. Nothing is decided here.

mod clients;
mod failures;
mod membership;
mod movers;
mod refusal;
mod replicas;

use core::fmt;

use base::level::Level;
use replication::ReplicationEvent;

pub use clients::ClientEvent;
pub use failures::{Conflict, MigrationError, NoRoomHere, RecoveryError, SourceError};
pub use membership::MembershipEvent;
pub use movers::{MigrationEvent, RecoveryEvent};
pub use refusal::{Brought, Refusal};
pub use replicas::ReplicasEvent;

/// Given to [`crate::ShardEffects::report`]; [`fmt::Display`] writes the line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShardEvent {
    Membership(MembershipEvent),
    Replicas(ReplicasEvent),
    Recovery(RecoveryEvent),
    Migration(MigrationEvent),
    Client(ClientEvent),
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
