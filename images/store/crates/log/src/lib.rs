//! The memory of one shard: a log of entries, a cleaner that makes room in it, and a hash table that finds objects.
//!
//! Everything here is pure: a [`Log`] never waits, and cleans only as much as [`Log::clean`] is told to.

#![deny(unsafe_code)]

mod changes;
mod cleaner;
mod copies;
mod ends;
mod index;
mod ledger;
mod loans;
mod log;
mod position;
mod prefetch;
mod region;
mod segment;

pub use changes::Appends;
pub use cleaner::{CleanerStats, Cleaning, Keeps, Owner};
pub use ends::Room;
pub use index::{Index, IndexFull, Slot};
pub use ledger::{Change, last_digest};
pub use log::{Admission, Appended, Config, ConfigError, Durability, Log, NoRoom, Origin, Usage};
pub use position::{LogPosition, Reference};

#[cfg(test)]
mod tests;
