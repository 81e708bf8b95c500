//! One shard: a server on the wire, run by one thread. It owns tablets, keeps their objects in its log, and answers reads
//! and writes.
//!
//! A [`Shard`] is a state machine: a driver hands it requests and the coordinator's messages with the time, and passes on
//! what it says through [`ShardEffects`]. It never waits; what must wait is held by the reply gate and goes out later.

#![forbid(unsafe_code)]

mod config;
mod continuations;
mod data;
mod delay;
mod effects;
mod fullness;
mod loads;
mod membership;
mod movers;
mod replicas;
mod reports;
mod shard;
mod stats;
mod waiting;

pub use config::{Config, Identity, Replication};
pub use data::replay::{Replay, ReplayError, ReplayStats};
pub use effects::{Channel, DriverCounters, Lender, Session, ShardEffects};
pub use log::{Durability, LogPosition, Room};
pub use reports::{
    Brought, ClientEvent, Conflict, MembershipEvent, MigrationError, MigrationEvent, NoRoomHere,
    RecoveryError, RecoveryEvent, Refusal, ReplicasEvent, ShardEvent, SourceError,
};
pub use shard::Shard;
pub use stats::Stats;

#[cfg(test)]
mod tests;
