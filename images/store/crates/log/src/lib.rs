//! The memory of one shard: a log of entries, a cleaner that makes room in it, and a hash table that finds objects.
//!
//! Everything here is pure: a [`Log`] never waits, and cleans only as much as [`Log::clean`] is told to.

#![deny(unsafe_code)]

mod appending;
mod changes;
mod cleaner;
mod cleaning;
mod config;
mod copies;
mod copying;
mod ends;
mod heads;
mod index;
mod ledger;
mod loans;
mod log;
mod pin;
mod position;
mod prefetch;
mod region;
mod replicas;
mod segment;

pub use appending::{Admission, NoRoom};
pub use changes::Appends;
pub use cleaner::CleanerStats;
pub use cleaning::{Cleaning, Keeps, Owner};
pub use config::{Config, ConfigError, Durability, Origin};
pub use ends::Room;
pub use index::{Index, IndexFull, Slot};
pub use ledger::{Change, last_digest};
pub use log::{Appended, Log, Usage};
pub use position::{LogPosition, Reference};

#[cfg(test)]
mod tests;
