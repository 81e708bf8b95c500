//! Events of recoveries and migrations.

use core::fmt;

use base::ids::{ServerId, TableId};
use base::level::Level;
use wire::peer::Malformed;

use super::failures::{MigrationError, RecoveryError};
use super::replicas::write_unreadable_answer;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecoveryEvent {
    Began {
        recovery: u64,
        tablets: usize,
        segments: usize,
    },
    /// All segments are read and replayed.
    Replayed {
        recovery: u64,
        bytes: u64,
        objects: u64,
        took_ms: u128,
    },
    Served {
        recovery: u64,
        tablets: usize,
    },
    GivenUp {
        recovery: u64,
    },
    Failed {
        recovery: u64,
        error: RecoveryError,
    },
    UnreadableAnswer {
        backup: ServerId,
        error: Malformed,
    },
}

impl RecoveryEvent {
    pub(super) fn level(&self) -> Level {
        match self {
            RecoveryEvent::UnreadableAnswer { .. } => Level::Error,
            RecoveryEvent::Failed { .. } => Level::Warning,
            RecoveryEvent::Began { .. }
            | RecoveryEvent::Replayed { .. }
            | RecoveryEvent::Served { .. }
            | RecoveryEvent::GivenUp { .. } => Level::Notice,
        }
    }
}

impl fmt::Display for RecoveryEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecoveryEvent::Began {
                recovery,
                tablets,
                segments,
            } => write!(
                f,
                "recovery {recovery}: {tablets} tablets, from {segments} segments"
            ),
            RecoveryEvent::Replayed {
                recovery,
                bytes,
                objects,
                took_ms,
            } => write!(
                f,
                "recovery {recovery}: {bytes} bytes read and {objects} objects replayed in {took_ms} ms"
            ),
            RecoveryEvent::Served { recovery, tablets } => {
                write!(f, "recovery {recovery}: {tablets} tablets are served")
            }
            RecoveryEvent::GivenUp { recovery } => {
                write!(f, "recovery {recovery}: given up by the coordinator")
            }
            RecoveryEvent::Failed { recovery, error } => {
                write!(f, "recovery {recovery}: not here: {error}")
            }
            RecoveryEvent::UnreadableAnswer { backup, error } => {
                write_unreadable_answer(f, *backup, *error)
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MigrationEvent {
    GivingOut {
        migration: u64,
        table_id: TableId,
        target: ServerId,
    },
    TakingIn {
        migration: u64,
        table_id: TableId,
        source: ServerId,
    },
    /// The target has everything, durably.
    TakenIn {
        migration: u64,
        bytes: u64,
        objects: u64,
        took_ms: u128,
    },
    Served {
        migration: u64,
    },
    GivenUp {
        migration: u64,
    },
    Failed {
        migration: u64,
        error: MigrationError,
    },
}

impl MigrationEvent {
    pub(super) fn level(&self) -> Level {
        match self {
            MigrationEvent::Failed { .. } => Level::Warning,
            MigrationEvent::GivingOut { .. }
            | MigrationEvent::TakingIn { .. }
            | MigrationEvent::TakenIn { .. }
            | MigrationEvent::Served { .. }
            | MigrationEvent::GivenUp { .. } => Level::Notice,
        }
    }
}

impl fmt::Display for MigrationEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MigrationEvent::GivingOut {
                migration,
                table_id,
                target,
            } => write!(
                f,
                "migration {migration}: a tablet of table {table_id} is being given out to {target}"
            ),
            MigrationEvent::TakingIn {
                migration,
                table_id,
                source,
            } => write!(
                f,
                "migration {migration}: a tablet of table {table_id} is being taken in from {source}"
            ),
            MigrationEvent::TakenIn {
                migration,
                bytes,
                objects,
                took_ms,
            } => write!(
                f,
                "migration {migration}: {bytes} bytes read and {objects} objects taken in after {took_ms} ms"
            ),
            MigrationEvent::Served { migration } => {
                write!(f, "migration {migration}: its tablet is served here")
            }
            MigrationEvent::GivenUp { migration } => {
                write!(f, "migration {migration}: given up by the coordinator")
            }
            MigrationEvent::Failed { migration, error } => {
                write!(f, "migration {migration}: given up: {error}")
            }
        }
    }
}
