//! A backup: copies of log segments in frames on a storage, fences against deposed masters, and promises to living ones.
//!
//! docs/replication.md says what for, and which bytes.

#![forbid(unsafe_code)]

mod append;
mod backup;
mod checkpoint;
mod copies;
mod device;
mod entries;
mod fences;
mod fencing;
mod frame;
mod layout;
mod load;
mod open;
mod record;
mod recovery;
mod storage;
mod sync;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(test)]
mod tests;

pub use backup::{Backup, Config, Durability, Output, Stats};
pub use checkpoint::CHECKPOINT_LOG;
pub use frame::State;
pub use layout::{BLOCK_BYTES, Layout};
pub use open::{OpenError, owner};
pub use record::{Damage, MAX_FENCES};
pub use recovery::{Flaw, Inventory, ReplicaInfo};
pub use storage::{SUPERBLOCK_BYTES, Scope, Storage, StorageError};
