//! Moving a tablet between living servers: docs/migration.md.

use prost::Message;

use super::TabletRange;

/// How far a migration is.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct MigrationProgress {
    #[prost(uint64, tag = "1")]
    pub migration_id: u64,
    /// Of entries, as they were read.
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
    #[prost(uint64, tag = "3")]
    pub objects: u64,
    /// The source was asked to take no more writes.
    #[prost(bool, tag = "4")]
    pub is_frozen: bool,
}

/// The tablet of a migration is here, as durable as the store's durability asks for; or it will not be. From the shard that it moves to, and, if
/// something goes wrong there, from the one that it moves away from.
#[derive(Clone, PartialEq, Message)]
pub struct Migrated {
    #[prost(uint64, tag = "1")]
    pub migration_id: u64,
    /// What this server's own log holds of the tablet lies in this segment and later ones.
    #[prost(uint64, tag = "2")]
    pub from_segment: u64,
    /// Why not, for people; empty if all went well.
    #[prost(string, tag = "3")]
    pub failure: String,
    /// It was for want of memory.
    #[prost(bool, tag = "4")]
    pub is_full: bool,
    /// Of entries, as they were read.
    #[prost(uint64, tag = "5")]
    pub bytes: u64,
    #[prost(uint64, tag = "6")]
    pub objects: u64,
    #[prost(uint64, tag = "7")]
    pub duration_ns: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct MigrationId {
    #[prost(uint64, tag = "1")]
    pub migration_id: u64,
}

/// A client of this shard wants one of its tablets to be another server's.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct MigrationWanted {
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    #[prost(message, required, tag = "2")]
    pub tablet: TabletRange,
    #[prost(fixed64, tag = "3")]
    pub target: u64,
}

/// Bring a tablet over from a server that has it and goes on serving it, and answer with [`Migrated`].
#[derive(Clone, PartialEq, Message)]
pub struct Migrate {
    #[prost(uint64, tag = "1")]
    pub migration_id: u64,
    #[prost(message, required, tag = "2")]
    pub tablet: TabletRange,
    #[prost(fixed64, tag = "3")]
    pub source: u64,
    /// Where the source listens for other servers.
    #[prost(string, tag = "4")]
    pub locator: String,
    /// Of the snapshot, at most; 0: 200 MB.
    #[prost(uint64, tag = "5")]
    pub bytes_per_second: u64,
    /// What is written to the tablet from now on gets this version at least.
    #[prost(uint64, tag = "6")]
    pub version_floor: u64,
}

/// What became of what was asked for with [`MigrationWanted`]: a status of the wire protocol for the client.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct MigrationEnded {
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    #[prost(uint32, tag = "2")]
    pub status: u32,
}

/// Let a server read a tablet that shall become its own.
#[derive(Clone, PartialEq, Message)]
pub struct MigrateOut {
    #[prost(uint64, tag = "1")]
    pub migration_id: u64,
    #[prost(message, required, tag = "2")]
    pub tablet: TabletRange,
    #[prost(fixed64, tag = "3")]
    pub target: u64,
}
