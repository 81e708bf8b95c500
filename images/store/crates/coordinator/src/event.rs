//! What happens to a store that people want to read of in the log, and that tests and counters want to tell apart.

use core::fmt;

use wire::ids::ServerId;

use crate::balancing::MoveReason;
use crate::level;

/// Given to [`crate::Output::report`]; [`fmt::Display`] writes the line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Nothing was heard on a session for the silence time-out: it was closed.
    SessionSilent {
        server: ServerId,
        silent_ms: u128,
    },
    ServerDead {
        server: ServerId,
        member: String,
        suspected_ms: u128,
    },
    RecoveryBegan {
        server: ServerId,
        member: String,
        tablet_count: u64,
    },
    RecoveryEnded {
        server: ServerId,
        objects: u64,
        bytes: u64,
        took_ms: u64,
        expected_ms: u64,
    },
    /// A process without replicas is dead, and another one has its place.
    TabletsLost {
        member: String,
        /// `None`: nobody knows how many.
        objects: Option<u64>,
        tablet_count: u64,
    },
    MigrationBegan {
        migration: u64,
        table: String,
        source: ServerId,
        target: ServerId,
        /// `None`: somebody has ordered it.
        reason: Option<MoveReason>,
    },
    MigrationEnded {
        migration: u64,
        took_ms: u64,
        objects: u64,
        bytes: u64,
    },
    MigrationGivenUp {
        migration: u64,
        took_ms: u64,
        why: String,
    },
    /// The coordinator has split a tablet by itself.
    TabletCut {
        table: String,
    },
    TabletsMerged {
        table: String,
        server: ServerId,
    },
    /// Somebody has ordered that a table is split at even distances.
    TableSplit {
        table: String,
        parts: u32,
        /// Boundaries that it lacked.
        made: u64,
        /// Boundaries of the store's own that stay now.
        kept: u64,
    },
}

impl Event {
    /// As for [`crate::Output::log_message`].
    pub fn level(&self) -> u32 {
        match self {
            Event::TabletsLost { .. } => level::ERROR,
            Event::SessionSilent { .. }
            | Event::ServerDead { .. }
            | Event::MigrationGivenUp { .. } => level::WARNING,
            Event::RecoveryBegan { .. }
            | Event::RecoveryEnded { .. }
            | Event::MigrationBegan { .. }
            | Event::MigrationEnded { .. }
            | Event::TabletCut { .. }
            | Event::TabletsMerged { .. }
            | Event::TableSplit { .. } => level::NOTICE,
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::SessionSilent { server, silent_ms } => write!(
                f,
                "server {server} was silent for {silent_ms} ms: closed its connection"
            ),
            Event::ServerDead {
                server,
                member,
                suspected_ms,
            } => write!(
                f,
                "server {server} of member {member:?} is dead: neither this coordinator nor its other servers reach it; suspected for \
                 {suspected_ms} ms"
            ),
            Event::RecoveryBegan {
                server,
                member,
                tablet_count,
            } => write!(
                f,
                "recovering {tablet_count} tablets that server {server} of member {member:?} held"
            ),
            Event::RecoveryEnded {
                server,
                objects,
                bytes,
                took_ms,
                expected_ms,
            } => write!(
                f,
                "recovered server {server}: {objects} objects, {} MiB of log, {took_ms} ms after its death was known ({expected_ms} ms \
                 expected)",
                bytes >> 20
            ),
            Event::TabletsLost {
                member,
                objects,
                tablet_count,
            } => {
                let objects = match objects {
                    Some(objects) => format!("the {objects} objects"),
                    None => "all objects (nobody knows how many)".to_owned(),
                };
                write!(
                    f,
                    "member {member:?} has a new process: {objects} in {tablet_count} tablets that the one before held are lost"
                )
            }
            Event::TabletCut { table } => {
                write!(
                    f,
                    "a tablet of table {table:?} is cut, to be moved in parts"
                )
            }
            Event::TabletsMerged { table, server } => write!(
                f,
                "two tablets of table {table:?} at server {server} are one again"
            ),
            Event::TableSplit {
                table,
                parts,
                made,
                kept,
            } => write!(
                f,
                "table {table:?} is split into {parts} parts by order: {made} new boundaries, and {kept} of the store's own, which stay"
            ),
            Event::MigrationBegan { .. }
            | Event::MigrationEnded { .. }
            | Event::MigrationGivenUp { .. } => self.write_migration(f),
        }
    }
}

impl Event {
    fn write_migration(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::MigrationBegan {
                migration,
                table,
                source,
                target,
                reason,
            } => {
                write!(
                    f,
                    "migration {migration}: a tablet of table {table:?} moves from server {source} to {target}"
                )?;
                match reason {
                    Some(reason) => write!(f, ": {reason}"),
                    None => Ok(()),
                }
            }
            Event::MigrationEnded {
                migration,
                took_ms,
                objects,
                bytes,
            } => write!(
                f,
                "migration {migration}: it has ended after {took_ms} ms: {objects} objects, {} KiB",
                bytes >> 10
            ),
            Event::MigrationGivenUp {
                migration,
                took_ms,
                why,
            } => write!(
                f,
                "migration {migration}: given up after {took_ms} ms: {why}"
            ),
            _ => Ok(()),
        }
    }
}
