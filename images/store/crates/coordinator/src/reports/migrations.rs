//! Events of migrations.

use core::fmt;

use base::ids::ServerId;
use base::level::Level;

use crate::balancing::MoveReason;
use crate::orders::MigrateError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MigrationEvent {
    Began {
        migration: u64,
        table: String,
        source: ServerId,
        target: ServerId,
        /// `None`: somebody has ordered it.
        reason: Option<MoveReason>,
    },
    Ended {
        migration: u64,
        took_ms: u64,
        objects: u64,
        bytes: u64,
    },
    GivenUp {
        migration: u64,
        took_ms: u64,
        /// The same text is in the status.
        why: String,
    },
    /// A client's request for one.
    Refused(MigrateError),
}

impl MigrationEvent {
    pub(super) fn level(&self) -> Level {
        match self {
            MigrationEvent::GivenUp { .. } | MigrationEvent::Refused(_) => Level::Warning,
            MigrationEvent::Began { .. } | MigrationEvent::Ended { .. } => Level::Notice,
        }
    }
}

impl fmt::Display for MigrationEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MigrationEvent::Began {
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
            MigrationEvent::Ended {
                migration,
                took_ms,
                objects,
                bytes,
            } => write!(
                f,
                "migration {migration}: it has ended after {took_ms} ms: {objects} objects, {} KiB",
                bytes >> 10
            ),
            MigrationEvent::GivenUp {
                migration,
                took_ms,
                why,
            } => write!(
                f,
                "migration {migration}: given up after {took_ms} ms: {why}"
            ),
            MigrationEvent::Refused(error) => write!(f, "MIGRATE_TABLET refused: {error}"),
        }
    }
}
