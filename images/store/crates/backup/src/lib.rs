//! A backup: copies of log segments in frames on a storage, fences against deposed masters, and promises to living ones.
//!
//! docs/replication.md says what for, and which bytes.

#![forbid(unsafe_code)]

mod append;
mod backup;
mod changes;
mod checkpoint;
mod checkpoints;
mod commit;
mod completing;
mod config;
mod copies;
mod device;
mod disk;
mod effects;
mod entries;
mod event;
mod fenced_logs;
mod fences;
mod fencing;
mod flight;
mod frame;
mod inventory;
mod job;
mod jobs;
mod layout;
mod load;
mod noting;
mod open;
mod prompt;
mod reader;
mod reading;
mod record;
mod recovery;
mod stall;
mod storage;
mod sync;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(test)]
mod tests;
mod unwritten;

pub use backup::{Backup, Stats};
pub use checkpoint::CHECKPOINT_LOG;
pub use config::{Config, Durability};
pub use event::{BackupEvent, Stall};

pub use disk::{Disk, StorageError};
pub use effects::BackupEffects;
pub use inventory::{Flaw, Inventory, ReplicaInfo, State};
pub use job::{Done, Job};
pub use layout::{BLOCK_BYTES, Layout, MAX_FENCES};
pub use open::{OpenError, owner};
pub use prompt::Prompt;
pub use record::Damage;
pub use storage::{Completion, SUPERBLOCK_BYTES, Scope, Storage};
