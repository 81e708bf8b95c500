//! A log's replicas: on which backups they are, what these hold, what to send next, and how much of the log is durable.
//!
//! [`Replicator`] is pure. It follows a [`log::Log`], takes what backups answer, and tells its driver what to send; nothing in it waits.
//! docs/replication.md says which rules it keeps, and why they are enough.

#![forbid(unsafe_code)]

mod answers;
mod backup;
mod config;
mod draining;
mod durability;
mod event;
mod floor;
mod heads;
mod interruption;
mod lease;
mod orphans;
mod placement;
mod placing;
mod random;
mod replicator;
mod request;
mod resuming;
mod segment;
mod sending;
mod slow;
mod unknown;

pub use config::Config;
pub use event::ReplicationEvent;
pub use replicator::{Replicator, Report};
pub use request::Request;

use base::ids::ServerId;

/// A backup that the coordinator knows of and believes to be alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupInfo {
    pub id: ServerId,
    /// The machine: no two replicas of a segment are on one, and none is on the master's.
    pub host: String,
    /// What fails together beyond machines, such as a chassis; replicas differ in it as far as they can.
    pub domain: String,
    /// Where it listens for masters.
    pub locator: String,
    /// The largest segment that it takes.
    pub segment_bytes: u32,
    /// Its storage has failed: it takes nothing.
    pub is_retired: bool,
    /// It is to leave the store: what it has is copied elsewhere, and it takes nothing new,
    pub is_draining: bool,
    /// unless there are too few others, and as long as this is set.
    pub is_last_resort: bool,
}

/// What a replicator wants done. None of it may call back before it returns.
pub trait ReplicationEffects {
    /// Begins to connect; [`Replicator::connected`] or [`Replicator::disconnected`] tells the outcome.
    fn connect_backup(&mut self, backup: ServerId, locator: &str);
    /// Closes a connection, or gives it up; nothing about it is reported any more.
    fn disconnect_backup(&mut self, backup: ServerId);
    /// Sends a request; the parts, one behind the other, are its payload. Its answer comes to [`Replicator::answer`] with the nonce.
    fn send_backup(&mut self, backup: ServerId, nonce: u64, parts: &[&[u8]]);
    /// Asks the coordinator to raise the log's open floor, durably; [`Replicator::floor_raised`] tells when it is.
    fn raise_open_floor(&mut self, segment_id: u64);
    /// Something has happened that belongs in the log.
    fn report(&mut self, event: ReplicationEvent);
}

#[cfg(test)]
mod tests;
