//! One shard: a server on the wire, run by one thread. It owns tablets, keeps their objects in its log, and answers reads
//! and writes.
//!
//! A [`Shard`] is a state machine: a driver hands it requests and the coordinator's messages with the time, and passes on
//! what it says through [`Output`]. It never waits; what must wait is held by the reply gate and goes out later.

#![forbid(unsafe_code)]

mod admin;
mod backups;
mod config;
mod enumerate;
mod fill;
mod foresight;
mod fullness;
mod gate;
mod leases;
mod loads;
mod membership;
mod migration;
mod multi;
mod output;
mod perf;
mod proxy;
mod recovery;
mod replay;
mod replicas;
mod requests;
mod results;
mod settings;
mod settling;
mod shard;
mod stats;
mod store;
mod tablets;
mod waiting;
mod walk;

pub use config::{Config, Identity, Replication};
pub use log::{Durability, LogPosition, Room};
pub use output::{Channel, DriverCounters, Lender, Output, Session};
pub use replay::{Replay, ReplayError, ReplayStats};
pub use shard::Shard;
pub use stats::Stats;

#[cfg(test)]
mod tests;
