//! One shard's server: its master and its backup.
//!
//! A server process has one [`Server`] for each core that is given to it. The master ([`master::Shard`]) keeps objects and serves clients,
//! the backup ([`backup::Backup`]) keeps copies of other servers' logs; either may be missing. A [`Server`] gives each what is meant for it. Like
//! them it is a state machine: a driver hands it what came, with the time, and carries out what it says through [`ServerEffects`].

#![forbid(unsafe_code)]

mod checkpoint;
mod config;
mod effects;
mod end;
mod event;
mod from_backup;
pub mod links;
mod reads;
mod report;
mod server;
mod stage;

pub use config::{BackupConfig, Config};
pub use effects::ServerEffects;
pub use end::End;
pub use event::{PeerError, ServerEvent};
pub use server::Server;

#[cfg(test)]
mod tests;
