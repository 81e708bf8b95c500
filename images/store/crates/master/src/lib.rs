//! One shard: a server on the wire, run by one thread. It owns tablets, keeps their objects in its log, and answers reads
//! and writes.
//!
//! A [`Shard`] is a state machine: a driver hands it requests and the coordinator's messages with the time, and passes on
//! what it says through [`Output`]. It never waits; what must wait is held by the reply gate and goes out later.

#![forbid(unsafe_code)]

mod config;
mod delay;
mod fill;
mod fullness;
mod gate;
mod leases;
mod loads;
mod membership;
mod movers;
mod output;
mod proxies;
mod replay;
mod replicas;
mod results;
mod scratch;
mod shard;
mod stats;
mod store;
mod tablets;
mod waiting;
mod walk;
mod wanted;

pub use config::{Config, Identity, Replication};
pub use log::{Durability, LogPosition, Room};
pub use output::{Channel, DriverCounters, Lender, Output, Session};
pub use replay::{Replay, ReplayError, ReplayStats};
pub use shard::Shard;
pub use stats::Stats;

#[cfg(test)]
mod tests;
